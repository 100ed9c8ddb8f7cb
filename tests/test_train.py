"""The command ``python train.py``: its settings, its folder, stopping and resuming."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml  # type: ignore[import-untyped]
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
    EventAccumulator,
)

import train
from agents.algorithms import make_learner
from agents.config import TrainConfig, parse, to_dict
from agents.learner import DivergenceError
from agents.ppo import PPO
from agents.run import STATE_VERSION, Run
from shuiyu_env.core.errors import ConfigError
from shuiyu_env.core.game import Game
from shuiyu_env.evaluation import match_against
from shuiyu_env.policies.checkpoint import load_policy, read_header

ROOT = Path(train.__file__).parent

#: Ten iterations of a fraction of a second.
TINY = [
    "--algorithm=ppo",
    "--game.rules={deck: {ranks: 5, suits: 2}}",
    "--network.hidden=[8]",
    "--ppo.num_envs=16",
    "--ppo.window=8",
    "--ppo.minibatch_size=64",
    "--ppo.total_steps=1280",
    "--evaluation.interval=4",
    "--evaluation.deals=4",
    "--evaluation.final_deals=6",
    "--evaluation.nashconv_points=0",
    "--checkpoint_interval=3",
]
OUTPUTS = {
    "config.yaml",
    "metrics.jsonl",
    "policy.safetensors",
    "last.safetensors",
    "state.pt",
    "checkpoints",
    "curve.png",
    "match.json",
}


@pytest.fixture
def pictures() -> None:
    """Ask for learning curves, which most of these tests can do without: they take their time."""


@pytest.fixture(autouse=True)
def _quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr("agents.run.draw_curve", lambda *arguments: None)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def run_tiny(tmp_path: Path, name: str, *options: str) -> tuple[int, Path]:
    code = train.main([*TINY, f"--runs_dir={tmp_path}", f"--name={name}", *options])
    return code, tmp_path / name


def metrics_of(path: Path) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl without what depends on the clock."""
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [
        {k: v for k, v in row.items() if "second" not in k and not k.startswith("share_")}
        for row in rows
    ]


def when(iteration: int, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something in the middle of an iteration, once."""
    iterate = PPO.iterate

    def wrapped(self: PPO) -> dict[str, float]:
        metrics = iterate(self)
        if self.iteration == iteration:
            monkeypatch.setattr(PPO, "iterate", iterate)
            act()
        return metrics

    monkeypatch.setattr(PPO, "iterate", wrapped)


@pytest.mark.usefixtures("pictures")
def test_a_run_writes_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, path = run_tiny(tmp_path, "whole", "--seed=3")
    assert code == 0
    names = {file.name for file in path.iterdir()}
    events = {name for name in names if name.startswith("events.out.tfevents")}
    assert names == OUTPUTS | events
    assert events
    rows = metrics_of(path)
    assert [row["iteration"] for row in rows] == list(range(1, 11))
    assert [row["env_steps"] for row in rows] == [128 * i for i in range(1, 11)]
    assert [row["iteration"] for row in rows if "match" in row] == [1, 4, 8, 10]
    assert set(rows[0]["match"]) == {"uniform", "honest", "cautious", "bluffer"}
    raw = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
    shares = [raw[f"share_{part}"] for part in ("environment", "network", "update")]
    assert all(share > 0 for share in shares)
    assert sum(shares) <= 1.0
    assert raw["env_steps_per_second"] > 0

    game = Game(2, {"deck": {"ranks": 5, "suits": 2}})
    policy = load_policy(path / "policy.safetensors", game)
    assert policy.info["algorithm"] == "ppo"
    assert policy.info["env_steps"] == 1280
    assert [read_header(p)["iteration"] for p in sorted((path / "checkpoints").iterdir())] == [
        *(0, 3, 6, 9, 10)
    ]
    match = json.loads((path / "match.json").read_text())
    assert [row["opponent"] for row in match["rows"]] == list(train.REFERENCES)
    # The saved policy is the one that was matched, and its match can be repeated.
    seed = 3 ^ (1 << 62)
    again = match_against(policy, list(train.REFERENCES), game, 6, seed, name="whole")
    assert [row.to_dict() for row in again] == match["rows"]
    assert (path / "curve.png").read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert match["table"] in out
    assert "decisions in" in out
    assert "environment" in out


def test_the_written_configuration_repeats_the_run(tmp_path: Path) -> None:
    _, first = run_tiny(tmp_path, "first", "--ppo.total_steps=400")
    config = yaml.safe_load((first / "config.yaml").read_text())
    assert config["game"]["rules"]["deck"] == {"ranks": 5, "suits": 2}
    assert config["game"]["rules"]["declarations"][0] == "OPEN"
    assert config["ppo"]["gae_lambda"] == 0.5
    assert train.main(["--config", str(first / "config.yaml"), "--name=second"]) == 0
    second = tmp_path / "second"
    assert metrics_of(second) == metrics_of(first)
    assert (second / "policy.safetensors").read_bytes() == (
        first / "policy.safetensors"
    ).read_bytes()


def test_a_resumed_run_equals_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, whole = run_tiny(tmp_path, "whole")
    # Between two checkpoints (Ctrl-C writes one), and twice.
    when(5, lambda: signal.raise_signal(signal.SIGINT), monkeypatch)
    code, path = run_tiny(tmp_path, "stopped")
    assert code == train.INTERRUPTED
    assert f"--resume {path}" in capsys.readouterr().out
    assert len(metrics_of(path)) == 5
    assert read_header(path / "policy.safetensors")["iteration"] == 5
    when(7, lambda: signal.raise_signal(signal.SIGINT), monkeypatch)
    assert train.main(["--resume", str(path)]) == train.INTERRUPTED
    assert train.main(["--resume", str(path)]) == 0
    assert metrics_of(path) == metrics_of(whole)
    for name in ("policy.safetensors", "checkpoints/000009.safetensors"):
        assert (path / name).read_bytes() == (whole / name).read_bytes()
    first, second = (json.loads((p / "match.json").read_text()) for p in (whole, path))
    assert [row["both"] for row in first["rows"]] == [row["both"] for row in second["rows"]]


def test_after_a_crash_a_run_goes_on_from_its_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, whole = run_tiny(tmp_path, "whole")

    def crash() -> None:
        raise ZeroDivisionError

    when(9, crash, monkeypatch)
    with pytest.raises(ZeroDivisionError):
        run_tiny(tmp_path, "crashed")
    path = tmp_path / "crashed"
    # Iterations 7 and 8 are in the metrics, but not in the checkpoint; the crash tore a line.
    assert len(metrics_of(path)) == 8
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 9, "los')
    assert train.main(["--resume", str(path)]) == 0
    assert metrics_of(path) == metrics_of(whole)
    assert (path / "policy.safetensors").read_bytes() == (whole / "policy.safetensors").read_bytes()
    # TensorBoard shows every iteration once, too.
    events = EventAccumulator(str(path))
    events.Reload()
    steps = [row["env_steps"] for row in metrics_of(whole)]
    assert [event.step for event in events.Scalars("training/entropy")] == steps


def test_resuming_a_finished_run_only_matches_again(tmp_path: Path) -> None:
    _, path = run_tiny(tmp_path, "done", "--ppo.total_steps=200")
    before = metrics_of(path), (path / "policy.safetensors").read_bytes()
    (path / "match.json").unlink()
    assert train.main(["--resume", str(path)]) == 0
    assert (metrics_of(path), (path / "policy.safetensors").read_bytes()) == before
    # What is named at the end is there, even if it was taken away.
    (path / "policy.safetensors").unlink()
    assert train.main(["--resume", str(path)]) == 0
    assert (metrics_of(path), (path / "policy.safetensors").read_bytes()) == before
    # Neither is one left from before, where the last checkpoint was cut short.
    for name in ("policy.safetensors", "last.safetensors"):
        newest = (path / name).read_bytes()
        (path / name).write_bytes((path / "checkpoints" / "000000.safetensors").read_bytes())
        assert train.main(["--resume", str(path)]) == 0
        assert (path / name).read_bytes() == newest
    assert (path / "match.json").exists()


def test_ctrl_c_leaves_a_usable_checkpoint(tmp_path: Path) -> None:
    options = [*TINY, f"--runs_dir={tmp_path}", "--name=long", "--ppo.total_steps=10000000"]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    # The line of the first match: training has begun.
    for line in process.stdout:
        if line.startswith("iteration 1,"):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    path = tmp_path / "long"
    assert process.returncode == train.INTERRUPTED, err
    assert f"go on with: python train.py --resume {path}" in out
    assert "Traceback" not in err
    iteration = read_header(path / "policy.safetensors")["iteration"]
    assert iteration == len(metrics_of(path)) >= 1
    load_policy(path / "policy.safetensors")
    when_done = parse(["--resume", str(path)])[0]
    learner = make_learner(when_done)
    Run.open(path, when_done, learner)
    assert learner.iteration == iteration
    learner.iterate()


def test_a_loss_that_is_not_finite_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def diverge() -> None:
        raise DivergenceError("iteration 4: the loss is nan")

    when(5, diverge, monkeypatch)
    code, path = run_tiny(tmp_path, "diverged")
    assert code == 1
    err = capsys.readouterr().err
    assert "the loss is nan" in err
    assert str(path / "policy.safetensors") in err
    policy = load_policy(path / "policy.safetensors")
    assert policy.info["iteration"] == 3
    assert not (path / "match.json").exists()


@pytest.mark.parametrize("interval", [0, 1])
def test_an_absurd_learning_rate_ends_in_a_message(
    interval: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--ppo.learning_rate=1e30", f"--evaluation.interval={interval}")
    code, path = run_tiny(tmp_path, "wild", *options)
    assert code == 1
    assert "train.py: stopped: " in capsys.readouterr().err
    # What was kept can still play.
    policy = load_policy(path / "policy.safetensors")
    layout = policy.network.layout
    seen = np.ones((1, layout.size), dtype=np.float32)
    answer = policy.probabilities(seen, np.ones((1, layout.num_actions), dtype=np.int8))
    assert np.isfinite(answer).all()


def test_runs_never_overwrite_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = [*TINY, f"--runs_dir={tmp_path}", "--ppo.total_steps=100", "--evaluation.interval=0"]
    assert train.main(short) == train.main(short) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ppo-custom-2p", "ppo-custom-2p-2"]
    before = (tmp_path / "ppo-custom-2p" / "metrics.jsonl").read_bytes()
    capsys.readouterr()
    assert train.main([*short, "--name=ppo-custom-2p"]) == train.USAGE_ERROR
    assert "exists already; choose another --name, or go on with" in capsys.readouterr().err
    assert (tmp_path / "ppo-custom-2p" / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ppo.learning_rat=1"], "--ppo.learning_rat: unknown option; did you mean "
         "'--ppo.learning_rate'?"),
        (["--ppo.learning_rate", "fast"], "ppo.learning_rate: expected float, got fast"),
        (["--ppo.learning_rate=-1"], "ppo.learning_rate: expected more than 0, got -1.0"),
        (["--ppo.learning_rate=1e39"], "ppo.learning_rate: expected at most 1e+30, got 1e+39"),
        (["--ppo.entropy=1e39"], "ppo.entropy: expected a number from 0 to 1e+30, got 1e+39"),
        (["--ppo.num_envs=99999999999999"], "ppo.num_envs: expected at most 1099511627776, got"),
        (["--game.rounds=1000000000000000000000"], "game.rounds: expected a whole number from 1"),
        (["--runs_dir=null"], "--runs_dir: expected a folder, got 'null'"),
        (["--ppo.target_kl=x"], "ppo.target_kl: expected float or null, got x"),
        (["--seed", "1.5"], "seed: expected int, got 1.5"),
        (["--seed"], "argument --seed: expected one argument"),
        (["--seed=-1"], "seed: expected 0 to 2**63 - 1, got -1"),
        (["--network.hidden=[0]"], "network.hidden: expected whole numbers from 1 to"),
        (["--game.rules=nannin"], "game.rules: expected a preset (nanning, dahua, dahua_house),"
         " got 'nannin'; did you mean 'nanning'?"),
        (["--game.rules={max_stak: 3}"], "game.rules: unknown field 'max_stak'; did you mean"
         " 'max_stake'?"),
        (["--game.rules.max_stake=3"], "--game.rules.max_stake: expected the rules in one mapping"),
        (["--game.num_players=14"], "game.num_players: expected a whole number from 2 to 13"),
        (["--game.reward=drink"], "game.reward: expected one of 'transfer', 'drinks', got drink"),
        (["--device=gpu"], "device: expected one of 'cpu', 'cuda', got gpu"),
        (["--evaluation.deals=1"], "evaluation.deals: expected 2 or more, got 1"),
        (["--evaluation.final_deals=1"], "evaluation.final_deals: expected 2 or more, or 0, got 1"),
        (["--threads=0"], "threads: expected 1 to 1024, got 0"),
        (["--name=a/b"], "name: expected the name of a folder: a letter"),
        (["stray"], "unrecognized arguments: stray"),
        (["--name=.."], "name: expected the name of a folder: a letter"),
        (["--name=1e3"], "name: expected the name of a folder: a letter"),
        (["--name", "#x"], "name: expected the name of a folder: a letter"),
        (["--name=null"], "name: expected the name of a folder: a letter"),
        (["--resume=null"], "--resume: expected the folder of a run, got 'null'"),
        (["--nash_pg.num_envs=1000000000000"], "nash_pg: its environments, the experience"),
        (["--algorithm=pp0"], "algorithm: expected one of 'ppo', 'mmd', "),
        (["--nfsp.anticipatory=0.2"], "nfsp: has no effect on algorithm 'nash_pg'; choose"),
        (["--network.thresholds.call=1"], "--network.thresholds.call: expected the thresholds in"),
        (["--threads=100000"], "threads: expected 1 to 1024, got 100000"),
        (["--name="], "name: expected the name of a folder: a letter"),
        (["--ppo=x.yaml"], "x.yaml: cannot read the configuration: No such file"),
        (["--runs_dir=/dev/null"], "runs_dir: cannot make the folder /dev/null/nash_pg-nanning"),
        (["--config=missing.yaml"], "missing.yaml: cannot read the configuration: No such file"),
        (["--resume=missing"], "--resume: expected the folder of a run, but there is no"),
        (["--resume=missing", "--seed=1"], "--resume: a run goes on with its own settings"),
    ],
)  # fmt: skip
def test_mistakes_on_the_command_line_are_one_clear_line(
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert train.main(options) == train.USAGE_ERROR
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"train.py: error: {message}")
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ppo: {learning_rat: 1}", "unknown key 'ppo.learning_rat'; did you mean"
         " 'ppo.learning_rate'?"),
        ("ppos: {clip: 0.1}", "unknown key 'ppos'; did you mean 'ppo'?"),
        ("ppo.clip: 0.1", "unknown key 'ppo.clip'"),
        ("ppo: {learning_rate: fast}", "ppo.learning_rate: expected float, got fast"),
        ("ppo: {num_envs: [1]}", "ppo.num_envs: expected int"),
        ("seed: null", "seed: expected a value, got null"),
        ("ppo: {epochs: null}", "ppo.epochs: expected a value, got null"),
        ("mmd: {kl: 1.0}", "mmd: has no effect on algorithm 'nash_pg'; choose --algorithm mmd"),
        ("network: {thresholds: {call: much}}", "network.thresholds: expected float, got much"),
        ("network: {thresholds: {cal: 0.1}}", "network.thresholds: expected phases, of stake"),
        ("{algorithm: mccfr, network: {thresholds: {call: 0.1}}}", "network.thresholds: has no"),
        ("network: {cards: null}", "network.cards: expected a value, got null"),
        ("device: null", "device: expected a value, got null"),
        ("# nothing", "expected keys and values, got an empty file"),
        ("[" * 5000, "expected YAML"),
        ("ppo: 3", "ppo: expected keys and values, got 3"),
        ("[1, 2]", "expected keys and values, got [1, 2]"),
        ("ppo: [", "expected YAML: while parsing"),
        ("game: {rules: {preset: dahua, deck: {rank: 3}}}", "game.rules: rules.deck: unknown"
         " field 'rank'"),
    ],
)  # fmt: skip
def test_mistakes_in_a_file_are_one_clear_line(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    assert train.main([f"--config={file}", f"--runs_dir={tmp_path / 'runs'}"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("train.py: error: ")
    assert message in err
    assert err.count("\n") == 1


def test_the_real_command_line_answers_a_mistake_without_a_traceback(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), "--ppo.entropi=0.1"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == (
        "train.py: error: --ppo.entropi: unknown option; did you mean '--ppo.entropy'?\n"
    )


def test_files_and_options_are_merged(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "game: {num_players: 4, rules: {preset: dahua, max_stake: 3}}\nppo: {clip: 0.2}"
    )
    ppo = "--algorithm=ppo"
    config, resumed = parse([ppo, "--ppo.learning_rate", "1e-3", f"--config={file}", "--seed=5"])
    assert resumed is None
    assert config.game.make() == Game(4, {"preset": "dahua", "max_stake": 3})
    assert (config.ppo.clip, config.ppo.learning_rate, config.seed) == (0.2, 1e-3, 5)
    group = tmp_path / "g.yaml"
    group.write_text("clip: 0.15")
    assert parse([ppo, f"--config={file}", f"--ppo={group}"])[0].ppo.clip == 0.15
    group.write_text("clop: 0.15")
    with pytest.raises(ConfigError, match=r"g.yaml: unknown key 'ppo.clop'.*'ppo.clip'"):
        parse([f"--ppo={group}"])
    config, _ = parse(["--game.num_players", "4", "--game.rules", "dahua"])
    assert config.game.make() == Game(4, "dahua")
    config, _ = parse(["--game.rules={declarations: [OPEN], deck: {ranks: 4}}"])
    assert config.game.make().rules.deck.size == 16


def test_a_printed_configuration_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        train.main(["--print_config", "--algorithm=ppo", "--ppo.clip=0.2"])
    assert exit_.value.code == 0
    file = tmp_path / "c.yaml"
    file.write_text(capsys.readouterr().out)
    config, _ = parse([f"--config={file}"])
    assert config.ppo.clip == 0.2


def test_the_default_file_is_valid_and_says_the_defaults_but_for_thresholds() -> None:
    config, _ = parse([], train.DEFAULT_CONFIG)
    assert config.network.thresholds
    whole = dataclasses.replace(config.network, thresholds={})
    assert dataclasses.replace(config, network=whole) == TrainConfig()
    game = config.game.make()
    assert game == Game(2, "nanning")
    assert yaml.safe_load(yaml.safe_dump(to_dict(config))) == to_dict(config)


def test_a_missing_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device: got 'cuda', but torch finds no CUDA device"):
        parse(["--device=cuda"])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: (p / "state.pt").unlink(), "expected a training state, but there is no such"),
        (lambda p: (p / "state.pt").write_bytes(b"x" * 100), "or is damaged; it was not loaded"),
        (lambda p: _truncate(p / "state.pt"), "damaged or of another kind"),
        (lambda p: torch.save({"version": 99}, p / "state.pt"), f"version {STATE_VERSION}, got 99"),
        (lambda p: torch.save({"version": STATE_VERSION}, p / "state.pt"), "does not fit"),
        (lambda p: _edit(p, "- 8", "- 9"), "does not fit"),
        (lambda p: _edit(p, "num_envs: 16", "num_envs: 17"), "does not fit"),
        (lambda p: _edit(p, "ranks: 5", "ranks: 6"), "does not fit"),
        (lambda p: (p / "metrics.jsonl").write_text("{}\n"), "expected the iterations 1 to 2"),
        (lambda p: (p / "metrics.jsonl").write_text("{\n{\n"), "damaged"),
        (lambda p: (p / "metrics.jsonl").write_text("[]\n3\n"), "expected the iterations 1 to 2"),
        (lambda p: _edit_state(p, "iteration", -1), "iteration: expected a number of 0 or more"),
        (lambda p: _edit_state(p, "iteration", 10**9), "iteration: expected 2 at most"),
        (
            lambda p: _edit(p, "learning_rate: 0.004", "learning_rate: 0.005"),
            "ppo.learning_rate was 0.004, now 0.005;",
        ),
        (lambda p: _edit(p, "seed: 0", "seed: 1"), "seed was 0, now 1;"),
        (lambda p: _edit_metrics(p, "train_seconds", "x"), "train_seconds: expected a number"),
        (lambda p: _edit_state(p, "deals", "x"), "deals: expected a number of 0 or more"),
        (lambda p: _edit_state(p, "optimizer", None), "does not fit"),
        (lambda p: (p / "metrics.jsonl").unlink(), "metrics.jsonl"),
    ],
)
def test_what_cannot_be_resumed_is_named(
    damage: Callable[[Path], object],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, path = run_tiny(
        tmp_path, "run", "--ppo.total_steps=200", "--evaluation.interval=0",
        "--evaluation.final_deals=0",
    )  # fmt: skip
    damage(path)
    capsys.readouterr()
    assert train.main(["--resume", str(path)]) == train.USAGE_ERROR
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _edit_state(path: Path, name: str, value: object) -> None:
    state = torch.load(path / "state.pt", weights_only=True)
    state["workers"][0][name] = value
    torch.save(state, path / "state.pt")


def _edit_metrics(path: Path, name: str, value: object) -> None:
    file = path / "metrics.jsonl"
    rows = [json.loads(line) | {name: value} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _edit(path: Path, old: str, new: str) -> None:
    file = path / "config.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_a_run_is_trained_by_one_process_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, path = run_tiny(tmp_path, "run", "--ppo.total_steps=200")
    config = parse(["--resume", str(path)])[0]
    open_run = Run.open(path, config, make_learner(config))
    capsys.readouterr()
    assert train.main(["--resume", str(path)]) == train.USAGE_ERROR
    assert "another process is training this run" in capsys.readouterr().err
    open_run.close()
    assert train.main(["--resume", str(path)]) == 0


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Run, "save", full)
    code, path = run_tiny(tmp_path, "full")
    assert code == train.USAGE_ERROR
    assert "full: cannot be written: No space left on device" in capsys.readouterr().err
    # The name is free again.
    assert not path.exists()


def test_several_seats_stakes_and_drinks_work(tmp_path: Path) -> None:
    code, path = run_tiny(
        tmp_path,
        "table",
        "--game.num_players=4",
        "--game.rules={preset: dahua_house, max_stake: 2}",
        "--game.reward=drinks",
        "--game.rounds=2",
        "--game.dealer_rotation=rotate",
        "--ppo.total_steps=300",
    )
    assert code == 0
    load_policy(path / "policy.safetensors", Game(4, {"preset": "dahua_house", "max_stake": 2}))


@pytest.mark.slow
def test_a_short_default_run_wins_against_every_reference(tmp_path: Path) -> None:
    code = train.main(
        [
            "--nash_pg.total_steps=3000000",
            f"--runs_dir={tmp_path}",
            "--evaluation.interval=0",
            "--evaluation.nashconv_points=1",
        ]
    )
    assert code == 0
    match = json.loads((tmp_path / "nash_pg-nanning-2p" / "match.json").read_text())
    for row in match["rows"]:
        assert row["both"]["low"] > 0.0, match["table"]
