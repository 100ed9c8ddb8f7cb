"""Deep CFR: that it converges, what its networks learn, and that it goes on exactly."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from agents.deep_cfr import DeepCFR, DeepCFRConfig, regret_matching
from agents.learner import DivergenceError
from agents.workers import Workers
from shuiyu_env.core.errors import ConfigError
from shuiyu_env.core.game import Game
from shuiyu_env.exact import nashconv
from shuiyu_env.policies.network import NetworkConfig, NetworkPolicy

# More threads only get into each other's way on such small networks.
torch.set_num_threads(1)

SMALL = {"deck": {"ranks": 4, "suits": 3}}
TINY = DeepCFRConfig(
    iterations=4,
    deals=40,
    capacity=400,
    steps=6,
    batch_size=32,
    average_steps=4,
    average_batch_size=32,
)


def learner(game: Game | None = None, seed: int = 0, **config: Any) -> DeepCFR:
    settings = replace(TINY, **config)
    return DeepCFR(game or Game(2, SMALL), settings, NetworkConfig(hidden=(16,)), seed)


def weights(cfr: DeepCFR) -> bytes:
    networks = (cfr.network, cfr.average)
    return b"".join(t.numpy().tobytes() for net in networks for t in net.state_dict().values())


def test_regret_matching() -> None:
    advantages = torch.tensor([[1.0, 3.0, 9.0, -5.0], [-3.0, -1.0, 2.0, -2.0], [-1.0, 0, 0, 9]])
    mask = torch.tensor([[1, 1, 0, 1], [1, 1, 0, 1], [1, 0, 0, 0]], dtype=torch.bool)
    expected = torch.tensor([[0.25, 0.75, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(regret_matching(advantages, mask), expected)


def test_field_case_22_and_25_what_is_handed_out_is_the_average_policy() -> None:
    cfr = learner()
    cfr.iterate()
    policies = cfr.policies()
    assert list(policies) == ["average"]
    policy = policies["average"]
    assert isinstance(policy, NetworkPolicy)
    assert policy.network is cfr.average


def test_to_begin_with_everything_is_played_alike() -> None:
    cfr = learner(capacity=10_000)
    cfr.iterate()
    rows = cfr.strategies.all()
    torch.testing.assert_close(rows["target"], rows["mask"] / rows["mask"].sum(1, keepdim=True))
    cfr.iterate()
    later = cfr.strategies.all()["target"][len(rows["target"]) :]
    assert (later.max(dim=1).values > 0.99).any()


def test_field_case_23_iterations_count_linearly() -> None:
    for weighting, expected in ((1.0, [1.0, 2.0, 3.0]), (0.0, [1.0] * 3)):
        cfr = learner(capacity=100_000, weighting=weighting)
        for _ in range(3):
            cfr.iterate()
        for rows in (cfr.advantages.all(), cfr.strategies.all()):
            assert rows["weight"].unique().tolist() == sorted(set(expected))
        found = cfr.advantages.all()["weight"]
        assert found[0] == expected[0]
        assert found[-1] == expected[-1]
    # The paper's number of steps, below which it is known to converge badly.
    assert DeepCFRConfig().steps >= 750


def test_networks_learn_weighted_means() -> None:
    cfr = learner(steps=600, average_steps=600, learning_rate=1e-2, average_learning_rate=1e-2)
    features = torch.zeros(2, cfr.network.num_features)
    mask = torch.zeros(2, cfr.game.num_actions, dtype=torch.bool)
    mask[:, 4:6] = True
    target = torch.zeros(2, cfr.game.num_actions)
    target[0, 4:6] = torch.tensor([1.0, 0.0])
    target[1, 4:6] = torch.tensor([0.0, 1.0])
    rows = {"features": features, "mask": mask, "target": target}
    for reservoir in (cfr.advantages, cfr.strategies):
        reservoir.add(**rows, weight=torch.tensor([1.0, 3.0]))
    for network, optimizer, reservoir, loss in (
        (cfr.network, cfr.optimizer, cfr.advantages, cfr._advantage_loss),
        (cfr.average, cfr.average_optimizer, cfr.strategies, cfr._average_loss),
    ):
        cfr._fit(network, optimizer, reservoir, 600, 64, 1e-2, loss)
    with torch.no_grad():
        advantages = cfr.network.heads(features[:1])[0]
        logits = cfr.average.heads(features[:1])[0]
    torch.testing.assert_close(advantages[0, 4:6], torch.tensor([0.25, 0.75]), atol=0.03, rtol=0.0)
    torch.testing.assert_close(
        logits[0, 4:6].softmax(0), torch.tensor([0.25, 0.75]), atol=0.03, rtol=0.0
    )
    # Illegal actions are not learned: their advantage stays what it was, nearly zero.
    assert advantages[0, :4].abs().max() < 0.2


def test_losses_are_reported_as_weighted_means_whatever_the_iteration() -> None:
    cfr = learner(steps=20, learning_rate=1e-9, weighting=2.0)
    size = 50
    mask = torch.zeros(size, cfr.game.num_actions, dtype=torch.bool)
    mask[:, 4] = True
    features = torch.zeros(size, cfr.network.num_features)
    with torch.no_grad():
        answer = cfr.network.heads(features[:1])[0][0, 4]
    # Each row is wrong by 3, and counts as one of an early iteration would.
    target = torch.zeros(size, cfr.game.num_actions)
    target[:, 4] = answer + 3.0
    cfr.advantages.add(features=features, mask=mask, target=target, weight=torch.ones(size))
    for iteration in (0, 9):
        cfr.iteration = iteration
        loss, _ = cfr._fit(
            cfr.network, cfr.optimizer, cfr.advantages, 20, 32, 1e-9, cfr._advantage_loss
        )
        assert loss == pytest.approx(9.0, rel=1e-3)


def test_one_seed_decides_everything() -> None:
    runs: list[bytes] = []
    for seed in (4, 4, 5):
        torch.manual_seed(len(runs))
        cfr = learner(seed=seed)
        for _ in range(3):
            cfr.iterate()
            if len(runs) == 1:
                cfr.policies()  # to be asked changes nothing
        runs.append(weights(cfr))
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("from_scratch", [False, True])
def test_a_restored_learner_goes_on_exactly(from_scratch: bool) -> None:
    cfr = learner(from_scratch=from_scratch)
    for _ in range(2):
        cfr.iterate()
    state = copy.deepcopy(cfr.state_dict())
    other = learner(from_scratch=from_scratch)
    other.load_state_dict(state)
    for _ in range(2):
        first, second = cfr.iterate(), other.iterate()
        for name in ("advantage_loss", "average_loss", "grad_norm"):
            assert first[name] == second[name]
    assert weights(cfr) == weights(other)
    assert (cfr.iteration, cfr.env_steps, cfr.deals) == (4, other.env_steps, 160)
    assert cfr.is_finished


def test_each_process_has_its_own_deals_and_draws_and_the_same_weights() -> None:
    first, second = (
        DeepCFR(Game(2, SMALL), TINY, NetworkConfig(hidden=(16,)), workers=Workers(rank, 2))
        for rank in range(2)
    )
    assert weights(first) == weights(second)
    assert (first.env.observation != second.env.observation).any()
    draws = [torch.rand(5, generator=cfr.generator) for cfr in (first, second)]
    assert not torch.equal(draws[0], draws[1])
    # Two networks, two beginnings.
    networks = (first.network, first.average)
    assert not torch.equal(*(network.body[0].weight for network in networks))


def test_new_weights_for_every_iteration_if_wished() -> None:
    cfr = learner(from_scratch=True, steps=1, learning_rate=1e-9)
    firsts = []
    for _ in range(3):
        cfr.iterate()
        firsts.append(cfr.network.body[0].weight.detach().clone())
    assert not torch.allclose(firsts[0], firsts[1], atol=1e-3)
    assert not torch.allclose(firsts[1], firsts[2], atol=1e-3)
    kept = learner(steps=1, learning_rate=1e-9)
    before = kept.network.body[0].weight.detach().clone()
    kept.iterate()
    torch.testing.assert_close(kept.network.body[0].weight.detach(), before, atol=1e-6, rtol=0)


def test_a_loss_that_is_not_finite_stops_before_the_weights_are_lost() -> None:
    cfr = learner(capacity=100_000)
    cfr.iterate()
    cfr.advantages.all()["target"].fill_(float("inf"))
    before = weights(cfr)
    with pytest.raises(DivergenceError, match=r"iteration 2, step 1 of 6: the loss is"):
        cfr.iterate()
    assert weights(cfr) == before


@pytest.mark.parametrize(
    "game",
    [
        Game(4, "dahua"),
        Game(3, {"preset": "dahua_house", "max_stake": 2}, reward="drinks"),
        Game(3, rounds=3, dealer_rotation="rotate"),
        Game(13),
    ],
    ids=lambda game: f"{game.num_players}-{game.num_actions}-{game.rounds}",
)
def test_every_kind_of_game_can_be_learned(game: Game) -> None:
    cfr = learner(game, deals=13, max_width=8.0)
    for _ in range(2):
        metrics = cfr.iterate()
        assert np.isfinite(list(metrics.values())).all()
    env = cfr.env
    answers = cfr.policies()["average"].probabilities(env.observation, env.action_mask)
    assert ((answers > 0) <= (env.action_mask != 0)).all()
    np.testing.assert_allclose(answers.sum(axis=1), 1.0, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"deals": 0}, r"deep_cfr\.deals: expected 1 or more, got 0"),
        ({"capacity": 0}, r"deep_cfr\.capacity"),
        ({"average_steps": 0}, r"deep_cfr\.average_steps"),
        ({"learning_rate": 0.0}, r"deep_cfr\.learning_rate: expected more than 0, got 0\.0"),
        ({"weighting": -1.0}, r"deep_cfr\.weighting: expected a number from 0 to 5, got -1\.0"),
        ({"max_width": 0.5}, r"deep_cfr\.max_width: expected 1 or more, got 0\.5"),
        ({"from_scratch": 1}, r"deep_cfr\.from_scratch: expected true or false, got 1"),
    ],
)
def test_values_out_of_range_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DeepCFRConfig(**change)


def test_every_hyperparameter_is_documented() -> None:
    described = DeepCFRConfig.__doc__ or ""
    for field in fields(DeepCFRConfig):
        assert f"\n        {field.name}: " in described


@pytest.mark.slow
def test_field_case_23_it_converges_on_a_small_deck() -> None:
    config = DeepCFRConfig(iterations=12, deals=2048, batch_size=256, average_batch_size=256)
    game = Game(2, SMALL)
    cfr = DeepCFR(game, config, NetworkConfig(hidden=(64, 64)), seed=0)
    found = {}
    while not cfr.is_finished:
        cfr.iterate()
        if cfr.iteration in (1, 12):
            result = nashconv(cfr.policies()["average"], game.rules, threads=1)
            found[cfr.iteration] = float(result.nashconv)
    # Uniform play loses about 2 units to best responses.
    assert found[1] > 1.0
    assert found[12] < 0.2
