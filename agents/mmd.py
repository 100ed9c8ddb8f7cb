"""Magnetic mirror descent (MMD) in self-play, as a policy gradient.

PPO's loss with two divergences, exact over all actions: from a magnet, here
uniform play, which makes the learning converge to one (regularised) equilibrium
instead of going around it, and from the policy that gathered the experience, which
bounds the step. (PPO's clip stays: it bounds the step of the action that was taken,
and without it the noise of sampled advantages makes steps too large.) Let the
magnet's weight go down and the equilibrium that is found comes close to the game's
own. Sokota et al., "A unified approach to reinforcement learning, quantal response
equilibria, and two-player zero-sum games" (2023), section 4 and appendix on deep
learning.
"""

from __future__ import annotations

__all__ = ["MMD", "MMDConfig"]

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agents.learner import annealed, check_from
from agents.ppo import PPO, PPOConfig
from agents.rollout import Batch
from shuiyu_env.policies.network import MaskedCategorical


@dataclass(frozen=True)
class MMDConfig(PPOConfig):
    """PPO's hyperparameters and the weights of the divergences.

    Args:
        entropy: weight of the divergence from the magnet, at the start: from uniform
            play that is, but for a constant, minus the policy's entropy.
        final_entropy: at the end; linear in between. As large as at the start
            for a constant magnet.
        kl: weight of the divergence from the policy that gathered the batch
            (the inverse of mirror descent's step size), at the start.
        final_kl: at the end.
    """

    kl: float = 0.2
    final_kl: float = 0.2

    section: ClassVar[str] = "mmd"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_from(0.0, math.inf, self.section, self, ("kl", "final_kl"))


class MMD(PPO):
    """PPO with a reverse divergence from its own last policy, exact over all actions."""

    name: ClassVar[str] = "mmd"
    config: MMDConfig

    def schedule(self) -> dict[str, float]:
        """Return PPO's and the weight of the divergence from the old policy."""
        weight = annealed(self.config.kl, self.config.final_kl, self.progress)
        return super().schedule() | {"kl_weight": weight}

    def begin_update(self, batch: Batch) -> None:
        """Keep what the policy said before any weight changed."""
        with torch.no_grad():
            logits, _ = self.network.heads(batch.features)
            self._old = MaskedCategorical(logits, batch.action_mask).log_probs

    def regularisation(
        self, policy: MaskedCategorical, rows: slice, schedule: Mapping[str, float]
    ) -> Tensor:
        """Return PPO's, which draws towards the magnet, and the divergence from the old policy."""
        divergence = policy.divergence(self._old[rows]).mean()
        return super().regularisation(policy, rows, schedule) + schedule["kl_weight"] * divergence
