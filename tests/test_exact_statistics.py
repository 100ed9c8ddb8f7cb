"""Frequencies of leaves, by hand and in bins, against every line of play of every deal."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from exact_oracles import GameTree, RandomStrategy
from games import random_rules

from shuiyu_env.core.actions import Action
from shuiyu_env.core.cards import Deck
from shuiyu_env.core.contest import compile_tree
from shuiyu_env.core.errors import ConfigError
from shuiyu_env.core.game import State
from shuiyu_env.core.hands import Outcome, compare, ranking, special_of
from shuiyu_env.core.play import NONE
from shuiyu_env.core.rules import PRESETS, RuleSet
from shuiyu_env.exact import nashconv, solve, tabulate
from shuiyu_env.exact.statistics import (
    Path,
    by_strength,
    deals_declared,
    expected_units,
    leaf_frequencies,
    leaf_masses,
    with_decisions,
)
from shuiyu_env.tables import hand_table

Floats = npt.NDArray[np.floating[Any]]

EVERYTHING = replace(
    PRESETS["nanning"],
    tie_break="next_group",
    surrender_to_open=True,
    specials="at_showdown",
    cover_lost_to_special=2,
)
RULES = {
    "nanning": replace(PRESETS["nanning"], deck=Deck(4, 2)),
    "dahua": replace(PRESETS["dahua"], deck=Deck(9, 1)),
    "house": replace(PRESETS["dahua_house"], deck=Deck(3, 3)),
    "everything": replace(EVERYTHING, deck=Deck(2, 4)),
    "nanning, nine cards": replace(PRESETS["nanning"], deck=Deck(3, 3)),
}
CASES = [pytest.param(name, marks=pytest.mark.slow if "nine" in name else ()) for name in RULES]


class Line(NamedTuple):
    """One line of play: what seats held, where it ended, how likely both played it."""

    dealer: tuple[int, int]  #: hand and split
    punter: tuple[int, int]
    path: Path
    column: int  #: of the leaf's payoffs
    chance: float  #: of this deal and this play
    units: float


class _Lines(GameTree):
    """Keeps every end of every deal, with both seats' sequences."""

    def __init__(self, rules: RuleSet) -> None:
        self.ends: list[tuple[State, int, int]] = []
        super().__init__(rules)

    def _play(self, state: State, at: list[int]) -> None:
        if state.is_terminal:
            self.ends.append((state, at[0], at[1]))
        super()._play(state, at)


@cache
def lines_of(name: str, seed: int = 3) -> tuple[RandomStrategy, list[Line]]:
    """Play all lines with a random strategy."""
    rules = RULES[name]
    played = _Lines(rules)
    strategy = RandomStrategy(rules, seed)
    dealer_plan, punter_plan = played.plans(strategy)
    table, order = hand_table(rules.deck, rules.tie_break), ranking(rules.deck, rules.tie_break)
    pays = {node.path: node.payoffs for node in compile_tree(rules).nodes}
    deals = len({state.deal.hands for state, _, _ in played.ends})
    lines = []
    for state, mine, theirs in played.ends:
        deal = state.deal
        split = deal.force_splits[1] if deal.force_splits[1] != NONE else deal.splits[0]
        outcome = compare(
            order.strengths(deal.hands[0], split), order.strengths(deal.hands[1], deal.splits[1])
        )
        said = (deal.declarations[1], deal.calls[1], deal.replies[1])
        path = tuple(Action(action) for action in said if action != NONE)
        payoffs = pays[path]
        column = int(outcome)
        if payoffs is not None and outcome == Outcome.DEALER_WINS and special_of(deal.hands[0]):
            column = 3 if payoffs.dealer_wins_by_special != payoffs.dealer_wins else 0
        dealer, punter = (int(table.index(np.array(hand))) for hand in deal.hands)
        chance = dealer_plan[mine] * punter_plan[theirs] / deals
        lines.append(
            Line(
                (dealer, deal.splits[0]),
                (punter, deal.splits[1]),
                path,
                column,
                float(chance),
                deal.rewards[1],
            )
        )
    return strategy, lines


@pytest.mark.parametrize("name", CASES)
def test_leaves_of_all_lines(name: str) -> None:
    strategy, lines = lines_of(name)
    tables = tabulate(strategy, RULES[name])
    expected: dict[Path, Floats] = {}
    for line in lines:
        expected.setdefault(line.path, np.zeros(4))[line.column] += line.chance
    decided = expected.pop((), np.zeros(4)).sum()  # by specials, before anybody declares
    frequencies = leaf_frequencies(tables)
    assert frequencies.keys() == expected.keys()
    for path, values in frequencies.items():
        assert values == pytest.approx(expected[path], abs=1e-12), path
    declared = deals_declared(tables.game)
    assert declared == pytest.approx(1.0 - decided, abs=1e-12)
    assert sum(values.sum() for values in frequencies.values()) == pytest.approx(declared)
    units = sum(line.chance * line.units for line in lines)
    assert expected_units(tables.game, frequencies) == pytest.approx(units, abs=1e-12)
    assert units == pytest.approx(float(nashconv(tables).value), abs=1e-12)


@pytest.mark.parametrize("side", ["dealer", "punter"])
@pytest.mark.parametrize("name", CASES)
def test_leaves_by_hand(name: str, side: Any) -> None:
    strategy, lines = lines_of(name)
    tables = tabulate(strategy, RULES[name])
    expected: dict[Path, Floats] = {}
    for line in lines:
        own = line.dealer if side == "dealer" else line.punter
        masses = expected.setdefault(line.path, np.zeros((*tables.game.legal.shape, 4)))
        masses[(*own, line.column)] += line.chance
    expected.pop((), None)
    if side == "dealer":
        shown = (Action.OPEN, Action.FORCE)
        expected = {path: values for path, values in expected.items() if path[0] not in shown}
    masses = {leaf.path: mass for leaf, mass in leaf_masses(tables, side)}
    assert masses.keys() == expected.keys()
    for path, values in masses.items():
        assert values == pytest.approx(expected[path], abs=1e-12), path


@pytest.mark.parametrize("side", ["dealer", "punter"])
@pytest.mark.parametrize("name", CASES)
def test_bins(name: str, side: Any) -> None:
    strategy, lines = lines_of(name)
    bins = 7
    own = [(line, line.dealer if side == "dealer" else line.punter) for line in lines if line.path]
    wins = Outcome.DEALER_WINS if side == "dealer" else Outcome.PUNTER_WINS
    # How each hand and split fares, as it was laid first.
    rules = RULES[name]
    table, order = hand_table(rules.deck, rules.tie_break), ranking(rules.deck, rules.tie_break)

    def strengths(place: tuple[int, int]) -> tuple[int, int]:
        return order.strengths(tuple(table.cards[place[0]].tolist()), place[1])

    faced: dict[tuple[int, int], Floats] = {}
    for line, place in own:
        outcome = compare(strengths(line.dealer), strengths(line.punter))
        faced.setdefault(place, np.zeros(3))[outcome] += line.chance
    # Against the other side's arrangement, whatever one's own is: so as likely as it is dealt.
    chance = {place: round(values[wins] / values.sum(), 10) for place, values in faced.items()}
    ranked = sorted(set(chance.values()))
    whole = sum(values.sum() for values in faced.values())
    weight = np.zeros(len(ranked))
    outcomes = np.zeros((len(ranked), 3))
    leaves: dict[Path, Floats] = {}
    for place, values in faced.items():
        weight[ranked.index(chance[place])] += values.sum()
        outcomes[ranked.index(chance[place])] += values
    for line, place in own:
        masses = leaves.setdefault(line.path, np.zeros((len(ranked), 4)))
        masses[ranked.index(chance[place]), line.column] += line.chance
    # Each strength's mass lies side by side on a line, which is cut into equal parts.
    share = np.zeros((bins, len(ranked)))
    end = np.cumsum(weight)
    for b in range(bins):
        for k, mass in enumerate(weight):
            low = max(end[k] - mass, b * whole / bins)
            high = min(end[k], (b + 1) * whole / bins)
            share[b, k] = max(high - low, 0.0) / mass
    tables = tabulate(strategy, rules)
    found = by_strength(tables, side, bins)
    expected = share @ outcomes
    assert found.outcomes == pytest.approx(expected / expected.sum(axis=1, keepdims=True), abs=1e-9)
    assert (np.diff(found.outcomes[:, wins]) >= -1e-12).all()
    if side == "punter":
        assert found.leaves.keys() == leaves.keys()
        in_bins = sum(values.sum(axis=1) for values in found.leaves.values())
        assert in_bins == pytest.approx(np.full(bins, whole / bins))
    for path, values in found.leaves.items():
        assert values == pytest.approx(share @ leaves[path], abs=1e-9), path


def test_rank_multisets_are_single_hands() -> None:
    """Where hands of the same ranks stand for each other, nothing changes."""
    rules = RuleSet.from_dict({"preset": "dahua_house", "deck": {"ranks": 4, "suits": 3}})
    equilibrium = solve(rules, max_iterations=12, target=1e-9)
    tables = equilibrium.policy_tables()
    assert tables.game.classes.by_ranks
    asked = tabulate(equilibrium, rules)
    assert not asked.game.classes.by_ranks
    some, all_hands = leaf_frequencies(tables), leaf_frequencies(asked)
    for path, values in some.items():
        assert values == pytest.approx(all_hands[path], abs=1e-12)
    assert expected_units(tables.game, some) == pytest.approx(equilibrium.info["value"], abs=1e-12)
    for side in ("dealer", "punter"):
        few, many = by_strength(tables, side), by_strength(asked, side)
        assert few.outcomes == pytest.approx(many.outcomes, abs=1e-9)
        for path, values in few.leaves.items():
            assert values == pytest.approx(many.leaves[path], abs=1e-9)


def test_values_of_other_policies() -> None:
    """What frequencies are worth is what the evaluation says, for random rules."""
    rng = random.Random(12)
    for seed in range(12):
        rules = replace(random_rules(rng, [Deck(4, 3), Deck(3, 4), Deck(12, 1)]), max_stake=1)
        tables = tabulate(RandomStrategy(rules, seed, outcomes_only=True), rules)
        frequencies = leaf_frequencies(tables)
        value = float(nashconv(tables).value)
        assert expected_units(tables.game, frequencies) == pytest.approx(value, abs=1e-10)
        whole = with_decisions(frequencies)[()].sum()
        assert whole == pytest.approx(deals_declared(tables.game))


def test_decisions_are_sums() -> None:
    leaves = {
        (Action.OPEN, Action.KILL, Action.BELIEVE): np.array([1.0, 2.0]),
        (Action.OPEN, Action.KILL, Action.DOUBT): np.array([3.0, 4.0]),
        (Action.FORCE,): np.array([5.0, 6.0]),
    }
    sums = with_decisions(leaves)
    assert sums[()].tolist() == [9.0, 12.0]
    assert sums[(Action.OPEN,)].tolist() == [4.0, 6.0]
    assert sums[(Action.OPEN, Action.KILL)].tolist() == [4.0, 6.0]
    assert sums[(Action.FORCE,)].tolist() == [5.0, 6.0]
    assert len(sums) == 6
    assert leaves[(Action.FORCE,)].tolist() == [5.0, 6.0]


def test_no_bins_are_refused() -> None:
    tables = tabulate(RandomStrategy(RULES["dahua"], 1), RULES["dahua"])
    with pytest.raises(ConfigError, match="bins: expected a whole number of 1 or more, got 0"):
        by_strength(tables, "punter", 0)
