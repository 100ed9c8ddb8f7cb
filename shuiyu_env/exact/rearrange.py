"""Forced showdowns: how the dealer's three splits compare with an open hand, jointly.

After ``FORCE`` the dealer sees the punter's hand and split and arranges anew, so
that his cards matter only through the triple of outcomes that his three splits
have. How many hands have which triple is counted once for all hands and splits of
the punter. In the plane of tails and heads the dealer's hand cuts 4 x 4
rectangles, in each of which the triple is the same; their corners, with signs, are
what is summed below a point, by inclusion and exclusion as in
:mod:`shuiyu_env.exact.dominance`.
"""

from __future__ import annotations

__all__ = ["TRIPLES", "outcome_triples"]

import os
from itertools import product

import numpy as np
import numpy.typing as npt

from shuiyu_env.compiling import compiled
from shuiyu_env.core.hands import NUM_SPLITS, Outcome
from shuiyu_env.exact.dominance import (
    HandClasses,
    disjoint_sums,
    hand_classes,
    run_threads,
)
from shuiyu_env.tables import OUTCOMES

#: All triples of outcomes of the dealer's splits, ``int8[27, 3]``: the last split changes fastest.
TRIPLES: npt.NDArray[np.int8] = np.array(list(product(Outcome, repeat=NUM_SPLITS)), dtype=np.int8)
TRIPLES.flags.writeable = False

_NUM_TRIPLES = len(TRIPLES)
_STEPS = NUM_SPLITS + 1  # intervals that three thresholds cut a line into
_DEALER_WINS, _PUSH, _PUNTER_WINS = map(int, Outcome)


def outcome_triples(
    classes: HandClasses, active: npt.NDArray[np.bool_], threads: int | None = None
) -> npt.NDArray[np.int32]:
    """Count the dealer's hands by the triple of outcomes of their splits.

    A split that is not legal counts as the hand's split 0, as everywhere.

    Args:
        classes: the hands.
        active: ``bool[K]``, the dealer's hands to count; under ``next_group``, the same
            for hands of the same ranks.
        threads: see :class:`~shuiyu_env.exact.dominance.DisjointSums`.

    Returns:
        ``int32[K, 3, 27]``: for each hand and split of the punter, hands disjoint
        from it, by :data:`TRIPLES`.
    """
    threads = os.cpu_count() or 1 if threads is None else threads
    if classes.by_ranks:
        return _by_ranks(classes, active, threads)
    if classes.table.tie_break == "next_group":
        # Corners know no ties; but where there are any, hands of the same ranks are alike.
        ranks = hand_classes(classes.table.deck, classes.table.tie_break, by_ranks=True)
        return _by_ranks(ranks, active[ranks.representative], threads)[ranks.class_of]
    sums = disjoint_sums(classes, None).by_cards
    points = classes.size * NUM_SPLITS
    cuts = np.searchsorted(sums.starts, np.linspace(0, sums.starts[-1], threads + 1))
    # Room for the corners of the largest subset, which is the empty one.
    corners = classes.size * _STEPS * _STEPS

    def work(first: int, last: int) -> npt.NDArray[np.int32]:
        out = np.zeros((points, _NUM_TRIPLES), dtype=np.int32)
        _count_corners(
            (first, last),
            sums.subsets.signs,
            sums.starts,
            sums.members,
            sums.tail,
            sums.head,
            active,
            np.empty((corners, 2), dtype=np.int32),
            np.empty(int(sums.tail.max()) + 3, dtype=np.int64),
            np.empty((3, NUM_SPLITS), dtype=np.int64),
            np.empty((sums.num_heads + 2, _NUM_TRIPLES), dtype=np.int32),
            out,
        )
        return out

    parts = run_threads(work, cuts)
    out = parts[0]
    for part in parts[1:]:
        out += part
    _add_own(sums.tail, sums.head, active, out)
    counts: npt.NDArray[np.int32] = out.reshape(classes.size, NUM_SPLITS, _NUM_TRIPLES)
    return counts


def _by_ranks(
    classes: HandClasses, active: npt.NDArray[np.bool_], threads: int
) -> npt.NDArray[np.int32]:
    disjoint = (disjoint_sums(classes, None).by_ranks.disjoint * active).astype(np.int32)
    out = np.zeros((classes.size, NUM_SPLITS, _NUM_TRIPLES), dtype=np.int32)

    def work(first: int, last: int) -> None:
        _count_all((first, last), disjoint, classes.strengths.astype(np.int32), OUTCOMES, out)

    run_threads(work, np.linspace(0, classes.size, threads + 1).astype(np.intp))
    return out


@compiled
def _cell(places, u, v):  # type: ignore[no-untyped-def]
    """Return the triple where u of a hand's tails and v of its heads have been passed."""
    triple = 0
    for split in range(NUM_SPLITS):
        tail_passed, head_passed = places[0, split] < u, places[1, split] < v
        outcome = _PUSH
        if tail_passed and head_passed:
            outcome = _PUNTER_WINS
        elif not tail_passed and not head_passed:
            outcome = _DEALER_WINS
        triple = 3 * triple + outcome
    return triple


@compiled
def _place(values, point):  # type: ignore[no-untyped-def]
    """Return where a point stands among its hand's three in ascending order of some values."""
    first = point - point % NUM_SPLITS
    place = 0
    for other in range(first, first + NUM_SPLITS):
        if values[other] < values[point] or (values[other] == values[point] and other < point):
            place += 1
    return place


@compiled
def _count_corners(  # type: ignore[no-untyped-def]
    subsets, signs, starts, members, tail, head, active, corners, buckets, places, tree, out
):
    """Add to ``out[point]`` the signed counts of triples, subset by subset."""
    num_heads = len(tree) - 2
    for subset in range(subsets[0], subsets[1]):
        sign = np.int32(signs[subset])
        start, end = starts[subset], starts[subset + 1]
        # Sort the corners by the first tail from which they count, by counting.
        buckets[...] = 0
        for at in range(start, end):
            point = members[at]
            if active[point // NUM_SPLITS]:
                # Every hand has three points here; each stands for one of its thresholds.
                buckets[tail[point] + 2] += 1
                if point % NUM_SPLITS == 0:
                    buckets[1] += 1
        for k in range(1, len(buckets)):
            buckets[k] += buckets[k - 1]
        for at in range(start, end):
            point = members[at]
            hand = point // NUM_SPLITS
            if active[hand]:
                slot = buckets[tail[point] + 1]
                corners[slot, 0], corners[slot, 1] = hand, 1 + _place(tail, point)
                buckets[tail[point] + 1] = slot + 1
                if point % NUM_SPLITS == 0:
                    slot = buckets[0]
                    corners[slot, 0], corners[slot, 1] = hand, 0
                    buckets[0] = slot + 1
        # buckets[k] is now where the corners that count from tail k on end.
        tree[...] = 0
        done = 0
        for at in range(start, end):
            point = members[at]
            while done < buckets[tail[point]]:
                hand, u = corners[done, 0], corners[done, 1]
                done += 1
                for split in range(NUM_SPLITS):
                    source = hand * NUM_SPLITS + split
                    places[0, split] = _place(tail, source)
                    places[1, split] = _place(head, source)
                    # From which place of the tree on a head is passed.
                    places[2, places[1, split]] = head[source] + 2
                for v in range(_STEPS):
                    lowest = 1 if v == 0 else places[2, v - 1]
                    for du in range(2 if u > 0 else 1):
                        for dv in range(2 if v > 0 else 1):
                            triple = _cell(places, u - du, v - dv)
                            amount = 1 if du == dv else -1
                            place = lowest
                            while place <= num_heads + 1:
                                tree[place, triple] += amount
                                place += place & -place
            place = head[point] + 1
            while place > 0:
                for triple in range(_NUM_TRIPLES):
                    out[point, triple] += sign * tree[place, triple]
                place &= place - 1


@compiled
def _add_own(tail, head, active, out):  # type: ignore[no-untyped-def]
    """Add the last term: the hand itself shares all four cards."""
    for hand in range(len(active)):
        if active[hand]:
            first = hand * NUM_SPLITS
            for point in range(first, first + NUM_SPLITS):
                triple = 0
                for source in range(first, first + NUM_SPLITS):
                    outcome = _PUSH
                    if tail[point] > tail[source] and head[point] > head[source]:
                        outcome = _PUNTER_WINS
                    elif tail[point] <= tail[source] and head[point] <= head[source]:
                        outcome = _DEALER_WINS
                    triple = 3 * triple + outcome
                out[point, triple] += 1


@compiled
def _count_all(bounds, disjoint, strengths, outcomes, out):  # type: ignore[no-untyped-def]
    """Count over all pairs of classes, as often as each has disjoint hands."""
    for b in range(bounds[0], bounds[1]):
        for a in range(len(strengths)):
            if disjoint[b, a] == 0:
                continue
            for j in range(NUM_SPLITS):
                triple = 0
                for i in range(NUM_SPLITS):
                    tail = np.sign(strengths[a, i, 0] - strengths[b, j, 0])
                    head = np.sign(strengths[a, i, 1] - strengths[b, j, 1])
                    triple = 3 * triple + outcomes[1 + tail, 1 + head]
                out[b, j, triple] += disjoint[b, a]
