"""Deep counterfactual regret minimisation (Deep CFR).

Many deals are traversed by external sampling. One network learns the mean
advantage of every action over all iterations, and regret matching makes of it
what is played next; another learns the mean of all that was played, which in a
two-player zero-sum game comes near an equilibrium and is what the learner hands
out. Iteration t counts t times in both. Brown, Lerer, Gross & Sandholm, "Deep
counterfactual regret minimization" (2019).

Where this differs from the paper: one network serves all seats (the role is in
the observation), so all seats are traversers in the same iteration; the average
network learns a little in every iteration, so that it can be asked for at any
time; and what it maximises is the likelihood of what was played, whose best
answer is the same mean.
"""

from __future__ import annotations

__all__ = ["DeepCFR", "DeepCFRConfig", "regret_matching"]

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from agents.learner import (
    LearnedPolicy,
    Learner,
    annealed,
    check_answers,
    check_at_least,
    check_flags,
    check_from,
    check_positive,
    step,
)
from agents.reservoir import Reservoir
from agents.traversal import Traversal, deal_game, traverse
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

#: Streams of first weights; those of later advantage networks follow.
_AVERAGE, _ADVANTAGE = 0, 1


@dataclass(frozen=True)
class DeepCFRConfig:
    """Every hyperparameter of the learner.

    Args:
        iterations: in all.
        deals: deals traversed in one iteration, by each process; the seats take
            turns in being a deal's traverser.
        capacity: decisions that each of the two reservoirs keeps, of each process.
        steps: gradient steps of the advantage network in one iteration.
        batch_size: decisions in each of them, of each process.
        learning_rate: of Adam, at the beginning of an iteration's steps; from there it
            falls linearly to zero, which averages the noise of sampled advantages.
        from_scratch: whether each iteration's advantage network starts with new weights,
            as in the paper, rather than where the last one ended.
        average_steps: gradient steps of the average policy's network in one iteration.
        average_batch_size: decisions in each of them, of each process.
        average_learning_rate: as ``learning_rate``.
        max_grad_norm: gradients are scaled down to this norm.
        weighting: iteration t counts t to this power: 0 for all alike, 1 for linear CFR.
        max_width: copies of each deal that are followed at once, on average; beyond,
            decisions are branched by chance. Matters only with many seats.

    Raises:
        ConfigError: a value out of range.
    """

    iterations: int = 100
    deals: int = 4096
    capacity: int = 1_000_000
    steps: int = 750
    batch_size: int = 1024
    learning_rate: float = 3e-3
    from_scratch: bool = False
    average_steps: int = 250
    average_batch_size: int = 1024
    average_learning_rate: float = 3e-3
    max_grad_norm: float = 1.0
    weighting: float = 1.0
    max_width: float = 64.0

    #: The name of these settings in configuration files.
    section: ClassVar[str] = "deep_cfr"

    def __post_init__(self) -> None:
        whole = ("iterations", "deals", "capacity", "steps", "batch_size")
        check_at_least(1, self.section, self, (*whole, "average_steps", "average_batch_size"))
        rates = ("learning_rate", "average_learning_rate", "max_grad_norm")
        check_positive(self.section, self, rates)
        check_from(0.0, 5.0, self.section, self, ("weighting",))
        check_from(1.0, math.inf, self.section, self, ("max_width",))
        check_flags(self.section, self, ("from_scratch",))


def regret_matching(advantages: Tensor, mask: Tensor) -> Tensor:
    """Return probabilities in proportion to the positive advantages, ``float32[B, A]``.

    Where none is positive the action with the highest one is played (the paper, section 4).

    Args:
        advantages: ``float32[B, A]``.
        mask: ``bool[B, A]``.
    """
    positive = advantages.clamp(min=0.0).masked_fill(~mask, 0.0)
    total = positive.sum(dim=-1, keepdim=True)
    best = advantages.masked_fill(~mask, -torch.inf).argmax(dim=-1, keepdim=True)
    highest = torch.zeros_like(positive).scatter_(-1, best, 1.0)
    return torch.where(total > 0.0, positive / total.clamp(min=1e-30), highest)


class DeepCFR(Learner):
    """The learner: two networks and the reservoirs that they learn from.

    Attributes:
        network: the advantage network; the outputs of its policy head are advantages,
            in units to the seat to act.
        average: the network of the average policy.
        advantages: reservoir of sampled advantages.
        strategies: reservoir of what was played.
    """

    name: ClassVar[str] = "deep_cfr"
    rates: ClassVar[tuple[str, ...]] = ("learning_rate", "average_learning_rate")
    sizes: ClassVar[tuple[str, ...]] = ("deals", "capacity", "batch_size")

    def __init__(
        self,
        game: Game,
        config: DeepCFRConfig | None = None,
        network: NetworkConfig | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        workers: Workers | None = None,
    ) -> None:
        super().__init__(game, seed, device, workers)
        self.config = DeepCFRConfig() if config is None else config
        layout = layout_of(game)
        self.network = ActorCritic(layout, network, self.weights(_ADVANTAGE)).to(self.device)
        self.average = ActorCritic(layout, network, self.weights(_AVERAGE)).to(self.device)
        self.optimizer = self._optimizer(self.network)
        self.average_optimizer = self._optimizer(self.average)
        self.env = BatchEnv(deal_game(game), self.config.deals, self.env_seed)
        actions = (game.num_actions,)
        self.advantages, self.strategies = (
            Reservoir(
                self.config.capacity,
                self.generator,
                features=((self.network.num_features,), torch.float32),
                mask=(actions, torch.bool),
                target=(actions, torch.float32),
                weight=((), torch.float32),
            )
            for _ in range(2)
        )

    @staticmethod
    def _optimizer(network: ActorCritic) -> torch.optim.Optimizer:
        return torch.optim.Adam(network.parameters(), fused=True)

    @property
    def iterations(self) -> int:
        """Iterations in all."""
        return self.config.iterations

    def policies(self) -> Mapping[str, LearnedPolicy]:
        """Return the average policy: the one that comes near an equilibrium."""
        return {"average": NetworkPolicy(self.average)}

    def current(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return what is played in this iteration, ``float32[B, A]``.

        Args:
            features: ``float32[B, num_features]``.
            mask: ``bool[B, A]``.
        """
        if self.iteration == 0:
            # Nothing is known yet; a network's first weights would make choices.
            return mask / mask.sum(dim=-1, keepdim=True)
        return regret_matching(self.network.heads(features)[0], mask)

    def iterate(self) -> dict[str, float]:
        """Traverse new deals, then let both networks learn."""
        config = self.config
        began = time.perf_counter()
        self.env.reset()
        # Shifted, so that where deals do not divide evenly no seat is left behind.
        seats = (np.arange(config.deals) + self.iteration) % self.game.num_players
        found = traverse(
            self.env, seats, self.current, self.generator, self.network.features, config.max_width
        )
        self._remember(found)
        traversed = time.perf_counter()
        if config.from_scratch:
            fresh = self.weights(_ADVANTAGE + 1 + self.iteration)
            network = ActorCritic(self.network.layout, self.network.config, fresh).to(self.device)
            self.network, self.optimizer = network, self._optimizer(network)
        loss, norm = self._fit(
            self.network,
            self.optimizer,
            self.advantages,
            config.steps,
            config.batch_size,
            config.learning_rate,
            self._advantage_loss,
        )
        average_loss, average_norm = self._fit(
            self.average,
            self.average_optimizer,
            self.strategies,
            config.average_steps,
            config.average_batch_size,
            config.average_learning_rate,
            self._average_loss,
        )
        seconds = time.perf_counter() - began
        nodes = int(self.workers.total(found.num_nodes))
        self.iteration += 1
        self.env_steps += nodes
        self.deals += config.deals * self.workers.size
        return {
            "advantage_loss": loss,
            "average_loss": average_loss,
            "grad_norm": norm,
            "average_grad_norm": average_norm,
            "env_steps_per_second": nodes / seconds,
            "seconds": seconds,
            "share_traversal": (traversed - began) / seconds,
            "share_update": (began + seconds - traversed) / seconds,
        }

    def _remember(self, found: Traversal) -> None:
        own, others = found.traverser, found.opponents
        weight = float(self.iteration + 1) ** self.config.weighting
        self.advantages.add(
            features=own.seen, mask=own.mask, target=own.advantages, weight=own.weight * weight
        )
        self.strategies.add(
            features=others.seen,
            mask=others.mask,
            target=others.probabilities,
            weight=others.weight * weight,
        )

    def _fit(
        self,
        network: ActorCritic,
        optimizer: torch.optim.Optimizer,
        reservoir: Reservoir,
        steps: int,
        batch_size: int,
        learning_rate: float,
        loss_of: Callable[[Tensor, dict[str, Tensor]], Tensor],
    ) -> tuple[float, float]:
        """Take gradient steps on a reservoir; return the weighted mean loss and the mean norm."""
        if not self.workers.fewest(len(reservoir)):
            # So few deals that nobody had a choice.
            return 0.0, 0.0
        newest = float(self.iteration + 1) ** self.config.weighting
        total = norms = 0.0
        for k in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = annealed(learning_rate, 0.0, k / steps)
            batch = reservoir.sample(batch_size)
            outputs, _ = network.heads(batch["features"])
            weighted = loss_of(outputs, batch) * batch["weight"]
            # Of the order of 1, whatever the iteration.
            loss = weighted.mean() / newest
            where = f"iteration {self.iteration + 1}, step {k + 1} of {steps}"
            norm = step(loss, network, optimizer, self.config.max_grad_norm, self.workers, where)
            total += (weighted.detach().sum() / batch["weight"].sum()).item()
            norms += norm
        check_answers(network, batch["features"], f"iteration {self.iteration + 1}")
        return total / steps, norms / steps

    @staticmethod
    def _advantage_loss(outputs: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """Return squared errors of the legal actions' advantages, ``[B]``."""
        return ((outputs - batch["target"]) * batch["mask"]).square().sum(dim=-1)

    @staticmethod
    def _average_loss(outputs: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """Return cross entropies from what was played, ``[B]``."""
        return -(batch["target"] * MaskedCategorical(outputs, batch["mask"]).log_probs).sum(dim=-1)

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on exactly, between two iterations; the reservoirs too."""
        return super().state_dict() | {
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average_optimizer": self.average_optimizer.state_dict(),
            "env": self.env.state_dict(),
            "advantages": self.advantages.state_dict(),
            "strategies": self.strategies.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.network.load_state_dict(state["network"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average_optimizer.load_state_dict(state["average_optimizer"])
        self.env.load_state_dict(state["env"])
        self.advantages.load_state_dict(state["advantages"])
        self.strategies.load_state_dict(state["strategies"])
        super().load_state_dict(state)
