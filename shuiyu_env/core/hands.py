"""Hands, groups, splits and their comparison (rules, section "Hands, groups, splits").

A hand is four card codes, highest first: c0 c1 c2 c3. Split ``k`` puts c0 with
c(k+1). Every comparison is made on integers: a :class:`Ranking` gives each
split a tail and a head strength, and specials (Shuiyu, Supreme) are lifted
above everything else, so that no comparison needs a special case.
"""

from __future__ import annotations

__all__ = [
    "NUM_SPLITS",
    "SPLIT_PLACES",
    "Hand",
    "Outcome",
    "Ranking",
    "Special",
    "TieBreak",
    "compare",
    "group_points",
    "legal_splits",
    "ranking",
    "special_of",
    "split_groups",
]

from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import combinations
from typing import Any, Literal

from shuiyu_env.core.cards import POINTS, Deck

TieBreak = Literal["card", "next_group"]
Hand = tuple[int, ...]
Group = tuple[int, int]

NUM_SPLITS = 3

#: By split: the places of its first group's cards in the hand, then of the second's.
SPLIT_PLACES = ((0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2))

_ALL_SPLITS = (0, 1, 2)
_FIRST_SPLIT = (0,)


class Special(IntEnum):
    """What a hand is as a whole: a property of its four cards, whatever the split."""

    NONE = 0
    SHUIYU = 1
    SUPREME = 2


class Outcome(IntEnum):
    """The result of comparing the dealer's split with a punter's."""

    DEALER_WINS = 0
    PUSH = 1
    PUNTER_WINS = 2


def special_of(hand: Sequence[int]) -> Special:
    """Return the special status of a hand sorted from highest to lowest card."""
    r0, r1, r2, r3 = hand[0] >> 2, hand[1] >> 2, hand[2] >> 2, hand[3] >> 2
    if r0 != r1 or r2 != r3:
        return Special.NONE
    return Special.SUPREME if r1 == r2 else Special.SHUIYU


def legal_splits(hand: Sequence[int]) -> tuple[int, ...]:
    """Return the splits a hand may be laid in: a Shuiyu only into its pairs, others freely."""
    return _FIRST_SPLIT if special_of(hand) is Special.SHUIYU else _ALL_SPLITS


def split_groups(hand: Sequence[int], split: int) -> tuple[Group, Group]:
    """Return the two groups of a split, the one with the highest card first."""
    a, b, c, d = SPLIT_PLACES[split]
    return (hand[a], hand[b]), (hand[c], hand[d])


def group_points(group: Group) -> int | None:
    """Return the points of a group, 0 to 9, or ``None`` for a pair, which has none."""
    a, b = group
    return None if a >> 2 == b >> 2 else (POINTS[a] + POINTS[b]) % 10


def _group_key(group: Group, tie_break: TieBreak) -> tuple[int, int]:
    """Return what orders groups: points (a pair is 10), then what breaks a tie."""
    points = group_points(group)
    high = max(group)
    if tie_break == "card":
        return (10 if points is None else points, high)
    return (10, high >> 2) if points is None else (points, 0)


class Ranking:
    """Strengths of all groups of a deck under one tie rule, as dense integers.

    Ordinary groups rank from 0 to ``num_strengths - 1``. Both groups of a
    Shuiyu rank ``num_strengths`` higher, and both of a Supreme, by its rank,
    from ``2 * num_strengths`` up: so one rule compares all hands.

    Args:
        deck: the deck the groups come from.
        tie_break: ``"card"`` or ``"next_group"``.
    """

    def __init__(self, deck: Deck, tie_break: TieBreak) -> None:
        self.deck = deck
        self.tie_break = tie_break
        keys = {pair: _group_key(pair, tie_break) for pair in combinations(deck.cards, 2)}
        dense = {key: i for i, key in enumerate(sorted(set(keys.values())))}
        #: Number of distinct strengths of ordinary groups.
        self.num_strengths = len(dense)
        #: Largest strength that any group can have; strengths are scaled by it.
        self.max_strength = 2 * self.num_strengths + deck.cards[-1] // 4
        # Flat [first card * 64 + second card], both orders: the hot path's only table.
        self._pair = [-1] * (64 * 64)
        for (a, b), key in keys.items():
            self._pair[a * 64 + b] = self._pair[b * 64 + a] = dense[key]
        #: ``profile(hand)``: the strengths of all three splits, recent hands cached.
        self.profile = lru_cache(maxsize=4096)(self._profile)

    def group(self, group: Group, special: Special = Special.NONE) -> int:
        """Return the strength of a group in a hand of a special status."""
        if special is Special.SUPREME:
            return 2 * self.num_strengths + (group[0] >> 2)
        lift = self.num_strengths if special is Special.SHUIYU else 0
        return lift + self._pair[group[0] * 64 + group[1]]

    def strengths(self, hand: Hand, split: int) -> tuple[int, int]:
        """Return ``(tail, head)`` of a hand's split, specials lifted.

        A split that a Shuiyu may not be laid in counts as its only legal one.
        """
        return self.profile(hand)[split]

    def _profile(self, hand: Hand) -> tuple[tuple[int, int], ...]:
        c0, c1, c2, c3 = hand
        if c0 >> 2 == c1 >> 2 and c2 >> 2 == c3 >> 2:
            special = special_of(hand)
            # The hand is sorted, so its second pair is the lower one.
            return ((self.group((c2, c3), special), self.group((c0, c1), special)),) * NUM_SPLITS
        pair = self._pair
        a, b = pair[c0 * 64 + c1], pair[c2 * 64 + c3]
        c, d = pair[c0 * 64 + c2], pair[c1 * 64 + c3]
        e, f = pair[c0 * 64 + c3], pair[c1 * 64 + c2]
        return (a, b) if a < b else (b, a), (c, d) if c < d else (d, c), (e, f) if e < f else (f, e)

    # A pickle names the deck and the rule, and finds the table again: a cache cannot be pickled.
    def __reduce__(self) -> tuple[Any, ...]:
        return ranking, (self.deck, self.tie_break)


@lru_cache(maxsize=64)
def ranking(deck: Deck, tie_break: TieBreak) -> Ranking:
    """Return the (cached) ranking of a deck under a tie rule."""
    return Ranking(deck, tie_break)


def compare(dealer: tuple[int, int], punter: tuple[int, int]) -> Outcome:
    """Compare ``(tail, head)`` strengths: tail with tail, head with head.

    The side that is greater in both groups wins, one group each is a push. A
    tied group (only under ``next_group``, or between equal pairs of it) is
    void and the other decides; when both tie, the dealer wins.
    """
    dealer_tail, dealer_head = dealer
    punter_tail, punter_head = punter
    if dealer_tail >= punter_tail and dealer_head >= punter_head:
        return Outcome.DEALER_WINS
    if dealer_tail <= punter_tail and dealer_head <= punter_head:
        return Outcome.PUNTER_WINS
    return Outcome.PUSH
