"""The moving magnet: where it is, and that it draws the policy to itself."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from test_ppo import SMALL

from agents.nash_pg import NashPG, NashPGConfig
from shuiyu_env.core.errors import ConfigError
from shuiyu_env.core.game import Game
from shuiyu_env.policies.network import MaskedCategorical, NetworkConfig

torch.set_num_threads(1)


def learner(**settings: Any) -> NashPG:
    config = NashPGConfig(total_steps=2000, num_envs=16, window=12, minibatch_size=64)
    return NashPG(Game(2, SMALL), replace(config, **settings), NetworkConfig(hidden=(16,)))


def weights(network: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in network.parameters()]


def test_a_magnet_that_lags_is_the_average_of_the_last_policies() -> None:
    nash = learner(lag=0.5)
    expected = weights(nash.magnet)
    for share in (1.0, 1.0, 1 / 1.5, 1 / 2.0):
        nash.iterate()
        pairs = zip(expected, weights(nash.network), strict=True)
        expected = [(1.0 - share) * old + share * new for old, new in pairs]
        for found, wanted in zip(weights(nash.magnet), expected, strict=True):
            torch.testing.assert_close(found, wanted)


def test_a_magnet_of_copies_stands_still_in_between() -> None:
    nash = learner(refresh=2)
    first = weights(nash.magnet)
    nash.iterate()
    assert all(map(torch.equal, weights(nash.magnet), first))
    nash.iterate()
    assert all(map(torch.equal, weights(nash.magnet), weights(nash.network)))


def test_the_policy_is_drawn_to_the_magnet() -> None:
    apart = []
    for weight in (0.0, 20.0):
        nash = learner(magnet=weight, final_magnet=weight, epochs=30, learning_rate=3e-3)
        with torch.no_grad():
            nash.magnet.policy_head.bias[0] += 2.0
        batch = nash.rollout.collect(nash.network, nash.generator, 1.0)
        nash.update(batch)
        with torch.no_grad():
            policy, magnet = (
                MaskedCategorical(network.heads(batch.features)[0], batch.action_mask)
                for network in (nash.network, nash.magnet)
            )
            apart.append(float(policy.divergence(magnet.log_probs).mean()))
    assert apart[1] < 0.2 * apart[0]


def test_its_weight_is_annealed_and_reported() -> None:
    nash = learner(magnet=0.4, final_magnet=0.2)
    assert nash.iterate()["magnet_weight"] == 0.4
    assert nash.schedule()["magnet_weight"] == pytest.approx(0.4 - 0.2 * nash.progress)


def test_the_magnet_is_restored() -> None:
    nash = learner(lag=0.9)
    for _ in range(3):
        nash.iterate()
    other = learner(lag=0.9)
    other.load_state_dict(copy.deepcopy(nash.state_dict()))
    assert all(map(torch.equal, weights(other.magnet), weights(nash.magnet)))
    assert not all(map(torch.equal, weights(other.magnet), weights(other.network)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"magnet": -0.1}, r"nash_pg\.magnet: expected 0 or more, got -0\.1"),
        ({"lag": 1.1}, r"nash_pg\.lag: expected a number from 0 to 1, got 1\.1"),
        ({"refresh": -1}, r"nash_pg\.refresh: expected 0 or more, got -1"),
    ],
)
def test_values_out_of_range_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        NashPGConfig(**change)
