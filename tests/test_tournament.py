"""Tournaments: exact cells against exact values, sampled ones against them, and who leads."""

from __future__ import annotations

import csv
import importlib
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shuiyu_env import PRESETS, Deck, Game
from shuiyu_env.core.errors import ConfigError, DealError, PolicyError
from shuiyu_env.core.rules import resolve_rules
from shuiyu_env.evaluation import TournamentResult, play_match, play_tournament
from shuiyu_env.evaluation.tournament import _alpha_rank, _digest, _mean, _Plan, _ratings
from shuiyu_env.exact import expected_value, tabulate
from shuiyu_env.policies import load
from shuiyu_env.policies.reference import Bluffer, Uniform

SMALL = replace(PRESETS["dahua"], deck=Deck(ranks=4, suits=3))
NAMES = ["uniform", "honest", "bluffer"]


class Opaque(Bluffer):
    """The bluffer, without any promise."""

    outcomes_only = False


@pytest.fixture(scope="module")
def exact() -> TournamentResult:
    return play_tournament(NAMES, SMALL, 40, seed=1)


def test_exact_cells_are_the_exact_values(exact: TournamentResult) -> None:
    tables = [tabulate(load(name), SMALL) for name in NAMES]
    assert exact.names == tuple(NAMES)
    assert exact.precision == 0.0
    for i, row in enumerate(exact.cells):
        for j, cell in enumerate(row):
            if i == j:
                assert cell is None
                continue
            assert cell is not None
            assert cell.exact
            assert cell.num_deals == 40
            dealer = -float(expected_value(tables[i], tables[j]))
            punter = float(expected_value(tables[j], tables[i]))
            assert cell.dealer.mean == cell.dealer.low == pytest.approx(dealer, abs=1e-12)
            assert cell.punter.mean == cell.punter.high == pytest.approx(punter, abs=1e-12)
            assert cell.both.mean == pytest.approx((dealer + punter) / 2, abs=1e-12)
    np.testing.assert_allclose(exact.payoffs, -exact.payoffs.T, atol=1e-12)


def test_sampled_cells_are_those_of_matches_and_agree(exact: TournamentResult) -> None:
    names = ["uniform", "honest", "opaque"]
    players = ["uniform", "honest", Opaque()]
    result = play_tournament(players, SMALL, 400, seed=1, names=names)
    known = result.cells[0][1]
    assert known is not None
    assert known.exact
    for i, j in ((0, 2), (2, 0), (1, 2), (2, 1)):
        cell, truth = result.cells[i][j], exact.cells[i][j]
        assert cell is not None
        assert truth is not None
        assert not cell.exact
        for role in ("dealer", "punter", "both"):
            estimate = getattr(cell, role)
            assert estimate.standard_error > 0.0
            assert abs(estimate.mean - getattr(truth, role).mean) < 4.0 * estimate.standard_error
    match = play_match(["uniform", Opaque()], SMALL, 400, seed=1)
    cell = result.cells[0][2]
    assert cell is not None
    assert cell.both == match.entries[0].both


def test_standings() -> None:
    result = play_tournament(NAMES, SMALL, 300, seed=1)
    means = [standing.mean.mean for standing in result.standings]
    assert means == sorted(means, reverse=True)
    assert result.standings[-1].name == "uniform"
    for standing in result.standings:
        i = result.names.index(standing.name)
        others = np.delete(result.payoffs[i], i)
        assert standing.mean.mean == pytest.approx(others.mean())
    ratings = {standing.name: standing.rating for standing in result.standings}
    assert ratings["uniform"] is not None
    assert ratings["bluffer"] is not None
    assert ratings["uniform"] < ratings["bluffer"]
    masses = {standing.name: standing.alpha_rank for standing in result.standings}
    assert sum(filter(None, masses.values())) == pytest.approx(1.0)
    lines = result.table().splitlines()
    assert lines[1].split() == ["policy", "mean", "rating", "±", "alpha-rank"]
    assert [line.split()[0] for line in lines[2:]] == [s.name for s in result.standings]


def test_alpha_rank_knows_of_cycles() -> None:
    cycle = np.array([[0.0, 1.0, -1.0], [-1.0, 0.0, 1.0], [1.0, -1.0, 0.0]])
    masses = _alpha_rank(cycle)
    assert masses is not None
    np.testing.assert_allclose(masses, 1 / 3, atol=1e-9)
    chain = np.array([[0.0, 1.0, 1.0], [-1.0, 0.0, 1.0], [-1.0, -1.0, 0.0]])
    masses = _alpha_rank(chain)
    assert masses is not None
    assert masses[0] > 0.9


def test_ratings_look_at_who_won() -> None:
    won = {(0, 1): np.array([1.0] * 50), (0, 2): np.zeros(50), (1, 2): np.array([-2.0] * 50)}
    ratings = _ratings(3, won)
    assert ratings is not None
    (first, _), (second, _), (third, _) = ratings
    assert first > 25 > second
    assert abs(first - third) < abs(first - second) / 3


def test_a_mean_is_as_wide_as_it_may_be() -> None:
    result = play_tournament([Opaque(), Uniform()], SMALL, 50)
    cell = result.cells[0][1]
    assert cell is not None
    mean = _mean([cell.both, cell.both])
    assert mean.mean == pytest.approx(cell.both.mean)
    assert mean.low == pytest.approx(cell.both.low)


@pytest.mark.parametrize("reward", ["transfer", "drinks"])
def test_at_larger_tables_one_sits_among_copies_of_the_other(reward: str) -> None:
    game = Game(3, "dahua_house", reward=reward)
    result = play_tournament(["honest", "bluffer"], game, 30, seed=2)
    for i, (me, other) in enumerate((("honest", "bluffer"), ("bluffer", "honest"))):
        cell = result.cells[i][1 - i]
        assert cell is not None
        match = play_match([me, other, other], game, 30, seed=2)
        assert cell.punter == match.entries[0].punter
        assert not cell.exact
    assert all(standing.alpha_rank is None for standing in result.standings)
    assert all(standing.rating is not None for standing in result.standings)


def test_json_and_csv_hold_every_cell(exact: TournamentResult) -> None:
    data = json.loads(json.dumps(exact.to_dict()))
    assert resolve_rules(data["rules"]) == SMALL
    assert len(data["cells"]) == 6
    assert [row["name"] for row in data["standings"]] == [s.name for s in exact.standings]
    rows = list(csv.DictReader(io.StringIO(exact.to_csv())))
    for row, cell in zip(rows, data["cells"], strict=True):
        assert (row["policy"], row["opponent"]) == (cell["policy"], cell["opponent"])
        assert float(row["dealer_low"]) == cell["dealer"]["low"]
        assert row["exact"] == "True"


MODULE = """
from shuiyu_env.policies.reference import Bluffer


class Counting(Bluffer):
    outcomes_only = False
    calls = 0

    def probabilities(self, observation, action_mask):
        Counting.calls += 1
        return super().probabilities(observation, action_mask)
"""


def test_it_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "counted.py").write_text(MODULE)
    folder = tmp_path / "kept"
    players = ["counted:Counting", "uniform"]
    first = play_tournament(players, SMALL, 20, folder=folder)
    counting: Any = importlib.import_module("counted").Counting
    asked = counting.calls
    assert asked > 0
    assert play_tournament(players, SMALL, 20, folder=folder) == first
    assert counting.calls == asked
    # Other settings, and another policy under the same name, are other matches.
    play_tournament(players, SMALL, 20, seed=1, folder=folder)
    assert counting.calls > asked
    assert len(list(folder.iterdir())) == 2
    (tmp_path / "counted.py").write_text(MODULE.replace("Bluffer", "Honest"))
    play_tournament(players, SMALL, 20, folder=folder)
    assert len(list(folder.iterdir())) == 3
    # An object could be anything.
    play_tournament([Opaque(), "uniform"], SMALL, 20, folder=folder)
    assert len(list(folder.iterdir())) == 3


def test_a_file_that_has_changed_is_another_policy(tmp_path: Path) -> None:
    file = tmp_path / "policy"
    plan = _Plan(Game(2, SMALL), 0, 10, 10, None, False)
    file.write_bytes(b"1")
    before = _digest([file, "honest"], ["a", "b"], plan)
    assert before == _digest([str(file), "honest"], ["a", "b"], plan)
    file.write_bytes(b"2")
    assert before != _digest([file, "honest"], ["a", "b"], plan)


def test_it_is_played_until_it_is_precise() -> None:
    settings: dict[str, Any] = {"num_deals": 30, "seed": 3}
    players = [Opaque(), "uniform"]
    rough = play_tournament(players, SMALL, **settings)
    fine = play_tournament(players, SMALL, precision=rough.precision / 2, **settings)
    assert fine.precision <= rough.precision / 2
    short = play_tournament(players, SMALL, precision=1e-9, most_deals=60, **settings)
    assert short.cells[0][1] is not None
    assert short.cells[0][1].num_deals == 60


def test_without_the_optional_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openskill.models", None)
    monkeypatch.setitem(sys.modules, "open_spiel.python.egt", None)
    result = play_tournament(["honest", "uniform"], SMALL, 10)
    assert all(s.rating is None and s.alpha_rank is None for s in result.standings)
    assert result.table().splitlines()[2].split()[-3:] == ["-", "-", "-"]


@pytest.mark.slow
def test_processes_change_nothing() -> None:
    players = ["uniform", "honest", "test_tournament:Opaque"]
    alone = play_tournament(players, SMALL, 60, seed=5)
    together = play_tournament(players, SMALL, 60, seed=5, jobs=2)
    assert together == alone


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"policies": ["honest"]}, PolicyError, "two or more, got 1"),
        ({"policies": "honest"}, PolicyError, "expected a list"),
        ({"policies": ["honest", "hones"]}, PolicyError, "did you mean 'honest'"),
        ({"names": ["a"]}, PolicyError, "names: expected 2 texts"),
        ({"names": ["a", "a"]}, PolicyError, "names: expected different ones"),
        ({"num_deals": 1}, DealError, "num_deals"),
        ({"jobs": 0}, DealError, "jobs"),
        ({"precision": -1.0}, ConfigError, "precision"),
        ({"game": Game(3), "control_variates": True}, ConfigError, "got 3 seats"),
    ],
)
def test_bad_arguments_are_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        play_tournament(**({"policies": ["honest", "uniform"], "game": SMALL} | arguments))
