"""The learners' benchmark: its list of runs, its statistics, and what it makes of finished runs."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.config import parse
from shuiyu_env import Game
from shuiyu_env.core.errors import ShuiyuError
from shuiyu_env.observation import layout_of
from shuiyu_env.policies.checkpoint import read_header, save_policy
from shuiyu_env.policies.network import ActorCritic, NetworkConfig

ROOT = Path(__file__).parents[1]


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for name in ("learning", "report"):
        sys.modules.pop(name, None)
    module = importlib.import_module("learning")
    monkeypatch.setattr(module, "KEPT", tmp_path / "runs.jsonl")
    monkeypatch.setattr(module, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(module, "TRAINED", tmp_path / "trained")
    return module


def test_every_run_of_the_list_can_be_configured(learning: Any) -> None:
    runs = list(learning.planned())
    assert len({run.name for run in runs}) == len(runs) == len({run.key for run in runs})
    for run in runs:
        _, *words = run.command
        config, _ = parse([word.replace("configs/", f"{ROOT}/configs/") for word in words])
        assert config.algorithm == run.algorithm.partition("-")[0]
        assert config.game.make().num_players == run.seats
        assert config.seed == run.seed
        assert config.threads == 1
    # Seeds of the comparison are used nowhere else.
    seeds = {run.seed for run in runs if run.group == "four-minutes"}
    assert len(seeds) == 5
    assert 0 not in seeds


def test_what_is_kept_was_trained_as_the_list_says(
    learning: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "KEPT", ROOT / "docs" / "benchmark" / "runs.jsonl")
    known = learning.kept()
    found = [run for run in learning.planned() if run.key in known]
    assert found
    assert {run.key for run in found} == set(known)
    assert [run.name for run in found if not learning.is_current(run, known[run.key])] == []


#: Stands for the trainer: fails, or writes what a run writes.
TRAINER = """
import json, sys
from pathlib import Path
import yaml
from agents.config import parse, to_dict

config, resumed = parse(sys.argv[1:])
if config.seed == 13:
    sys.exit(3)
folder = Path(config.runs_dir) / config.name
folder.mkdir(parents=True, exist_ok=True)
(folder / "config.yaml").write_text(yaml.safe_dump(to_dict(config)))
(folder / "state.pt").touch()
row = {"env_steps": 5, "cpu_seconds": 1.0, "nashconv": {"last": {"nashconv": 0.5}}}
(folder / "metrics.jsonl").write_text(json.dumps(row) + "\\n")
(folder / "resumed").write_text(str(resumed))
"""


def test_runs_are_trained_resumed_and_trained_again_when_their_settings_change(
    learning: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(learning, "ROOT", tmp_path)
    runs = [
        learning.Planned("g", "nash_pg-small", "dahua", seed, (("nash_pg.lag", 0.2),))
        for seed in (12, 13, 14)
    ]
    monkeypatch.setattr(learning, "planned", lambda: runs)
    # One fails; the others are kept, and it is the only one that is still missing.
    assert learning.train_missing(1, "") == 1
    assert "g-nash_pg-small-dahua-13: failed with code 3" in capsys.readouterr().err
    assert {key[-1] for key in learning.kept()} == {12, 14}
    first = learning.RUNS / runs[0].name / "resumed"
    assert first.read_text() == "None"
    assert learning.train_missing(1, "*-12") == 0
    assert "0 of 1 runs are missing" in capsys.readouterr().out
    # What is only measured otherwise is not another run; what is learned otherwise is.
    for name, missing in (("evaluation.deals", 0), ("nash_pg.magnet", 1)):
        changed = learning.Planned(*runs[0].key, (*runs[0].settings, (name, 7)))
        assert learning.is_current(changed, learning.kept()[changed.key]) is (missing == 0)
    # Its folder is in the way: nothing is filed under settings that it was not trained with.
    monkeypatch.setattr(learning, "planned", lambda: [changed])
    assert learning.train_missing(1, "") == 1
    assert "run with other settings than the list has now" in capsys.readouterr().err
    assert "magnet" not in learning.kept()[changed.key]["command"]
    # One that was begun goes on.
    learning.KEPT.unlink()
    monkeypatch.setattr(learning, "planned", lambda: runs[:1])
    assert learning.train_missing(1, "") == 0


def test_curves_are_read_between_their_points(learning: Any) -> None:
    points = [
        {"env_steps": 100, "cpu_seconds": 1.0, "last": 1.0},
        {"env_steps": 400, "cpu_seconds": 4.0, "last": 0.25},
    ]
    assert learning.at(points, "env_steps", 200, "last") == pytest.approx(0.5)
    assert learning.at(points, "cpu_seconds", 4.0, "last") == pytest.approx(0.25)
    assert learning.at(points, "env_steps", 400, "last") == pytest.approx(0.25)
    # Neither beyond the last nor before the first: there is nothing to say.
    assert np.isnan(learning.at(points, "env_steps", 10_000, "last"))
    assert np.isnan(learning.at(points, "env_steps", 50, "last"))
    assert learning.cell([np.nan, 0.1]) == ""


def test_runs_are_compared_where_all_that_go_on_have_been_measured(learning: Any) -> None:
    def run(*steps: int) -> dict[str, Any]:
        return {"points": [{"env_steps": at} for at in steps]}

    assert learning.common([run(1, 2), run(6, 12), run(7, 15)], "env_steps") == 12
    assert learning.common([run(1, 8), run(6, 12), run(7, 15)], "env_steps") == 8
    assert learning.common([run(3), run(5)], "env_steps") == 5


def test_the_interquartile_mean_leaves_out_the_best_and_the_worst(learning: Any) -> None:
    mean, low, high = learning.interquartile_mean([0.1, 0.2, 0.3, 0.4, 100.0])
    assert mean == pytest.approx(0.3)
    assert low <= mean <= high
    alone = learning.interquartile_mean([0.7])
    assert alone[0] == 0.7
    assert np.isnan(alone[1:]).all()


def row(algorithm: str, seed: int, end: float) -> dict[str, Any]:
    points = [
        {"env_steps": steps, "cpu_seconds": steps / 100, "average": end * 400 / steps}
        for steps in (100, 200, 400)
    ]
    return {
        "group": "four-minutes",
        "algorithm": algorithm,
        "preset": "nanning",
        "seed": seed,
        "command": f"python train.py --config configs/{algorithm}.yaml",
        "hidden": [8],
        "points": points,
        "machine": "a machine",
        "env_steps": 400,
        "cpu_seconds": 4.0,
    }


def test_the_page_says_what_the_runs_say(
    learning: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- four-minutes: begin -->\n<!-- four-minutes: end -->\nafter\n")
    monkeypatch.setattr(learning, "PAGE", page)
    monkeypatch.setattr(learning, "ROOT", tmp_path)
    monkeypatch.setattr(sys.modules["report"], "ROOT", tmp_path)
    references = {f"{name}-nanning": 1.5 for name in learning.REFERENCES}
    (tmp_path / "references.json").write_text(json.dumps(references))
    for seed, end in enumerate((0.1, 0.2, 0.3)):
        learning.keep(row("nfsp", seed, end))
    learning.keep(row("nfsp", 2, 0.4))  # again: the newer one counts
    assert len(learning.kept()) == 3
    learning.write_page()
    text = page.read_text()
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert "| NFSP, average | 3 |" in text
    assert "0.2333" in text
    assert "| `honest` |" in text
    assert (tmp_path / "four-minutes.png").read_bytes().startswith(b"\x89PNG")


def save(path: Path, **info: Any) -> None:
    game = Game(2)
    network = ActorCritic(layout_of(game), NetworkConfig(hidden=(4,)))
    save_policy(path, network, game, **{"algorithm": "nfsp", "env_steps": 400} | info)


def test_the_first_seed_ships_whatever_came_out(learning: Any, tmp_path: Path) -> None:
    for seed in (101, 102):
        learning.keep(row("nfsp", seed, 0.1))
        folder = tmp_path / "runs" / f"four-minutes-nfsp-nanning-{seed}"
        folder.mkdir(parents=True)
        save(folder / "policy.safetensors", seed=seed)
    learning.ship()
    shipped = list((tmp_path / "trained").iterdir())
    assert [file.name for file in shipped] == ["nfsp-nanning-2.safetensors"]
    assert read_header(shipped[0])["seed"] == 101
    # Where the run is no longer at hand, what ships has to be its policy all the same.
    source = tmp_path / "runs" / "four-minutes-nfsp-nanning-101" / "policy.safetensors"
    source.unlink()
    learning.ship()
    save(shipped[0], seed=101, env_steps=399)
    with pytest.raises(ShuiyuError, match=r"run with env_steps 400, .*got 399; train it again"):
        learning.ship()
    shipped[0].unlink()
    with pytest.raises(ShuiyuError, match="nfsp-nanning-2"):
        learning.ship()
