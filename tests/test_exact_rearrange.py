from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pytest
from exact_oracles import matrix_of
from games import examples
from hypothesis import given
from hypothesis import strategies as st

from shuiyu_env.core.cards import Deck
from shuiyu_env.core.hands import Outcome, TieBreak, compare
from shuiyu_env.exact.dominance import hand_classes
from shuiyu_env.exact.rearrange import TRIPLES, outcome_triples

TIE_BREAKS: tuple[TieBreak, ...] = ("card", "next_group")
DECKS = [Deck(2, 4), Deck(3, 4), Deck(5, 2), Deck(9, 1), Deck(4, 3)]
FULL = Deck()
Counts = npt.NDArray[np.float64]


@lru_cache(maxsize=4)
def triples_of_pairs(deck: Deck, tie_break: TieBreak) -> npt.NDArray[np.int64]:
    """The triple of each dealer's hand, against each of the punter's hands and splits, ``[H, H,
    3]``."""
    outcomes = matrix_of(deck, tie_break).outcomes.astype(np.int64)
    return 9 * outcomes[:, 0] + 3 * outcomes[:, 1] + outcomes[:, 2]


def brute_force(deck: Deck, tie_break: TieBreak, active: npt.NDArray[np.bool_]) -> Counts:
    disjoint = matrix_of(deck, tie_break).disjoint & active[:, None]
    triples = triples_of_pairs(deck, tie_break)
    return np.stack(
        [((triples == t) & disjoint[..., None]).sum(axis=0) for t in range(27)], axis=-1
    ).astype(float)


def masks(deck: Deck, tie_break: TieBreak) -> dict[str, npt.NDArray[np.bool_]]:
    """Which hands a dealer may hold: the same for hands of the same ranks."""
    ranks = hand_classes(deck, "next_group")
    rng = np.random.default_rng(1)
    size = len(matrix_of(deck, tie_break).hands)
    some = rng.random(ranks.size) < 0.6
    return {
        "all": np.ones(size, dtype=bool),
        "no specials": matrix_of(deck, tie_break).special == 0,
        "specials": matrix_of(deck, tie_break).special > 0,
        "none": np.zeros(size, dtype=bool),
        # Suits matter to nobody but to `card`.
        "some": rng.random(size) < 0.6 if tie_break == "card" else some[ranks.class_of],
    }


def test_triples_are_all_and_in_order() -> None:
    assert [tuple(row) for row in TRIPLES.tolist()] == [
        (a, b, c) for a in range(3) for b in range(3) for c in range(3)
    ]
    with pytest.raises(ValueError, match="read-only"):
        TRIPLES[0, 0] = 1


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@pytest.mark.parametrize("deck", DECKS, ids=lambda deck: f"{deck.ranks} ranks {deck.suits} suits")
def test_counts_by_brute_force(deck: Deck, tie_break: TieBreak) -> None:
    classes = hand_classes(deck, tie_break, by_ranks=False)
    for name, active in masks(deck, tie_break).items():
        expected = brute_force(deck, tie_break, active)
        for threads in (1, 2):
            found = outcome_triples(classes, active, threads)
            assert found.dtype == np.int32
            np.testing.assert_array_equal(found, expected, err_msg=f"{name}, {threads} threads")


@pytest.mark.parametrize("deck", [*DECKS, Deck(4, 4)], ids=str)
def test_counts_by_ranks(deck: Deck) -> None:
    by_ranks = hand_classes(deck, "next_group")
    single = hand_classes(deck, "next_group", by_ranks=False)
    for active in masks(deck, "next_group").values():
        expected = outcome_triples(single, active, 1)
        for threads in (1, 2):
            found = outcome_triples(by_ranks, active[by_ranks.representative], threads)
            np.testing.assert_array_equal(found[by_ranks.class_of], expected)


def test_a_special_dealt_has_one_outcome_whatever_the_split() -> None:
    deck = Deck(4, 4)
    hands = matrix_of(deck, "card")
    found = outcome_triples(hand_classes(deck, "card"), hands.special > 0, 1)
    same = [t for t, triple in enumerate(TRIPLES) if len(set(triple.tolist())) == 1]
    others = [t for t in range(27) if t not in same]
    assert not found[:, :, others].any()
    # Against an ordinary hand it wins.
    ordinary = hands.special == 0
    assert not found[ordinary][:, :, 1:].any()
    assert found[ordinary][:, :, 0].min() > 0


@given(
    st.sampled_from([Deck(2, 4), Deck(5, 2), Deck(9, 1)]),
    st.sampled_from(TIE_BREAKS),
    st.integers(0, 2**32 - 1),
)
@examples(12)
def test_counts_add_up(deck: Deck, tie_break: TieBreak, seed: int) -> None:
    ranks = hand_classes(deck, "next_group")
    active = (np.random.default_rng(seed).random(ranks.size) < 0.5)[ranks.class_of]
    classes = hand_classes(deck, tie_break, by_ranks=False)
    some, rest = (outcome_triples(classes, mask, 1) for mask in (active, ~active))
    everything = outcome_triples(classes, np.ones_like(active), 1)
    np.testing.assert_array_equal(some + rest, everything)
    disjoint = matrix_of(deck, tie_break).disjoint
    assert (some.sum(axis=-1) == (disjoint & active).sum(axis=1)[:, None]).all()


# ---- The full deck ----------------------------------------------------------------------------


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_full_deck(tie_break: TieBreak) -> None:
    classes = hand_classes(FULL, tie_break)
    single = hand_classes(FULL, tie_break, by_ranks=False)
    found = outcome_triples(classes, classes.special == 0)
    cards = single.table.cards[:-1].astype(np.int64)
    bits = (np.int64(1) << cards).sum(axis=1)
    strengths = single.strengths.astype(np.int64)
    # The core's comparison, by the signs of dealer's less punter's tail and head.
    table = np.array([[compare((t, h), (1, 1)) for h in range(3)] for t in range(3)])
    rng = np.random.default_rng(2)
    shuiyu, supreme = (rng.choice(np.flatnonzero(single.special == kind), 2) for kind in (1, 2))
    for hand in [*rng.integers(single.size, size=8).tolist(), *shuiyu, *supreme]:
        others = np.flatnonzero((bits & bits[hand] == 0) & (single.special == 0))
        for split in range(3):
            signs = np.sign(strengths[others] - strengths[hand, split])
            outcomes = table[1 + signs[..., 0], 1 + signs[..., 1]]
            assert set(np.unique(outcomes)) <= set(Outcome)
            expected = np.bincount(outcomes @ [9, 3, 1], minlength=27)
            np.testing.assert_array_equal(found[classes.class_of[hand], split], expected)
