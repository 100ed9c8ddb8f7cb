"""What all learners share: counters, schedules, checks, and one network each."""

from __future__ import annotations

__all__ = [
    "DivergenceError",
    "LearnedPolicy",
    "Learner",
    "annealed",
    "check_answers",
    "check_at_least",
    "check_flags",
    "check_from",
    "check_positive",
    "out_of_range",
    "step",
]

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from agents.workers import Workers
from shuiyu_env.core.errors import ConfigError, ShuiyuError
from shuiyu_env.core.game import Game
from shuiyu_env.policies.network import ActorCritic, NetworkPolicy
from shuiyu_env.policies.tabular import TablePolicy

#: Turns a run's seed into that of its sampled actions and its minibatches.
SAMPLING = 0x5A3C_96E1

#: Tells streams of one seed apart: an odd number below 2**32, since torch's generator on the
#: CPU reads no more than the low 32 bits of a seed.
_APART = 0x9E37_79B1


#: No setting needs more: numbers as large are neither counts nor single-precision weights.
_MOST, _LARGEST = 2**40, 1e30

#: What learners make, and :func:`shuiyu_env.policies.checkpoint.save_policy` writes.
LearnedPolicy = NetworkPolicy | TablePolicy


class DivergenceError(ShuiyuError):
    """Learning went wrong: a loss or a gradient is not finite."""


class Learner(ABC):
    """An algorithm that learns a game by self-play, a little at a time.

    Args:
        game: the game.
        seed: of the deals, the first weights and all sampling.
        device: where networks are and learn.
        workers: the processes that learn together.

    Attributes:
        iteration: iterations done.
        env_steps: decisions taken so far, of all seats and all processes together.
        deals: deals learned from so far.
        generator: where everything but deals and first weights is drawn from.
    """

    #: The algorithm's name: its configuration's section and file.
    name: ClassVar[str]
    #: Its settings to lower when learning goes wrong, and when memory does not suffice.
    rates: ClassVar[tuple[str, ...]] = ("learning_rate",)
    sizes: ClassVar[tuple[str, ...]] = ("num_envs", "window")

    def __init__(
        self,
        game: Game,
        seed: int = 0,
        device: torch.device | str = "cpu",
        workers: Workers | None = None,
    ) -> None:
        self.game = game
        self.seed = seed
        self.device = torch.device(device)
        self.workers = workers or Workers()
        # Another stream than that of the weights, and another one in each process.
        self.generator = torch.Generator(self.device).manual_seed(
            (seed ^ SAMPLING) + self.workers.rank * _APART
        )
        self.iteration = 0
        self.env_steps = 0
        self.deals = 0

    @property
    def env_seed(self) -> int:
        """The seed of this process's deals: no two processes play the same."""
        return self.seed + (self.workers.rank << 48)

    def weights(self, stream: int = 0) -> torch.Generator:
        """Return where a network's first weights come from: the same on every device.

        Args:
            stream: tells the networks of a learner apart.
        """
        return torch.Generator().manual_seed(self.seed + stream * _APART)

    @property
    @abstractmethod
    def iterations(self) -> int:
        """Iterations in all."""

    @property
    def progress(self) -> float:
        """The part of all iterations that is done, 0 to 1."""
        return self.iteration / self.iterations

    @property
    def is_finished(self) -> bool:
        """Whether all iterations are done."""
        return self.iteration >= self.iterations

    @abstractmethod
    def iterate(self) -> dict[str, float]:
        """Learn a little, and return what there is to report.

        Raises:
            DivergenceError: a loss or a gradient is not finite. The weights are
                those after the last good gradient step.
        """

    @abstractmethod
    def policies(self) -> Mapping[str, LearnedPolicy]:
        """Return what has been learned, by kind: ``last`` (iterate) or ``average``.

        The first is the one that the run is about.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on exactly, between two iterations."""
        return {
            "generator": self.generator.get_state(),
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            "deals": self.deals,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.generator.set_state(state["generator"])
        self.iteration = state["iteration"]
        self.env_steps = state["env_steps"]
        self.deals = state["deals"]


def annealed(start: float, end: float, progress: float) -> float:
    """Return the value between two, linear in the progress from 0 to 1."""
    return start + (end - start) * progress


@torch.no_grad()
def move_average(average: nn.Module, newest: nn.Module, part: float, iteration: int) -> None:
    """Move a running average of weights towards the newest.

    It goes back over about the last ``part`` of all iterations so far, so that it neither
    keeps the first weights nor has to be told how long a run will be: polynomial-decay averaging,
    Shamir and Zhang, "Stochastic gradient descent for non-smooth optimization" (2013).

    Args:
        average: whose weights are moved.
        newest: the weights to move towards.
        part: 0 to 1; 1 for the mean of all, 0 for the newest.
        iteration: iterations done, from 1.
    """
    share = 1.0 / max(part * iteration, 1.0)
    for mean, weight in zip(average.parameters(), newest.parameters(), strict=True):
        mean.lerp_(weight, share)


def step(
    loss: Tensor,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    max_norm: float,
    workers: Workers,
    where: str,
) -> float:
    """Take one gradient step and return the gradient's norm.

    Args:
        loss: what is made smaller; its gradient is averaged over all processes.
        network: whose weights.
        optimizer: theirs.
        max_norm: the gradient is scaled down to this norm.
        workers: the processes that learn together.
        where: the batch's name, for the error.

    Raises:
        DivergenceError: loss or gradient is not finite; no weight has changed.
    """
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    workers.average_gradients(network)
    norm = float(torch.nn.utils.clip_grad_norm_(network.parameters(), max_norm))
    # Before the step: afterwards the weights would be lost.
    if not (math.isfinite(norm) and bool(torch.isfinite(loss))):
        raise DivergenceError(
            f"{where}: the loss is {loss.item():.4g} and the gradient's norm {norm:.4g};"
            " expected finite numbers"
        )
    optimizer.step()
    return norm


@torch.no_grad()
def check_answers(network: ActorCritic, features: Tensor, where: str) -> None:
    """Check that a network can still be computed with: finite weights may be too large.

    Args:
        network: the network.
        features: ``float32[B, F]``, what it is asked about.
        where: when, for the error.

    Raises:
        DivergenceError: an answer is not finite.
    """
    if not all(torch.isfinite(answer).all() for answer in network.heads(features)):
        raise DivergenceError(f"{where}: the network's answers are no longer finite")


def out_of_range(name: str, expected: str, got: object) -> ConfigError:
    """Return the error of a setting."""
    return ConfigError(f"{name}: expected {expected}, got {got!r}")


def check_at_least(low: int, section: str, config: object, names: Iterable[str]) -> None:
    """Raise a :class:`ConfigError` unless the named settings are ``low`` or more, within reason."""
    for name in names:
        value = getattr(config, name)
        if not low <= value <= _MOST:
            bounds = f"{low} or more" if value < low else f"at most {_MOST}"
            raise out_of_range(f"{section}.{name}", bounds, value)


def check_positive(section: str, config: object, names: Iterable[str]) -> None:
    """Raise a :class:`ConfigError` unless the named settings are above 0, within reason."""
    for name in names:
        value = getattr(config, name)
        if not 0.0 < value <= _LARGEST:
            bounds = f"at most {_LARGEST:g}" if value > _LARGEST else "more than 0"
            raise out_of_range(f"{section}.{name}", bounds, value)


def check_flags(section: str, config: object, names: Iterable[str]) -> None:
    """Raise a :class:`ConfigError` unless the named settings are true or false."""
    for name in names:
        value = getattr(config, name)
        if type(value) is not bool:
            raise out_of_range(f"{section}.{name}", "true or false", value)


def check_from(low: float, high: float, section: str, config: object, names: Iterable[str]) -> None:
    """Raise a :class:`ConfigError` unless the named settings are within bounds."""
    for name in names:
        value = getattr(config, name)
        if not low <= value <= min(high, _LARGEST):
            bounds = f"a number from {low:g} to {min(high, _LARGEST):g}"
            if math.isinf(high) and not value > _LARGEST:
                bounds = f"{low:g} or more"
            raise out_of_range(f"{section}.{name}", bounds, value)
