from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from exact_oracles import matrix_of
from games import examples
from hypothesis import given
from hypothesis import strategies as st

from shuiyu_env.core.cards import Deck
from shuiyu_env.core.hands import Outcome, TieBreak, compare
from shuiyu_env.exact.dominance import DisjointSums, Side, Sums, disjoint_sums, hand_classes

SIDES: tuple[Side, ...] = ("dealer", "punter")
TIE_BREAKS: tuple[TieBreak, ...] = ("card", "next_group")
DECKS = [Deck(2, 4), Deck(3, 4), Deck(5, 2), Deck(9, 1), Deck(4, 3)]
FULL = Deck()

# How many columns of weights: few different ones, since loops are compiled for each.
LESS, GREATER, TOTAL = 2, 1, 3


@lru_cache(maxsize=16)
def sums_of(
    deck: Deck, tie_break: TieBreak, threads: int = 1, by_ranks: bool = False
) -> DisjointSums:
    return DisjointSums(hand_classes(deck, tie_break, by_ranks), threads)


def random_weights(deck: Deck, columns: int, seed: int) -> npt.NDArray[np.float64]:
    size = hand_classes(deck, "card").size
    return np.random.default_rng([seed, columns]).normal(size=(size, 3, columns))


def brute_force(
    deck: Deck,
    tie_break: TieBreak,
    side: Side,
    less: npt.NDArray[Any],
    greater: npt.NDArray[Any],
    total: npt.NDArray[Any],
) -> Sums:
    """Ask the core about each hand and split against each other."""
    hands = matrix_of(deck, tie_break)
    outcomes, wins, loses = hands.outcomes, Outcome.DEALER_WINS, Outcome.PUNTER_WINS
    if side == "punter":
        outcomes, wins, loses = outcomes.transpose(2, 3, 0, 1), loses, wins
    together = hands.disjoint[:, None, :, None]
    won, lost = (outcomes == wins) & together, (outcomes == loses) & together
    return Sums(
        np.einsum("aibj,bjc->aic", won, less, optimize=True),
        np.einsum("aibj,bjc->aic", lost, greater, optimize=True),
        hands.disjoint @ total.sum(axis=1),
    )


def assert_close(found: Sums, expected: Sums, tolerance: float = 1e-9) -> None:
    for name, numbers in expected._asdict().items():
        scale = max(1.0, float(np.abs(numbers).max(initial=0.0)))
        actual = getattr(found, name)
        assert actual.shape == numbers.shape
        assert actual.dtype == np.float64
        np.testing.assert_allclose(actual, numbers, rtol=0, atol=tolerance * scale, err_msg=name)


# ---- Small decks, entirely --------------------------------------------------------------------


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@pytest.mark.parametrize("deck", DECKS, ids=lambda deck: f"{deck.ranks} ranks {deck.suits} suits")
def test_sums_by_brute_force(deck: Deck, tie_break: TieBreak, side: Side) -> None:
    weights = [random_weights(deck, columns, 1) for columns in (LESS, GREATER, TOTAL)]
    expected = brute_force(deck, tie_break, side, *weights)
    for threads in (1, 2):
        assert_close(sums_of(deck, tie_break, threads)(*weights, side), expected)


@pytest.mark.parametrize("deck", DECKS[1:4], ids=str)
@pytest.mark.parametrize("side", SIDES)
def test_single_precision_only_rounds_the_weights(deck: Deck, side: Side) -> None:
    weights = [random_weights(deck, columns, 2) for columns in (LESS, GREATER, TOTAL)]
    single = [weight.astype(np.float32) for weight in weights]
    for tie_break in TIE_BREAKS:
        sums = sums_of(deck, tie_break)
        found = sums(*single, side)
        assert_close(found, brute_force(deck, tie_break, side, *weights), 1e-6)
        # Accumulated in double precision.
        rounded = [weight.astype(np.float64) for weight in single]
        assert_close(found, brute_force(deck, tie_break, side, *rounded))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("threads", [1, 2])
def test_missing_columns(side: Side, threads: int) -> None:
    deck = Deck(5, 2)
    some, none = random_weights(deck, 1, 3), random_weights(deck, 0, 3)
    for tie_break in TIE_BREAKS:
        for by_ranks in (False, True)[: 1 + (tie_break == "next_group")]:
            classes = hand_classes(deck, tie_break, by_ranks)
            given, empty = some[: classes.size], none[: classes.size]
            sums = sums_of(deck, tie_break, threads, by_ranks)
            everything = sums.outcomes(given, side)
            for k in range(3):
                columns = [empty] * 3
                columns[k] = given
                found = sums(*columns, side)
                np.testing.assert_array_equal(found[k], everything[k])
                assert all(found[other].shape[-1] == 0 for other in range(3) if other != k)


def test_memory_layout_of_weights_does_not_matter() -> None:
    deck = Deck(5, 2)
    weights = random_weights(deck, 1, 4)
    wide = np.asfortranarray(np.concatenate([weights, weights[::-1]], axis=-1))
    for by_ranks in (False, True):
        sums = sums_of(deck, "next_group", 1, by_ranks)
        size = sums.classes.size
        found = sums.outcomes(wide[:size, :, :1], "dealer")
        assert_close(found, sums.outcomes(weights[:size].copy(), "dealer"))


# ---- Rank multisets ---------------------------------------------------------------------------


def test_classes_are_the_hands_of_the_same_ranks() -> None:
    for deck in (Deck(4, 4), Deck(5, 2), Deck(9, 1)):
        classes = hand_classes(deck, "next_group")
        hands = matrix_of(deck, "next_group").hands
        kinds = {tuple(card >> 2 for card in hand) for hand in hands}
        assert classes.by_ranks
        assert classes.size == len(kinds)
        assert classes.multiplicity.sum() == len(hands)
        for index, hand in enumerate(hands):
            shown = hands[classes.representative[classes.class_of[index]]]
            assert [card >> 2 for card in shown] == [card >> 2 for card in hand]
        one_each = hand_classes(deck, "card")
        assert not one_each.by_ranks
        assert one_each.size == len(hands)
    assert hand_classes(FULL, "next_group").size == 1820
    with pytest.raises(ValueError, match="not alike"):
        hand_classes(FULL, "card", by_ranks=True)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("deck", [*DECKS, Deck(4, 4)], ids=str)
def test_sums_by_ranks_are_sums_by_cards(deck: Deck, side: Side) -> None:
    classes = hand_classes(deck, "next_group")
    size, of_hand = classes.size, classes.class_of
    rng = np.random.default_rng(5)
    weights = [rng.normal(size=(size, 3, columns)) for columns in (LESS, GREATER, TOTAL)]
    by_cards = sums_of(deck, "next_group")(*(weight[of_hand] for weight in weights), side)
    for threads in (1, 2):
        by_ranks = sums_of(deck, "next_group", threads, True)(*weights, side)
        assert_close(Sums(*(part[of_hand] for part in by_ranks)), by_cards)


# ---- Laws -------------------------------------------------------------------------------------

law_decks = st.sampled_from([Deck(2, 4), Deck(5, 2), Deck(9, 1)])
law_weights = st.integers(0, 2**32 - 1)


@given(law_decks, st.sampled_from(TIE_BREAKS), st.sampled_from(SIDES), law_weights)
@examples(15)
def test_sums_are_linear(deck: Deck, tie_break: TieBreak, side: Side, seed: int) -> None:
    weights = random_weights(deck, 1, seed)
    more = random_weights(deck, 1, seed + 1)
    sums = sums_of(deck, tie_break)
    parts = sums.outcomes(weights, side), sums.outcomes(more, side)
    expected = Sums(*(2.5 * first - 3.0 * second for first, second in zip(*parts, strict=True)))
    assert_close(sums.outcomes(2.5 * weights - 3.0 * more, side), expected)


@given(law_decks, st.sampled_from(TIE_BREAKS), law_weights)
@examples(15)
def test_what_one_side_wins_the_other_loses(deck: Deck, tie_break: TieBreak, seed: int) -> None:
    mine, theirs = random_weights(deck, 1, seed), random_weights(deck, 1, seed + 1)
    sums = sums_of(deck, tie_break)
    dealer, punter = sums.outcomes(theirs, "dealer"), sums.outcomes(mine, "punter")
    close = pytest.approx
    assert (mine * dealer.less).sum() == close((theirs * punter.greater).sum(), abs=1e-8)
    assert (mine * dealer.greater).sum() == close((theirs * punter.less).sum(), abs=1e-8)
    total = (mine.sum(axis=1) * dealer.total).sum()
    assert total == close((theirs.sum(axis=1) * punter.total).sum(), abs=1e-8)


@given(law_decks, st.sampled_from(TIE_BREAKS), st.sampled_from(SIDES), law_weights)
@examples(10)
def test_every_hand_wins_loses_or_pushes(
    deck: Deck, tie_break: TieBreak, side: Side, seed: int
) -> None:
    weights = np.abs(random_weights(deck, 1, seed))
    less, greater, total = sums_of(deck, tie_break).outcomes(weights, side)
    hands = matrix_of(deck, tie_break)
    outcomes = hands.outcomes if side == "dealer" else hands.outcomes.transpose(2, 3, 0, 1)
    pushed = (outcomes == Outcome.PUSH) & hands.disjoint[:, None, :, None]
    pushes = np.einsum("aibj,bjc->aic", pushed, weights, optimize=True)
    np.testing.assert_allclose(less + greater + pushes, np.repeat(total[:, None], 3, 1), atol=1e-9)


def test_a_hand_is_never_dealt_against_itself_or_a_card_of_its_own() -> None:
    deck = Deck(5, 2)
    hands = matrix_of(deck, "card")
    for tie_break in TIE_BREAKS:
        for b in range(0, len(hands.hands), 7):
            weights = np.zeros((len(hands.hands), 3, 1))
            weights[b] = 1.0
            less, greater, total = sums_of(deck, tie_break).outcomes(weights, "dealer")
            together = hands.disjoint[:, b]
            assert not less[~together].any()
            assert not greater[~together].any()
            np.testing.assert_array_equal(total[:, 0], 3.0 * together)


# ---- The full deck ----------------------------------------------------------------------------

SAMPLE = 24


def sample_of_hands(tie_break: TieBreak) -> npt.NDArray[np.intp]:
    """Hands at random, and some of each special."""
    special = hand_classes(FULL, tie_break, by_ranks=False).special
    rng = np.random.default_rng(6)
    return np.concatenate(
        [
            rng.choice(np.flatnonzero(special == kind), number, replace=False)
            for kind, number in ((0, SAMPLE - 7), (1, 4), (2, 3))
        ]
    )


def check_full_deck(
    tie_break: TieBreak, side: Side, found: Sums, weights: npt.NDArray[np.float64]
) -> None:
    """Compare some hands of the full deck with all others."""
    classes = hand_classes(FULL, tie_break, by_ranks=False)
    cards = classes.table.cards[:-1].astype(np.int64)
    bits = (np.int64(1) << cards).sum(axis=1)
    # The core's comparison, by the signs of dealer's less punter's tail and head.
    table = np.array([[compare((t, h), (1, 1)) for h in range(3)] for t in range(3)])
    mine, sign = (Outcome.DEALER_WINS, 1) if side == "dealer" else (Outcome.PUNTER_WINS, -1)
    theirs = Outcome(Outcome.PUNTER_WINS - mine)
    strengths = classes.strengths.astype(np.int64)
    for hand in sample_of_hands(tie_break).tolist():
        others = np.flatnonzero(bits & bits[hand] == 0)
        assert len(others) == 194_580
        signs = sign * np.sign(strengths[hand][:, None, None] - strengths[others])
        outcomes = table[1 + signs[..., 0], 1 + signs[..., 1]].reshape(3, -1)
        flat = weights[others].reshape(-1, weights.shape[-1])
        close = partial(np.testing.assert_allclose, rtol=0, atol=1e-6)
        close(found.less[hand], (outcomes == mine) @ flat, err_msg="less")
        close(found.greater[hand], (outcomes == theirs) @ flat, err_msg="greater")
        close(found.total[hand], flat.sum(axis=0), err_msg="total")


@pytest.mark.parametrize("side", SIDES)
def test_full_deck_by_cards(side: Side) -> None:
    weights = random_weights(FULL, 1, 7)
    found = disjoint_sums(hand_classes(FULL, "card"), None).outcomes(weights, side)
    check_full_deck("card", side, found, weights)


@pytest.mark.parametrize("side", SIDES)
def test_full_deck_by_ranks(side: Side) -> None:
    classes = hand_classes(FULL, "next_group")
    weights = np.random.default_rng(8).normal(size=(classes.size, 3, 1))
    found = disjoint_sums(classes, None).outcomes(weights, side)
    of_hand = classes.class_of
    check_full_deck("next_group", side, Sums(*(part[of_hand] for part in found)), weights[of_hand])


@pytest.mark.slow
def test_full_deck_with_ties_by_cards() -> None:
    weights = random_weights(FULL, 1, 9)
    classes = hand_classes(FULL, "next_group", by_ranks=False)
    # What is less for a dealer may be equal, what is greater may not: both ways are taken.
    found = DisjointSums(classes, 2).outcomes(weights, "dealer")
    check_full_deck("next_group", "dealer", found, weights)
