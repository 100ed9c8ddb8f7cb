"""Two policies against each other, exactly: on the whole tree, and in matches."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from exact_oracles import GameTree, RandomStrategy

from shuiyu_env import PRESETS, Deck, Game, RuleSet
from shuiyu_env.core.errors import RulesError
from shuiyu_env.evaluation import play_match
from shuiyu_env.exact import expected_value, tabulate
from shuiyu_env.observation import layout_of
from shuiyu_env.policies.reference import Bluffer, Honest

EIGHT = Deck(ranks=2, suits=4)
NINE = Deck(ranks=3, suits=3)


class ByRole:
    """Plays as one policy when it deals, as another when it does not."""

    def __init__(self, rules: RuleSet, dealer: Any, punter: Any) -> None:
        layout = layout_of(Game(2, rules))
        self._role = layout.views(np.arange(layout.size))["role"]
        self._policies = (dealer, punter)

    def probabilities(self, observation: Any, action_mask: Any) -> Any:
        answer = np.zeros(action_mask.shape)
        for column, policy in zip(self._role, self._policies, strict=True):
            rows = observation[:, int(column)] != 0
            if rows.any():
                answer[rows] = policy.probabilities(observation[rows], action_mask[rows])
        return answer


@pytest.mark.parametrize("preset", ["nanning", "dahua_house"])
def test_it_is_the_value_on_the_whole_tree(preset: str) -> None:
    rules = replace(PRESETS[preset], deck=EIGHT)
    tree = GameTree(rules)
    policies = [RandomStrategy(rules, 1), RandomStrategy(rules, 2, outcomes_only=True), Bluffer()]
    tables = [tabulate(policy, rules) for policy in policies]
    for i, j in ((0, 1), (1, 2), (2, 0)):
        value = expected_value(tables[i], tables[j])
        assert value.exact
        expected = tree.values(ByRole(rules, policies[i], policies[j])).value
        assert float(value) == pytest.approx(expected, abs=1e-9)


def test_a_match_comes_to_the_same() -> None:
    rules = replace(PRESETS["nanning"], deck=Deck(ranks=5, suits=3))
    honest, bluffer = (tabulate(policy, rules) for policy in (Honest(), Bluffer()))
    result = play_match(["honest", "bluffer"], rules, 3000, seed=3).entries[0]
    values = {
        "punter": float(expected_value(bluffer, honest)),
        "dealer": -float(expected_value(honest, bluffer)),
    }
    for role, value in values.items():
        estimate = getattr(result, role)
        assert abs(estimate.mean - value) < 4.0 * estimate.standard_error, role


def test_sampled_answers_make_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = replace(PRESETS["nanning"], deck=NINE)
    dealer, punter = RandomStrategy(rules, 5), RandomStrategy(rules, 6)
    exact = float(expected_value(tabulate(dealer, rules), tabulate(punter, rules)))
    monkeypatch.setattr(sys.modules[tabulate.__module__], "MOST_PAIRS", 0)
    other = tabulate(punter, rules)
    bounds = [expected_value(tabulate(dealer, rules, seed=s), other) for s in range(30)]
    assert not any(bound.exact for bound in bounds)
    assert sum(bound.low <= exact <= bound.high for bound in bounds) >= 24


def test_other_rules_are_refused() -> None:
    small = [
        tabulate(Honest(), replace(PRESETS[preset], deck=EIGHT)) for preset in ("nanning", "dahua")
    ]
    with pytest.raises(RulesError, match="different rules"):
        expected_value(*small)
