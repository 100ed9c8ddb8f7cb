"""A bounded memory that keeps a uniform sample of everything it was ever shown."""

from __future__ import annotations

__all__ = ["Reservoir"]

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from agents.learner import out_of_range
from shuiyu_env.core.errors import ShuiyuError

#: Rows that room is made for at first; it doubles when it is full.
_FIRST_ROWS = 1024


class Reservoir:
    """Rows of named tensors, of which at most ``capacity`` are kept.

    Whatever number of rows was added, each of them is still there with the same
    probability (Vitter, "Random sampling with a reservoir", 1985, algorithm R;
    many rows at once, as if one after another).

    Args:
        capacity: rows kept at most. Memory for them is taken only as they come.
        generator: decides which rows stay, and is where the rows are kept (its
            device). Whoever passes it saves and restores its state.
        fields: for every name the shape of one row and its type, such as
            ``mask=((23,), torch.bool)``.

    Attributes:
        seen: rows added so far.

    Raises:
        ConfigError: a capacity below 1.
    """

    def __init__(
        self,
        capacity: int,
        generator: torch.Generator,
        **fields: tuple[Sequence[int], torch.dtype],
    ) -> None:
        if capacity < 1:
            raise out_of_range("capacity", "1 or more", capacity)
        self.capacity = capacity
        self.generator = generator
        self.seen = 0
        self._rows = {
            name: torch.empty((0, *shape), dtype=dtype, device=generator.device)
            for name, (shape, dtype) in fields.items()
        }

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    @property
    def nbytes(self) -> int:
        """Memory taken so far, in bytes."""
        return sum(rows.nbytes for rows in self._rows.values())

    def add(self, **rows: Tensor) -> None:
        """Show rows ``[B, ...]`` of every field, in the order in which they count.

        Raises:
            ShuiyuError: a field is missing or unknown, or of another shape or
                type; nothing has changed.
        """
        count = self._check(rows)
        # Row number k, from 0, goes to a place drawn from 0 … k, and is dropped if there is none.
        number = torch.arange(self.seen, self.seen + count, device=self.generator.device)
        drawn = torch.rand(
            count, dtype=torch.float64, generator=self.generator, device=self.generator.device
        )
        place = torch.where(number < self.capacity, number, (drawn * (number + 1)).long())
        kept = torch.nonzero(place < self.capacity).squeeze(1)
        # Of rows for one place the last one stays, whatever order a device writes them in.
        order = torch.sort(place[kept], stable=True)
        last = torch.ones_like(order.values, dtype=torch.bool)
        last[:-1] = order.values[1:] != order.values[:-1]
        kept, place = kept[order.indices[last]], order.values[last]
        self._make_room(min(self.seen + count, self.capacity))
        for name, values in rows.items():
            self._rows[name][place] = values.to(self.generator.device)[kept]
        self.seen += count

    def sample(self, n: int, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """Return ``n`` rows, drawn with replacement, of every field.

        Args:
            n: how many.
            generator: another one than the reservoir's, on the same device.

        Raises:
            ShuiyuError: there is nothing to draw from.
        """
        if not len(self):
            raise ShuiyuError("reservoir: expected rows to draw from, but none was added yet")
        generator = generator or self.generator
        rows = torch.randint(len(self), (n,), generator=generator, device=generator.device)
        return {name: values[rows] for name, values in self._rows.items()}

    def all(self) -> dict[str, Tensor]:
        """Return all rows kept, ``[len, ...]`` of every field; not copies."""
        return {name: values[: len(self)] for name, values in self._rows.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return (copied) what is kept, without the generator's state."""
        return {
            "seen": self.seen,
            "rows": {name: values.clone() for name, values in self.all().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken.

        Raises:
            ShuiyuError: it is that of a reservoir with other fields or of another
                capacity; nothing has changed.
        """
        seen, rows = state["seen"], state["rows"]
        count = self._check(rows)
        if count != min(seen, self.capacity):
            raise ShuiyuError(
                f"reservoir: expected {min(seen, self.capacity)} rows of {seen} seen (capacity"
                f" {self.capacity}), got {count}"
            )
        self.seen = 0  # nothing is carried over to new room
        for name, values in self._rows.items():
            self._rows[name] = rows[name].to(values.device, copy=True)
        self.seen = seen

    def _make_room(self, wanted: int) -> None:
        size = min((len(values) for values in self._rows.values()), default=0)
        if wanted <= size:
            return
        grown = min(self.capacity, max(wanted, 2 * size, _FIRST_ROWS))
        for name, old in self._rows.items():
            new = old.new_empty((grown, *old.shape[1:]))
            new[: len(self)] = old[: len(self)]
            self._rows[name] = new

    def _check(self, rows: Mapping[str, Tensor]) -> int:
        """Return how many rows there are."""
        if rows.keys() != self._rows.keys():
            raise ShuiyuError(
                f"reservoir: expected the fields {', '.join(self._rows)}, got {', '.join(rows)}"
            )
        counts = {len(values) for values in rows.values()}
        for name, values in rows.items():
            kept = self._rows[name]
            if values.shape[1:] != kept.shape[1:] or values.dtype != kept.dtype:
                raise ShuiyuError(
                    f"reservoir: {name}: expected {kept.dtype} of shape"
                    f" {[len(values), *kept.shape[1:]]}, got {values.dtype} of shape"
                    f" {list(values.shape)}"
                )
        if len(counts) > 1:
            raise ShuiyuError(f"reservoir: expected as many rows of each field, got {counts}")
        return counts.pop() if counts else 0
