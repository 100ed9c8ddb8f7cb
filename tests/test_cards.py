"""Cards and decks (rules, section "Cards")."""

from __future__ import annotations

import numpy as np
import plain_rules
import pytest

from shuiyu_env.core.cards import (
    NUM_CARDS,
    POINTS,
    Deck,
    card_text,
    parse_card,
    parse_hand,
    pretty_card,
)
from shuiyu_env.core.errors import CardError, DealError, RulesError, ShuiyuError


def test_codes_of_the_full_deck() -> None:
    texts = [rank + suit for rank in "23456789TJQKA" for suit in "dchs"]
    assert [card_text(code) for code in range(NUM_CARDS)] == texts
    assert [parse_card(text) for text in texts] == list(range(52))
    assert (card_text(0), card_text(51), pretty_card(51)) == ("2d", "As", "A♠")
    assert pretty_card(parse_card("Td")) == "10♦"


def test_texts_in_every_form() -> None:
    for code in range(NUM_CARDS):
        text = card_text(code)
        for form in (
            text,
            text.lower(),
            text.upper(),
            pretty_card(code),
            text[0] + "♦♣♥♠"[code % 4],
        ):
            assert parse_card(form) == code
    assert parse_card("10s") == parse_card("Ts") == 35


@pytest.mark.parametrize(
    "text", ["", "A", "s", "As ", "10", "1s", "0s", "ASS", "Zs", "Az", "s A", "sA", "11d"]
)
def test_wrong_texts(text: str) -> None:
    with pytest.raises(CardError, match=r"expected a card such as 'As' .*got "):
        parse_card(text)


@pytest.mark.parametrize("value", [None, 5, 5.0, b"As", ["As"]])
def test_a_card_text_is_a_str(value: object) -> None:
    with pytest.raises(CardError, match="expected the text of a card"):
        parse_card(value)  # type: ignore[arg-type]


def test_points() -> None:
    by_rank = (2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10, 1)
    assert [POINTS[code] for code in range(52)] == [by_rank[code // 4] for code in range(52)]


def test_hands_in_every_form() -> None:
    expected = (51, 44, 21, 2)
    for hand in (
        "As Kd 7c 2h",
        "2h,7c,Kd,As",
        "2♥ 7♣ K♦ A♠",
        ["As", "Kd", "7c", "2h"],
        [2, 21, 44, 51],
        np.array([2, 51, 21, 44], dtype=np.int8),
        ["As", 44, np.int64(21), "2h"],
        (card for card in (2, 21, 44, 51)),
    ):
        assert parse_hand(hand) == expected  # type: ignore[arg-type]
    assert all(type(card) is int for card in parse_hand(np.arange(4)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hand", "error", "message"),
    [
        ("As Kd 7c", DealError, "here: expected 4 cards, got 3"),
        ("As Kd 7c 2h 3h", DealError, "here: expected 4 cards, got 5"),
        ("", DealError, "here: expected 4 cards, got 0"),
        ("As As 7c 2h", DealError, "here: expected 4 different cards"),
        (["As", 51, 1, 2], DealError, "here: expected 4 different cards"),
        ("Xs Kd 7c 2h", CardError, "here: expected a card such as 'As' .* got 'Xs'"),
        ("AsKd7c2h", CardError, "here: expected a card such as 'As'"),
        ([0, 1, 2, 52], CardError, "here: expected a card code from 0 to 51, got 52"),
        ([0, 1, 2, -1], CardError, "here: expected a card code from 0 to 51, got -1"),
        ([0, 2, 3, True], CardError, "here: expected a card text or code, got True"),
        ([0, 1, 2, 3.0], CardError, "here: expected a card text or code, got 3.0"),
        ([0, 1, 2, None], CardError, "here: expected a card text or code, got None"),
        ([0, 1, 2, np.float64(3)], CardError, "here: expected a card text or code"),
        (None, DealError, "here: expected four cards such as 'As Kd 7c 2h', got None"),
        (7, DealError, "here: expected four cards"),
    ],
)
def test_wrong_hands(hand: object, error: type[ShuiyuError], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_hand(hand, "here")  # type: ignore[arg-type]


def test_decks() -> None:
    assert Deck() == Deck(13, 4)
    assert Deck().cards == tuple(range(52))
    assert Deck().max_seats == 13
    # The first of A, 2, 3, ... and of spades, hearts, clubs, diamonds.
    assert " ".join(map(card_text, Deck(4, 2).cards)) == "2h 2s 3h 3s 4h 4s Ah As"
    assert " ".join(map(card_text, Deck(8, 1).cards)) == "2s 3s 4s 5s 6s 7s 8s As"
    for ranks in range(1, 14):
        for suits in range(1, 5):
            if ranks * suits >= 8:
                deck = Deck(ranks, suits)
                assert list(deck.cards) == plain_rules.deck_cards(ranks, suits)
                assert (deck.size, deck.max_seats) == (ranks * suits, ranks * suits // 4)


@pytest.mark.parametrize("value", [0, 14, -1, True, 4.0, "4", None])
def test_wrong_deck_ranks(value: object) -> None:
    with pytest.raises(RulesError, match=r"deck.ranks: expected a whole number from 1 to 13, got"):
        Deck(value, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, 5, True, 4.0, "4", None])
def test_wrong_deck_suits(value: object) -> None:
    with pytest.raises(RulesError, match=r"deck.suits: expected a whole number from 1 to 4, got"):
        Deck(13, value)  # type: ignore[arg-type]


@pytest.mark.parametrize(("ranks", "suits"), [(1, 4), (7, 1), (3, 2), (1, 1)])
def test_a_deck_seats_two(ranks: int, suits: int) -> None:
    with pytest.raises(RulesError, match="at least 8 cards"):
        Deck(ranks, suits)
