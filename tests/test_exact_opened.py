from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from exact_oracles import open_contest_value
from games import examples
from hypothesis import given
from hypothesis import strategies as st

from shuiyu_env.core.actions import Action
from shuiyu_env.core.contest import Node, compile_tree
from shuiyu_env.core.hands import Outcome
from shuiyu_env.core.rules import RuleSet
from shuiyu_env.exact import opened
from shuiyu_env.exact.opened import OpenedContest, opened_contest

# All options that touch an open hand.
RULES = [
    RuleSet(doubted_push_when_dealer_wins=doubted, surrender_to_open=surrender)
    for doubted, surrender in product((-2, 2), (False, True))
]
each_rules = pytest.mark.parametrize("rules", RULES)


def contest_of(rules: RuleSet) -> OpenedContest:
    return opened_contest(rules, compile_tree(rules).root.children[Action.OPEN])


def random_masses(number: int, seed: int) -> npt.NDArray[np.float64]:
    """Masses by outcome: of all sizes, with zeros and ties, and where the best answer changes."""
    rng = np.random.default_rng(seed)
    masses = rng.exponential(size=(number, 3)) * 10.0 ** rng.integers(-3, 7, size=(number, 1))
    # Some outcomes are next to impossible, or quite.
    masses *= 10.0 ** rng.choice([0, 0, 0, -2, -4, -6], size=(number, 3))
    masses *= rng.random((number, 3)) < 0.8
    some = rng.random(number) < 0.3
    masses[some] = rng.integers(0, 5, size=(int(some.sum()), 3)) * 6.0
    return masses


CORNERS = np.array(list(product([0.0, 1.0, 2.0, 3.0], repeat=3)))


def leaves_of(rules: RuleSet, call: Node) -> list[npt.NDArray[np.float64]]:
    """What a call pays by outcome, for each reply to it."""
    tree = compile_tree(rules)
    leaves = [call] if call.is_leaf else [tree.nodes[n] for n in call.children.values()]
    return [np.array(leaf.payoffs[:3], dtype=float) for leaf in leaves if leaf.payoffs]


def calls_of(rules: RuleSet) -> list[Node]:
    tree = compile_tree(rules)
    return [tree.nodes[n] for n in contest_of(rules).node.children.values()]


def cost_of_plan(rules: RuleSet, masses: Any, calls: Any) -> float:
    """What the punter gets if he replies as well as he can to a dealer's plan."""
    return sum(
        max(float(masses * calls[:, c] @ leaf) for leaf in leaves_of(rules, call))
        for c, call in enumerate(calls_of(rules))
    )


@each_rules
def test_values_are_those_of_the_linear_programme(rules: RuleSet) -> None:
    contest = contest_of(rules)
    for masses in [*random_masses(80, 1), *CORNERS[::3]]:
        expected = open_contest_value(rules, masses)
        found = float((contest.gains @ masses).max())
        assert found == pytest.approx(expected, abs=1e-9 * max(1.0, masses.sum()))


@each_rules
def test_vertices_can_be_played(rules: RuleSet) -> None:
    # Each gives its gain, whatever the dealer calls: a way to open that nothing can lower.
    contest = contest_of(rules)
    assert len(contest.gains) == len({tuple(np.round(gains, 9)) for gains in contest.gains})
    for v, gains in enumerate(contest.gains):
        paid = []
        for c, call in enumerate(calls_of(rules)):
            replies = contest.replies[c][v]
            assert replies.min() >= -1e-12
            assert replies.sum() == pytest.approx(1.0)
            paid.append(replies @ leaves_of(rules, call))
        np.testing.assert_allclose(np.min(paid, axis=0), gains, atol=1e-9)


@each_rules
def test_calls_leave_no_more_than_the_value(rules: RuleSet) -> None:
    contest = contest_of(rules)
    masses = np.concatenate([random_masses(3000, 2), CORNERS])
    vertices, calls = contest.solve(masses)
    assert calls.shape == (len(masses), 3, len(contest.payoffs))
    assert (calls >= 0.0).all()
    np.testing.assert_allclose(calls.sum(axis=-1), 1.0, atol=1e-12)
    values = masses @ contest.gains.T
    # The vertex is a best one, and the dealer's calls keep every reply down to it.
    scale = np.maximum(1.0, masses.sum(axis=1))
    np.testing.assert_allclose(
        values[np.arange(len(masses)), vertices] / scale, values.max(axis=1) / scale, atol=1e-9
    )
    for m, plan, value in zip(masses, calls, values.max(axis=1), strict=True):
        assert cost_of_plan(rules, m, plan) == pytest.approx(value, abs=1e-9 * max(1.0, m.sum()))


@each_rules
def test_an_outcome_that_cannot_be_is_answered_as_well_as_can_be(rules: RuleSet) -> None:
    # So that a punter who opens there all the same gains nothing by it.
    contest = contest_of(rules)
    vertices, calls = contest.solve(CORNERS)
    payoffs = [np.array(leaves_of(rules, call)) for call in calls_of(rules)]
    for masses, vertex, plan in zip(CORNERS, vertices, calls, strict=True):
        answers = np.array([contest.replies[c][vertex] @ payoffs[c] for c in range(len(payoffs))])
        for outcome in np.flatnonzero(masses == 0.0):
            paid = float(plan[outcome] @ answers[:, outcome])
            assert paid == pytest.approx(answers[:, outcome].min(), abs=1e-9)


@each_rules
def test_rows_are_solved_by_themselves(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    contest = contest_of(rules)
    masses = random_masses(100, 3)
    vertices, calls = contest.solve(masses)
    monkeypatch.setattr(opened, "_CHUNK", 7)
    again = contest.solve(masses)
    np.testing.assert_array_equal(vertices, again[0])
    np.testing.assert_allclose(calls, again[1], atol=1e-12)
    empty = contest.solve(np.zeros((0, 3)))
    assert (empty[0].shape, empty[1].shape) == ((0,), (0, 3, len(contest.payoffs)))


@each_rules
def test_a_dealer_who_knows_the_outcome(rules: RuleSet) -> None:
    contest = contest_of(rules)
    rng = np.random.default_rng(4)
    tree = compile_tree(rules)
    replies = {
        child: rng.dirichlet(np.ones(len(tree.nodes[child].children)), size=(5, 3))
        for child in contest.node.children.values()
        if not tree.nodes[child].is_leaf
    }
    found = contest.by_outcome(replies)
    assert found.shape == (5, 3, 3)
    for hand, split, outcome in product(range(5), range(3), Outcome):
        costs = []
        for call in calls_of(rules):
            leaves = leaves_of(rules, call)
            mixed = replies[call.id][hand, split] if call.id in replies else [1.0]
            costs.append(sum(p * leaf[outcome] for p, leaf in zip(mixed, leaves, strict=True)))
        assert found[hand, split, outcome] == pytest.approx(min(costs), abs=1e-12)


masses_strategy = st.tuples(*[st.floats(0.0, 1e6) | st.integers(0, 6).map(float)] * 3).map(np.array)


@given(st.sampled_from(RULES), masses_strategy, masses_strategy)
@examples(60)
def test_value_is_convex_homogeneous_and_bounded(rules: RuleSet, m: Any, n: Any) -> None:
    contest = contest_of(rules)

    def value(masses: Any) -> float:
        return float((contest.gains @ masses).max())

    slack = 1e-9 * (1.0 + m.sum() + n.sum())
    assert value(m + n) <= value(m) + value(n) + slack
    assert value(3.0 * m) == pytest.approx(3.0 * value(m), abs=slack)
    assert -2.0 * m.sum() - slack <= value(m) <= 2.0 * m.sum() + slack
    # A surrender is one more call; it cannot help the punter unless the dealer wants it.
    assert value(m) <= m.sum() * (1.0 if rules.surrender_to_open else 2.0) + slack


def test_a_surrender_costs_less_than_a_lost_comparison() -> None:
    default, surrender = map(contest_of, RULES[:2])
    losing, winning = np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0])
    assert (default.gains @ losing).max() == pytest.approx(2.0)
    assert (surrender.gains @ losing).max() == pytest.approx(1.0)
    for contest in (default, surrender):
        assert (contest.gains @ winning).max() == pytest.approx(-1.0)


@pytest.mark.parametrize("surrender", [False, True])
def test_what_a_push_pays_that_the_dealer_would_have_won_changes_no_value(surrender: bool) -> None:
    # He who wins need not request a push; but the ways to reply differ.
    keeps, pays = (
        RuleSet(doubted_push_when_dealer_wins=units, surrender_to_open=surrender)
        for units in (-2, 2)
    )
    for masses in random_masses(20, 5):
        expected = open_contest_value(keeps, masses)
        assert open_contest_value(pays, masses) == pytest.approx(expected, abs=1e-9 * masses.sum())
    payoffs = [np.concatenate(contest_of(rules).payoffs) for rules in (keeps, pays)]
    assert (payoffs[0] != payoffs[1]).any()
