"""Lower bounds: below the truth, not far below it, and honest about what was chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_match import expected_units

from shuiyu_env import PRESETS, Deck, Game, RuleSet
from shuiyu_env.core.actions import Action
from shuiyu_env.core.errors import DealError, PolicyError
from shuiyu_env.core.game import State
from shuiyu_env.evaluation import lower_bound
from shuiyu_env.evaluation.local_best_response import LocalBestResponse
from shuiyu_env.exact import nashconv
from shuiyu_env.observation import layout_of
from shuiyu_env.policies import load
from shuiyu_env.policies.reference import Bluffer, Honest, Uniform

EIGHT = replace(PRESETS["nanning"], deck=Deck(ranks=2, suits=4))
SMALL = replace(PRESETS["dahua"], deck=Deck(ranks=5, suits=3))


def asked(state: State) -> tuple[np.ndarray, np.ndarray]:
    """Return what the seat to act sees, as a batch of one."""
    mask = np.zeros((1, state.game.num_actions), dtype=np.int8)
    mask[0, list(state.legal_actions())] = 1
    return layout_of(state.game).encode(state.view(state.current_player))[None], mask


@pytest.mark.parametrize("policy", [Uniform(), Bluffer()])
@pytest.mark.parametrize("path", [(), (Action.SPLIT_0, Action.SPLIT_0, Action.OPEN)])
def test_its_answer_is_the_best_where_nothing_is_hidden(policy: Any, path: Any) -> None:
    """With eight cards a hand gives the other away; before any split, or once one lies open."""
    game = Game(2, EIGHT)
    local = LocalBestResponse(policy, game, particles=1500)
    decided = 0
    for deal in range(12):
        state = game.new_state(3, dealer=0, stream=0, index=deal)
        if any(action not in legal_then_apply(state, action) for action in path):
            continue
        assert state.current_player == 0
        values = {}
        for action in state.legal_actions():
            child = state.clone()
            child.apply(action)
            values[action] = float(expected_units(child, [policy, policy])[0])
        best = int(local.probabilities(*asked(state))[0].argmax())
        gap = max(values.values()) - min(values.values())
        decided += gap > 0.3
        # Near ties may go either way.
        assert values[Action(best)] >= max(values.values()) - 0.15
    assert decided >= 3


def legal_then_apply(state: State, action: Action) -> list[Action]:
    legal = [] if state.is_terminal else list(state.legal_actions())
    if action in legal:
        state.apply(action)
    return legal


@pytest.mark.parametrize("name", ["honest", "bluffer"])
def test_it_is_below_the_truth_and_not_far_below(name: str) -> None:
    bound = lower_bound(name, SMALL, 600, seed=1, validation_deals=200, particles=48)
    truth = nashconv(load(name), SMALL)
    for role in ("dealer", "punter"):
        gain, exact = getattr(bound, f"{role}_gain"), float(getattr(truth, f"{role}_gain"))
        assert gain.low <= exact + 1e-9, role
        assert gain.test.mean <= exact + 4 * gain.test.standard_error
        assert gain.low < gain.test.mean
    assert bound.nashconv <= float(truth.nashconv)
    assert bound.nashconv > 0.3 * float(truth.nashconv)
    assert "at least" in str(bound)
    assert bound.to_dict()["nashconv"] == bound.nashconv


def test_nothing_is_gained_against_an_equilibrium() -> None:
    bound = lower_bound("equilibrium", "dahua_house", 300, particles=16, validation_deals=50)
    assert bound.nashconv < 0.01


def test_any_seed_will_do() -> None:
    for seed in (-1, 2**70):
        bound = lower_bound("uniform", SMALL, 40, seed, validation_deals=20, particles=4)
        assert bound.dealer_gain.low < bound.dealer_gain.test.mean


def test_it_is_reproducible_and_does_not_depend_on_batches() -> None:
    game = Game(3, "nanning")
    policy = Honest()
    local = LocalBestResponse(policy, game, particles=24, seed=2)
    rows = [asked(game.new_state(1, dealer=0, stream=0, index=i)) for i in range(6)]
    seen = np.concatenate([row[0] for row in rows])
    mask = np.concatenate([row[1] for row in rows])
    whole = local.probabilities(seen, mask)
    assert (whole.sum(axis=1) == 1.0).all()
    assert (whole.max(axis=1) == 1.0).all()
    np.testing.assert_array_equal(whole, local.probabilities(seen, mask))


@pytest.mark.parametrize(
    "game",
    [
        Game(3, "nanning"),
        Game(4, "dahua_house"),
        Game(2, RuleSet(max_stake=2), reward="drinks"),
        Game(3, RuleSet(declare="in_turn")),
    ],
)
def test_larger_tables_and_other_rules(game: Game) -> None:
    bound = lower_bound("uniform", game, 40, validation_deals=20, particles=8)
    assert bound.dealer_gain.low < bound.dealer_gain.test.mean
    assert bound.nashconv > 0.0
    assert bound == lower_bound("uniform", game, 40, validation_deals=20, particles=8)


class Broken(Uniform):
    def probabilities(self, observation: Any, action_mask: Any) -> Any:
        return super().probabilities(observation, action_mask) * np.nan


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(PolicyError, match=r"policy 'mine'.*not finite"):
        lower_bound(Broken(), "dahua", 4, name="mine", validation_deals=2)
    with pytest.raises(PolicyError, match="responders: expected at least one"):
        lower_bound("honest", "dahua", 4, responders=[], particles=0)
    with pytest.raises(PolicyError, match="responders: expected a list"):
        lower_bound("honest", "dahua", 4, responders="honest")
    with pytest.raises(DealError, match="validation_deals"):
        lower_bound("honest", "dahua", 4, validation_deals=1)
    with pytest.raises(PolicyError, match="did you mean"):
        lower_bound("honset", "dahua", 4)
