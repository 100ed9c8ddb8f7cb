"""The algorithms by name."""

from __future__ import annotations

__all__ = ["AlgorithmName", "learner_class", "make_learner"]

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from agents.workers import Workers

if TYPE_CHECKING:
    from agents.config import TrainConfig
    from agents.learner import Learner

AlgorithmName = Literal["ppo", "mmd", "nash_pg", "nfsp", "deep_cfr", "mccfr"]

_CLASSES = {
    "ppo": "PPO",
    "mmd": "MMD",
    "nash_pg": "NashPG",
    "nfsp": "NFSP",
    "deep_cfr": "DeepCFR",
    "mccfr": "MCCFR",
}


def learner_class(name: AlgorithmName) -> Any:
    """Return the class of an algorithm's learner."""
    return getattr(import_module(f"agents.{name}"), _CLASSES[name])


def make_learner(config: TrainConfig, workers: Workers | None = None) -> Learner:
    """Return a new learner as configured.

    Raises:
        ConfigError: the algorithm cannot learn this game.
    """
    learner: Learner = learner_class(config.algorithm)(
        config.game.make(), config.learner, config.network, config.seed, config.device, workers
    )
    return learner
