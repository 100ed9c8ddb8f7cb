"""Proximal policy optimisation (PPO) in self-play.

One network plays all seats against itself and learns from every seat's
decisions. What makes plain policy gradients settle near an equilibrium of a
two-player zero-sum game, instead of chasing the opponent in circles, is an
entropy bonus much larger than usual and small steps: Rudolph et al.,
"Reevaluating policy gradient methods for imperfect-information games" (2025).
PPO itself: Schulman et al., "Proximal policy optimization algorithms" (2017).
"""

from __future__ import annotations

__all__ = ["PPO", "PPOConfig"]

import copy
import math
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from agents.critic import Critic
from agents.learner import (
    LearnedPolicy,
    Learner,
    annealed,
    check_answers,
    check_at_least,
    check_flags,
    check_from,
    check_positive,
    move_average,
    out_of_range,
    step,
)
from agents.rollout import Batch, Rollout
from agents.workers import Workers
from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.game import Game
from shuiyu_env.observation import layout_of
from shuiyu_env.policies.network import (
    ActorCritic,
    MaskedCategorical,
    NetworkConfig,
    NetworkPolicy,
)

#: Of logarithms of probability ratios; far outside any clip.
_MOST = 20.0


@dataclass(frozen=True)
class PPOConfig:
    """Every hyperparameter of the learner.

    Args:
        total_steps: decisions, of all seats together, to learn from in all;
            rounded up to whole iterations.
        num_envs: games played at once, by each process.
        window: decisions that each game takes in one iteration, so that
            ``num_envs * window`` are learned from at a time.
        epochs: passes over each batch.
        minibatch_size: decisions in one gradient step, of each process.
        learning_rate: of Adam, at the start.
        final_learning_rate: at the end; linear in between.
        adam_eps: Adam's constant for numerical stability.
        clip: how far an action's probability ratio may move in one iteration
            before it is no longer rewarded; null for as far as it likes.
        entropy: weight of the policy's entropy, at the start; per unit of advantage,
            normalised or not. 0.05 to 0.2 is what such games want at the start.
        final_entropy: at the end; linear in between.
        barrier: weight of the mean of -log(probability) over all legal actions, at the start.
            It keeps every action alive at a probability of some thousandths, however bad: one
            that has died out is not answered rightly any more, and would not come back when it
            pays again (Agarwal et al., "On the theory of policy gradient methods", 2021).
        final_barrier: at the end; linear in between.
        value: weight of the value loss (mean squared error, in units); of a central critic,
            which learns on its own, only as far as gradients are clipped.
        central_critic: whether the estimates that decisions are compared with come from a
            network of their own that sees the cards of both sides:
            :class:`~agents.critic.Critic`. The value head of the network that plays is then
            left as it began.
        max_grad_norm: gradients are scaled down to this norm.
        gae_lambda: 1 credits a decision with what its deal paid; less leans on
            the network's estimates of a seat's later decisions.
        exploration: how often a punter opens whatever the network says, so that its answers
            to hands that it would never open itself stay in practice; importance weights
            make up for it. See :mod:`agents.rollout`.
        normalise_advantages: whether advantages are scaled to mean 0 and
            deviation 1 over the batch.
        target_kl: if given, an iteration takes no more gradient steps once the policy has
            moved this far on a minibatch (approximate Kullback-Leibler divergence, nats).
        bf16: whether an update's passes are done in bfloat16, as far as that is safe (autocast);
            saves time with large networks on a GPU. Actions are drawn in single precision.
        averaging: how far back the average of the weights goes that is kept beside the
            newest ones: the part of all iterations so far; 0 for no average.

    Raises:
        ConfigError: a value out of range.
    """

    total_steps: int = 16_000_000
    num_envs: int = 2048
    window: int = 8
    epochs: int = 1
    minibatch_size: int = 2048
    learning_rate: float = 4e-3
    final_learning_rate: float = 1e-4
    adam_eps: float = 1e-5
    clip: float | None = 0.1
    entropy: float = 0.2
    final_entropy: float = 0.05
    barrier: float = 0.01
    final_barrier: float = 0.0001
    value: float = 0.5
    central_critic: bool = True
    max_grad_norm: float = 0.5
    gae_lambda: float = 0.5
    exploration: float = 0.1
    normalise_advantages: bool = True
    target_kl: float | None = None
    bf16: bool = False
    averaging: float = 0.1

    #: The name of these settings in configuration files.
    section: ClassVar[str] = "ppo"

    def __post_init__(self) -> None:
        whole = ("total_steps", "num_envs", "window", "epochs", "minibatch_size")
        check_at_least(1, self.section, self, whole)
        check_positive(self.section, self, ("learning_rate", "adam_eps", "max_grad_norm"))
        weights = ("entropy", "final_entropy", "barrier", "final_barrier", "value")
        check_from(0.0, math.inf, self.section, self, ("final_learning_rate", *weights))
        check_from(0.0, 1.0, self.section, self, ("gae_lambda", "averaging"))
        if not 0.0 <= self.exploration < 1.0:
            raise out_of_range(
                f"{self.section}.exploration", "0 or more, and less than 1", self.exploration
            )
        if self.clip is not None and not 0.0 < self.clip < 1.0:
            raise out_of_range(
                f"{self.section}.clip", "a number between 0 and 1, or null", self.clip
            )
        if self.target_kl is not None and not 0.0 < self.target_kl < math.inf:
            raise out_of_range(f"{self.section}.target_kl", "more than 0, or null", self.target_kl)
        check_flags(self.section, self, ("bf16", "central_critic", "normalise_advantages"))


class PPO(Learner):
    """The learner: a network, its optimizer and the games that it plays.

    Attributes:
        network: the actor-critic being trained.
        average: the average of its weights over the last iterations, or ``None``.
        critic: what values are estimated with, or ``None``: the network's own.
    """

    name: ClassVar[str] = "ppo"

    def __init__(
        self,
        game: Game,
        config: PPOConfig | None = None,
        network: NetworkConfig | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        workers: Workers | None = None,
    ) -> None:
        super().__init__(game, seed, device, workers)
        self.config = PPOConfig() if config is None else config
        self.network = ActorCritic(layout_of(game), network, self.weights()).to(self.device)
        self.average = copy.deepcopy(self.network) if self.config.averaging else None
        self.optimizer = self._adam(self.network)
        self.critic: Critic | None = None
        if self.config.central_critic:
            features = self.network.num_features
            self.critic = Critic(layout_of(game), features, generator=self.weights(1))
            self.critic.to(self.device)
            self.critic_optimizer = self._adam(self.critic)
        env = BatchEnv(game, self.config.num_envs, self.env_seed)
        self.rollout = Rollout(
            env, self.config.window, self.network.num_features, self.device, self.critic
        )

    def _adam(self, network: nn.Module) -> torch.optim.Adam:
        config = self.config
        return torch.optim.Adam(network.parameters(), lr=config.learning_rate, eps=config.adam_eps)

    @property
    def steps_per_iteration(self) -> int:
        """Decisions taken in one iteration, by all processes together."""
        return self.config.num_envs * self.config.window * self.workers.size

    @property
    def iterations(self) -> int:
        """Iterations in all."""
        return -(-self.config.total_steps // self.steps_per_iteration)

    def policies(self) -> Mapping[str, LearnedPolicy]:
        """Return the average, if one is kept, and the last iterate."""
        networks = {"average": self.average, "last": self.network}
        return {kind: NetworkPolicy(net) for kind, net in networks.items() if net is not None}

    def iterate(self) -> dict[str, float]:
        """Play one window, learn from it, and return what there is to report."""
        config, rollout = self.config, self.rollout
        began = time.perf_counter()
        environment, network = rollout.environment_seconds, rollout.network_seconds
        # All old log-probabilities are taken here, before any weight changes.
        batch = rollout.collect(self.network, self.generator, config.gae_lambda, config.exploration)
        collected = time.perf_counter()
        schedule = self.schedule()
        # Short windows may not settle any deal; then what other processes settled is left out.
        metrics = self.update(batch) if self.workers.fewest(len(batch)) else {}
        if self.average is not None:
            move_average(self.average, self.network, config.averaging, self.iteration + 1)
        seconds = time.perf_counter() - began

        deals = int(self.workers.total(batch.deals))
        self.iteration += 1
        self.env_steps += self.steps_per_iteration
        self.deals += deals
        return metrics | {
            "deals": float(deals),
            **schedule,
            "env_steps_per_second": self.steps_per_iteration / seconds,
            "seconds": seconds,
            "share_environment": (rollout.environment_seconds - environment) / seconds,
            "share_network": (rollout.network_seconds - network) / seconds,
            "share_update": (began + seconds - collected) / seconds,
        }

    def update(self, batch: Batch) -> dict[str, float]:
        """Take some epochs of gradient steps on a batch; return mean losses and the like."""
        config, where = self.config, f"iteration {self.iteration + 1}"
        schedule = self.schedule()
        optimizers = [self.optimizer] + ([self.critic_optimizer] if self.critic else [])
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = schedule["learning_rate"]
        # Once, so that minibatches are slices in every epoch.
        batch = batch.shuffled(self.generator)
        advantage = batch.advantage
        if config.normalise_advantages:
            advantage = self._normalised(advantage)
        self.begin_update(batch)
        sums: dict[str, float] = defaultdict(float)
        steps, too_far = 0, False
        # Every process takes the same number of steps.
        wanted = -(-config.num_envs * config.window // config.minibatch_size)
        parts = min(wanted, self.workers.fewest(len(batch)))
        edges = [len(batch) * k // parts for k in range(parts + 1)]
        for epoch in range(config.epochs):
            order = torch.randperm(parts, generator=self.generator, device=self.device)
            for number, part in enumerate(order.tolist(), 1):
                rows = slice(edges[part], edges[part + 1])
                with torch.autocast(self.device.type, torch.bfloat16, enabled=config.bf16):
                    logits, value = self.network.heads(batch.features[rows])
                    if self.critic is not None:
                        value = self.critic(batch.features[rows], batch.hidden[rows])
                logits, value = logits.float(), value.float()
                policy = MaskedCategorical(logits, batch.action_mask[rows])
                log_ratio = policy.log_prob(batch.action[rows]) - batch.log_prob[rows]
                # An action that only exploration took may have been as good as impossible.
                ratio = log_ratio.clamp(-_MOST, _MOST).exp()
                gain = ratio * advantage[rows]
                if config.clip is not None:
                    clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
                    gain = torch.minimum(gain, clipped * advantage[rows])
                weight = batch.weight[rows]
                policy_loss = -(weight * gain).mean()
                regularisation = self.regularisation(policy, rows, schedule)
                value_loss = (weight * (value - batch.returns[rows]).square()).mean()
                loss = policy_loss + regularisation
                name = f"{where}, epoch {epoch + 1}, minibatch {number} of {parts}"
                limits = (config.max_grad_norm, self.workers, name)
                if self.critic is None:
                    loss = loss + config.value * value_loss
                else:
                    step(config.value * value_loss, self.critic, self.critic_optimizer, *limits)
                norm = step(loss, self.network, self.optimizer, *limits)
                with torch.no_grad():
                    kl = (weight * (ratio - 1.0 - log_ratio)).mean().item()
                    sums["policy_loss"] += policy_loss.item()
                    sums["regularisation"] += regularisation.item()
                    sums["value_loss"] += value_loss.item()
                    sums["entropy"] += policy.entropy().mean().item()
                    sums["approx_kl"] += kl
                    sums["grad_norm"] += norm
                    if config.clip is not None:
                        outside = (ratio - 1.0).abs() > config.clip
                        sums["clip_fraction"] += (weight * outside).mean().item()
                steps += 1
                if config.target_kl is not None:
                    too_far = self.workers.total(kl) / self.workers.size > config.target_kl
                    if too_far:
                        break
            if too_far:
                break
        check_answers(self.network, batch.features[: edges[1]], where)
        metrics = {name: total / steps for name, total in sums.items()}
        spread = batch.returns.var(correction=0)
        left = (batch.returns - batch.value).var(correction=0)
        metrics["explained_variance"] = (1.0 - left / (spread + 1e-8)).item()
        metrics["gradient_steps"] = float(steps)
        return metrics

    def schedule(self) -> dict[str, float]:
        """Return the settings that change with progress, as they are in this iteration."""
        config, progress = self.config, self.progress
        return {
            "learning_rate": annealed(config.learning_rate, config.final_learning_rate, progress),
            "entropy_weight": annealed(config.entropy, config.final_entropy, progress),
            "barrier_weight": annealed(config.barrier, config.final_barrier, progress),
        }

    def begin_update(self, batch: Batch) -> None:
        """Prepare what :meth:`regularisation` needs of a batch, before any weight changes."""

    def regularisation(
        self, policy: MaskedCategorical, rows: slice, schedule: Mapping[str, float]
    ) -> Tensor:
        """Return what is added to the loss of some rows: here, entropy bonus and barrier."""
        entropy = -schedule["entropy_weight"] * policy.entropy().mean()
        return entropy + schedule["barrier_weight"] * policy.surprise().mean()

    def _normalised(self, advantage: Tensor) -> Tensor:
        """Return advantages with mean 0 and deviation 1 over all processes' batches."""
        ones = torch.ones_like(advantage)
        moments = torch.stack([ones.sum(), advantage.sum(), advantage.square().sum()]).double()
        count, total, squares = self.workers.sum(moments).tolist()
        mean = total / count
        deviation = math.sqrt(max(squares / count - mean**2, 0.0))
        normalised: Tensor = (advantage - mean) / (deviation + 1e-8)
        return normalised

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on exactly, between two iterations."""
        critic = {}
        if self.critic is not None:
            critic = {
                "critic": self.critic.state_dict(),
                "critic_optimizer": self.critic_optimizer.state_dict(),
            }
        return (
            super().state_dict()
            | critic
            | {
                "network": self.network.state_dict(),
                "average": None if self.average is None else self.average.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "rollout": self.rollout.state_dict(),
            }
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.network.load_state_dict(state["network"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])
            self.critic_optimizer.load_state_dict(state["critic_optimizer"])
        self.rollout.load_state_dict(state["rollout"])
        super().load_state_dict(state)
