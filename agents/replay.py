"""The newest decisions and what came of them, for Q-learning."""

from __future__ import annotations

__all__ = ["ReplayBuffer", "Transitions"]

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor


@dataclass
class Transitions:
    """Decisions and what came of them for the seat that took them, K rows.

    Attributes:
        features: ``float32[K, F]``, what the network reads of the observations.
        action_mask: ``bool[K, A]``.
        action: ``int64[K]``.
        reward: ``float32[K]``, what the seat was paid before it decided again, units.
        next_features: ``float32[K, F]``, at the same seat's next decision in the same deal.
        next_mask: ``bool[K, A]``, at that decision; all false if it had none.
    """

    features: Tensor
    action_mask: Tensor
    action: Tensor
    reward: Tensor
    next_features: Tensor
    next_mask: Tensor

    @classmethod
    def empty(
        cls, size: int, num_features: int, num_actions: int, device: torch.device
    ) -> Transitions:
        """Return so many rows of zeros."""
        return cls(
            features=torch.zeros(size, num_features, device=device),
            action_mask=torch.zeros(size, num_actions, dtype=torch.bool, device=device),
            action=torch.zeros(size, dtype=torch.int64, device=device),
            reward=torch.zeros(size, device=device),
            next_features=torch.zeros(size, num_features, device=device),
            next_mask=torch.zeros(size, num_actions, dtype=torch.bool, device=device),
        )

    def __len__(self) -> int:
        return len(self.action)

    def tensors(self) -> dict[str, Tensor]:
        """Return the columns by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __getitem__(self, rows: Tensor | slice) -> Transitions:
        return Transitions(**{name: tensor[rows] for name, tensor in self.tensors().items()})


class ReplayBuffer:
    """The newest transitions, in a circle: a new one takes the place of the oldest.

    Features are kept in half precision, which halves memory and still tells all
    strengths apart.

    Args:
        capacity: transitions kept.
        num_features: F.
        num_actions: A.
        device: where they are kept.

    Attributes:
        added: transitions added so far.
    """

    def __init__(
        self, capacity: int, num_features: int, num_actions: int, device: torch.device | str = "cpu"
    ) -> None:
        self.capacity = capacity
        self.device = torch.device(device)
        self.added = 0
        self._rows = rows = Transitions.empty(capacity, num_features, num_actions, self.device)
        rows.features, rows.next_features = rows.features.half(), rows.next_features.half()

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, transitions: Transitions) -> None:
        """Add transitions, in order."""
        count = len(transitions)
        newest = transitions[-self.capacity :] if count > self.capacity else transitions
        first = self.added + count - len(newest)
        places = torch.arange(first, first + len(newest), device=self.device) % self.capacity
        for name, tensor in self._rows.tensors().items():
            tensor[places] = getattr(newest, name).to(tensor.dtype)
        self.added += count

    def sample(self, size: int, generator: torch.Generator) -> Transitions:
        """Draw so many transitions, each any of those kept."""
        rows = torch.randint(len(self), (size,), generator=generator, device=self.device)
        sample = self._rows[rows]
        sample.features, sample.next_features = (
            sample.features.float(),
            sample.next_features.float(),
        )
        return sample

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on exactly."""
        kept = self._rows[: len(self)].tensors()
        return {"added": self.added} | {name: tensor.clone() for name, tensor in kept.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.added = state["added"]
        for name, tensor in self._rows.tensors().items():
            tensor[: len(self)] = state[name]
