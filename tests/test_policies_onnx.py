"""Policies in ONNX files: our own networks, and what other libraries might write."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from shuiyu_env import Game
from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.errors import CheckpointError, PolicyError
from shuiyu_env.evaluation import play_match
from shuiyu_env.observation import layout_of
from shuiyu_env.policies import load
from shuiyu_env.policies.export import export_onnx
from shuiyu_env.policies.network import ActorCritic, NetworkConfig, NetworkPolicy
from shuiyu_env.policies.onnx import METADATA_KEY
from shuiyu_env.policy import checked_probabilities

GAME = Game(2, "dahua")
SIZE, ACTIONS = layout_of(GAME).size, layout_of(GAME).num_actions


def questions(game: Game, rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Return what seats see in the course of some deals."""
    env = BatchEnv(game, rows // 10, seed=3)
    seen, masks = [], []
    for _ in range(10):
        seen.append(env.observation.copy())
        masks.append(env.action_mask.copy())
        env.step(env.sample_actions())
    return np.concatenate(seen), np.concatenate(masks)


def write(
    path: Path,
    weights: np.ndarray,
    output: str = "logits",
    *,
    mask: int | None = None,
    metadata: str | None = None,
    rows: Any = "batch",
) -> Path:
    """Write a model of one linear layer, as another library would."""
    inputs = [helper.make_tensor_value_info("seen", TensorProto.FLOAT, [rows, len(weights)])]
    nodes = [helper.make_node("MatMul", ["seen", "weights"], [output])]
    if mask is not None:
        inputs.append(helper.make_tensor_value_info("legal", mask, [rows, weights.shape[1]]))
        nodes = [
            helper.make_node("MatMul", ["seen", "weights"], ["free"]),
            helper.make_node("Cast", ["legal"], ["number"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["free", "number"], [output]),
        ]
    graph = helper.make_graph(
        nodes,
        "policy",
        inputs,
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [rows, weights.shape[1]])],
        [numpy_helper.from_array(weights.astype(np.float32), "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    if metadata is not None:
        helper.set_model_props(model, {METADATA_KEY: metadata})
    path.write_bytes(model.SerializeToString())
    return path


def weights(size: int = SIZE, actions: int = ACTIONS, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(size, actions))


@pytest.mark.parametrize(
    "config",
    [
        NetworkConfig(),
        NetworkConfig((32,), cards=True, bins=0),
        NetworkConfig((16,), thresholds={"arrange": 0.4, "reply": 0.3}),
    ],
)
@pytest.mark.parametrize("game", [Game(2), Game(4, "dahua_house"), Game(3, {"max_stake": 2})])
def test_an_exported_network_answers_as_it_did(
    tmp_path: Path, game: Game, config: NetworkConfig
) -> None:
    network = ActorCritic(layout_of(game), config, torch.Generator().manual_seed(1))
    with torch.no_grad():
        network.policy_head.weight *= 300.0  # decided answers, not nearly uniform ones
    policy = NetworkPolicy(network)
    path = export_onnx(policy, game, tmp_path / "deep" / "policy.onnx")
    exported: Any = load(path, game)
    seen, mask = questions(game)
    expected = policy.probabilities(seen, mask)
    answer = checked_probabilities(exported, seen, mask, "exported")
    # Just below a threshold small differences grow.
    close = 1e-4 if config.thresholds else 1e-5
    np.testing.assert_allclose(answer, expected, atol=close)
    assert (answer[mask == 0] == 0.0).all()
    assert answer.max() > 0.8
    alone = exported.probabilities(seen[:1], mask[:1])
    np.testing.assert_allclose(alone, expected[:1], atol=close)
    assert exported.outcomes_only == policy.outcomes_only
    assert exported.strengths_only == policy.strengths_only
    assert exported.info["rules"] == game.rules.to_dict()
    # Exporting leaves the network as it was.
    np.testing.assert_array_equal(policy.probabilities(seen, mask), expected)
    with pytest.raises(CheckpointError, match="made for another game"):
        load(path, Game(2, "nanning" if game.rules != Game(2).rules else "dahua"))


@pytest.mark.parametrize("mask", [None, TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64])
def test_a_model_of_another_library_is_a_policy(tmp_path: Path, mask: int | None) -> None:
    matrix = weights()
    policy = load(write(tmp_path / "other.onnx", matrix, mask=mask), GAME)
    seen, legal = questions(GAME)
    logits = np.where(legal != 0, seen @ matrix, -np.inf)
    expected = np.exp(logits - logits.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    answer = checked_probabilities(policy, seen, legal, "other")
    np.testing.assert_allclose(answer, expected, atol=1e-5)
    result = play_match([policy, "honest"], GAME, 20)
    assert np.isfinite(result.entries[0].both.mean)


def test_probability_on_illegal_actions_is_taken_away(tmp_path: Path) -> None:
    matrix = np.abs(weights())
    policy = load(write(tmp_path / "p.onnx", matrix, "probabilities"), GAME)
    seen, legal = questions(GAME)
    answer = checked_probabilities(policy, seen, legal, "p")
    expected = (seen @ matrix) * (legal != 0)
    np.testing.assert_allclose(
        answer, expected / expected.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-9
    )


@pytest.mark.parametrize("output", ["logits", "probabilities"])
def test_an_unusable_answer_is_told(tmp_path: Path, output: str) -> None:
    seen, legal = questions(GAME, 20)
    policy = load(write(tmp_path / "nan.onnx", weights() * np.nan, output), GAME)
    with pytest.raises(PolicyError, match=rf"nan.onnx, row 0: expected finite {output}"):
        policy.probabilities(seen, legal)
    if output == "probabilities":
        none = load(write(tmp_path / "none.onnx", np.zeros((SIZE, ACTIONS)), output), GAME)
        with pytest.raises(PolicyError, match="something left for the legal actions"):
            none.probabilities(seen, legal)


def test_illegal_logits_may_be_anything(tmp_path: Path) -> None:
    seen, legal = questions(GAME, 20)
    matrix = weights()
    matrix[:, 0] = np.inf  # infinite, or not a number, in every row
    policy = load(write(tmp_path / "inf.onnx", matrix), GAME)
    rows = legal[:, 0] == 0
    answer = policy.probabilities(seen[rows], legal[rows])
    assert np.isfinite(answer).all()


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(CheckpointError, match="cannot be read as an ONNX model"):
        load(path, GAME)
    with pytest.raises(PolicyError, match="there is no file"):
        load(tmp_path / "missing.onnx", GAME)
    with pytest.raises(CheckpointError, match=f"observation: expected {SIZE} columns.*got 7"):
        load(write(tmp_path / "narrow.onnx", weights(size=7)), GAME)
    with pytest.raises(CheckpointError, match=f"output: expected {ACTIONS} columns.*got 3"):
        load(write(tmp_path / "few.onnx", weights(actions=3)), GAME)
    with pytest.raises(CheckpointError, match="metadata 'shuiyu' is no JSON"):
        load(write(tmp_path / "meta.onnx", weights(), metadata="{"), GAME)
    with pytest.raises(CheckpointError, match="metadata: rules"):
        load(write(tmp_path / "rules.onnx", weights(), metadata='{"rules": {"x": 1}}'), GAME)
    with pytest.raises(CheckpointError, match="expected num_players 2, got 3"):
        load(write(tmp_path / "seats.onnx", weights(), metadata='{"num_players": 3}'), GAME)
    # As exporters write it that are not told otherwise.
    with pytest.raises(CheckpointError, match="expected any number of rows, got 4: export it with"):
        load(write(tmp_path / "fixed.onnx", weights(), rows=4), GAME)


def test_a_promise_of_the_file_is_believed(tmp_path: Path) -> None:
    metadata = json.dumps({"outcomes_only": True, "rules": GAME.rules.to_dict()})
    policy: Any = load(write(tmp_path / "kept.onnx", weights(), metadata=metadata), GAME)
    assert policy.outcomes_only is True
    assert policy.strengths_only is False


def test_models_that_are_no_policies(tmp_path: Path) -> None:
    text = helper.make_tensor_value_info("text", TensorProto.STRING, ["batch", 2])
    out = helper.make_tensor_value_info("out", TensorProto.STRING, ["batch", 2])
    node = helper.make_node("Identity", ["text"], ["out"])
    model = helper.make_model(
        helper.make_graph([node], "text", [text], [out]),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    model.ir_version = 8
    onnx.save(model, tmp_path / "text.onnx")
    with pytest.raises(CheckpointError, match="input 'text': expected numbers"):
        load(tmp_path / "text.onnx", GAME)


def test_only_networks_can_be_exported(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="only networks"):
        export_onnx(load("honest"), GAME, tmp_path / "x.onnx")  # type: ignore[arg-type]
    network = ActorCritic(layout_of(GAME))
    with pytest.raises(CheckpointError, match=r"ending in \.onnx"):
        export_onnx(network, GAME, tmp_path / "x.bin")
    with pytest.raises(CheckpointError, match="expected a network for 3 seats"):
        export_onnx(network, Game(3), tmp_path / "x.onnx")
    assert not list(tmp_path.iterdir())


def test_without_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "other.onnx", weights())
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delitem(sys.modules, "shuiyu_env.policies.onnx", raising=False)
    with pytest.raises(PolicyError, match=r"needs onnxruntime.*shuiyu_env\[onnx\]"):
        load(path, GAME)
