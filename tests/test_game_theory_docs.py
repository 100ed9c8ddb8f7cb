"""docs/game_theory.md is what the shipped equilibria say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from shuiyu_env.core.rules import PRESETS
from shuiyu_env.exact.statistics import deals_declared, expected_units

DOCS = Path(__file__).parents[1] / "docs"
STALE = "run docs/make_game_theory.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("make_game_theory", DOCS / "make_game_theory.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_section_was_made(script: Any) -> None:
    for section in script.SECTIONS:
        text = script.read_section(section)
        assert f"`python docs/make_game_theory.py --only {section}`" in text, STALE
        assert "| --- |" in text, STALE


def test_every_picture_is_shown() -> None:
    page = (DOCS / "game_theory.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"!\[[^\]]+\]\((game_theory/[^)]+)\)", page))
    there = {f"game_theory/{path.name}" for path in (DOCS / "game_theory").iterdir()}
    assert shown == there


def test_tables_are_fresh(script: Any) -> None:
    assert script.openings().strip() in script.read_section("openings"), STALE
    assert script.values_table().strip() in script.read_section("presets"), STALE


@pytest.mark.parametrize(
    "preset",
    [
        pytest.param(name, marks=() if name == "dahua_house" else pytest.mark.slow)
        for name in PRESETS
    ],
)
def test_frequencies_are_fresh_and_worth_the_value(script: Any, preset: str) -> None:
    leaves = script.frequencies_of(preset)
    game = script.tables_of(preset).game
    declared = sum(values.sum() for values in leaves.values())
    assert declared == pytest.approx(deals_declared(game), abs=1e-12)
    # What specials decide is the rest: none of it where they wait for the showdown.
    if preset == "dahua_house":
        assert declared == pytest.approx(1.0, abs=1e-12)
    else:
        assert 0.02 < 1.0 - declared < 0.021
    value = script.equilibrium(preset).info["value"]
    assert expected_units(game, leaves) == pytest.approx(value, abs=1e-12)
    assert script.frequency_table(preset).strip() in script.read_section("frequencies"), STALE
