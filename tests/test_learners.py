"""What holds for every learner: seeds, resuming, kinds of games, several processes."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
import yaml  # type: ignore[import-untyped]

import train
from agents.algorithms import AlgorithmName, make_learner
from agents.config import TrainConfig, parse
from agents.learner import DivergenceError, Learner, annealed, step
from agents.measuring import can_compute, is_due, nashconv_metrics
from agents.workers import Workers
from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.game import Game
from shuiyu_env.exact import nashconv
from shuiyu_env.policies import load

torch.set_num_threads(1)

ROOT = Path(train.__file__).parent
SMALL = "--game.rules={preset: nanning, deck: {ranks: 5, suits: 2}}"
POLICY_GRADIENTS = ("ppo", "mmd", "nash_pg")
#: By algorithm: settings that make an iteration a fraction of a second.
TINY = {
    **{
        name: ["num_envs=16", "window=10", "minibatch_size=64", "total_steps=640"]
        for name in POLICY_GRADIENTS
    },
    "nfsp": [
        "num_envs=16",
        "window=10",
        "total_steps=640",
        "learning_starts=50",
        "q_batch_size=32",
        "average_batch_size=32",
        "replay_capacity=500",
        "reservoir_capacity=500",
    ],
    "deep_cfr": [
        "iterations=4",
        "deals=8",
        "capacity=300",
        "steps=5",
        "batch_size=32",
        "average_steps=5",
        "average_batch_size=32",
    ],
    "mccfr": ["iterations=4", "deals=64"],
}
each_algorithm = pytest.mark.parametrize("algorithm", get_args(AlgorithmName))


def options(algorithm: str, *more: str) -> list[str]:
    """The command line of a tiny run."""
    return [
        f"--config={ROOT / 'configs' / f'{algorithm}.yaml'}",
        SMALL,
        "--network.hidden=[8]",
        "--evaluation.interval=0",
        "--evaluation.final_deals=0",
        "--evaluation.nashconv_points=0",
        *(f"--{algorithm}.{setting}" for setting in TINY[algorithm]),
        *more,
    ]


def learner_of(algorithm: str, *more: str) -> Learner:
    return make_learner(parse(options(algorithm, *more))[0])


def learned(learner: Learner) -> list[np.ndarray]:
    """What all policies of a learner answer to the same questions."""
    rng = np.random.default_rng(0)
    env = BatchEnv(learner.game, 40, 99)
    answers = []
    for _ in range(5):
        answers += [
            policy.probabilities(env.observation, env.action_mask)
            for policy in learner.policies().values()
        ]
        legal = env.action_mask * rng.random(env.action_mask.shape)
        env.step(legal.argmax(axis=1))
    return answers


@each_algorithm
def test_every_algorithm_has_a_file_of_settings(algorithm: str) -> None:
    file = ROOT / "configs" / f"{algorithm}.yaml"
    config, _ = parse([f"--config={file}"])
    assert config.algorithm == algorithm
    # It says every setting, and those that it does not explain otherwise are the defaults.
    said = yaml.safe_load(file.read_text())
    assert set(said[algorithm]) == {field.name for field in fields(config.learner)}
    assert config.learner == type(config.learner)(), "defaults"


def test_the_file_for_dahua_says_what_is_not_the_default() -> None:
    config, _ = parse([f"--config={ROOT / 'configs' / 'nash_pg-dahua.yaml'}"])
    assert config.algorithm == "nash_pg"
    assert config.game.rules == "dahua"
    listed = yaml.safe_load((ROOT / "benchmarks" / "learning.yaml").read_text())
    settings = dict(listed["half-hour-dahua"]["algorithms"]["nash_pg"]["dahua"])
    assert config.network == parse([f"--config={ROOT / 'configs' / 'nash_pg.yaml'}"])[0].network
    assert config.network.thresholds
    for name, value in settings.items():
        assert getattr(config.learner, name.removeprefix("nash_pg.")) == value
    changed = {f.name for f in fields(config.learner)} - {"total_steps"}
    default = type(config.learner)()
    assert {
        f"nash_pg.{n}" for n in changed if getattr(config.learner, n) != getattr(default, n)
    } == (set(settings))


@each_algorithm
def test_one_seed_decides_everything(algorithm: str) -> None:
    runs = []
    for seed in (4, 4, 5):
        torch.manual_seed(len(runs))
        np.random.seed(len(runs))  # noqa: NPY002 - the global generator must not matter
        learner = learner_of(algorithm, f"--seed={seed}")
        while not learner.is_finished:
            metrics = learner.iterate()
            assert np.isfinite([v for v in metrics.values() if isinstance(v, float)]).all()
        runs.append(learned(learner))
    assert all(np.array_equal(a, b) for a, b in zip(runs[0], runs[1], strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(runs[0], runs[2], strict=True))


@each_algorithm
def test_a_restored_learner_goes_on_exactly(algorithm: str) -> None:
    first, second = learner_of(algorithm), learner_of(algorithm)
    for _ in range(2):
        first.iterate()
    # Asking what has been learned must not change what comes.
    learned(first)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert (second.iteration, second.env_steps, second.deals) == (
        first.iteration,
        first.env_steps,
        first.deals,
    )
    for learner in (first, second):
        while not learner.is_finished:
            learner.iterate()
    pairs = zip(learned(first), learned(second), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


@each_algorithm
def test_stopped_and_resumed_on_the_command_line(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str) -> int:
        return train.main(options(algorithm, f"--runs_dir={tmp_path}", f"--name={name}"))

    assert run("whole") == 0
    kind = type(learner_of(algorithm))
    iterate = kind.iterate

    def interrupted(self: Learner) -> dict[str, float]:
        if self.iteration == 2:
            raise KeyboardInterrupt
        return iterate(self)

    monkeypatch.setattr(kind, "iterate", interrupted)
    # A checkpoint after every iteration, so that nothing has to be done again.
    code = train.main(
        options(algorithm, f"--runs_dir={tmp_path}", "--name=stopped", "--checkpoint_interval=1")
    )
    assert code == train.INTERRUPTED
    monkeypatch.setattr(kind, "iterate", iterate)
    assert train.main(["--resume", str(tmp_path / "stopped")]) == 0
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert (whole / "policy.safetensors").read_bytes() == (
        stopped / "policy.safetensors"
    ).read_bytes()


@each_algorithm
@pytest.mark.parametrize(
    "game",
    [
        ["--game.num_players=4", "--game.rules={preset: dahua, deck: {ranks: 8, suits: 2}}"],
        ["--game.rules={preset: dahua_house, deck: {ranks: 2, suits: 4}}"],
        [
            "--game.num_players=3",
            "--game.rules={max_stake: 3, declare: in_turn, deck: {ranks: 7, suits: 2}}",
            "--game.rounds=2",
            "--game.dealer_rotation=rotate",
            "--game.reward=drinks",
        ],
    ],
    ids=["four", "house", "stakes"],
)
def test_every_kind_of_game_can_be_learned(algorithm: str, game: list[str]) -> None:
    learner = learner_of(algorithm, *game)
    before = learned(learner)
    while not learner.is_finished:
        learner.iterate()
    after = learned(learner)
    assert not all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert learner.env_steps > 0
    assert learner.deals > 0


@each_algorithm
def test_nashconv_on_the_way_is_that_of_the_policy(algorithm: str, tmp_path: Path) -> None:
    code = train.main(
        options(
            algorithm,
            f"--runs_dir={tmp_path}",
            "--name=run",
            "--evaluation.nashconv_points=2",
        )
    )
    assert code == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    measured = [row for row in rows if "nashconv" in row]
    assert [row["iteration"] for row in measured] == [2, 4]
    config = parse([f"--config={tmp_path / 'run' / 'config.yaml'}"])[0]
    rules = config.game.make().rules
    policy = load(str(tmp_path / "run" / "policy.safetensors"))
    expected = nashconv(policy, rules)
    kind = policy.info["kind"]  # type: ignore[attr-defined]
    found = measured[-1]["nashconv"][kind]
    assert found["nashconv"] == pytest.approx(float(expected.nashconv), abs=1e-9)
    assert found["dealer_gain"] + found["punter_gain"] == pytest.approx(found["nashconv"])
    # Field case 25: last iterate and average are told apart.
    kinds = set(measured[-1]["nashconv"])
    assert kinds == ({"last", "average"} if algorithm in POLICY_GRADIENTS else {"average"})
    # Measuring is no training.
    assert rows[-1]["train_seconds"] == pytest.approx(sum(row["seconds"] for row in rows), rel=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", POLICY_GRADIENTS)
def test_policy_gradients_come_near_an_equilibrium(algorithm: str) -> None:
    # Some ten seconds each; 12 cards, on which uniform play has 2.0 and these found 0.09 to 0.11.
    settings = ["num_envs=512", "window=8", "minibatch_size=1024", "total_steps=1000000"]
    words = ["--game.rules={preset: nanning, deck: {ranks: 4, suits: 3}}", "--network.hidden=[64]"]
    words += [f"--{algorithm}.{setting}" for setting in settings]
    if algorithm == "nash_pg":
        # So short a run has no time to settle with as little entropy as the default ends with.
        words.append("--nash_pg.final_entropy=0.02")
    learner = make_learner(parse([f"--algorithm={algorithm}", *words])[0])
    before = nashconv_metrics(learner)
    while not learner.is_finished:
        learner.iterate()
    after = nashconv_metrics(learner)
    for kind in ("average", "last"):
        assert before[kind]["nashconv"] > 1.5
        assert after[kind]["nashconv"] < 0.16


def test_only_heads_up_zero_sum_games_have_a_nashconv() -> None:
    assert can_compute(Game(2))
    assert not can_compute(Game(3))
    assert not can_compute(Game(2, reward="drinks"))
    assert not can_compute(Game(2, {"max_stake": 2}))
    learner = learner_of("ppo")
    assert set(nashconv_metrics(learner)) == {"last", "average"}


def test_points_are_at_the_end_and_at_halves() -> None:
    due = [i for i in range(1, 101) if is_due(4, i, 100)]
    assert due == [13, 25, 50, 100]
    assert not any(is_due(0, i, 100) for i in range(1, 101))
    assert [i for i in (1, 2) if is_due(5, i, 2)] == [1, 2]


def test_annealing_is_linear() -> None:
    assert [annealed(2.0, 1.0, part) for part in (0.0, 0.5, 1.0)] == [2.0, 1.5, 1.0]


def test_a_step_that_is_not_finite_changes_nothing_and_names_the_batch() -> None:
    network = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(network.parameters())
    before = copy.deepcopy(network.state_dict())
    loss = (network(torch.ones(1, 2)) * float("nan")).sum()
    with pytest.raises(DivergenceError, match=r"iteration 7, minibatch 2: the loss is nan"):
        step(loss, network, optimizer, 1.0, Workers(), "iteration 7, minibatch 2")
    assert all(torch.equal(before[name], w) for name, w in network.state_dict().items())


def torchrun(*words: str) -> subprocess.CompletedProcess[str]:
    """Run ``train.py`` in two processes."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.run(
        [sys.executable, *command, str(ROOT / "train.py"), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def workers_of(path: Path) -> list[dict[str, Any]]:
    states: list[dict[str, Any]] = torch.load(path / "state.pt", weights_only=True)["workers"]
    return states


def networks(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """All weights in a state, by name."""
    return {
        f"{part}.{name}": value
        for part, tensors in state.items()
        if isinstance(tensors, dict)
        for name, value in tensors.items()
        if isinstance(value, torch.Tensor) and name.endswith(("weight", "bias"))
    }


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(name, marks=[] if name == "nash_pg" else pytest.mark.slow)
        for name in ("ppo", "mmd", "nash_pg", "nfsp", "deep_cfr")
    ],
)
def test_two_processes_learn_the_same_weights_from_twice_the_data(
    algorithm: str, tmp_path: Path
) -> None:
    words = options(algorithm, f"--runs_dir={tmp_path}", "--name=two")
    if algorithm in TINY and "total_steps=640" in TINY[algorithm]:
        words.append(f"--{algorithm}.total_steps=1280")
    result = torchrun(*words)
    assert result.returncode == 0, result.stderr
    # One writer: nothing is said twice.
    assert result.stdout.count("policy: ") == 1
    first, second = workers_of(tmp_path / "two")
    weights = networks(first)
    assert len(weights) >= 6
    assert all(torch.equal(value, networks(second)[name]) for name, value in weights.items())
    # Each has its own experience.
    assert not torch.equal(first["generator"], second["generator"])
    alone = learner_of(algorithm)
    while not alone.is_finished:
        alone.iterate()
    assert first["iteration"] == second["iteration"] == alone.iteration
    assert first["deals"] == second["deals"]
    if algorithm in POLICY_GRADIENTS or algorithm == "nfsp":
        assert first["env_steps"] == 2 * alone.env_steps
    assert first["deals"] == pytest.approx(2 * alone.deals, rel=0.15)
    # What one process learned from its own half alone would be something else.
    assert not all(
        torch.equal(value, networks(alone.state_dict())[name]) for name, value in weights.items()
    )


@pytest.mark.slow
def test_two_processes_are_resumed_by_two(tmp_path: Path) -> None:
    short = ["--ppo.total_steps=1280", "--checkpoint_interval=1"]
    assert torchrun(*options("ppo", f"--runs_dir={tmp_path}", "--name=a", *short)).returncode == 0
    assert train.main(["--resume", str(tmp_path / "a")]) == train.USAGE_ERROR
    assert torchrun("--resume", str(tmp_path / "a")).returncode == 0


def test_a_configuration_names_one_algorithm() -> None:
    assert TrainConfig().learner == TrainConfig().nash_pg
