"""docs/leaderboard.md is what the reports beside it say, and only reports made alike go in."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from shuiyu_env import PRESETS
from shuiyu_env.core.errors import ConfigError

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("make_leaderboard", DOCS / "make_leaderboard.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def report(script: Any, **changes: Any) -> dict[str, Any]:
    """Return a report as the protocol wants it."""
    estimate = {"mean": 0.1, "standard_error": 0.01, "low": 0.08, "high": 0.12}
    opponents = [*script.REFERENCES, "equilibrium"]
    return {
        "rules": PRESETS["dahua"].to_dict(),
        "num_players": 2,
        "reward": "transfer",
        "num_deals": script.DEALS,
        "seed": script.SEED,
        "matches": [{"opponent": name, "both": estimate} for name in opponents],
        "nashconv": {"nashconv": {"low": 0.5, "high": 0.5, "confidence": 1.0}},
        "submission": {"name": "mine", "source": "https://example.org"},
    } | changes


def test_the_page_is_fresh(script: Any) -> None:
    from benchmarks.report import read_section

    assert script.page(script.reports()).strip() == read_section("leaderboard", script.PAGE).strip()


def test_exact_values_and_lower_bounds_stand_apart(script: Any) -> None:
    exact = report(script)
    interval = report(
        script,
        nashconv={"nashconv": {"low": 0.1, "high": 0.2, "confidence": 0.95}},
        submission={"name": "between"},
    )
    bounded = report(script, lower_bound={"nashconv": 0.01}, submission={"name": "slow"})
    del bounded["nashconv"]
    lines = script.page([bounded, exact, interval]).splitlines()
    assert lines[0] == "### `dahua`"
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines[4:]]
    # A bound, however small, comes after what is known.
    assert [row[0] for row in rows] == ["between", "[mine](https://example.org)", "slow"]
    assert [row[1] for row in rows] == ["0.1000 to 0.2000", "0.5000", ""]
    assert [row[2] for row in rows] == ["", "", "at least 0.0100"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"seed": 1}, "expected seed 2026, got 1"),
        ({"num_deals": 10}, "expected num_deals 5000, got 10"),
        ({"num_players": 3}, "expected num_players 2, got 3"),
        ({"rules": {"max_stake": 2}}, "expected the rules of a preset"),
        ({"matches": []}, "no match against bluffer, cautious, equilibrium"),
        ({"nashconv": None}, "x"),
        ({"submission": {}}, "expected a name"),
        ({"submission": {"name": "a | b"}}, "name: expected a text without"),
        ({"submission": {"name": "a", "learned_from": 5}}, "learned_from: expected a text"),
        ({"matches": 5}, "not as the command writes it"),
        ({"matches": [{}]}, "not as the command writes it"),
        ({"nashconv": {"nashconv": None}}, "not as the command writes it"),
        ({"submission": None}, "expected a report with a key 'submission'"),
    ],
)
def test_other_reports_are_refused(
    script: Any, tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    data = report(script, **change)
    if data["nashconv"] is None:
        del data["nashconv"]
        problem = "expected nashconv or lower_bound"
    (tmp_path / "mine.json").write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=f"mine.json: .*{problem}"):
        script.reports(tmp_path)
    (tmp_path / "mine.json").write_text("{")
    with pytest.raises(ConfigError, match="expected JSON"):
        script.reports(tmp_path)
