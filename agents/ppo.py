"""Proximal policy optimisation (PPO) in self-play.

One network plays all seats against itself and learns from every seat's
decisions. What makes plain policy gradients settle near an equilibrium of a
two-player zero-sum game, instead of chasing the opponent in circles, is an
entropy bonus much larger than usual and small steps: Rudolph et al.,
"Reevaluating policy gradient methods for imperfect-information games" (2025).
PPO itself: Schulman et al., "Proximal policy optimization algorithms" (2017).
"""

from __future__ import annotations

__all__ = ["PPO", "DivergenceError", "PPOConfig"]

import math
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch

from agents.rollout import Batch, Rollout
from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.errors import ConfigError, ShuiyuError
from shuiyu_env.core.game import Game
from shuiyu_env.observation import layout_of
from shuiyu_env.policies.network import ActorCritic, MaskedCategorical, NetworkConfig

#: Turns a run's seed into that of its sampled actions and its minibatches.
_SAMPLING = 0x5A3C_96E1


class DivergenceError(ShuiyuError):
    """Learning went wrong: a loss or a gradient is not finite."""


@dataclass(frozen=True)
class PPOConfig:
    """Every hyperparameter of the learner.

    Args:
        total_steps: decisions, of all seats together, to learn from in all;
            rounded up to whole iterations.
        num_envs: games played at once.
        window: decisions that each game takes in one iteration, so that
            ``num_envs * window`` are learned from at a time.
        epochs: passes over each batch.
        minibatch_size: decisions in one gradient step.
        learning_rate: of Adam, at the start.
        final_learning_rate: at the end; linear in between.
        adam_eps: Adam's constant for numerical stability.
        clip: how far an action's probability ratio may move in one iteration
            before it is no longer rewarded.
        entropy: weight of the policy's entropy, at the start; per unit of
            normalised advantage. 0.05 to 0.2 is what such games want.
        final_entropy: at the end; linear in between.
        value: weight of the value loss (mean squared error, in units).
        max_grad_norm: gradients are scaled down to this norm.
        gae_lambda: 1 credits a decision with what its deal paid; less leans on
            the network's estimates of a seat's later decisions.
        normalise_advantages: whether advantages are scaled to mean 0 and
            deviation 1 over the batch.
        target_kl: if given, an iteration stops after the epoch in which the
            policy has moved this far (approximate Kullback-Leibler divergence, nats).

    Raises:
        ConfigError: a value out of range.
    """

    total_steps: int = 8_000_000
    num_envs: int = 512
    window: int = 32
    epochs: int = 3
    minibatch_size: int = 2048
    learning_rate: float = 3e-3
    final_learning_rate: float = 1e-4
    adam_eps: float = 1e-5
    clip: float = 0.1
    entropy: float = 0.1
    final_entropy: float = 0.05
    value: float = 0.5
    max_grad_norm: float = 0.5
    gae_lambda: float = 1.0
    normalise_advantages: bool = True
    target_kl: float | None = None

    def __post_init__(self) -> None:
        for name in ("total_steps", "num_envs", "window", "epochs", "minibatch_size"):
            if getattr(self, name) < 1:
                raise _out_of_range(name, "1 or more", getattr(self, name))
        for name in ("learning_rate", "adam_eps", "max_grad_norm"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise _out_of_range(name, "more than 0", getattr(self, name))
        for name in ("final_learning_rate", "entropy", "final_entropy", "value"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise _out_of_range(name, "0 or more", getattr(self, name))
        if not 0.0 < self.clip < 1.0:
            raise _out_of_range("clip", "a number between 0 and 1", self.clip)
        if not 0.0 <= self.gae_lambda <= 1.0:
            raise _out_of_range("gae_lambda", "a number from 0 to 1", self.gae_lambda)
        if self.target_kl is not None and not 0.0 < self.target_kl < math.inf:
            raise _out_of_range("target_kl", "more than 0, or null", self.target_kl)

    @property
    def steps_per_iteration(self) -> int:
        """Decisions taken in one iteration."""
        return self.num_envs * self.window

    @property
    def iterations(self) -> int:
        """Iterations in all."""
        return -(-self.total_steps // self.steps_per_iteration)


def _out_of_range(name: str, expected: str, got: object) -> ConfigError:
    return ConfigError(f"ppo.{name}: expected {expected}, got {got!r}")


class PPO:
    """The learner: a network, its optimizer and the games that it plays.

    Args:
        game: the game.
        config: hyperparameters.
        network: the shape of the network.
        seed: of the deals, the first weights and all sampling.
        device: where the network is and learns.

    Attributes:
        network: the actor-critic being trained.
        iteration: iterations done.
        env_steps: decisions taken so far.
        deals: deals learned from so far.
    """

    name = "ppo"

    def __init__(
        self,
        game: Game,
        config: PPOConfig | None = None,
        network: NetworkConfig | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.game = game
        self.config = PPOConfig() if config is None else config
        self.device = torch.device(device)
        # First weights come from the CPU's generator, so they are the same on every device.
        weights = torch.Generator().manual_seed(seed)
        self.network = ActorCritic(layout_of(game), network, weights).to(self.device)
        self.optimizer = torch.optim.Adam(
            self.network.parameters(), lr=self.config.learning_rate, eps=self.config.adam_eps
        )
        # Another stream than that of the weights.
        self.generator = torch.Generator(self.device).manual_seed(seed ^ _SAMPLING)
        env = BatchEnv(game, self.config.num_envs, seed)
        self.rollout = Rollout(env, self.config.window, self.device)
        self.iteration = 0
        self.env_steps = 0
        self.deals = 0

    @property
    def is_finished(self) -> bool:
        """Whether all iterations are done."""
        return self.iteration >= self.config.iterations

    def iterate(self) -> dict[str, float]:
        """Play one window, learn from it, and return what there is to report.

        Raises:
            DivergenceError: a loss or gradient is not finite. The weights are
                those after the last good gradient step.
        """
        config, rollout = self.config, self.rollout
        began = time.perf_counter()
        environment, network = rollout.environment_seconds, rollout.network_seconds
        self.network.train()
        # All old log-probabilities are taken here, before any weight changes.
        batch = rollout.collect(self.network, self.generator, config.gae_lambda)
        collected = time.perf_counter()
        progress = self.iteration / config.iterations
        learning_rate = _between(config.learning_rate, config.final_learning_rate, progress)
        entropy_weight = _between(config.entropy, config.final_entropy, progress)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        # Short windows may not settle any deal.
        metrics = self.update(batch, entropy_weight) if len(batch) else {}
        ended = time.perf_counter()

        self.iteration += 1
        self.env_steps += config.steps_per_iteration
        self.deals += batch.deals
        seconds = ended - began
        return metrics | {
            "deals": float(batch.deals),
            "learning_rate": learning_rate,
            "entropy_weight": entropy_weight,
            "env_steps_per_second": config.steps_per_iteration / seconds,
            "seconds": seconds,
            "share_environment": (rollout.environment_seconds - environment) / seconds,
            "share_network": (rollout.network_seconds - network) / seconds,
            "share_update": (ended - collected) / seconds,
        }

    def update(self, batch: Batch, entropy_weight: float) -> dict[str, float]:
        """Take some epochs of gradient steps on a batch; return mean losses and the like."""
        config = self.config
        advantage = batch.advantage
        if config.normalise_advantages:
            advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        # The same in every epoch: no weights are in them.
        features = self.network.features(batch.observation)
        sums: dict[str, float] = defaultdict(float)
        steps = 0
        for _ in range(config.epochs):
            order = torch.randperm(len(batch), generator=self.generator, device=self.device)
            divergence = 0.0
            parts = order.tensor_split(-(-len(batch) // config.minibatch_size))
            for rows in parts:
                logits, value = self.network.heads(features[rows])
                policy = MaskedCategorical(logits, batch.action_mask[rows])
                log_ratio = policy.log_prob(batch.action[rows]) - batch.log_prob[rows]
                ratio = log_ratio.exp()
                clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
                gain = torch.minimum(ratio * advantage[rows], clipped * advantage[rows])
                policy_loss = -gain.mean()
                entropy = policy.entropy().mean()
                value_loss = (value - batch.returns[rows]).square().mean()
                loss = policy_loss - entropy_weight * entropy + config.value * value_loss

                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                norm = torch.nn.utils.clip_grad_norm_(
                    self.network.parameters(), config.max_grad_norm
                )
                # Before the step: afterwards the weights would be lost.
                if not (torch.isfinite(loss) and torch.isfinite(norm)):
                    raise DivergenceError(
                        f"iteration {self.iteration}: the loss is {loss.item():.4g} and the"
                        f" gradient's norm {norm.item():.4g}; expected finite numbers"
                    )
                self.optimizer.step()

                with torch.no_grad():
                    kl = (ratio - 1.0 - log_ratio).mean().item()
                    divergence += kl / len(parts)
                    sums["policy_loss"] += policy_loss.item()
                    sums["value_loss"] += value_loss.item()
                    sums["entropy"] += entropy.item()
                    sums["approx_kl"] += kl
                    sums["clip_fraction"] += (
                        ((ratio - 1.0).abs() > config.clip).float().mean().item()
                    )
                    sums["grad_norm"] += norm.item()
                steps += 1
            if config.target_kl is not None and divergence > config.target_kl:
                break
        # Weights that are finite may still be too large to compute with.
        with torch.no_grad():
            answers = self.network.heads(features)
        if not all(torch.isfinite(answer).all() for answer in answers):
            raise DivergenceError(
                f"iteration {self.iteration}: the network's answers are no longer finite"
            )
        metrics = {name: total / steps for name, total in sums.items()}
        spread = batch.returns.var(correction=0)
        left = (batch.returns - batch.value).var(correction=0)
        metrics["explained_variance"] = (1.0 - left / (spread + 1e-8)).item()
        metrics["gradient_steps"] = float(steps)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on exactly, between two iterations."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "rollout": self.rollout.state_dict(),
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            "deals": self.deals,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        self.rollout.load_state_dict(state["rollout"])
        self.iteration = state["iteration"]
        self.env_steps = state["env_steps"]
        self.deals = state["deals"]


def _between(start: float, end: float, progress: float) -> float:
    return start + (end - start) * progress
