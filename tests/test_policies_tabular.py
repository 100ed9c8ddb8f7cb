"""Tables as policies, and in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.errors import CheckpointError, PolicyError
from shuiyu_env.core.game import Game
from shuiyu_env.observation import layout_of
from shuiyu_env.policies.checkpoint import HEADER_KEY, load_policy, read_header, save_policy
from shuiyu_env.policies.loading import load
from shuiyu_env.policies.network import NetworkConfig
from shuiyu_env.policies.tabular import KeyIndex, Reader, TablePolicy

# More threads only get into each other's way.
torch.set_num_threads(1)

GAME = Game(2, {"preset": "nanning", "deck": {"ranks": 4, "suits": 4}})


def met(steps: int = 60, game: Game = GAME) -> tuple[np.ndarray, np.ndarray]:
    """Observations and masks of random play."""
    env = BatchEnv(game, 20, seed=1)
    seen, masks = [], []
    for _ in range(steps):
        seen.append(env.observation.copy())
        masks.append(env.action_mask.copy())
        env.step(env.sample_actions())
    return np.concatenate(seen), np.concatenate(masks)


def table_for(game: Game = GAME, **config: Any) -> TablePolicy:
    """A policy that knows the first half of what random play meets."""
    reader = Reader(layout_of(game), NetworkConfig(**config))
    seen, _ = met(30, game)
    index = KeyIndex()
    index.add(reader(torch.from_numpy(seen)).numpy())
    rng = np.random.default_rng(0)
    table = rng.random((len(index), game.num_actions), dtype=np.float32)
    return TablePolicy(reader, index.keys, table)


def test_keys_are_as_different_as_what_is_read() -> None:
    seen, _ = met(200)
    exact = Reader(layout_of(GAME), NetworkConfig(cards=True, outcomes_only=False))
    keys = exact(torch.from_numpy(seen)).numpy()
    assert len(np.unique(keys, axis=0)) == len(np.unique(seen, axis=0)) > 2000
    assert len(np.unique(keys[:, 0])) == len(np.unique(keys[:, 1])) == len(np.unique(seen, axis=0))
    # The same whatever else is asked about.
    np.testing.assert_array_equal(exact(torch.from_numpy(seen[5:6])).numpy(), keys[5:6])
    # Every bit takes both values about as often.
    bits = (np.unique(keys, axis=0).view(np.uint64)[..., None] >> np.arange(64, dtype="u8")) & 1
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.06


@pytest.mark.parametrize("change", [1e-6, 1.0])
def test_any_change_in_any_field_that_is_read_changes_the_key(change: float) -> None:
    seen, _ = met(1)
    reader = Reader(layout_of(GAME), NetworkConfig(cards=True, outcomes_only=False))
    one = torch.from_numpy(seen[:1])
    different = one + torch.eye(seen.shape[1]) * change
    keys = reader(torch.cat([one, different])).numpy()
    assert len(np.unique(keys, axis=0)) == 1 + seen.shape[1]
    # Minus zero is zero.
    np.testing.assert_array_equal(reader(-one * (one == 0) + one).numpy(), keys[:1])


def test_what_a_network_would_not_see_does_not_matter() -> None:
    seen, _ = met(200)
    views = layout_of(GAME).views(seen)
    blank = seen.copy()
    layout_of(GAME).views(blank)["hand"][:] = 0.0
    reader = Reader(layout_of(GAME))
    np.testing.assert_array_equal(
        reader(torch.from_numpy(seen)).numpy(), reader(torch.from_numpy(blank)).numpy()
    )
    with_cards = Reader(layout_of(GAME), NetworkConfig(cards=True))
    keys = [with_cards(torch.from_numpy(rows)).numpy() for rows in (seen, blank)]
    same = (keys[0] == keys[1]).all(axis=1)
    # Only at a call on an opened hand, and at a forced showdown, are one's cards left out.
    opened = views["seats.exposed"][:, 1, 0] != 0
    deciding = views["phase"][:, [3, 5]].any(axis=1)
    np.testing.assert_array_equal(same, opened & deciding)
    assert 0 < same.sum() < len(same)


def test_known_rows_are_looked_up_and_unknown_ones_uniform() -> None:
    policy = table_for()
    seen, masks = met(60)
    answers = policy.probabilities(seen, masks)
    keys = policy.reader(torch.from_numpy(seen)).numpy()
    places = {tuple(key): k for k, key in enumerate(policy.keys.tolist())}
    unknown = 0
    for key, mask, answer in zip(keys.tolist(), masks, answers, strict=True):
        row = places.get(tuple(key))
        weights = mask * (policy.table[row] if row is not None else 1.0)
        unknown += row is None
        np.testing.assert_allclose(answer, weights / weights.sum(), rtol=1e-5)
    assert 100 < unknown < len(seen) - 100
    assert (answers[masks == 0] == 0.0).all()


def test_a_row_without_weight_on_legal_actions_is_uniform() -> None:
    policy = table_for()
    policy.table[:] = 0.0
    seen, masks = met(3)
    answers = policy.probabilities(seen, masks)
    np.testing.assert_allclose(answers, masks / masks.sum(axis=1, keepdims=True), rtol=1e-6)
    empty = TablePolicy(policy.reader, policy.keys[:0], policy.table[:0])
    np.testing.assert_array_equal(empty.probabilities(seen, masks), answers)
    assert len(empty) == 0
    assert empty.probabilities(seen[:0], masks[:0]).shape == (0, GAME.num_actions)


def test_an_index_numbers_keys_in_the_order_in_which_they_come() -> None:
    rng = np.random.default_rng(0)
    index, plain = KeyIndex(), {}
    for size in (0, 1, 5, 1000, 3, 20_000, 0):
        keys = rng.integers(-40, 40, (size, 2))
        expected = [plain.setdefault(tuple(key), len(plain)) for key in keys.tolist()]
        assert index.add(keys).tolist() == expected
        assert len(index) == len(plain)
    assert [tuple(key) for key in index.keys.tolist()] == list(plain)
    asked = rng.integers(-60, 60, (2000, 2))
    expected = [plain.get(tuple(key), -1) for key in asked.tolist()]
    assert index.find(asked).tolist() == expected
    assert -1 in expected
    assert KeyIndex(index.keys).find(asked).tolist() == expected
    assert KeyIndex().find(asked).tolist() == [-1] * 2000


def test_what_does_not_belong_together_is_refused() -> None:
    policy = table_for()
    reader, keys, table = policy.reader, policy.keys, policy.table
    for bad_keys, bad_table, message in (
        (keys[:-1], table, "probabilities: expected float32 of shape"),
        (keys.astype(np.int32), table, "keys: expected int64"),
        (keys, table[:, 1:], "probabilities: expected"),
        (keys, table.astype(np.float64), "probabilities: expected float32"),
        (keys, -table, "not negative"),
        (keys, table * np.float32("nan"), "finite"),
        (np.concatenate([keys[:-1], keys[:1]]), table, "different ones"),
    ):
        with pytest.raises(PolicyError, match=message):
            TablePolicy(reader, bad_keys, bad_table)
    seen, masks = met(1)
    with pytest.raises(PolicyError, match="expected observations"):
        policy.probabilities(seen[:, 1:], masks)
    with pytest.raises(PolicyError, match="row 0 is all zero"):
        policy.probabilities(seen, masks * 0)


@pytest.mark.parametrize(
    "config", [{}, {"cards": True}, {"cards": True, "outcomes_only": False}, {"hidden": (3,)}]
)
def test_what_is_saved_is_loaded(tmp_path: Path, config: dict[str, Any]) -> None:
    policy = table_for(**config)
    path = save_policy(tmp_path / "t.safetensors", policy, GAME, algorithm="mccfr", kind="average")
    for loaded in (load_policy(path, GAME), load(path, GAME)):
        assert isinstance(loaded, TablePolicy)
        seen, masks = met()
        np.testing.assert_array_equal(
            loaded.probabilities(seen, masks), policy.probabilities(seen, masks)
        )
        assert loaded.outcomes_only == config.get("outcomes_only", True)
        assert loaded.strengths_only != config.get("cards", False)
        assert loaded.info["algorithm"] == "mccfr"
    assert read_header(path)["form"] == "table"
    again = save_policy(tmp_path / "u.safetensors", policy, GAME, algorithm="mccfr", kind="average")
    assert again.read_bytes() == path.read_bytes()
    with pytest.raises(CheckpointError, match="deck: expected"):
        load_policy(path, Game(2))
    with pytest.raises(CheckpointError, match="expected a table for 3 seats"):
        save_policy(path, policy, Game(3, GAME.rules))
    with pytest.raises(CheckpointError, match="'form' is an entry of the header itself"):
        save_policy(path, policy, GAME, form="network")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save_policy(tmp_path / "t.safetensors", table_for(), GAME)


def test_an_empty_table_is_kept_too(tmp_path: Path) -> None:
    reader = table_for().reader
    nothing = np.empty((0, GAME.num_actions), dtype=np.float32)
    empty = TablePolicy(reader, KeyIndex().keys, nothing)
    loaded = load_policy(save_policy(tmp_path / "t.safetensors", empty, GAME), GAME)
    seen, masks = met(2)
    np.testing.assert_array_equal(
        loaded.probabilities(seen, masks), empty.probabilities(seen, masks)
    )


def test_every_damaged_byte_is_refused(path: Path) -> None:
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in [*rng.integers(0, len(data), 60).tolist(), len(data) - 1]:
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            load_policy(path, GAME)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match="expected a safetensors"):
        load_policy(path)


@pytest.mark.parametrize(
    ("header", "tensors", "message"),
    [
        ({"form": "network"}, {}, "expected float32, got torch.int64"),
        ({"form": "tree"}, {}, "'form': expected 'network' or 'table', got 'tree'"),
        ({"form": ["table"]}, {}, "'form': expected"),
        ({"input_fields": ["phase"]}, {}, "expected a table that reads the fields"),
        ({"network": {"cards": 1}}, {}, "the header's network is unusable"),
        ({}, {"keys": None}, "'keys': expected a table"),
        ({}, {"more": torch.zeros(1)}, "'more': expected a table"),
        ({}, {"keys": torch.zeros(5)}, "'keys': expected a table"),
        ({}, {"keys": torch.zeros((2, 2), dtype=torch.int64)}, "expected shape"),
        ({}, {"probabilities": torch.zeros((3, 3))}, "expected shape"),
    ],
)
def test_edited_files_are_refused(
    path: Path, header: dict[str, Any], tensors: dict[str, Any], message: str
) -> None:
    kept = safetensors.torch.load_file(path) | tensors
    changed = read_header(path) | header
    path.write_bytes(
        safetensors.torch.save(
            {name: tensor for name, tensor in kept.items() if tensor is not None},
            {HEADER_KEY: json.dumps(changed)},
        )
    )
    with pytest.raises(CheckpointError, match=message):
        load_policy(path, GAME)
