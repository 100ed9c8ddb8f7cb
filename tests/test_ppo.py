"""The learner: that it learns, stops in time, and goes on exactly."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from agents.learner import DivergenceError
from agents.ppo import PPO, PPOConfig
from agents.rollout import Batch
from shuiyu_env.core.errors import ConfigError
from shuiyu_env.core.game import Game
from shuiyu_env.evaluation import match_against
from shuiyu_env.policies.network import MaskedCategorical, NetworkConfig, NetworkPolicy

# More threads only get into each other's way on such small networks.
torch.set_num_threads(1)

SMALL = {"deck": {"ranks": 5, "suits": 2}}
# A batch that is given is one minibatch.
ONE_BATCH = {"minibatch_size": 10_000}
TINY = PPOConfig(total_steps=2000, num_envs=16, window=12, minibatch_size=64)


def learner(game: Game | None = None, seed: int = 0, **config: Any) -> PPO:
    return PPO(game or Game(2, SMALL), replace(TINY, **config), NetworkConfig(hidden=(16,)), seed)


def weights(ppo: PPO) -> bytes:
    return b"".join(t.numpy().tobytes() for t in ppo.network.state_dict().values())


def test_learns_to_beat_uniform_play() -> None:
    game = Game(2, SMALL)
    config = PPOConfig(total_steps=50_000, num_envs=128, window=16, minibatch_size=512)
    ppo = PPO(game, config, NetworkConfig(hidden=(32,)), seed=0)
    before = match_against(NetworkPolicy(ppo.network), ["uniform"], game, 400)[0].result
    while not ppo.is_finished:
        ppo.iterate()
    after = match_against(NetworkPolicy(ppo.network), ["uniform"], game, 400)[0].result
    assert before.both.low < 0.1
    assert after.both.low > 0.25
    assert after.dealer.low > 0.0


def test_field_case_20_the_first_gradient_step_finds_the_probabilities_unchanged() -> None:
    ppo = learner(epochs=1, minibatch_size=10_000)
    metrics = ppo.iterate()
    # Of both seats: a ratio other than 1 would show as divergence.
    assert abs(metrics["approx_kl"]) < 1e-7
    assert metrics["clip_fraction"] == 0.0
    assert metrics["gradient_steps"] == 1
    moved = learner(epochs=4, minibatch_size=10_000).iterate()
    assert moved["approx_kl"] > 1e-6


def one_decision_batch(ppo: PPO, advantage: list[float]) -> Batch:
    """The same decision over and over, with actions 0, 1, 0, 1, … and given advantages."""
    env, size = ppo.rollout.env, len(advantage)
    features = ppo.network.features(torch.from_numpy(env.observation[:1])).expand(size, -1).clone()
    mask = torch.zeros(size, ppo.game.num_actions, dtype=torch.bool)
    mask[:, :2] = True
    action = torch.arange(size) % 2
    hidden = torch.zeros(size, 0 if ppo.critic is None else ppo.critic.num_hidden)
    with torch.no_grad():
        logits, value = ppo.network.heads(features)
        if ppo.critic is not None:
            value = ppo.critic(features, hidden)
        policy = MaskedCategorical(logits, mask)
    returns = value + torch.tensor(advantage)
    return Batch(
        features,
        hidden,
        mask,
        action,
        policy.log_prob(action),
        value,
        torch.tensor(advantage),
        torch.ones(size),
        returns,
        deals=1,
    )


def probability(ppo: PPO, batch: Batch) -> float:
    with torch.no_grad():
        logits, _ = ppo.network.heads(batch.features[:1])
        policy = MaskedCategorical(logits, batch.action_mask[:1])
    return float(policy.probs[0, 1])


@pytest.mark.parametrize("normalise", [False, True])
def test_actions_with_an_advantage_become_likelier_but_not_beyond_the_clip(
    normalise: bool,
) -> None:
    ppo = learner(
        normalise_advantages=normalise, epochs=300, learning_rate=2e-4, entropy=0.0, **ONE_BATCH
    )
    batch = one_decision_batch(ppo, [-1.0, 1.0] * 20)
    before = probability(ppo, batch)
    ppo.update(batch)
    after = probability(ppo, batch)
    # Adam's momentum carries it a little past the point where the gradient ends.
    assert 1.1 <= after / before < 1.15


def test_decisions_count_by_their_importance_weights() -> None:
    ppo = learner(
        epochs=50, normalise_advantages=False, learning_rate=1e-3, entropy=0.0, **ONE_BATCH
    )
    # Without weights the two would cancel out: the same action, as good as it is bad.
    batch = one_decision_batch(ppo, [0.0, 1.0, 0.0, -1.0])
    batch.weight[:] = torch.tensor([0.0, 0.0, 0.0, 1.0])
    before = probability(ppo, batch)
    values = ppo.critic(batch.features, batch.hidden) if ppo.critic else None
    ppo.update(batch)
    assert probability(ppo, batch) < 0.97 * before
    # The critic learned from the fourth alone.
    assert ppo.critic is not None
    assert values is not None
    assert (ppo.critic(batch.features, batch.hidden) < values - 0.01).all()


def test_the_clip_lets_a_policy_come_back() -> None:
    """Beyond the clip on the wrong side there is still a gradient: the minimum of the two."""
    ppo = learner(
        epochs=1, normalise_advantages=False, learning_rate=1e-3, entropy=0.0, barrier=0.0,
        final_barrier=0.0, **ONE_BATCH,
    )  # fmt: skip
    batch = one_decision_batch(ppo, [0.0, 1.0])
    # Half as likely as when it was taken, though it was good.
    batch.log_prob[1] += np.log(2.0)
    before = probability(ppo, batch)
    metrics = ppo.update(batch)
    assert metrics["clip_fraction"] == 0.5
    assert metrics["grad_norm"] > 1e-3
    assert probability(ppo, batch) > before


def test_entropy_makes_the_policy_uniform() -> None:
    ppo = learner(
        epochs=200, normalise_advantages=False, learning_rate=1e-2, entropy=1.0, **ONE_BATCH
    )
    with torch.no_grad():
        ppo.network.policy_head.bias[1] = 3.0
    batch = one_decision_batch(ppo, [0.0, 0.0])
    assert probability(ppo, batch) > 0.9
    metrics = ppo.update(batch)
    assert probability(ppo, batch) < 0.9
    assert np.isfinite(list(metrics.values())).all()


@pytest.mark.parametrize("barrier", [0.0, 0.05])
def test_the_barrier_brings_back_an_action_that_has_died_out(barrier: float) -> None:
    ppo = learner(
        epochs=100,
        normalise_advantages=False,
        learning_rate=1e-2,
        entropy=0.0,
        barrier=barrier,
        **ONE_BATCH,
    )
    with torch.no_grad():
        ppo.network.policy_head.bias[1] = -12.0
    # Never taken, as it would not be; the other one pays what was expected.
    batch = one_decision_batch(ppo, [0.0, 0.0])
    batch.action[:] = 0
    assert probability(ppo, batch) < 1e-4
    ppo.update(batch)
    assert (probability(ppo, batch) > 1e-3) == (barrier > 0.0)


@pytest.mark.parametrize("central", [True, False])
def test_values_learn_the_returns(central: bool) -> None:
    ppo = learner(
        epochs=200,
        normalise_advantages=False,
        learning_rate=1e-2,
        entropy=0.0,
        central_critic=central,
        **ONE_BATCH,
    )
    batch = one_decision_batch(ppo, [2.0, 2.0])
    ppo.update(batch)
    with torch.no_grad():
        value = ppo.network.heads(batch.features)[1]
        if ppo.critic is not None:
            value = ppo.critic(batch.features, batch.hidden)
    assert (ppo.critic is not None) == central
    torch.testing.assert_close(value, batch.returns, atol=0.2, rtol=0.0)


def test_the_average_goes_back_over_a_part_of_all_iterations() -> None:
    everything, recent = learner(averaging=1.0), learner(averaging=0.5)
    seen = []
    for _ in range(6):
        everything.iterate()
        recent.iterate()
        seen.append(recent.network.policy_head.weight.detach().clone())
    assert everything.average is not None
    assert recent.average is not None
    torch.testing.assert_close(everything.average.policy_head.weight, torch.stack(seen).mean(0))
    # The last of six has a weight of 1 / 3, the one before it of 1 / 2.5 of the rest, and so on.
    expected = seen[1]
    for number, weight in enumerate(seen[2:], 3):
        expected = expected + (weight - expected) / (number / 2)
    torch.testing.assert_close(recent.average.policy_head.weight, expected)
    # It is what the run is about.
    assert list(recent.policies()) == ["average", "last"]
    assert list(learner(averaging=0.0).policies()) == ["last"]


def test_target_kl_stops_an_iteration_early() -> None:
    steps = learner(epochs=5, learning_rate=0.1).iterate()["gradient_steps"]
    stopped = learner(epochs=5, learning_rate=0.1, target_kl=1e-4).iterate()["gradient_steps"]
    assert stopped < steps
    # Within an epoch, too: there may be only one.
    steps = learner(epochs=1, learning_rate=0.1).iterate()["gradient_steps"]
    stopped = learner(epochs=1, learning_rate=0.1, target_kl=1e-4).iterate()["gradient_steps"]
    assert 1 < stopped < steps


def test_learning_rate_and_entropy_weight_run_from_start_to_end() -> None:
    ppo = learner(learning_rate=0.01, final_learning_rate=0.0, entropy=0.2, final_entropy=0.1)
    rows = []
    while not ppo.is_finished:
        rows.append(ppo.iterate())
    assert ppo.iteration == len(rows) == ppo.iterations == 11
    assert ppo.env_steps == 11 * 16 * 12
    assert ppo.deals == sum(row["deals"] for row in rows) > 0
    assert ppo.optimizer.param_groups[0]["lr"] == rows[-1]["learning_rate"]
    rates = [row["learning_rate"] for row in rows]
    np.testing.assert_allclose(rates, [0.01 * (1 - i / 11) for i in range(11)])
    np.testing.assert_allclose(
        [row["entropy_weight"] for row in rows], [0.2 - 0.1 * i / 11 for i in range(11)]
    )
    for row in rows:
        shares = row["share_environment"] + row["share_network"] + row["share_update"]
        assert 0.0 < shares <= 1.0
        assert row["env_steps_per_second"] > 0.0


@pytest.mark.parametrize("where", ["returns", "advantage"])
def test_a_loss_that_is_not_finite_stops_before_the_weights_are_lost(where: str) -> None:
    ppo = learner(normalise_advantages=False, **ONE_BATCH)
    batch = one_decision_batch(ppo, [1.0, -1.0])
    getattr(batch, where)[0] = float("inf")
    before = weights(ppo)
    with pytest.raises(
        DivergenceError,
        match=r"iteration 1, epoch 1, minibatch 1 of 1: the loss is .*expected finite",
    ):
        ppo.update(batch)
    assert weights(ppo) == before


def test_one_seed_decides_everything() -> None:
    runs: list[bytes] = []
    for seed in (4, 4, 5):
        torch.manual_seed(len(runs))
        np.random.seed(len(runs))  # noqa: NPY002 - the global generator must not matter
        ppo = learner(seed=seed)
        for _ in range(3):
            ppo.iterate()
        runs.append(weights(ppo))
    assert runs[0] == runs[1] != runs[2]


def test_a_restored_learner_goes_on_exactly() -> None:
    ppo = learner()
    for _ in range(3):
        ppo.iterate()
    # What is kept must not change while learning goes on.
    state = copy.deepcopy(ppo.state_dict())
    other = learner(seed=0)
    other.load_state_dict(state)
    timing = {"seconds", "env_steps_per_second"}
    for _ in range(3):
        first, second = ppo.iterate(), other.iterate()
        for name in first.keys() - timing:
            if not name.startswith("share_"):
                assert first[name] == second[name], name
    assert weights(ppo) == weights(other)


@pytest.mark.parametrize(
    "game",
    [
        Game(4, "dahua"),
        Game(4, "dahua_house", reward="drinks"),
        Game(4, {"preset": "nanning", "max_stake": 5, "declare": "in_turn"}),
        Game(3, rounds=3, dealer_rotation="rotate"),
        Game(2, {"preset": "dahua_house", "deck": {"ranks": 2, "suits": 4}}),
        Game(13),
    ],
    ids=lambda game: f"{game.num_players}-{game.num_actions}-{game.rounds}",
)
def test_every_kind_of_game_can_be_learned(game: Game) -> None:
    ppo = learner(game, num_envs=8, window=40)
    before = weights(ppo)
    for _ in range(3):
        metrics = ppo.iterate()
        assert np.isfinite(list(metrics.values())).all()
    assert weights(ppo) != before


def test_a_window_without_a_settled_deal_teaches_nothing_yet() -> None:
    ppo = learner(Game(6), window=1)
    before = weights(ppo)
    metrics = ppo.iterate()
    assert metrics["deals"] == 0
    assert "policy_loss" not in metrics
    assert weights(ppo) == before
    assert ppo.rollout.waiting == 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_envs": 0}, r"ppo\.num_envs: expected 1 or more, got 0"),
        ({"total_steps": -5}, r"ppo\.total_steps"),
        ({"learning_rate": 0.0}, r"ppo\.learning_rate: expected more than 0, got 0\.0"),
        ({"learning_rate": float("nan")}, r"ppo\.learning_rate"),
        ({"entropy": -0.1}, r"ppo\.entropy: expected 0 or more, got -0\.1"),
        ({"value": float("inf")}, r"ppo\.value"),
        ({"clip": 1.0}, r"ppo\.clip: expected a number between 0 and 1, or null, got 1\.0"),
        ({"gae_lambda": 1.1}, r"ppo\.gae_lambda: expected a number from 0 to 1, got 1\.1"),
        ({"target_kl": 0.0}, r"ppo\.target_kl: expected more than 0, or null, got 0\.0"),
    ],
)
def test_values_out_of_range_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PPOConfig(**change)


def test_bfloat16_learns_nearly_the_same_in_single_precision_weights() -> None:
    whole, half = learner(), learner(bf16=True)
    start = dict(whole.network.named_parameters())["body.0.weight"].detach().clone()
    whole.iterate()
    half.iterate()
    moved = [dict(p.network.named_parameters())["body.0.weight"] - start for p in (whole, half)]
    assert all(p.dtype == torch.float32 for p in half.network.parameters())
    assert not torch.equal(moved[0], moved[1])
    similarity = torch.cosine_similarity(moved[0].flatten(), moved[1].flatten(), dim=0)
    assert similarity.item() > 0.9


def test_every_hyperparameter_is_documented() -> None:
    described = PPOConfig.__doc__ or ""
    for field in fields(PPOConfig):
        assert f"\n        {field.name}: " in described
