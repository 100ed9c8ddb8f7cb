"""The compiled tables against the core that they are compiled from."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import plain_rules
import pytest
from games import examples, random_hands, rule_sets
from hypothesis import given

from shuiyu_env.core.actions import num_actions
from shuiyu_env.core.cards import Deck
from shuiyu_env.core.contest import compile_tree
from shuiyu_env.core.hands import Special, TieBreak, legal_splits, ranking, special_of
from shuiyu_env.core.rules import PRESETS, RuleSet
from shuiyu_env.tables import contest_tables, group_tables, hand_table

TIE_BREAKS: list[TieBreak] = ["card", "next_group"]
SMALL = [Deck(2, 4), Deck(4, 4), Deck(5, 2), Deck(9, 1), Deck(6, 3)]


def colex(deck: Deck, hand: tuple[int, ...]) -> int:
    """The index as documented: by the cards' positions in the deck."""
    positions = sorted(deck.cards.index(card) for card in hand)
    return sum(math.comb(position, k + 1) for k, position in enumerate(positions))


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@pytest.mark.parametrize("deck", [*SMALL, Deck()])
def test_hand_table_against_core(deck: Deck, tie_break: TieBreak) -> None:
    table = hand_table(deck, tie_break)
    order = ranking(deck, tie_break)
    assert table.num_hands == math.comb(deck.size, 4)
    assert table.max_strength == order.max_strength
    hands = list(itertools.combinations(deck.cards, 4))
    if len(hands) > 5_000:
        hands = random.Random(3).sample(hands, 3_000)
    for ascending in hands:
        hand = ascending[::-1]
        i = colex(deck, hand)
        assert tuple(table.cards[i].tolist()) == hand
        assert int(table.index(hand)) == i
        assert table.special[i] == special_of(hand) == plain_rules.special(hand)
        assert tuple(np.flatnonzero(table.legal_splits[i])) == legal_splits(hand)
        assert table.strengths[i].tolist() == [list(pair) for pair in order.profile(hand)]


def test_facts_of_the_full_deck() -> None:
    for tie_break in TIE_BREAKS:
        table = hand_table(Deck(), tie_break)
        assert np.bincount(table.special[:-1]).tolist() == [270_725 - 2_808 - 13, 2_808, 13]
    # Ordinary hands that have two splits of equal strengths.
    strengths = hand_table(Deck(), "card").strengths[:-1]
    same = [(strengths[:, i] == strengths[:, j]).all(axis=-1) for i, j in ((0, 1), (0, 2), (1, 2))]
    ordinary = hand_table(Deck(), "card").special[:-1] == 0
    assert int((np.any(same, axis=0) & ordinary).sum()) == 30_944


@pytest.mark.parametrize("deck", [*SMALL, Deck()])
def test_index_of_many_hands_and_the_row_of_no_hand(deck: Deck) -> None:
    table = hand_table(deck, "card")
    assert np.array_equal(table.index(table.cards[:-1]), np.arange(table.num_hands))
    shaped = table.cards[: 2 * (table.num_hands // 2)].reshape(2, -1, 4)
    assert table.index(shaped).shape == shaped.shape[:-1]
    for array in (table.cards, table.special, table.legal_splits, table.strengths):
        assert len(array) == table.num_hands + 1
        assert not array[-1].any()
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert (table.cards.dtype, table.special.dtype) == (np.int8, np.int8)
    assert (table.legal_splits.dtype, table.strengths.dtype) == (np.bool_, np.int16)
    assert hand_table(deck, "card") is table


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_comparing_by_strengths_is_the_plain_rules(tie_break: TieBreak) -> None:
    rng = random.Random(8)
    for deck in (Deck(), Deck(4, 4)):
        table = hand_table(deck, tie_break)
        for _ in range(1_500):
            a, b = (sorted(hand, reverse=True) for hand in random_hands(rng, deck, 2))
            i, j = (rng.choice(legal_splits(hand)) for hand in (a, b))
            mine, theirs = (table.strengths[int(table.index(h)), k] for h, k in ((a, i), (b, j)))
            if (mine >= theirs).all():
                expected = "dealer"
            else:
                expected = "punter" if (mine <= theirs).all() else "push"
            assert plain_rules.compare_hands(a, i, b, j, tie_break) == expected


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@pytest.mark.parametrize("deck", [Deck(4, 4), Deck(6, 3), Deck(9, 1), Deck()])
def test_group_tables_against_core(deck: Deck, tie_break: TieBreak) -> None:
    table = group_tables(deck, tie_break)
    order = ranking(deck, tie_break)
    rng = random.Random(4)
    for _ in range(3_000):
        hand = tuple(sorted(rng.sample(deck.cards, 4), reverse=True))
        if rng.random() < 0.5 and deck.suits == 4:
            # Specials are rare in the full deck.
            high, low = sorted(rng.choices(range(13), k=2), reverse=True)
            hand = tuple(sorted({4 * high + 3, 4 * high + 2, 4 * low + 1, 4 * low}, reverse=True))
            if not set(hand) <= set(deck.cards):
                continue
        special = table.special[tuple(card >> 2 for card in hand)]
        assert special == special_of(hand) == plain_rules.special(hand)
        legal = tuple(np.flatnonzero(table.legal_splits[special]))
        assert legal == legal_splits(hand) == tuple(plain_rules.legal_splits(hand))
        for split in legal:
            a, b, c, d = (hand[place] for place in table.places[split])
            assert ((a, b), (c, d)) == plain_rules.groups(hand, split)
            strengths = sorted((table.strengths[special, a, b], table.strengths[special, c, d]))
            assert tuple(strengths) == order.strengths(hand, int(split))
            assert table.strengths[special, a, b] == table.strengths[special, b, a]
    outside = sorted(set(range(52)) - set(deck.cards))
    assert not table.strengths[:, outside].any()
    assert not table.strengths[:, :, outside].any()


def check_contest_tables(rules: RuleSet) -> None:
    tree, tables = compile_tree(rules), contest_tables(rules)
    assert tables.next_node.shape == (len(tree.nodes), num_actions(rules.max_stake))
    for node in tree.nodes:
        row = tables.next_node[node.id]
        assert {int(a): int(row[a]) for a in np.flatnonzero(row >= 0)} == dict(node.children)
        assert (row[row < 0] == -1).all()
        assert tables.phase[node.id] == node.phase
        assert bool(tables.compares[node.id]) == node.compares
        assert tuple(tables.payoffs[node.id]) == tuple(node.payoffs or (0, 0, 0, 0))
    size = num_actions(rules.max_stake)
    assert tables.order.tolist() == [tree.order.get(action, -1) for action in range(size)]  # type: ignore[call-overload]
    assert set(np.flatnonzero(tables.exposes)) == tree.exposes
    for dealer in Special:
        for punter in Special:
            payoffs = tree.special_payoffs[dealer][punter]
            assert tables.decided_by_special[dealer, punter] == (payoffs is not None)
            assert tuple(tables.special_payoffs[dealer, punter]) == (payoffs or (0, 0, 0, 0))
    assert tables.by_dealer.tolist() == [node.phase.by_dealer for node in tree.nodes]


@pytest.mark.parametrize("name", list(PRESETS))
def test_contest_tables_of_presets(name: str) -> None:
    check_contest_tables(PRESETS[name])


@given(rule_sets())
@examples(100)
def test_contest_tables_against_the_tree(rules: RuleSet) -> None:
    check_contest_tables(rules)


def test_shared_tables_cannot_be_written() -> None:
    deck = Deck(4, 4)
    for tables in (
        hand_table(deck, "card"),
        group_tables(deck, "card"),
        contest_tables(RuleSet(deck=deck)),
    ):
        arrays = [value for value in vars(tables).values() if isinstance(value, np.ndarray)]
        assert arrays
        for array in arrays:
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
