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


def test_the_first_seed_ships_whatever_came_out(learning: Any, tmp_path: Path) -> None:
    for seed in (101, 102):
        learning.keep(row("nfsp", seed, 0.1))
        folder = tmp_path / "runs" / f"four-minutes-nfsp-nanning-{seed}"
        folder.mkdir(parents=True)
        (folder / "policy.safetensors").write_bytes(b"%d" % seed)
    learning.ship()
    shipped = list((tmp_path / "trained").iterdir())
    assert [file.name for file in shipped] == ["nfsp-nanning-2.safetensors"]
    assert shipped[0].read_bytes() == b"101"
