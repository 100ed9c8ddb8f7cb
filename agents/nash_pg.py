"""Nash policy gradient: PPO in self-play with a magnet that moves after the policy.

The loss has an exact divergence from a magnet, an older policy: an average of the
last ones, or a copy that is renewed now and then. While the magnet stands still, play
settles at the equilibrium of a game in which leaving it costs something; as it comes
after, the next such equilibrium is closer to the game's own: a proximal point method,
whose last iterate converges without the weight going to zero. The name is that of Yu
et al., "Nash policy gradient" (2025, arXiv:2510.18183), who renew the copy now and then
(``refresh``); by default the magnet follows the policy as a lagging average instead. The
idea is older: Perolat et al., "From Poincare recurrence to convergence in imperfect
information games" (2021) and "Mastering the game of Stratego with model-free multiagent
reinforcement learning" (2022).
"""

from __future__ import annotations

__all__ = ["NashPG", "NashPGConfig"]

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from agents.learner import annealed, check_at_least, check_from, move_average
from agents.ppo import PPO, PPOConfig
from agents.rollout import Batch
from agents.workers import Workers
from shuiyu_env.core.game import Game
from shuiyu_env.policies.network import MaskedCategorical, NetworkConfig


@dataclass(frozen=True)
class NashPGConfig(PPOConfig):
    """PPO's hyperparameters and the magnet's.

    Args:
        magnet: weight of the divergence from the magnet, at the start.
        final_magnet: at the end; linear in between.
        lag: how far the magnet is behind: it is the policy's average over this part of all
            iterations so far. The longer a run, the more deals it is steadied by.
        refresh: instead, iterations after which the magnet becomes a copy of the policy;
            0 for a magnet that follows it all the time.
    """

    entropy: float = 0.05
    final_entropy: float = 0.005
    magnet: float = 0.2
    final_magnet: float = 0.2
    lag: float = 0.1
    refresh: int = 0

    section: ClassVar[str] = "nash_pg"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_from(0.0, math.inf, self.section, self, ("magnet", "final_magnet"))
        check_at_least(0, self.section, self, ("refresh",))
        check_from(0.0, 1.0, self.section, self, ("lag",))


class NashPG(PPO):
    """PPO with a moving magnet.

    Attributes:
        magnet: the network that the policy is drawn to.
    """

    name: ClassVar[str] = "nash_pg"
    config: NashPGConfig

    def __init__(
        self,
        game: Game,
        config: NashPGConfig | None = None,
        network: NetworkConfig | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        workers: Workers | None = None,
    ) -> None:
        super().__init__(game, config or NashPGConfig(), network, seed, device, workers)
        self.magnet = copy.deepcopy(self.network)

    def iterate(self) -> dict[str, float]:
        """Learn as PPO does, then move the magnet."""
        metrics = super().iterate()
        config = self.config
        if not config.refresh:
            move_average(self.magnet, self.network, config.lag, self.iteration)
        elif self.iteration % config.refresh == 0:
            self.magnet.load_state_dict(self.network.state_dict())
        return metrics

    def begin_update(self, batch: Batch) -> None:
        """Ask the magnet about the batch."""
        with torch.no_grad():
            logits, _ = self.magnet.heads(batch.features)
            self._drawn_to = MaskedCategorical(logits, batch.action_mask).log_probs

    def schedule(self) -> dict[str, float]:
        """Return PPO's and the weight of the divergence from the magnet."""
        weight = annealed(self.config.magnet, self.config.final_magnet, self.progress)
        return super().schedule() | {"magnet_weight": weight}

    def regularisation(
        self, policy: MaskedCategorical, rows: slice, schedule: Mapping[str, float]
    ) -> Tensor:
        """Return PPO's and the divergence from the magnet."""
        divergence = policy.divergence(self._drawn_to[rows]).mean()
        weight = schedule["magnet_weight"]
        return super().regularisation(policy, rows, schedule) + weight * divergence

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on exactly, between two iterations."""
        return super().state_dict() | {"magnet": self.magnet.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        super().load_state_dict(state)
        self.magnet.load_state_dict(state["magnet"])
