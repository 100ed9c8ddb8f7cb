"""Sums over all hands that can be dealt together with a hand, by the outcome of the comparison.

Payoffs depend on cards only through the outcome of a comparison, so everything
exact about the heads-up game is made of one sum. For weights ``w[b, j]`` on the
hands and splits of one side and each hand and split ``(a, i)`` of the other,

    S(a, i) = sum over hands b disjoint from a, splits j, of w[b, j] * [(b, j) lies below (a, i)]

Card removal is inclusion and exclusion over the subsets of a's four cards: S is
the signed sum, over these 16 subsets T, of the same sum over all hands that
contain T. All points of a subset are visited in the order of their tails, and a
Fenwick tree over their heads holds what was passed. The full deck has 22,100
triples, 1,326 pairs, 52 single cards, the empty set, and every hand by itself.

Where strengths ignore suits, hands of the same ranks are alike: there the sums
run over the (at most 1,820) rank multisets instead, every pair of them weighted
by the number of disjoint hands that it stands for.
"""

from __future__ import annotations

__all__ = [
    "DisjointSums",
    "HandClasses",
    "Sums",
    "disjoint_sums",
    "hand_classes",
    "run_threads",
]

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise
from math import comb
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from shuiyu_env.compiling import compiled
from shuiyu_env.core.cards import HAND_SIZE, RANKS, Deck
from shuiyu_env.core.hands import NUM_SPLITS, TieBreak
from shuiyu_env.tables import HandTable, hand_table

Side = Literal["dealer", "punter"]
FloatArray = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class HandClasses:
    """The hands that sums run over: all hands, or one of each kind where suits do not matter.

    Attributes:
        table: the table of all H hands.
        size: K, the number of classes.
        by_ranks: whether a class is a rank multiset rather than a single hand.
        representative: ``int32[K]``, the index of one hand of each class.
        class_of: ``int32[H]``, the class of each hand.
        multiplicity: ``float64[K]``, hands in each class.
        special: ``int8[K]``, :class:`~shuiyu_env.core.hands.Special`.
        legal_splits: ``bool[K, 3]``.
        strengths: ``int16[K, 3, 2]``, tail and head of each split.
    """

    table: HandTable
    size: int
    by_ranks: bool
    representative: npt.NDArray[np.int32]
    class_of: npt.NDArray[np.int32]
    multiplicity: npt.NDArray[np.float64]
    special: npt.NDArray[np.int8]
    legal_splits: npt.NDArray[np.bool_]
    strengths: npt.NDArray[np.int16]


@lru_cache(maxsize=16)
def hand_classes(deck: Deck, tie_break: TieBreak, by_ranks: bool | None = None) -> HandClasses:
    """Return the (cached) classes of a deck's hands.

    Args:
        deck, tie_break: what the game is played with.
        by_ranks: put hands of the same ranks together. Only right where strengths
            ignore suits (``next_group``), which is the default there.

    Raises:
        ValueError: ``by_ranks`` where suits decide.
    """
    table = hand_table(deck, tie_break)
    if by_ranks is None:
        by_ranks = tie_break == "next_group"
    if by_ranks and tie_break != "next_group":
        raise ValueError(f"hands of the same ranks are not alike under tie_break={tie_break!r}")
    if by_ranks:
        ranks = (table.cards[:-1] >> 2).astype(np.int32)
        keys = ranks @ np.array([13**3, 13**2, 13, 1], dtype=np.int32)
        _, representative, class_of, counts = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
    else:
        representative = class_of = np.arange(table.num_hands)
        counts = np.ones(table.num_hands, dtype=np.intp)
    return HandClasses(
        table=table,
        size=len(representative),
        by_ranks=by_ranks,
        representative=representative.astype(np.int32),
        class_of=class_of.astype(np.int32),
        multiplicity=counts.astype(np.float64),
        special=table.special[representative],
        legal_splits=table.legal_splits[representative],
        strengths=table.strengths[representative],
    )


class Sums(NamedTuple):
    """Sums of weights over the other side's disjoint hands, for every hand and split of one side.

    Attributes:
        less: ``float64[K, 3, C]``, of the weights of those that lose to it.
        greater: ``float64[K, 3, C]``, of those that it loses to.
        total: ``float64[K, C]``, of all.
    """

    less: npt.NDArray[np.float64]
    greater: npt.NDArray[np.float64]
    total: npt.NDArray[np.float64]


class DisjointSums:
    """The sums of one deck and tie rule. Weights are ``float[K, 3, C]``: class, split, column.

    Each of ``less``, ``greater`` and ``total`` has weights, and a number of
    columns, of its own. Accumulation is in ``float64``; with ``float32`` weights
    only these are rounded.

    Args:
        classes: the hands.
        threads: how many threads share a traversal; ``None``: all that there are.
    """

    def __init__(self, classes: HandClasses, threads: int | None = None) -> None:
        self.classes = classes
        self.threads = os.cpu_count() or 1 if threads is None else threads
        self._sums = _ByRanks(classes) if classes.by_ranks else _ByCards(classes)

    @property
    def by_cards(self) -> _ByCards:
        """The points of single hands."""
        assert isinstance(self._sums, _ByCards)
        return self._sums

    @property
    def by_ranks(self) -> _ByRanks:
        """The pairs of rank multisets."""
        assert isinstance(self._sums, _ByRanks)
        return self._sums

    def __call__(
        self, less: FloatArray, greater: FloatArray, total: FloatArray, side: Side
    ) -> Sums:
        """Return the sums for all hands and splits of ``side`` over the other side's weights.

        A dealer's split loses to a punter's that is at least equal in both groups
        but not equal in both; a punter's, to a dealer's at least equal in both.

        Args:
            less: ``float[K, 3, C1]``, weights summed where ``side`` wins the comparison.
            greater: ``float[K, 3, C2]``, weights summed where it loses it.
            total: ``float[K, 3, C3]``, weights summed in any case.
            side: whose hands the sums are for.
        """
        return self._sums(less, greater, total, side == "dealer", self.threads)

    def outcomes(self, weights: FloatArray, side: Side) -> Sums:
        """Return all three sums of the same weights ``float[K, 3, C]``."""
        return self(weights, weights, weights, side)


@lru_cache(maxsize=8)
def disjoint_sums(classes: HandClasses, threads: int | None = None) -> DisjointSums:
    """Return the (cached) sums of some classes; see :class:`DisjointSums`."""
    return DisjointSums(classes, threads)


def _columns(weights: FloatArray) -> tuple[int, ...]:
    # A tuple's length is part of its type, so loops over the columns are compiled for it.
    return (0,) * int(weights.shape[-1])


class _ByCards:
    """Inclusion and exclusion over the cards of single hands."""

    def __init__(self, classes: HandClasses) -> None:
        table = classes.table
        self.num_hands = table.num_hands
        # Without ties between disjoint hands, equal points count or not, whichever is faster:
        # inclusion and exclusion takes them out again.
        self.ties = table.tie_break != "card"
        self.subsets = subsets_of(table.deck)
        strengths = classes.strengths.reshape(-1, 2)
        # Dense, so that the tree has one place for each head that occurs.
        self.tail = np.unique(strengths[:, 0], return_inverse=True)[1].astype(np.int16)
        heads, head = np.unique(strengths[:, 1], return_inverse=True)
        self.head = head.astype(np.int16)
        self.num_heads = len(heads)
        # All points of every subset in the order of tails, then heads.
        starts = self.subsets.starts * NUM_SPLITS
        self.members = np.empty(starts[-1], dtype=np.int32)
        order = np.lexsort((self.head, self.tail))
        _fill(order, self.subsets.of_hand, starts[:-1].copy(), self.members)
        self.starts = starts

    def __call__(
        self, less: FloatArray, greater: FloatArray, total: FloatArray, dealer: bool, threads: int
    ) -> Sums:
        points = self.num_hands * NUM_SPLITS
        cuts = np.searchsorted(self.starts, np.linspace(0, self.starts[-1], threads + 1))

        def swept(weights: FloatArray, reverse: bool, equal_counts: bool) -> Any:
            columns = weights.shape[-1]
            if columns == 0:
                return np.zeros((self.num_hands, NUM_SPLITS, 0))
            flat = np.ascontiguousarray(weights).reshape(points, columns)

            def work(first: int, last: int) -> npt.NDArray[np.float64]:
                out = np.zeros((points, columns))
                tree = np.empty((self.num_heads + 1, columns))
                _sweep(
                    (first, last),
                    self.subsets.signs,
                    self.starts,
                    self.members,
                    self.tail,
                    self.head,
                    _columns(weights),
                    reverse,
                    equal_counts,
                    flat,
                    out,
                    tree,
                )
                return out

            parts = run_threads(work, cuts)
            out = parts[0]
            for part in parts[1:]:
                out += part
            _add_own(self.tail, self.head, _columns(weights), reverse, equal_counts, flat, out)
            return out.reshape(self.num_hands, NUM_SPLITS, columns)

        return Sums(
            less=swept(less, False, dealer or not self.ties),
            greater=swept(greater, True, not dealer or not self.ties),
            total=self._total(total),
        )

    def _total(self, weights: FloatArray) -> npt.NDArray[np.float64]:
        hands: npt.NDArray[np.float64] = weights.sum(axis=1, dtype=np.float64)
        out = hands.copy()
        if hands.shape[1]:
            per_subset = np.zeros((len(self.subsets.signs), hands.shape[1]))
            _add_totals(self.subsets.of_hand, self.subsets.signs, hands, per_subset, out)
        return out


class _ByRanks:
    """All pairs of rank multisets, each pair as often as it has disjoint hands."""

    def __init__(self, classes: HandClasses) -> None:
        ranks = classes.table.cards[classes.representative] >> 2
        suits = classes.table.deck.suits
        counts = (ranks[:, :, None] == np.arange(len(RANKS))).sum(axis=1)
        # How many ways to take y cards of a rank of which x are gone.
        ways = np.array(
            [[comb(suits - x, y) if x <= suits else 0 for y in range(5)] for x in range(5)]
        )
        disjoint = np.ones((classes.size, classes.size))
        for rank in range(len(RANKS)):
            disjoint *= ways[counts[:, rank][:, None], counts[:, rank][None, :]]
        self.disjoint = disjoint
        self.strengths = classes.strengths.astype(np.int32)

    def __call__(
        self, less: FloatArray, greater: FloatArray, total: FloatArray, dealer: bool, threads: int
    ) -> Sums:
        size = len(self.strengths)
        cuts = np.linspace(0, size, threads + 1).astype(np.intp)

        def compared(weights: FloatArray, reverse: bool, equal_counts: bool) -> Any:
            out = np.zeros((size, NUM_SPLITS, weights.shape[-1]))
            if weights.shape[-1]:
                sources = np.ascontiguousarray(weights, dtype=np.float64)

                def work(first: int, last: int) -> None:
                    _compare_all(
                        (first, last),
                        self.disjoint,
                        self.strengths,
                        _columns(weights),
                        reverse,
                        equal_counts,
                        sources,
                        out,
                    )

                run_threads(work, cuts)
            return out

        return Sums(
            less=compared(less, False, dealer),
            greater=compared(greater, True, not dealer),
            total=self.disjoint @ total.sum(axis=1, dtype=np.float64),
        )


def run_threads(work: Callable[[int, int], Any], cuts: Sequence[Any] | npt.NDArray[Any]) -> Any:
    """Run ``work(first, last)`` for each range between two cuts, each in a thread of its own."""
    ranges = [(int(a), int(b)) for a, b in pairwise(cuts)]
    if len(ranges) == 1:
        return [work(*ranges[0])]
    with ThreadPoolExecutor(len(ranges)) as pool:
        return list(pool.map(lambda bounds: work(*bounds), ranges))


class Subsets(NamedTuple):
    """The subsets of up to three cards of a deck, numbered by size, then colexicographically.

    Attributes:
        of_hand: ``int32[H, 15]``, the subsets of each hand.
        signs: ``float64[S]``, +1 for an even number of cards, -1 for an odd one.
        starts: ``int64[S + 1]``, where each subset's hands begin in a list of all.
    """

    of_hand: npt.NDArray[np.int32]
    signs: npt.NDArray[np.float64]
    starts: npt.NDArray[np.int64]


@lru_cache(maxsize=4)
def subsets_of(deck: Deck) -> Subsets:
    """Return the (cached) subsets of a deck's cards that hands share."""
    table = hand_table(deck, "card")
    place = np.zeros(deck.cards[-1] + 1, dtype=np.int64)
    place[list(deck.cards)] = np.arange(deck.size)
    cards = place[table.cards[:-1, ::-1]]  # ascending
    columns = []
    first = 0
    for size in range(HAND_SIZE):
        for some in combinations(range(HAND_SIZE), size):
            index = np.full(len(cards), first, dtype=np.int64)
            for k, position in enumerate(some):
                index += np.array([comb(n, k + 1) for n in range(deck.size)])[cards[:, position]]
            columns.append(index)
        first += comb(deck.size, size)
    of_hand = np.stack(columns, axis=1).astype(np.int32)
    sizes = [comb(deck.size, size) for size in range(HAND_SIZE)]
    counts = np.bincount(of_hand.ravel(), minlength=first)
    return Subsets(
        of_hand=of_hand,
        signs=np.repeat([(-1.0) ** size for size in range(HAND_SIZE)], sizes),
        starts=np.concatenate([[0], np.cumsum(counts)]),
    )


@compiled
def _fill(order, subsets_of_hand, cursors, members):  # type: ignore[no-untyped-def]
    """Write every point, in order, into the list of each of its hand's subsets."""
    for point in order:
        for subset in subsets_of_hand[point // NUM_SPLITS]:
            members[cursors[subset]] = point
            cursors[subset] += 1


@compiled
def _sweep(  # type: ignore[no-untyped-def]
    subsets, signs, starts, members, tail, head, columns, reverse, equal_counts, weights, out, tree
):
    """Add to ``out[point]`` the signed sums of the weights below it, subset by subset.

    With ``reverse``, of those above it. A point equal in both groups counts only if
    ``equal_counts``. Within a subset all points of a tail are first added to the
    tree, then asked for.
    """
    size = len(tree) - 1
    for subset in range(subsets[0], subsets[1]):
        tree[...] = 0.0
        sign = signs[subset]
        start, end = starts[subset], starts[subset + 1]
        count = end - start
        i = 0
        while i < count:
            at = end - 1 - i if reverse else start + i
            row = tail[members[at]]
            j = i
            while j < count:
                point = members[end - 1 - j if reverse else start + j]
                if tail[point] != row:
                    break
                place = size - head[point] if reverse else head[point] + 1
                while place <= size:
                    for c in range(len(columns)):
                        tree[place, c] += weights[point, c]
                    place += place & -place
                j += 1
            k = i
            while k < j:
                point = members[end - 1 - k if reverse else start + k]
                place = size - head[point] if reverse else head[point] + 1
                while place > 0:
                    for c in range(len(columns)):
                        out[point, c] += sign * tree[place, c]
                    place &= place - 1
                k += 1
            if not equal_counts:
                # Points of a tail lie in the order of heads, so equal ones are neighbours.
                k = i
                while k < j:
                    first = members[end - 1 - k if reverse else start + k]
                    run = k
                    while run < j:
                        point = members[end - 1 - run if reverse else start + run]
                        if head[point] != head[first]:
                            break
                        run += 1
                    # The tree's places begin at 1, so its first row is free for their sum.
                    tree[0] = 0.0
                    for m in range(k, run):
                        source = members[end - 1 - m if reverse else start + m]
                        for c in range(len(columns)):
                            tree[0, c] += weights[source, c]
                    for m in range(k, run):
                        point = members[end - 1 - m if reverse else start + m]
                        for c in range(len(columns)):
                            out[point, c] -= sign * tree[0, c]
                    k = run
            i = j


@compiled
def _counts(  # type: ignore[no-untyped-def]
    source_tail, source_head, tail, head, reverse, equal_counts
):
    """Whether a source lies below a point (above it, with ``reverse``)."""
    if source_tail == tail and source_head == head:
        return equal_counts
    if reverse:
        return source_tail >= tail and source_head >= head
    return source_tail <= tail and source_head <= head


@compiled
def _add_own(  # type: ignore[no-untyped-def]
    tail, head, columns, reverse, equal_counts, weights, out
):
    """Add the last term of inclusion and exclusion: the hand itself shares all four cards."""
    for first in range(0, len(tail), NUM_SPLITS):
        for point in range(first, first + NUM_SPLITS):
            for source in range(first, first + NUM_SPLITS):
                if _counts(
                    tail[source], head[source], tail[point], head[point], reverse, equal_counts
                ):
                    for c in range(len(columns)):
                        out[point, c] += weights[source, c]


@compiled
def _add_totals(subsets_of_hand, signs, hands, per_subset, out):  # type: ignore[no-untyped-def]
    """Add to ``out[hand]`` the signed totals of its subsets."""
    for hand in range(len(hands)):
        for subset in subsets_of_hand[hand]:
            for c in range(hands.shape[1]):
                per_subset[subset, c] += hands[hand, c]
    for hand in range(len(hands)):
        for subset in subsets_of_hand[hand]:
            for c in range(hands.shape[1]):
                out[hand, c] += signs[subset] * per_subset[subset, c]


@compiled
def _compare_all(  # type: ignore[no-untyped-def]
    bounds, disjoint, strengths, columns, reverse, equal_counts, weights, out
):
    """Sum over all pairs of classes, as often as each has disjoint hands."""
    for a in range(bounds[0], bounds[1]):
        for b in range(len(strengths)):
            times = disjoint[a, b]
            if times == 0.0:
                continue
            for i in range(NUM_SPLITS):
                for j in range(NUM_SPLITS):
                    if _counts(
                        strengths[b, j, 0],
                        strengths[b, j, 1],
                        strengths[a, i, 0],
                        strengths[a, i, 1],
                        reverse,
                        equal_counts,
                    ):
                        for c in range(len(columns)):
                            out[a, i, c] += times * weights[b, j, c]
