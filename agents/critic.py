"""A critic that knows both hands: the baseline of policy gradients, in training only.

What a decision is credited with, compared with what was to be expected, is mostly the
luck of the hidden cards. A baseline may know them without favouring any action, since they
were dealt before it: so the estimate is of what play was worth to the seat with all cards
face up, and far fewer deals tell a good action from a bad one. Foerster et al.,
"Counterfactual multi-agent policy gradients" (2018); Lowe et al., "Multi-agent
actor-critic for mixed cooperative-competitive environments" (2017).
"""

from __future__ import annotations

__all__ = ["Critic"]

import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from shuiyu_env.core.hands import NUM_SPLITS
from shuiyu_env.observation import Layout
from shuiyu_env.policies.network import field_columns, linear


class Critic(nn.Module):
    """Estimates what a deal will still pay the seat to act, seeing the opposite seat's cards.

    The opposite seat of a punter is the dealer; that of the dealer is the punter whose
    contest is being decided, or the next one while none is.

    Args:
        layout: the observation's layout.
        num_features: F, what the policy's network reads of an observation.
        hidden: widths of the hidden layers.
        generator: where initial weights are drawn from; torch's global one if ``None``.

    Attributes:
        num_hidden: H, what it reads besides.
    """

    _private: Tensor

    def __init__(
        self,
        layout: Layout,
        num_features: int,
        hidden: tuple[int, ...] = (64, 64),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        place = layout.views(np.arange(layout.size))
        self._strengths = place["strengths"].ravel().tolist()
        self._dealer = place["seats.dealer"].ravel().tolist()
        self._contested = place["seats.contested"].ravel().tolist()
        private = field_columns(layout, ("split", "strengths"))
        self.register_buffer("_private", torch.tensor(private), persistent=False)
        # Besides what the opposite seat keeps to itself: which of each two groups is the stronger.
        self.num_hidden = len(private) + 2 * NUM_SPLITS**2
        widths = [num_features + self.num_hidden, *hidden]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [linear(inputs, outputs, math.sqrt(2), generator), nn.ReLU()]
        self.body = nn.Sequential(*layers, linear(widths[-1], 1, 1.0, generator))

    def opposite(
        self, observation: npt.NDArray[np.float32], seat: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return the opposite seats ``int64[B]`` of the seats to act, from what these see."""
        dealer = observation[:, self._dealer].argmax(axis=1)
        contested = observation[:, self._contested].argmax(axis=1)
        # Counted from oneself, as the fields are; 0 is oneself.
        away = np.where(dealer == 0, np.maximum(contested, 1), dealer)
        opposite: npt.NDArray[np.int64] = (seat + away) % len(self._dealer)
        return opposite

    def hidden(self, observation: Tensor, opposite: Tensor) -> Tensor:
        """Return what it reads besides the features, ``float32[B, H]``.

        Args:
            observation: ``float32[B, D]`` of the seat to act.
            opposite: ``float32[B, D]`` of the opposite seat.
        """
        own, other = (
            seen[:, self._strengths].reshape(-1, NUM_SPLITS, 2) for seen in (observation, opposite)
        )
        stronger = (own[:, :, None] - other[:, None]).sign().flatten(1)
        return torch.cat([opposite.index_select(1, self._private), stronger], dim=1)

    def forward(self, features: Tensor, hidden: Tensor) -> Tensor:
        """Return values ``[B]``, units, from ``[B, F]`` and ``[B, H]``."""
        values: Tensor = self.body(torch.cat([features, hidden], dim=1)).squeeze(-1)
        return values
