"""Policies in files: what is kept, and what is refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch

from shuiyu_env.core.errors import CheckpointError
from shuiyu_env.core.game import Game
from shuiyu_env.files import write_atomically
from shuiyu_env.observation import LAYOUT_VERSION, layout_of
from shuiyu_env.policies.checkpoint import (
    FORMAT_VERSION,
    HEADER_KEY,
    load_policy,
    read_header,
    save_policy,
)
from shuiyu_env.policies.loading import load
from shuiyu_env.policies.network import ActorCritic, NetworkConfig, NetworkPolicy

# More threads only get into each other's way on such small networks.
torch.set_num_threads(1)

GAME = Game(3, {"preset": "dahua", "max_stake": 2})


def network_for(game: Game = GAME, **config: Any) -> ActorCritic:
    settings = NetworkConfig(**{"hidden": (8, 5), **config})
    return ActorCritic(layout_of(game), settings, torch.Generator().manual_seed(3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save_policy(
        tmp_path / "a" / "policy.safetensors", network_for(), GAME, algorithm="ppo", env_steps=12
    )


def rewritten(path: Path, change: dict[str, Any], drop: tuple[str, ...] = ()) -> Path:
    """The file with some entries of its header changed."""
    tensors = safetensors.torch.load_file(path)
    header = read_header(path) | change
    for name in drop:
        del header[name]
    path.write_bytes(safetensors.torch.save(tensors, {HEADER_KEY: json.dumps(header)}))
    return path


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"cards": True},
        {"hidden": (), "outcomes_only": False},
        {"thresholds": {"arrange": 0.4, "reply": 0.1}},
    ],
)
def test_what_is_saved_is_loaded(tmp_path: Path, config: dict[str, Any]) -> None:
    network = network_for(**config)
    path = save_policy(tmp_path / "p.safetensors", network, GAME, algorithm="ppo", env_steps=12)
    policy = load_policy(path, GAME)
    rng = np.random.default_rng(0)
    observation = rng.random((50, network.layout.size), dtype=np.float32)
    mask = (rng.random((50, GAME.num_actions)) < 0.5).astype(np.int8)
    mask[:, 7] = 1
    np.testing.assert_array_equal(
        policy.probabilities(observation, mask),
        NetworkPolicy(network).probabilities(observation, mask),
    )
    assert policy.network.config == network.config
    assert policy.network.layout.num_players == 3
    assert policy.info["algorithm"] == "ppo"
    assert policy.info["env_steps"] == 12
    assert policy.info["rules"] == GAME.rules.to_dict()
    assert policy.info["layout_version"] == LAYOUT_VERSION
    assert read_header(path) == policy.info
    others = policy.with_thresholds({"call": 0.2})
    expected = {**policy.info, "network": others.network.config.to_dict()}
    del expected["sha256"]
    assert others.info == expected


def test_equal_policies_are_equal_bytes_and_loading_leaves_generators_alone(
    path: Path, tmp_path: Path
) -> None:
    again = save_policy(
        tmp_path / "b.safetensors", network_for(), GAME, algorithm="ppo", env_steps=12
    )
    assert again.read_bytes() == path.read_bytes()
    before = torch.get_rng_state()
    load_policy(path)
    assert torch.equal(torch.get_rng_state(), before)


def test_rounds_rotation_and_reward_are_free(path: Path) -> None:
    load_policy(path, Game(3, GAME.rules, rounds=5, dealer_rotation="random", reward="drinks"))
    assert isinstance(load(str(path), GAME), NetworkPolicy)


def test_other_games_are_refused(path: Path) -> None:
    with pytest.raises(CheckpointError, match="expected a policy for 4 seats, got one for 3"):
        load_policy(path, Game(4, GAME.rules))
    rules = {"preset": "dahua", "max_stake": 2, "tie_break": "next_group", "deck": {"ranks": 12}}
    with pytest.raises(CheckpointError) as caught:
        load_policy(path, Game(3, rules))
    message = str(caught.value)
    assert "tie_break: expected next_group, got card" in message
    assert "deck: expected {'ranks': 12, 'suits': 4}, got {'ranks': 13, 'suits': 4}" in message
    assert "max_stake" not in message
    with pytest.raises(CheckpointError, match="max_stake: expected 1, got 2"):
        load(path, Game(3, "dahua"))


def test_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no\.safetensors: expected a policy file.*nothing"):
        load_policy(tmp_path / "no.safetensors")
    with pytest.raises(CheckpointError, match="got a directory"):
        load_policy(tmp_path)


def test_every_truncation_is_refused(path: Path) -> None:
    data = path.read_bytes()
    for length in (0, 1, 7, 8, 9, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(CheckpointError, match=r"policy\.safetensors: expected a safetensors"):
            load_policy(path)


def test_every_damaged_byte_is_refused(path: Path) -> None:
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    header_end = 8 + int.from_bytes(data[:8], "little")
    weights = rng.integers(header_end, len(data), 30)
    for at in [*range(0, 8, 3), *rng.integers(8, header_end, 30).tolist(), *weights.tolist()]:
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        try:
            policy = load_policy(path, GAME)
        except CheckpointError:
            continue
        # Only a letter of a free entry, such as the algorithm's name, may have changed.
        assert at < header_end
        network = network_for().state_dict()
        assert all(torch.equal(policy.network.state_dict()[n], t) for n, t in network.items())
        assert policy.network.config == network_for().config


def test_a_changed_weight_is_refused(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="damaged: expected header and weights with SHA-256"):
        load_policy(path)


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(safetensors.torch.save({"w": torch.zeros(2)}))
    with pytest.raises(CheckpointError, match="a safetensors file without its header"):
        load_policy(path)
    path.write_bytes(safetensors.torch.save({"w": torch.zeros(2)}, {HEADER_KEY: "{"}))
    with pytest.raises(CheckpointError, match="header is damaged"):
        load_policy(path)
    path.write_bytes(safetensors.torch.save({"w": torch.zeros(2)}, {HEADER_KEY: "[1]"}))
    with pytest.raises(CheckpointError, match="expected format 'shuiyu-policy', got"):
        load_policy(path)


def test_a_pickle_is_never_executed(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (tmp_path / "sprung").touch, ()

    path = tmp_path / "p.safetensors"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(CheckpointError):
        load_policy(path)
    torch.save({"trap": Trap()}, path)
    with pytest.raises(CheckpointError):
        load_policy(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "expected format 'shuiyu-policy', got 'other'"),
        ({"version": 99}, f"expected version {FORMAT_VERSION}, got 99"),
        ({"layout_version": 99}, f"expected layout_version {LAYOUT_VERSION}, got 99"),
        ({"num_players": "3"}, "'num_players': expected int, got '3'"),
        ({"num_players": 14}, "the header's game is unusable: num_players: expected a whole"),
        ({"rules": {"tie_brake": "card"}}, "unusable: rules: unknown field 'tie_brake'"),
        (
            {"network": {"hidden": [8, 6]}},
            r"hidden layers \[8, 6\], got layers of widths \[8, 5\]",
        ),
        ({"network": {"hidden": [8]}}, r"hidden layers \[8\], got layers of widths \[8, 5\]"),
        ({"network": {"hidden": [-1]}}, r"hidden layers \[-1\], got layers of widths"),
        ({"network": {"hidden": 3}}, "hidden layers 3, got layers of widths"),
        ({"network": {"hidden": [65536] * 60}}, r"got layers of widths \[8, 5\]"),
        ({"network": {"hidden": [8, 5], "cards": 3}}, "network"),
        ({"rules": GAME.rules.to_dict() | {"attack_accept": False}}, "damaged"),
        ({"algorithm": "another"}, "damaged"),
        (
            {"network": {"hidden": [8, 5], "cards": True}},
            "expected a network that reads the fields",
        ),
        ({"input_fields": ["phase"]}, "expected a network that reads the fields"),
        ({"num_players": 4}, "expected shape"),
        ({"sha256": "0"}, "damaged"),
    ],
)
def test_headers_that_do_not_fit_are_refused(
    path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_policy(rewritten(path, change))


@pytest.mark.parametrize("name", ["rules", "network", "sha256", "input_fields", "layout_version"])
def test_incomplete_headers_are_refused(path: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match=name):
        load_policy(rewritten(path, {}, (name,)))


def test_saving_refuses_what_it_could_not_load(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    with pytest.raises(CheckpointError, match="'rules' is an entry of the header itself"):
        save_policy(path, network_for(), GAME, rules="x")
    with pytest.raises(CheckpointError, match="expected JSON values"):
        save_policy(path, network_for(), GAME, when=object())
    with pytest.raises(CheckpointError, match="expected JSON values"):
        save_policy(path, network_for(), GAME, loss=float("nan"))
    with pytest.raises(CheckpointError, match="expected a network for 2 seats"):
        save_policy(path, network_for(), Game(2))
    assert list(tmp_path.iterdir()) == []


def test_files_are_replaced_whole_or_not_at_all(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()
    # Whoever has the old file open keeps all of it: it is replaced, not written over.
    opened = path.with_name("opened")
    opened.hardlink_to(path)
    write_atomically(path, b"whole")
    assert (path.read_bytes(), opened.read_bytes()) == (b"whole", before)
    opened.unlink()

    def fail(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, b"half")
    assert path.read_bytes() == b"whole"
    assert list(path.parent.iterdir()) == [path]


def test_weights_of_another_precision_are_refused(path: Path) -> None:
    tensors = safetensors.torch.load_file(path)
    with safetensors.safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    double = {name: tensor.double() for name, tensor in tensors.items()}
    path.write_bytes(safetensors.torch.save(double, metadata))
    with pytest.raises(CheckpointError, match=r"expected float32, got torch\.float64"):
        load_policy(path)


def test_a_deeply_nested_header_is_refused(path: Path) -> None:
    path.write_bytes(safetensors.torch.save({"w": torch.zeros(2)}, {HEADER_KEY: "[" * 100_000}))
    with pytest.raises(CheckpointError, match="header is damaged"):
        load_policy(path)
