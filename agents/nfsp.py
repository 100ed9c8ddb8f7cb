"""Neural fictitious self-play (NFSP).

Two networks learn from self-play. One learns by Q-learning what is best against
how all seats play now: an approximate best response. The other learns by
imitation how the best response has played on average since the beginning; in a
two-player zero-sum game it is this average that comes near an equilibrium, so
it is what the learner hands out. In every deal each seat plays by the one or by
the other, mostly by the average. Heinrich & Silver, "Deep reinforcement learning
from self-play in imperfect-information games" (2016).

Where this differs from the paper: many games are played at once, by one pair of
networks for all seats (the role is in the observation); targets are those of
double Q-learning (van Hasselt et al., 2016); and what is imitated is the best
response's best action also where it explored, so that exploration does not get
into the average; and later decisions count more than early ones, since a best
response to early play says little about the equilibrium (as in Brown et al.,
"Deep counterfactual regret minimization", 2019, where they count linearly).
"""

from __future__ import annotations

__all__ = ["NFSP", "NFSPConfig", "SelfPlay"]

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from agents.learner import (
    LearnedPolicy,
    Learner,
    annealed,
    check_answers,
    check_at_least,
    check_from,
    check_positive,
    out_of_range,
    step,
)
from agents.replay import ReplayBuffer, Transitions
from agents.reservoir import Reservoir
from agents.rollout import Environments
from agents.workers import Workers
from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.game import Game
from shuiyu_env.observation import layout_of
from shuiyu_env.policies.network import (
    ILLEGAL_LOGIT,
    ActorCritic,
    MaskedCategorical,
    NetworkConfig,
    NetworkPolicy,
)


@dataclass(frozen=True)
class NFSPConfig:
    """Every hyperparameter of the learner.

    Args:
        total_steps: decisions, of all seats together, to learn from in all;
            rounded up to whole iterations.
        num_envs: games played at once, by each process.
        window: decisions that each game takes in one iteration.
        anticipatory: probability that a seat plays a deal by the best response
            rather than by the average policy (η in the paper).
        epsilon: probability that the best response explores, at the start.
        final_epsilon: at the end; linear in between.
        replay_capacity: decisions that the best response learns from, of each
            process: the newest so many. Heads-up, one takes 1.3 kilobytes, in
            memory and in each saved state; with 13 seats, 4.8.
        reservoir_capacity: decisions that the average policy learns from, of
            each process: a uniform sample of all that the best response has
            taken. One takes half as much.
        learning_starts: decisions in each of these below which its network
            does not learn yet.
        q_steps: gradient steps of the best response in one iteration.
        average_steps: gradient steps of the average policy in one iteration.
        q_batch_size: decisions in one of the former, of each process.
        average_batch_size: decisions in one of the latter, of each process.
        q_learning_rate: of Adam, for the best response, at the start.
        final_q_learning_rate: at the end; linear in between.
        average_learning_rate: of Adam, for the average policy, at the start.
        final_average_learning_rate: at the end; linear in between.
        weighting: in the average, a decision of iteration t counts t to this
            power; 0 for all alike, as in the paper.
        adam_eps: Adam's constant for numerical stability.
        target_interval: gradient steps of the best response after which the
            target network becomes a copy of it.
        max_grad_norm: gradients are scaled down to this norm.

    Raises:
        ConfigError: a value out of range.
    """

    total_steps: int = 16_000_000
    num_envs: int = 1024
    window: int = 16
    anticipatory: float = 0.1
    epsilon: float = 0.1
    final_epsilon: float = 0.01
    replay_capacity: int = 400_000
    reservoir_capacity: int = 2_000_000
    learning_starts: int = 1000
    q_steps: int = 8
    average_steps: int = 8
    q_batch_size: int = 1024
    average_batch_size: int = 1024
    q_learning_rate: float = 3e-3
    final_q_learning_rate: float = 1e-3
    average_learning_rate: float = 2e-3
    final_average_learning_rate: float = 1e-4
    weighting: float = 2.0
    adam_eps: float = 1e-5
    target_interval: int = 100
    max_grad_norm: float = 10.0

    #: The name of these settings in configuration files.
    section: ClassVar[str] = "nfsp"

    def __post_init__(self) -> None:
        whole = ("total_steps", "num_envs", "window", "replay_capacity", "reservoir_capacity")
        steps = ("learning_starts", "q_steps", "average_steps", "target_interval")
        sizes = ("q_batch_size", "average_batch_size")
        check_at_least(1, self.section, self, (*whole, *steps, *sizes))
        rates = ("q_learning_rate", "average_learning_rate", "adam_eps", "max_grad_norm")
        # Without decisions of the best response there is nothing to imitate.
        check_positive(self.section, self, ("anticipatory", *rates))
        final_rates = ("final_q_learning_rate", "final_average_learning_rate")
        check_from(0.0, math.inf, self.section, self, final_rates)
        check_from(0.0, 5.0, self.section, self, ("weighting",))
        check_from(0.0, 1.0, self.section, self, ("anticipatory", "epsilon", "final_epsilon"))
        fewest = min(self.replay_capacity, self.reservoir_capacity)
        if self.learning_starts > fewest:
            raise out_of_range(
                f"{self.section}.learning_starts",
                f"at most the smaller capacity, {fewest}",
                self.learning_starts,
            )


class SelfPlay:
    """Plays all seats of many games, and keeps each decision until its outcome is known.

    Args:
        env: the environments.
        num_features: F, what the networks read of an observation.
        anticipatory: probability that a seat plays a deal by the best response.
        generator: where everything is drawn from, on the device.
        device: where the networks are.

    Attributes:
        by_best_response: ``bool[N, num_players]``, how each seat plays the current deal.
        environment_seconds, network_seconds: time spent so far in each.
    """

    def __init__(
        self,
        env: Environments,
        num_features: int,
        anticipatory: float,
        generator: torch.Generator,
        device: torch.device | str = "cpu",
    ) -> None:
        self.env = env
        self.anticipatory = anticipatory
        self.generator = generator
        self.device = torch.device(device)
        size, players = env.num_envs, env.game.num_players
        # By environment and seat, in one dimension: the last decision of the current deal.
        self._last = Transitions.empty(
            size * players, num_features, env.game.num_actions, self.device
        )
        self._waiting = torch.zeros(size * players, dtype=torch.bool, device=self.device)
        self.by_best_response = self._drawn(size)
        self.environment_seconds = 0.0
        self.network_seconds = 0.0

    def _drawn(self, size: int) -> Tensor:
        shape = (size, self.env.game.num_players)
        draws = torch.rand(shape, generator=self.generator, device=self.device)
        return draws < self.anticipatory

    @torch.no_grad()
    def step(
        self, best_response: ActorCritic, average: ActorCritic, epsilon: float
    ) -> tuple[list[Transitions], dict[str, Tensor], int]:
        """Take one decision in every environment.

        Args:
            best_response: its logits are action values.
            average: its logits are the average policy's.
            epsilon: probability that the best response takes any legal action instead.

        Returns:
            transitions completed: to next decisions, and to ends of deals; the
            ``features``, ``action_mask`` and best ``action`` of the decisions that
            fell to the best response; and how many deals were settled.
        """
        env, players = self.env, self.env.game.num_players
        began = time.perf_counter()
        features = average.features(torch.from_numpy(env.observation).to(self.device))
        mask = torch.from_numpy(env.action_mask).to(self.device) != 0
        seat = torch.from_numpy(env.seat).to(self.device)
        who = torch.arange(env.num_envs, device=self.device) * players + seat

        by_best_response = self.by_best_response.flatten()[who]
        action = torch.empty_like(seat)
        rows = (~by_best_response).nonzero().squeeze(1)
        logits, _ = average.heads(features[rows])
        action[rows] = MaskedCategorical(logits, mask[rows]).sample(self.generator)
        rows = by_best_response.nonzero().squeeze(1)
        values, _ = best_response.heads(features[rows])
        best = masked(values, mask[rows]).argmax(-1)
        anything = MaskedCategorical(torch.zeros_like(values), mask[rows]).sample(self.generator)
        draws = torch.rand(len(rows), generator=self.generator, device=self.device)
        action[rows] = torch.where(draws < epsilon, anything, best)

        # A seat's decision led here if it has taken one in this deal.
        again = self._waiting[who]
        going_on = self._last[who[again]]
        going_on.next_features, going_on.next_mask = features[again], mask[again]
        self._last.features[who] = features
        self._last.action_mask[who] = mask
        self._last.action[who] = action
        self._waiting[who] = True

        taken = action.cpu().numpy()
        acted = time.perf_counter()
        env.step(taken)
        stepped = time.perf_counter()

        # All rewards of a deal are paid at its end.
        settled = torch.from_numpy(env.settled).to(self.device)
        over = (self._waiting.view(-1, players) & settled[:, None]).flatten()
        ended = self._last[over]
        ended.reward = torch.from_numpy(env.reward).to(self.device).flatten()[over]
        self._waiting[over] = False
        deals = int(settled.sum())
        self.by_best_response[settled] = self._drawn(deals)
        self.environment_seconds += stepped - acted
        self.network_seconds += acted - began + time.perf_counter() - stepped
        chosen = {"features": features[rows], "action_mask": mask[rows], "action": best}
        return [going_on, ended], chosen, deals

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on exactly, but for the generator."""
        return {
            "environments": self.env.state_dict(),
            "last": {name: tensor.clone() for name, tensor in self._last.tensors().items()},
            "waiting": self._waiting.clone(),
            "by_best_response": self.by_best_response.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.env.load_state_dict(state["environments"])
        for name, tensor in self._last.tensors().items():
            tensor.copy_(state["last"][name])
        self._waiting.copy_(state["waiting"])
        self.by_best_response.copy_(state["by_best_response"])


def masked(values: Tensor, mask: Tensor) -> Tensor:
    """Return action values with those of illegal actions far below all others."""
    return values.masked_fill(~mask, ILLEGAL_LOGIT)


class NFSP(Learner):
    """The learner: two networks, what they learn from, and the games that they play.

    Attributes:
        best_response: its policy head says action values, in units; its value head nothing.
        target: an older copy of it, for the targets.
        average: the average policy; its value head says nothing.
    """

    name: ClassVar[str] = "nfsp"
    rates: ClassVar[tuple[str, ...]] = ("q_learning_rate", "average_learning_rate")
    sizes: ClassVar[tuple[str, ...]] = ("num_envs", "replay_capacity")

    def __init__(
        self,
        game: Game,
        config: NFSPConfig | None = None,
        network: NetworkConfig | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        workers: Workers | None = None,
    ) -> None:
        super().__init__(game, seed, device, workers)
        self.config = config = NFSPConfig() if config is None else config
        taken = self.iterations * config.num_envs * config.window
        if config.learning_starts > config.anticipatory * taken:
            raise out_of_range(
                f"{self.name}.learning_starts",
                f"fewer than the decisions of the best response in the whole run, some"
                f" {config.anticipatory * taken:.0f} ({self.name}.anticipatory of all): otherwise"
                " the average policy learns nothing",
                config.learning_starts,
            )
        layout = layout_of(game)
        self.average = ActorCritic(layout, network, self.weights()).to(self.device)
        self.best_response = ActorCritic(layout, network, self.weights(1)).to(self.device)
        self.target = copy.deepcopy(self.best_response)
        self.average_optimizer = torch.optim.Adam(
            self.average.parameters(), lr=config.average_learning_rate, eps=config.adam_eps
        )
        self.q_optimizer = torch.optim.Adam(
            self.best_response.parameters(), lr=config.q_learning_rate, eps=config.adam_eps
        )
        self.q_steps = 0
        num_features, num_actions = self.average.num_features, game.num_actions
        self.replay = ReplayBuffer(config.replay_capacity, num_features, num_actions, self.device)
        self.reservoir = Reservoir(
            config.reservoir_capacity,
            self.generator,
            features=((num_features,), torch.float16),
            action_mask=((num_actions,), torch.bool),
            action=((), torch.int64),
            weight=((), torch.float32),
        )
        env = BatchEnv(game, config.num_envs, self.env_seed)
        self.play = SelfPlay(env, num_features, config.anticipatory, self.generator, self.device)

    @property
    def steps_per_iteration(self) -> int:
        """Decisions taken in one iteration, by all processes together."""
        return self.config.num_envs * self.config.window * self.workers.size

    @property
    def iterations(self) -> int:
        """Iterations in all."""
        return -(-self.config.total_steps // self.steps_per_iteration)

    def policies(self) -> Mapping[str, LearnedPolicy]:
        """Return the average policy; the best response to it is no answer to anything else."""
        return {"average": NetworkPolicy(self.average)}

    def iterate(self) -> dict[str, float]:
        """Play one window, let both networks learn, and return what there is to report."""
        config, play = self.config, self.play
        began = time.perf_counter()
        environment, network = play.environment_seconds, play.network_seconds
        epsilon = annealed(config.epsilon, config.final_epsilon, self.progress)
        settled = 0
        for _ in range(config.window):
            transitions, chosen, deals = play.step(self.best_response, self.average, epsilon)
            for part in transitions:
                self.replay.add(part)
            chosen["features"] = chosen["features"].half()
            weight = self._weight(len(chosen["action"]))
            self.reservoir.add(**chosen, weight=weight)
            settled += deals
        played = time.perf_counter()
        metrics = self._learn()
        seconds = time.perf_counter() - began

        deals = int(self.workers.total(settled))
        self.iteration += 1
        self.env_steps += self.steps_per_iteration
        self.deals += deals
        return metrics | {
            "deals": float(deals),
            "epsilon": epsilon,
            "replay": float(len(self.replay)),
            "reservoir": float(len(self.reservoir)),
            "env_steps_per_second": self.steps_per_iteration / seconds,
            "seconds": seconds,
            "share_environment": (play.environment_seconds - environment) / seconds,
            "share_network": (play.network_seconds - network) / seconds,
            "share_update": (began + seconds - played) / seconds,
        }

    def _weight(self, size: int) -> Tensor:
        """Return what decisions of this iteration count in the average, ``float32[size]``."""
        # Of the last iteration's, so that numbers stay small.
        weight = ((self.iteration + 1) / self.iterations) ** self.config.weighting
        return torch.full((size,), weight, device=self.device)

    def _learn(self) -> dict[str, float]:
        """Take the gradient steps of one iteration; return mean losses and the like."""
        config, where = self.config, f"iteration {self.iteration + 1}"
        metrics = {
            "q_learning_rate": annealed(
                config.q_learning_rate, config.final_q_learning_rate, self.progress
            ),
            "average_learning_rate": annealed(
                config.average_learning_rate, config.final_average_learning_rate, self.progress
            ),
        }
        optimizers = (self.q_optimizer, self.average_optimizer)
        for optimizer, rate in zip(optimizers, list(metrics.values()), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate
        # Every process takes the same number of steps.
        if self.workers.fewest(len(self.replay)) >= config.learning_starts:
            steps = range(config.q_steps)
            metrics |= _means([self._q_step(f"{where}, best response") for _ in steps])
        if self.workers.fewest(len(self.reservoir)) >= config.learning_starts:
            steps = range(config.average_steps)
            metrics |= _means([self._average_step(f"{where}, average policy") for _ in steps])
        some = self.average.features(
            torch.from_numpy(self.play.env.observation[:64]).to(self.device)
        )
        check_answers(self.best_response, some, f"{where}, best response")
        check_answers(self.average, some, f"{where}, average policy")
        return metrics

    def _q_step(self, where: str) -> dict[str, float]:
        """Take a step towards the values of actions against how all play now."""
        config = self.config
        batch = self.replay.sample(config.q_batch_size, self.generator)
        target = self.targets(batch)
        values, _ = self.best_response.heads(batch.features)
        value = values.gather(1, batch.action[:, None]).squeeze(1)
        # Squares, since the mean of what is paid is wanted, however seldom it is large.
        loss = (value - target).square().mean()
        norm = step(
            loss, self.best_response, self.q_optimizer, config.max_grad_norm, self.workers, where
        )
        self.q_steps += 1
        if self.q_steps % config.target_interval == 0:
            self.target.load_state_dict(self.best_response.state_dict())
        return {"q_loss": loss.item(), "q_mean": value.mean().item(), "q_grad_norm": norm}

    @torch.no_grad()
    def targets(self, batch: Transitions) -> Tensor:
        """Return what the values of the actions taken should be, ``float32[K]``, units.

        What the seat was paid and, if it decided again in the deal, the target network's
        value there of the action that the best response thinks best (double Q-learning).
        """
        target = batch.reward.clone()
        rows = batch.next_mask.any(-1).nonzero().squeeze(1)
        features = batch.next_features[rows]
        values, _ = self.best_response.heads(features)
        best = masked(values, batch.next_mask[rows]).argmax(-1, keepdim=True)
        values, _ = self.target.heads(features)
        target[rows] += values.gather(1, best).squeeze(1)
        return target

    def _average_step(self, where: str) -> dict[str, float]:
        """Take a step towards how the best response has played since the beginning."""
        config = self.config
        batch = self.reservoir.sample(config.average_batch_size)
        logits, _ = self.average.heads(batch["features"].float())
        policy = MaskedCategorical(logits, batch["action_mask"])
        weight = batch["weight"] / batch["weight"].sum()
        loss = -(weight * policy.log_prob(batch["action"])).sum()
        norm = step(
            loss, self.average, self.average_optimizer, config.max_grad_norm, self.workers, where
        )
        entropy = policy.entropy().mean().item()
        return {"average_loss": loss.item(), "entropy": entropy, "average_grad_norm": norm}

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on exactly, between two iterations."""
        kept = {name: getattr(self, name).state_dict() for name in _KEPT}
        return super().state_dict() | {"q_steps": self.q_steps} | kept

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        for name in _KEPT:
            getattr(self, name).load_state_dict(state[name])
        self.q_steps = state["q_steps"]
        super().load_state_dict(state)


#: What of a learner has a state of its own.
_KEPT = (
    "average",
    "best_response",
    "target",
    "average_optimizer",
    "q_optimizer",
    "replay",
    "reservoir",
    "play",
)


def _means(rows: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each metric."""
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
