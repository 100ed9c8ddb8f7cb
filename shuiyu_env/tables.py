"""NumPy tables compiled from a deck and a rule set.

All hands of a deck have an index, and one table of strengths makes every
comparison two integer comparisons. The contest tree becomes arrays, so that
vectorised code reads the same data as the sequential core.
"""

from __future__ import annotations

__all__ = [
    "OUTCOMES",
    "ContestTables",
    "GroupTables",
    "HandTable",
    "contest_tables",
    "group_tables",
    "hand_table",
]

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.actions import num_actions
from shuiyu_env.core.cards import HAND_SIZE, NUM_CARDS, RANKS, Deck
from shuiyu_env.core.contest import compile_tree
from shuiyu_env.core.hands import (
    NUM_SPLITS,
    SPLIT_PLACES,
    Special,
    TieBreak,
    compare,
    legal_splits,
    ranking,
    special_of,
)
from shuiyu_env.core.rules import RuleSet


@dataclass(frozen=True, eq=False)
class HandTable:
    """All hands of a deck, in colexicographic order of their cards' positions in it.

    With ``p0 < p1 < p2 < p3`` the positions of a hand's cards in ``deck.cards``,
    its index is ``C(p0, 1) + C(p1, 2) + C(p2, 3) + C(p3, 4)``. Every table has
    one more row than there are hands, all zeros: index -1 stands for "no hand".

    Attributes:
        deck, tie_break: what it is compiled from.
        num_hands: H.
        max_strength: what strengths are scaled by in observations.
        cards: ``int8[H + 1, 4]``, card codes from highest to lowest.
        special: ``int8[H + 1]``, :class:`~shuiyu_env.core.hands.Special`.
        legal_splits: ``bool[H + 1, 3]``.
        strengths: ``int16[H + 1, 3, 2]``, tail and head of each split, specials
            lifted above all others; a split that is not legal counts as split 0.
    """

    deck: Deck
    tie_break: TieBreak
    num_hands: int
    max_strength: int
    cards: npt.NDArray[np.int8]
    special: npt.NDArray[np.int8]
    legal_splits: npt.NDArray[np.bool_]
    strengths: npt.NDArray[np.int16]

    def index(self, cards: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return the index of hands given as card codes ``[..., 4]``, each from highest to lowest.

        The cards must be cards of the deck; they are not checked.
        """
        positions = _positions(self.deck)[np.asarray(cards, dtype=np.intp)]
        # Cards descend, so the first belongs to the largest binomial.
        binomials = _binomials()
        result = np.zeros(positions.shape[:-1], dtype=np.int32)
        for i in range(HAND_SIZE):
            result += binomials[positions[..., i], HAND_SIZE - i]
        return result


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array that many share, so that none can spoil it for the others."""
    array.flags.writeable = False
    return array


@lru_cache(maxsize=1)
def _binomials() -> npt.NDArray[np.int32]:
    table = np.zeros((NUM_CARDS + 1, HAND_SIZE + 1), dtype=np.int32)
    table[:, 0] = 1
    for n in range(1, NUM_CARDS + 1):
        for k in range(1, HAND_SIZE + 1):
            table[n, k] = table[n - 1, k - 1] + table[n - 1, k]
    return _frozen(table)


@lru_cache(maxsize=64)
def _positions(deck: Deck) -> npt.NDArray[np.int32]:
    positions = np.full(NUM_CARDS, -1, dtype=np.int32)
    positions[list(deck.cards)] = np.arange(deck.size)
    return _frozen(positions)


@dataclass(frozen=True, eq=False)
class GroupTables:
    """What hands are made of, small enough to stay in a processor's nearest memory.

    Attributes:
        special: ``int8[13, 13, 13, 13]``, :class:`~shuiyu_env.core.hands.Special` by
            the ranks of a hand's cards from highest to lowest.
        legal_splits: ``bool[3, 3]``, whether a hand of a special status may be laid in a split.
        laid: ``int8[3, 3]``, the split that a split of such a hand counts as: itself, or
            split 0 where it is not legal.
        places: ``int8[3, 4]``, by split: the places of its first group's cards in
            the hand, then of the second's.
        strengths: ``int16[3, 52, 52]``, strength of the group of two cards (in any
            order) in a hand of a special status; zeros for cards outside the deck.
    """

    special: npt.NDArray[np.int8]
    legal_splits: npt.NDArray[np.bool_]
    laid: npt.NDArray[np.int8]
    places: npt.NDArray[np.int8]
    strengths: npt.NDArray[np.int16]


@lru_cache(maxsize=64)
def group_tables(deck: Deck, tie_break: TieBreak) -> GroupTables:
    """Return the (cached) tables of a deck's groups under a tie rule."""
    num_ranks = len(RANKS)
    special = np.zeros((num_ranks,) * HAND_SIZE, dtype=np.int8)
    legal_splits_of = np.ones((len(Special), NUM_SPLITS), dtype=np.bool_)
    for ranks in combinations_with_replacement(range(num_ranks - 1, -1, -1), HAND_SIZE):
        # Suits do not matter here, so any will do.
        hand = [rank * 4 for rank in ranks]
        special[ranks] = special_of(hand)
        legal = legal_splits(hand)
        legal_splits_of[special[ranks]] = [split in legal for split in range(NUM_SPLITS)]
    order = ranking(deck, tie_break)
    strengths = np.zeros((len(Special), NUM_CARDS, NUM_CARDS), dtype=np.int16)
    for a, b in combinations(deck.cards, 2):
        for status in Special:
            strengths[status, a, b] = strengths[status, b, a] = order.group((a, b), status)
    return GroupTables(
        special=_frozen(special),
        legal_splits=_frozen(legal_splits_of),
        laid=_frozen(np.where(legal_splits_of, np.arange(NUM_SPLITS), 0).astype(np.int8)),
        places=_frozen(np.array(SPLIT_PLACES, dtype=np.int8)),
        strengths=_frozen(strengths),
    )


@lru_cache(maxsize=16)
def hand_table(deck: Deck, tie_break: TieBreak) -> HandTable:
    """Return the (cached) table of a deck's hands under a tie rule."""
    codes = np.array(deck.cards, dtype=np.int16)
    combos = np.array(list(combinations(range(deck.size), HAND_SIZE)), dtype=np.int16)
    # Colexicographic: the highest position counts most.
    combos = combos[np.lexsort(combos.T)]
    hands = codes[combos[:, ::-1]]
    groups = group_tables(deck, tie_break)
    special = groups.special[tuple((hands >> 2).T)]
    legal = groups.legal_splits[special]
    strengths = np.empty((len(hands), NUM_SPLITS, 2), dtype=np.int16)
    for split in range(NUM_SPLITS):
        places = groups.places[groups.laid[special, split]]
        a, b, c, d = np.take_along_axis(hands, places, axis=1).T
        first, second = groups.strengths[special, a, b], groups.strengths[special, c, d]
        strengths[:, split, 0] = np.minimum(first, second)
        strengths[:, split, 1] = np.maximum(first, second)

    def padded(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return _frozen(np.concatenate([rows, np.zeros_like(rows[:1])]))

    return HandTable(
        deck=deck,
        tie_break=tie_break,
        num_hands=len(hands),
        max_strength=ranking(deck, tie_break).max_strength,
        cards=padded(hands.astype(np.int8)),
        special=padded(special),
        legal_splits=padded(legal),
        strengths=padded(strengths),
    )


#: :func:`~shuiyu_env.core.hands.compare` by signs: ``OUTCOMES[1 + sign(dealer's tail - punter's
#: tail), 1 + sign(dealer's head - punter's head)]``; ``int8[3, 3]``.
OUTCOMES: npt.NDArray[np.int8] = _frozen(
    np.array([[compare((tail, head), (1, 1)) for head in range(3)] for tail in range(3)], np.int8)
)


@dataclass(frozen=True, eq=False)
class ContestTables:
    """A contest tree as arrays; N nodes, A actions.

    Attributes:
        next_node: ``int8[N, A]``, the node an action leads to, -1 where it is not legal.
        phase: ``int8[N]``, :class:`~shuiyu_env.core.contest.Phase` (``OVER``: a leaf).
        compares: ``bool[N]``, leaves that compare hands.
        payoffs: ``int8[N, 4]``, units to the punter per unit of stake when the
            dealer wins, pushes, loses, or wins by a special at the showdown.
        order: ``int8[A]``, position of a declaration in the order of contests, -1 for others.
        exposes: ``bool[A]``, declarations that lay the punter's hand face up.
        by_dealer: ``bool[N]``, whether it is the dealer who acts.
        decided_by_special: ``bool[3, 3]``, contests that specials decide before
            declarations, by the dealer's and the punter's special status.
        special_payoffs: ``int8[3, 3, 4]``, what those pay, as ``payoffs``.
    """

    next_node: npt.NDArray[np.int8]
    phase: npt.NDArray[np.int8]
    compares: npt.NDArray[np.bool_]
    payoffs: npt.NDArray[np.int8]
    order: npt.NDArray[np.int8]
    exposes: npt.NDArray[np.bool_]
    by_dealer: npt.NDArray[np.bool_]
    decided_by_special: npt.NDArray[np.bool_]
    special_payoffs: npt.NDArray[np.int8]


@lru_cache(maxsize=256)
def contest_tables(rules: RuleSet) -> ContestTables:
    """Return the (cached) tables of a rule set's contest tree."""
    tree = compile_tree(rules)
    size = num_actions(rules.max_stake)
    tables = ContestTables(
        next_node=np.full((len(tree.nodes), size), -1, dtype=np.int8),
        phase=np.array([node.phase for node in tree.nodes], dtype=np.int8),
        compares=np.array([node.compares for node in tree.nodes], dtype=np.bool_),
        payoffs=np.array([node.payoffs or (0, 0, 0, 0) for node in tree.nodes], dtype=np.int8),
        order=np.full(size, -1, dtype=np.int8),
        exposes=np.zeros(size, dtype=np.bool_),
        by_dealer=np.array([node.phase.by_dealer for node in tree.nodes], dtype=np.bool_),
        decided_by_special=np.array(
            [[payoffs is not None for payoffs in row] for row in tree.special_payoffs]
        ),
        special_payoffs=np.array(
            [[payoffs or (0, 0, 0, 0) for payoffs in row] for row in tree.special_payoffs],
            dtype=np.int8,
        ),
    )
    for node in tree.nodes:
        for action, child in node.children.items():
            tables.next_node[node.id, action] = child
    for action, position in tree.order.items():
        tables.order[action] = position
    tables.exposes[list(tree.exposes)] = True
    for table in vars(tables).values():
        _frozen(table)
    return tables
