"""Policies as tables: one row of probabilities for every information set that was met.

Rows are found by a 128-bit hash of what a seat sees, so tables need no list of all
information sets. Needs torch, like the networks, whose reading of observations it shares.
"""

from __future__ import annotations

__all__ = ["KeyIndex", "Reader", "TablePolicy"]

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from shuiyu_env.compiling import compiled, inlined
from shuiyu_env.core.errors import PolicyError
from shuiyu_env.observation import Layout
from shuiyu_env.policies.network import ActorCritic, NetworkConfig
from shuiyu_env.policy import check_inputs

IntArray = npt.NDArray[np.int64]


class Reader:
    """What tells information sets apart: the features that a network would read, hashed.

    Args:
        layout: the observation's layout.
        config: which fields are read, and what is left out of them; ``hidden`` does not matter.

    Attributes:
        config: the same without hidden layers.
        input_fields: names of the observation fields that are read.
    """

    def __init__(self, layout: Layout, config: NetworkConfig | None = None) -> None:
        self.layout = layout
        self.config = replace(config or NetworkConfig(), hidden=())
        # Its weights are not used; drawing them must not disturb the global generator.
        self._network = ActorCritic(layout, self.config, torch.Generator().manual_seed(0))
        self.input_fields = self._network.input_fields

    def __call__(self, observation: Tensor) -> Tensor:
        """Return keys ``int64[B, 2]`` of observations ``float32[B, D]``."""
        keys = np.empty((len(observation), 2), dtype=np.int64)
        if len(observation):
            features = self._network.features(observation).contiguous().numpy()
            _hash(features.view(np.uint32), keys)
        return torch.from_numpy(keys)


class KeyIndex:
    """Numbers different keys in the order in which they come.

    Attributes:
        keys: ``int64[K, 2]``, in that order.
    """

    def __init__(self, keys: IntArray | None = None) -> None:
        self._count = 0
        self._keys = np.empty((0, 2), dtype=np.int64)
        self._slots = np.full(2, -1, dtype=np.int64)
        if keys is not None:
            self.add(keys)

    def __len__(self) -> int:
        return self._count

    @property
    def keys(self) -> IntArray:
        """All keys, ``int64[K, 2]``; a view."""
        return self._keys[: self._count]

    def find(self, keys: IntArray) -> IntArray:
        """Return the numbers ``int64[B]`` of keys ``[B, 2]``, -1 for unknown ones."""
        rows = np.empty(len(keys), dtype=np.int64)
        _find(np.ascontiguousarray(keys), self._keys, self._slots, rows)
        return rows

    def add(self, keys: IntArray) -> IntArray:
        """Return the numbers ``int64[B]`` of keys ``[B, 2]``; new ones get the next numbers."""
        most = self._count + len(keys)
        if most > len(self._keys):
            room = np.empty((max(most, 2 * len(self._keys)), 2), dtype=np.int64)
            room[: self._count] = self.keys
            self._keys = room
        if 2 * most > len(self._slots):
            # At most half full, so that looking is short.
            self._slots = np.full(1 << (4 * most).bit_length(), -1, dtype=np.int64)
            _place(self.keys, self._slots)
        rows = np.empty(len(keys), dtype=np.int64)
        self._count = _add(np.ascontiguousarray(keys), self._keys, self._slots, self._count, rows)
        return rows


class TablePolicy:
    """A table as a policy; uniform over the legal actions where it has no row.

    Args:
        reader: what its keys are made by.
        keys: ``int64[K, 2]``, all different.
        probabilities: ``float32[K, A]``.
        info: what its checkpoint says about it.

    Raises:
        PolicyError: shapes or types that do not belong together, a key that comes twice,
            or probabilities that are negative or not finite.
    """

    def __init__(
        self,
        reader: Reader,
        keys: IntArray,
        probabilities: npt.NDArray[np.float32],
        info: Mapping[str, Any] | None = None,
    ) -> None:
        for name, array, dtype, shape in (
            ("keys", keys, np.int64, (len(keys), 2)),
            ("probabilities", probabilities, np.float32, (len(keys), reader.layout.num_actions)),
        ):
            if array.dtype != dtype or array.shape != shape:
                raise PolicyError(
                    f"{name}: expected {np.dtype(dtype)} of shape {list(shape)}, got {array.dtype}"
                    f" of shape {list(array.shape)}"
                )
        if not (np.isfinite(probabilities).all() and (probabilities >= 0.0).all()):
            raise PolicyError("probabilities: expected finite numbers that are not negative")
        self.reader = reader
        self.table = probabilities
        self.info = dict(info or {})
        self._index = KeyIndex(keys)
        if len(self._index) < len(keys):
            raise PolicyError(f"keys: expected {len(keys)} different ones, got {len(self._index)}")

    def __len__(self) -> int:
        return len(self.table)

    @property
    def keys(self) -> IntArray:
        """All keys, ``int64[K, 2]``."""
        return self._index.keys

    @property
    def layout(self) -> Layout:
        """The layout of the observations that it is asked about."""
        return self.reader.layout

    @property
    def outcomes_only(self) -> bool:
        """Whether it keeps the promise of that name of :class:`~shuiyu_env.policy.Policy`."""
        return self.reader.config.outcomes_only and self.layout.num_players == 2

    @property
    def strengths_only(self) -> bool:
        """Whether it keeps the promise of that name of :class:`~shuiyu_env.policy.Policy`."""
        return not self.reader.config.cards

    def probabilities(
        self, observation: npt.NDArray[np.float32], action_mask: npt.NDArray[Any]
    ) -> npt.NDArray[np.float32]:
        """Return the probability of each action.

        Args:
            observation: ``float32[B, D]``.
            action_mask: ``[B, A]``, non-zero where legal; at least one in every row.

        Returns:
            ``float32[B, A]``; rows sum to 1, illegal actions have exactly 0.

        Raises:
            PolicyError: a shape that is not this table's, or a row without a legal action.
        """
        observation, legal = check_inputs(observation, action_mask)
        sizes = observation.shape[1], legal.shape[1]
        if sizes != (self.layout.size, self.layout.num_actions):
            raise PolicyError(
                f"expected observations [B, {self.layout.size}] and masks"
                f" [B, {self.layout.num_actions}], got widths {sizes[0]} and {sizes[1]}"
            )
        rows = self._index.find(self.reader(torch.from_numpy(observation)).numpy())
        known = self.table[rows] if len(self) else np.zeros(legal.shape, dtype=np.float32)
        weights = np.where(legal & (rows >= 0)[:, None], known, 0.0).astype(np.float64)
        total = weights.sum(axis=1, keepdims=True)
        uniform = legal / legal.sum(axis=1, keepdims=True)
        shares = np.divide(weights, total, out=uniform, where=total > 0.0)
        result: npt.NDArray[np.float32] = shares.astype(np.float32)
        return result


_SEEDS = np.array([0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344], dtype=np.uint64)  # digits of pi
_SIGN = np.uint32(1 << 31)


@inlined
def _mixed(z):  # type: ignore[no-untyped-def]
    """Return a 64-bit number in which every bit depends on all of another's (splitmix64)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def _hash(bits, keys):  # type: ignore[no-untyped-def]
    """Hash rows of 32-bit words: the sum of what each place and word that is not 0 stands for."""
    for i in range(len(bits)):
        first = second = np.uint64(0)
        for j in range(bits.shape[1]):
            word = bits[i, j]
            if word != 0 and word != _SIGN:  # minus zero is zero
                z = (np.uint64(j + 1) << np.uint64(32)) | np.uint64(word)
                first += _mixed(z + _SEEDS[0])
                second += _mixed(z + _SEEDS[1])
        keys[i, 0], keys[i, 1] = np.int64(first), np.int64(second)


@inlined
def _slot(first, second, keys, slots):  # type: ignore[no-untyped-def]
    """Return the slot of a key, or the free one where it belongs."""
    last = len(slots) - 1
    at = first & last
    while slots[at] >= 0 and (keys[slots[at], 0] != first or keys[slots[at], 1] != second):
        at = (at + 1) & last
    return at


@compiled
def _find(wanted, keys, slots, rows):  # type: ignore[no-untyped-def]
    for i in range(len(wanted)):
        rows[i] = slots[_slot(wanted[i, 0], wanted[i, 1], keys, slots)]


@compiled
def _place(keys, slots):  # type: ignore[no-untyped-def]
    for i in range(len(keys)):
        slots[_slot(keys[i, 0], keys[i, 1], keys, slots)] = i


@compiled
def _add(wanted, keys, slots, count, rows):  # type: ignore[no-untyped-def]
    for i in range(len(wanted)):
        at = _slot(wanted[i, 0], wanted[i, 1], keys, slots)
        if slots[at] < 0:
            slots[at] = count
            keys[count, 0], keys[count, 1] = wanted[i, 0], wanted[i, 1]
            count += 1
        rows[i] = slots[at]
    return count
