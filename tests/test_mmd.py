"""Magnetic mirror descent: its divergence, by hand, and what it does to a step."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_ppo import SMALL, TINY

from agents.mmd import MMD, MMDConfig
from agents.rollout import Batch
from shuiyu_env.core.errors import ConfigError
from shuiyu_env.core.game import Game
from shuiyu_env.policies.network import MaskedCategorical, NetworkConfig

torch.set_num_threads(1)


def learner(**settings: float) -> MMD:
    config = MMDConfig(total_steps=2000, num_envs=16, window=12, minibatch_size=10_000)
    return MMD(Game(2, SMALL), replace(config, **settings), NetworkConfig(hidden=(16,)))


def batch_of(mmd: MMD) -> Batch:
    return mmd.rollout.collect(mmd.network, mmd.generator, 1.0)


def test_the_divergence_is_from_the_policy_before_the_update() -> None:
    mmd = learner(kl=0.7, final_kl=0.7, entropy=0.3, final_entropy=0.3, barrier=0.2)
    batch = batch_of(mmd)
    rows = slice(0, 50)
    mmd.begin_update(batch)
    with torch.no_grad():
        old = MaskedCategorical(mmd.network.heads(batch.features)[0], batch.action_mask)
        for parameter in mmd.network.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        new = MaskedCategorical(mmd.network.heads(batch.features)[0], batch.action_mask)
        found = mmd.regularisation(
            MaskedCategorical(mmd.network.heads(batch.features[rows])[0], batch.action_mask[rows]),
            rows,
            mmd.schedule(),
        )
        p, q = new.probs[rows], old.probs[rows]
        legal = batch.action_mask[rows]
        logs = torch.where(legal, p.clamp(min=1e-30).log() - q.clamp(min=1e-30).log(), 0.0)
        divergence = (p * logs).sum(1).mean()
        log_p = torch.where(legal, p.clamp(min=1e-30).log(), 0.0)
        entropy = -(p * log_p).sum(1).mean()
        surprise = -(log_p.sum(1) / legal.sum(1)).mean()
    assert float(divergence) > 0.001
    expected = 0.7 * divergence - 0.3 * entropy + 0.2 * surprise
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_its_weight_is_annealed() -> None:
    mmd = learner(kl=0.4, final_kl=0.0)
    assert mmd.schedule()["kl_weight"] == 0.4
    mmd.iteration = mmd.iterations // 2
    assert mmd.schedule()["kl_weight"] == pytest.approx(0.4 * (1 - mmd.progress))


def test_a_heavy_divergence_holds_the_policy_where_it_was() -> None:
    moved = []
    for weight in (0.0, 50.0):
        mmd = learner(kl=weight, final_kl=weight, epochs=20, learning_rate=1e-2)
        moved.append(mmd.iterate()["approx_kl"])
    assert moved[1] < 0.3 * moved[0]


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"mmd\.kl: expected 0 or more, got -1"):
        MMDConfig(kl=-1.0)
    assert TINY.section == "ppo"
    assert MMDConfig().section == "mmd"
