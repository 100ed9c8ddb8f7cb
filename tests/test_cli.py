"""The ``shuiyu`` command, as it is called."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shuiyu_env import Game
from shuiyu_env.cli import main
from shuiyu_env.core.cards import card_text
from shuiyu_env.exact import load_equilibrium
from shuiyu_env.exact.solver import Solver
from shuiyu_env.observation import layout_of
from shuiyu_env.policies.checkpoint import save_policy
from shuiyu_env.policies.network import ActorCritic, NetworkConfig, NetworkPolicy

TINY = '{"preset": "dahua", "deck": {"ranks": 2, "suits": 4}}'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHUIYU_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_solve_and_exploitability(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "plot.png"
    assert main(["solve", "--rules", TINY, "--plot", str(plot)]) == 0
    printed = capsys.readouterr().out
    assert "iteration" in printed
    assert "NashConv" in printed
    assert plot.read_bytes().startswith(b"\x89PNG")
    (path,) = cache.iterdir()
    value = load_equilibrium(path).info["nashconv"]
    assert value <= 1e-4
    # The file, and the name that finds it, are as exploitable as the solver said.
    out = tmp_path / "result.json"
    for policy in (str(path), "equilibrium"):
        assert main(["exploitability", policy, "--rules", TINY, "--json", str(out)]) == 0
        result = json.loads(out.read_text())
        assert result["nashconv"]["low"] == pytest.approx(value, abs=1e-12)
        assert result["rules"]["deck"] == {"ranks": 2, "suits": 4}
    printed = capsys.readouterr().out
    assert "value to punter" in printed
    assert "exploitability" in printed
    assert main(["exploitability", "honest", "--rules", TINY]) == 0


def test_a_checkpoint_is_asked_by_its_own_rules(tmp_path: Path) -> None:
    game = Game(2, json.loads(TINY))
    network = ActorCritic(layout_of(game), NetworkConfig(hidden=(8,)))
    file = save_policy(tmp_path / "tiny.safetensors", NetworkPolicy(network), game)
    out = tmp_path / "result.json"
    assert main(["exploitability", str(file), "--json", str(out)]) == 0
    assert json.loads(out.read_text())["rules"] == game.rules.to_dict()


def test_rules_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text(TINY)
    out = tmp_path / "solved.npz"
    arguments = ["solve", "--rules", str(file), "--out", str(out), "--target", "0.01"]
    assert main([*arguments, "--algorithm", "cfr+", "--threads", "1"]) == 0
    assert load_equilibrium(out).info["algorithm"] == "cfr+"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve", "--rules", "nannin"], "did you mean 'nanning'"),
        (["solve", "--rules", "{"], "--rules: expected a JSON object"),
        (["solve", "--rules", "nowhere.json"], "nowhere.json: cannot be read"),
        (["solve", "--rules", '{"max_stake": 3}'], "expected max_stake=1, got 3"),
        (["solve", "--rules", TINY, "--algorithm", "cfrr"], "did you mean 'cfr'"),
        (["solve", "--rules", TINY, "--target", "-1"], "target: expected"),
        (["solve", "--rules", TINY, "--out", "x.txt"], "expected a file ending in .npz"),
        (
            ["solve", "--rules", TINY, "--target", "1e-12", "--max-iterations", "2"],
            "the target was not reached in 2 iterations",
        ),
        (["exploitability", "honst", "--rules", TINY], "did you mean 'honest'"),
        (["exploitability", "honest", "--rules", TINY, "--samples", "0"], "samples"),
        (["exploitability", "honest", "--rules", TINY, "--samples", "5000"], "samples"),
        (["exploitability", "honest", "--rules", TINY, "--threads", "0"], "threads: expected"),
        (["exploitability", "honest", "--rules", TINY, "--json", "."], "it is a folder"),
        (["solve", "--rules", TINY, "--plot", "x.tiff3"], "expected a picture such as"),
        (["solve", "--rules", TINY, "--out", "/proc/none/x.npz"], "expected a file that can be"),
    ],
)
def test_errors_are_messages(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err


def test_an_interrupted_solution_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "solved.npz"
    arguments = ["solve", "--rules", TINY, "--target", "1e-30", "--max-iterations", "8"]
    arguments += ["--out", str(out)]
    step = Solver.step

    def interrupted(self: Solver) -> None:
        if self.iteration == 4:
            os.kill(os.getpid(), signal.SIGINT)
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Solver, "step", interrupted)
        assert main(arguments) == 130
    assert "the same command goes on from there" in capsys.readouterr().err
    assert [path.name for path in tmp_path.glob("*.npz")] == ["solved.checkpoint.npz"]
    main(arguments)
    assert load_equilibrium(out).info["iterations"] == 8


def test_policies_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_own_bots.py").write_text(
        "class Uniform:\n"
        "    def probabilities(self, observation, action_mask):\n"
        "        return action_mask / action_mask.sum(axis=1, keepdims=True)\n"
        "class Broken:\n"
        "    def probabilities(self, observation, action_mask):\n"
        "        raise KeyError('weights')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert main(["exploitability", "my_own_bots:Uniform", "--rules", TINY]) == 0
    assert main(["exploitability", "my_own_bots:Broken", "--rules", TINY]) == 2
    assert "row 0, seat 0, phase ARRANGE: it failed with KeyError" in capsys.readouterr().err


def test_the_module_is_the_command() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "shuiyu_env", "--help"], capture_output=True, text=True, check=True
    )
    assert "exploitability" in result.stdout
    result = subprocess.run(
        [sys.executable, "-m", "shuiyu_env"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert np.isin("solve", result.stderr.split()) or "COMMAND" in result.stderr


def test_evaluate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report"
    words = ["evaluate", "bluffer", "--rules", TINY, "--out", str(out), "--deals", "20"]
    assert main([*words, "--against", "honest", "--against", "uniform"]) == 0
    printed = capsys.readouterr().out
    assert "| `honest` |" in printed
    assert "NashConv" in printed
    assert str(out / "report.html") in printed
    assert json.loads((out / "report.json").read_text())["policy"] == "bluffer"
    assert main([*words, "--seats", "3"]) == 2  # eight cards are too few
    assert main([*words, "--exact", "maybe"]) == 2
    assert "expected one of" in capsys.readouterr().err


def test_match(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state, out = tmp_path / "match.npz", tmp_path / "match.json"
    words = ["match", "honest", "honest", "uniform", "--rules", "dahua", "--deals", "30"]
    assert main([*words, "--state", str(state), "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    names = [entry["name"] for entry in json.loads(out.read_text())["entries"]]
    assert names == ["honest (1)", "honest (2)", "uniform"]
    assert "control variates" not in printed
    assert state.exists()
    assert main(["match", "honest", "uniform", "--rules", "dahua", "--deals", "30"]) == 0
    assert "control variates" in capsys.readouterr().out
    assert main(["match", "honest", "uniform", "--deals", "30", "--plain"]) == 0
    assert "control variates" not in capsys.readouterr().out
    assert main(["match", "honest"]) == 2
    assert "expected 2 entries" in capsys.readouterr().err


def test_tournament(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "all"
    words = ["tournament", "honest", "bluffer", "uniform", "--rules", TINY, "--deals", "20"]
    assert main([*words, "--out", str(out), "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "alpha-rank" in printed
    data = json.loads((out / "tournament.json").read_text())
    assert all(cell["exact"] for cell in data["cells"])
    assert (out / "payoffs.csv").read_text().count("\n") == 7
    assert (out / "payoffs.png").read_bytes().startswith(b"\x89PNG")
    assert main([*words, "--out", str(out), "--jobs", "1", "--sampled"]) == 0
    data = json.loads((out / "tournament.json").read_text())
    assert not any(cell["exact"] for cell in data["cells"])
    assert main(["tournament", "honest", "--out", str(out)]) == 2
    assert "two or more" in capsys.readouterr().err


def test_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = Game(3, "dahua", rounds=2).new_state(4)
    while not state.is_terminal:
        state.apply(state.legal_actions()[0])
    record = tmp_path / "record.json"
    record.write_text(json.dumps(state.to_record()))
    assert main(["replay", str(record)]) == 0
    printed = capsys.readouterr().out
    # The beginning, every decision, and the second deal's beginning.
    assert printed.count("Shuiyu (dahua), 3 seats, whole table") == len(state.history) + 2
    assert printed.count("The deal is settled") == 2
    assert "??" not in printed
    assert main(["replay", str(record), "--seat", "1"]) == 0
    seen = capsys.readouterr().out
    assert "seen by player_1" in seen
    assert "??" in seen
    assert "player_0: something face down" in seen
    assert "player_1: SPLIT 0" in seen
    hidden = [card_text(card) for card in state.finished[0].hands[0]]
    beginning = seen.partition("player_0: ")[0]
    assert not any(card in beginning for card in hidden)
    assert main(["replay", str(record), "--seat", "7"]) == 2
    record.write_text("{")
    assert main(["replay", str(record)]) == 2
    assert "expected a JSON file" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "none.json")]) == 2


def test_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    game = Game(2, "dahua")
    checkpoint = save_policy(tmp_path / "net.safetensors", ActorCritic(layout_of(game)), game)
    out = tmp_path / "net.onnx"
    assert main(["export", str(checkpoint), str(out)]) == 0
    assert main(["match", str(out), str(checkpoint), "--rules", "dahua", "--deals", "10"]) == 0
    assert main(["export", "honest", str(out)]) == 2
    assert "only trained networks" in capsys.readouterr().err
    assert main(["export", str(checkpoint), str(tmp_path / "net.bin")]) == 2
