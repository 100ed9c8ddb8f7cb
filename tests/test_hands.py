"""Hands, groups, splits and their comparison (rules, section "Hands, groups, splits")."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence

import plain_rules
import pytest
from games import examples
from hypothesis import given
from hypothesis import strategies as st

from shuiyu_env.core.cards import Deck, parse_card, parse_hand
from shuiyu_env.core.hands import (
    NUM_SPLITS,
    Outcome,
    Special,
    TieBreak,
    compare,
    group_points,
    legal_splits,
    ranking,
    special_of,
    split_groups,
)

TIE_BREAKS: list[TieBreak] = ["card", "next_group"]
OUTCOMES = {
    "dealer": Outcome.DEALER_WINS,
    "push": Outcome.PUSH,
    "punter": Outcome.PUNTER_WINS,
}


def group(text: str) -> tuple[int, int]:
    a, b = text.split()
    return parse_card(a), parse_card(b)


def strength(text: str, tie_break: TieBreak = "card") -> int:
    return ranking(Deck(), tie_break).group(group(text))


def outcome(dealer: str, punter: str, tie_break: TieBreak = "card", splits: str = "00") -> Outcome:
    order = ranking(Deck(), tie_break)
    return compare(
        order.strengths(parse_hand(dealer), int(splits[0])),
        order.strengths(parse_hand(punter), int(splits[1])),
    )


@pytest.mark.parametrize(
    ("deck", "hands", "shuiyu", "supreme", "strengths"),
    [
        (Deck(13, 4), 270_725, 2_808, 13, {"card": 327, "next_group": 23}),
        (Deck(4, 4), 1_820, 216, 4, {"card": 36}),
        (Deck(5, 2), 210, 10, 0, {"card": 25}),
        # One suit has no pairs, fewer than four no Supreme; by binomials.
        (Deck(9, 1), 126, 0, 0, {}),
        (Deck(13, 3), math.comb(39, 4), math.comb(13, 2) * 9, 0, {}),
    ],
)
def test_facts_of_decks(
    deck: Deck, hands: int, shuiyu: int, supreme: int, strengths: dict[TieBreak, int]
) -> None:
    kinds = Counter(special_of(hand[::-1]) for hand in itertools.combinations(deck.cards, 4))
    assert kinds.total() == hands
    assert kinds[Special.SHUIYU] == shuiyu
    assert kinds[Special.SUPREME] == supreme
    for tie_break, number in strengths.items():
        order = ranking(deck, tie_break)
        found = {order.group(pair) for pair in itertools.combinations(deck.cards, 2)}
        assert found == set(range(number))
        assert order.num_strengths == number


def test_the_full_deck_has_1326_pairs_of_cards() -> None:
    assert len(list(itertools.combinations(Deck().cards, 2))) == 1_326


@pytest.mark.parametrize(
    ("stronger", "weaker"),
    [
        ("Ad 8c", "Ks 9s"),
        ("Ad 9c", "Ks Qc"),
        ("Ks Td", "Kh Qh"),
        ("3s 3d", "3h 3c"),
        ("2d 2c", "4s 5s"),
        ("Ad Ac", "Ks Kh"),
    ],
)
def test_stronger_groups_by_card(stronger: str, weaker: str) -> None:
    assert strength(stronger) > strength(weaker)


@pytest.mark.parametrize(
    ("one", "other"),
    [("Ad 8c", "Ks 9s"), ("Ad 9c", "Ks Qc"), ("Ks Td", "Kh Qh"), ("3s 3d", "3h 3c")],
)
def test_these_groups_tie_by_next_group(one: str, other: str) -> None:
    assert strength(one, "next_group") == strength(other, "next_group")


def test_the_lower_card_never_counts() -> None:
    assert strength("As 8c") == strength("As 8s") == strength("8d As")
    assert strength("Ks Qc") == strength("Ks Td") == strength("Js Ks")


def test_head_is_the_stronger_group_under_card() -> None:
    hand = parse_hand("Ad 2c 3h 4s")
    assert hand == parse_hand("4s 3h 2c Ad")
    assert split_groups(hand, 0) == (group("Ad 4s"), group("3h 2c"))
    assert [group_points(g) for g in split_groups(hand, 0)] == [5, 5]
    order = ranking(Deck(), "card")
    tail, head = order.strengths(hand, 0)
    assert (tail, head) == (strength("3h 2c"), strength("Ad 4s"))
    assert tail < head
    tail, head = ranking(Deck(), "next_group").strengths(hand, 0)
    assert tail == head


def test_splits_pair_the_highest_card_with_each_other_card() -> None:
    hand = parse_hand("As Kd 7c 2h")
    assert split_groups(hand, 0) == (group("As Kd"), group("7c 2h"))
    assert split_groups(hand, 1) == (group("As 7c"), group("Kd 2h"))
    assert split_groups(hand, 2) == (group("As 2h"), group("Kd 7c"))


def test_points_are_the_last_digit() -> None:
    for text, points in {"As Kd": 1, "7c 2h": 9, "8d 5s": 3, "Td Qs": 0, "Ad 9c": 0}.items():
        assert group_points(group(text)) == points
    assert group_points(group("8d 8s")) is None


def test_specials_and_their_splits() -> None:
    for text, special, splits in (
        ("As Ad 7c 7h", Special.SHUIYU, (0,)),
        ("7s 7d 2c 2h", Special.SHUIYU, (0,)),
        ("7s 7d 7c 7h", Special.SUPREME, (0, 1, 2)),
        ("7s 7d 7c 2h", Special.NONE, (0, 1, 2)),
        ("As 7s 7d 7c", Special.NONE, (0, 1, 2)),
        ("As 7s 7d 2c", Special.NONE, (0, 1, 2)),
    ):
        hand = parse_hand(text)
        assert special_of(hand) is special
        assert legal_splits(hand) == splits


def test_comparison_by_card() -> None:
    # Heads As Kd (1), Ac Qh (1); tails are the other two cards.
    assert outcome("9s 9d 7c 2h", "Ks Qd 4c 3h") is Outcome.DEALER_WINS
    assert outcome("Ks Qd 4c 3h", "9s 9d 7c 2h") is Outcome.PUNTER_WINS
    assert outcome("9s 9d 2c 3h", "8s 8d 4c 3s") is Outcome.PUSH
    # Two groups of the same points: suits decide.
    assert outcome("Ks 7s 4c 3h", "Kd 7d 4h 3s") is Outcome.PUSH
    assert outcome("Ks 7s 4h 3h", "Kd 7d 4c 3s") is Outcome.DEALER_WINS


def test_comparison_by_next_group() -> None:
    same = ("Ks 7s 4h 3h", "Kd 7d 4c 3s")
    assert outcome(*same, "next_group") is Outcome.DEALER_WINS
    assert outcome(*same[::-1], "next_group") is Outcome.DEALER_WINS
    # Heads tie at seven points; the tails have six and five.
    assert outcome("Ks 7s 4h 2h", "Kd 7d 3c 2c", "next_group") is Outcome.DEALER_WINS
    assert outcome("Kd 7d 3c 2c", "Ks 7s 4h 2h", "next_group") is Outcome.PUNTER_WINS
    # Heads tie (pairs of kings), tails 9 and 8; then tails tie, heads 9 and a pair.
    assert outcome("Ks Kd 7c 2c", "Kc Kh 6d 2d", "next_group") is Outcome.DEALER_WINS
    assert outcome("Kc Kh 6d 2d", "Ks Kd 7c 2c", "next_group") is Outcome.PUNTER_WINS
    assert outcome("Ks 9d 4c 3c", "Kd Kh 4d 3d", "next_group") is Outcome.PUNTER_WINS
    # Heads 9 and 8, tails 2 and 7.
    assert outcome("Ks 9d 8c 4c", "Kd 8h 4d 3s", "next_group") is Outcome.PUSH


def test_specials_beat_whatever_the_groups() -> None:
    for tie_break in TIE_BREAKS:
        # The best ordinary hand has a pair of aces and nine points.
        best, low, high, supreme = "As Ah 7c 2h", "3s 3d 2c 2d", "Ac Ad Kc Kd", "5s 5d 5c 5h"
        for weaker, stronger in itertools.combinations([best, low, supreme], 2):
            assert outcome(weaker, stronger, tie_break) is Outcome.PUNTER_WINS
            assert outcome(stronger, weaker, tie_break) is Outcome.DEALER_WINS
        assert outcome(supreme, high, tie_break) is Outcome.DEALER_WINS
        assert outcome(low, high, tie_break) is Outcome.PUNTER_WINS
        # Two Shuiyu are ordinary splits: heads A > K, tails 2 < 3.
        assert outcome("As Ah 2c 2d", "Ks Kh 3s 3d", tie_break) is Outcome.PUSH
        # Two Supremes go by rank, however they are laid.
        for splits in ("00", "12", "20"):
            assert outcome("As Ah Ac Ad", "2s 2h 2c 2d", tie_break, splits) is Outcome.DEALER_WINS
            assert outcome("2s 2h 2c 2d", supreme, tie_break, splits) is Outcome.PUNTER_WINS


def test_two_shuiyu_of_the_same_ranks() -> None:
    one, other = "As Ad 7c 7h", "Ac Ah 7s 7d"
    # By card: spades win the heads for one, and the tails for the other.
    assert outcome(one, other) is outcome(other, one) is Outcome.PUSH
    for pair in ((one, other), (other, one)):
        assert outcome(*pair, "next_group") is Outcome.DEALER_WINS


@functools.cache
def pairs_of(deck: Deck) -> list[tuple[int, int]]:
    return list(itertools.combinations(deck.cards, 2))


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@pytest.mark.parametrize("deck", [Deck(), Deck(4, 4), Deck(9, 1)])
def test_order_of_groups_is_that_of_the_plain_rules(deck: Deck, tie_break: TieBreak) -> None:
    order = ranking(deck, tie_break)
    pairs = pairs_of(deck)
    rng = random.Random(0)
    for _ in range(20_000):
        a, b = rng.choice(pairs), rng.choice(pairs)
        sign = (order.group(a) > order.group(b)) - (order.group(a) < order.group(b))
        assert sign == plain_rules.compare_groups(a, b, tie_break)


def test_disjoint_groups_never_tie_by_card() -> None:
    order = ranking(Deck(), "card")
    by_strength: dict[int, list[tuple[int, int]]] = {}
    for pair in pairs_of(Deck()):
        by_strength.setdefault(order.group(pair), []).append(pair)
    for tied in by_strength.values():
        for a, b in itertools.combinations(tied, 2):
            assert set(a) & set(b)


@st.composite
def two_hands(draw: st.DrawFn) -> tuple[Deck, list[tuple[int, ...]]]:
    deck = draw(st.sampled_from([Deck(), Deck(4, 4), Deck(2, 4), Deck(5, 2), Deck(3, 4)]))
    cards = draw(st.permutations(deck.cards))[:8]
    return deck, [tuple(sorted(cards[i : i + 4], reverse=True)) for i in (0, 4)]


@given(two_hands(), st.sampled_from(TIE_BREAKS), st.data())
@examples(400)
def test_comparison_agrees_with_plain_rules_and_is_antisymmetric(
    drawn: tuple[Deck, Sequence[tuple[int, ...]]], tie_break: TieBreak, data: st.DataObject
) -> None:
    deck, (a, b) = drawn
    order = ranking(deck, tie_break)
    i, j = (data.draw(st.sampled_from(legal_splits(hand))) for hand in (a, b))
    mine, theirs = order.strengths(a, i), order.strengths(b, j)
    result = compare(mine, theirs)
    assert result is OUTCOMES[plain_rules.compare_hands(a, i, b, j, tie_break)]
    mirrored = compare(theirs, mine)
    if mine == theirs:
        # Both groups tie: the dealer's privilege, whoever he is.
        assert tie_break == "next_group"
        assert result is mirrored is Outcome.DEALER_WINS
    else:
        assert mirrored == 2 - result


@given(two_hands(), st.sampled_from(TIE_BREAKS))
@examples(200)
def test_profile_lists_all_splits_and_lifts_specials(
    drawn: tuple[Deck, Sequence[tuple[int, ...]]], tie_break: TieBreak
) -> None:
    deck, (hand, _) = drawn
    order = ranking(deck, tie_break)
    profile = order.profile(hand)
    assert profile == tuple(order.strengths(hand, split) for split in range(NUM_SPLITS))
    low = special_of(hand) * order.num_strengths
    for split, (tail, head) in enumerate(profile):
        assert low <= tail <= head <= order.max_strength
        if special_of(hand) is Special.NONE:
            assert {tail, head} == {order.group(g) for g in split_groups(hand, split)}
            assert head < order.num_strengths
    if special_of(hand) is Special.SHUIYU:
        assert len(set(profile)) == 1
        assert profile[0][1] < 2 * order.num_strengths
