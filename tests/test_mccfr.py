"""Monte-Carlo CFR in tables: that it converges, and that it goes on exactly."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from agents.mccfr import MAX_CARDS, MCCFR, MCCFRConfig
from agents.traversal import Traversal, traverse
from agents.workers import Workers
from shuiyu_env.core.errors import ConfigError
from shuiyu_env.core.game import Game
from shuiyu_env.exact import nashconv
from shuiyu_env.policies.network import NetworkConfig
from shuiyu_env.policies.tabular import TablePolicy

# More threads only get into each other's way.
torch.set_num_threads(1)

SMALL = {"deck": {"ranks": 5, "suits": 2}}
TINY = MCCFRConfig(iterations=3, deals=16)


def learner(game: Game | None = None, seed: int = 0, **config: Any) -> MCCFR:
    return MCCFR(game or Game(2, SMALL), replace(TINY, **config), NetworkConfig(), seed)


def tables(cfr: MCCFR) -> bytes:
    return cfr.regrets.tobytes() + cfr.average.tobytes()


def loss(cfr: MCCFR) -> float:
    """NashConv of what the learner hands out."""
    return float(nashconv(cfr.policies()["average"], cfr.game.rules, threads=1).nashconv)


def test_it_gets_harder_to_exploit_quickly() -> None:
    cfr = learner(iterations=40, deals=256)
    cfr.iterate()
    before = loss(cfr)
    while not cfr.is_finished:
        cfr.iterate()
    assert before > 1.0
    assert loss(cfr) < 0.3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deck", "plus", "target"),
    [((4, 3), False, 0.045), ((5, 2), False, 0.05), ((5, 2), True, 0.25)],
)
def test_field_case_23_it_converges_on_small_decks(
    deck: tuple[int, int], plus: bool, target: float
) -> None:
    game = Game(2, {"preset": "nanning", "deck": {"ranks": deck[0], "suits": deck[1]}})
    config = MCCFRConfig(iterations=250, deals=512, regret_matching_plus=plus)
    cfr = MCCFR(game, config, NetworkConfig(), seed=0)
    while not cfr.is_finished:
        cfr.iterate()
    assert loss(cfr) < target


def test_regrets_and_policies_are_weighted_sums() -> None:
    cfr = learner()
    cfr.env.reset()
    found = traverse(cfr.env, 1, cfr.current, cfr.generator, cfr.reader)
    cfr._learn(found, 1.0)
    once = cfr.regrets.copy(), cfr.average.copy()
    assert (once[0] > 0).any()
    assert once[1].sum() == pytest.approx(len(found.opponents.weight), rel=1e-5)
    cfr._learn(found, 3.0)
    np.testing.assert_allclose(cfr.regrets, 4 * once[0])
    np.testing.assert_allclose(cfr.average, 4 * once[1])


@pytest.mark.parametrize(("power", "expected"), [(1.0, [1, 1, 2, 2, 3, 3]), (0.0, [1] * 6)])
def test_field_case_23_iterations_count_linearly(
    power: float, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    weights: list[float] = []
    learn = MCCFR._learn

    def noting(cfr: MCCFR, found: Traversal, weight: float) -> None:
        weights.append(weight)
        learn(cfr, found, weight)

    monkeypatch.setattr(MCCFR, "_learn", noting)
    cfr = learner(weighting=power)
    while not cfr.is_finished:
        cfr.iterate()
    # Each seat in turn is the traverser.
    assert weights == expected


def test_the_current_policy_is_regret_matching() -> None:
    cfr = learner()
    mask = torch.zeros(3, cfr.game.num_actions, dtype=torch.bool)
    mask[:, 3:6] = True
    keys = torch.tensor([[1, 1], [2, 2], [3, 3]])
    at = cfr._rows(keys[:2])
    cfr._regrets[at[0], 3:6] = [1.0, -4.0, 3.0]
    cfr._regrets[at[1], 3:6] = [-1.0, -4.0, 0.0]
    expected = [[0.25, 0.0, 0.75], [1 / 3] * 3, [1 / 3] * 3]
    answer = cfr.current(keys, mask)
    np.testing.assert_allclose(answer[:, 3:6], expected, rtol=1e-6)
    assert (answer[:, :3] == 0).all()


def test_field_case_22_and_25_what_is_handed_out_is_the_average() -> None:
    cfr = learner()
    cfr.iterate()
    policies = cfr.policies()
    assert list(policies) == ["average"]
    policy = policies["average"]
    assert isinstance(policy, TablePolicy)
    total = cfr.average.sum(axis=1, keepdims=True)
    met = total[:, 0] > 0
    assert 0 < met.sum() < len(met)
    np.testing.assert_allclose(policy.table[met], cfr.average[met] / total[met], rtol=1e-6)
    # What was handed out stays as it is.
    before = policy.table.copy(), policy.keys.copy()
    cfr.iterate()
    np.testing.assert_array_equal(policy.table, before[0])
    np.testing.assert_array_equal(policy.keys, before[1])


def test_regrets_stay_above_zero_with_regret_matching_plus() -> None:
    plus, plain = learner(regret_matching_plus=True), learner()
    for cfr in (plus, plain):
        cfr.iterate()
    assert plus.regrets.min() == 0.0
    assert plain.regrets.min() < 0.0


def test_one_seed_decides_everything() -> None:
    runs = []
    for seed in (4, 4, 5):
        cfr = learner(seed=seed)
        for _ in range(3):
            cfr.iterate()
        runs.append(tables(cfr))
    assert runs[0] == runs[1] != runs[2]


def test_a_restored_learner_goes_on_exactly() -> None:
    cfr = learner()
    cfr.iterate()
    state = copy.deepcopy(cfr.state_dict())
    other = learner()
    other.load_state_dict(state)
    for _ in range(2):
        cfr.iterate()
        other.iterate()
    assert tables(cfr) == tables(other)
    assert (cfr.iteration, cfr.env_steps, cfr.deals) == (3, other.env_steps, 3 * 2 * 16)
    assert cfr.is_finished


@pytest.mark.parametrize(
    "game",
    [
        Game(3, {"preset": "dahua_house", "max_stake": 2, **SMALL, "deck": {"ranks": 4}}),
        Game(4, {"preset": "dahua", "deck": {"ranks": 4}}, rounds=2, dealer_rotation="random"),
        Game(2, {"preset": "nanning", **SMALL}, reward="drinks"),
    ],
    ids=lambda game: f"{game.num_players}-{game.reward}",
)
def test_every_kind_of_game_on_a_small_deck_can_be_learned(game: Game) -> None:
    cfr = learner(game)
    for _ in range(2):
        assert np.isfinite(list(cfr.iterate().values())).all()
    answers = cfr.policies()["average"].probabilities(cfr.env.observation, cfr.env.action_mask)
    assert ((answers > 0) <= (cfr.env.action_mask != 0)).all()


def test_large_decks_and_several_processes_are_refused() -> None:
    with pytest.raises(ConfigError, match=f"at most {MAX_CARDS} cards.*got 52; choose a smaller"):
        MCCFR(Game(2))
    with pytest.raises(ConfigError, match="learns in one process, got 2"):
        MCCFR(Game(2, SMALL), workers=Workers(0, 2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iterations": 0}, r"mccfr\.iterations: expected 1 or more, got 0"),
        ({"deals": 0}, r"mccfr\.deals"),
        ({"weighting": float("nan")}, r"mccfr\.weighting"),
        ({"max_width": 0.0}, r"mccfr\.max_width"),
    ],
)
def test_values_out_of_range_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MCCFRConfig(**change)


def test_every_hyperparameter_is_documented() -> None:
    described = MCCFRConfig.__doc__ or ""
    for field in fields(MCCFRConfig):
        assert f"\n        {field.name}: " in described
