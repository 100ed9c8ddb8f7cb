"""Cards and decks (rules, section "Cards").

A card is an ``int``: ``rank_index * 4 + suit_index``, so 0 is 2♦ and 51 is A♠.
Its text form is two characters, ``"As"``, ``"Td"``; its pretty form ``"A♠"``.
"""

from __future__ import annotations

__all__ = [
    "NUM_CARDS",
    "POINTS",
    "RANKS",
    "SUITS",
    "SUIT_SYMBOLS",
    "Deck",
    "card_text",
    "parse_card",
    "parse_hand",
    "pretty_card",
]

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shuiyu_env.core.checks import as_integer
from shuiyu_env.core.errors import CardError, DealError, RulesError, closest

NUM_CARDS = 52
HAND_SIZE = 4

#: Ranks from lowest to highest; the position is the rank index.
RANKS = "23456789TJQKA"
#: Suits from lowest to highest (diamonds, clubs, hearts, spades).
SUITS = "dchs"
SUIT_SYMBOLS = "♦♣♥♠"

#: Points of each card by its code: ace 1, faces and ten 10, others as printed.
POINTS: tuple[int, ...] = tuple(
    {"A": 1, "T": 10, "J": 10, "Q": 10, "K": 10}.get(rank) or int(rank)
    for rank in RANKS
    for _ in SUITS
)

# Small decks take the first so many of these orders.
_DECK_RANKS = "A23456789TJQK"
_DECK_SUITS = "shcd"


def card_text(card: int) -> str:
    """Return the two-character text of a card, such as ``"As"``."""
    return RANKS[card >> 2] + SUITS[card & 3]


def pretty_card(card: int) -> str:
    """Return the card with its suit symbol, such as ``"A♠"`` or ``"10♦"``."""
    rank = RANKS[card >> 2]
    return ("10" if rank == "T" else rank) + SUIT_SYMBOLS[card & 3]


def parse_card(text: str) -> int:
    """Return the code of a card from its text: ``"As"``, ``"10d"``, ``"A♠"``; case is free.

    Raises:
        CardError: the text is no card.
    """
    if not isinstance(text, str):
        raise CardError(f"expected the text of a card such as 'As', got {text!r}")
    rank, suit = text[:-1].upper(), text[-1:]
    rank = "T" if rank == "10" else rank
    suit_index = SUIT_SYMBOLS.find(suit) if suit in SUIT_SYMBOLS else SUITS.find(suit.lower())
    if len(rank) != 1 or rank not in RANKS or not suit or suit_index < 0:
        raise CardError(
            f"expected a card such as 'As' (rank one of {' '.join(RANKS)}, suit one of"
            f" {' '.join(SUITS)}), got {text!r}{closest(text, map(card_text, range(NUM_CARDS)))}"
        )
    return RANKS.index(rank) * 4 + suit_index


def parse_hand(hand: str | Sequence[int | str], where: str = "hand") -> tuple[int, ...]:
    """Return the codes of four different cards, highest first.

    Args:
        hand: ``"As Kd 7c 2h"``, or four card texts or codes.
        where: how an error message names the hand.

    Raises:
        CardError: a text or a code is no card.
        DealError: not four cards, or one of them twice.
    """
    parts: Sequence[Any]
    if isinstance(hand, str):
        parts = hand.replace(",", " ").split()
    else:
        try:
            parts = list(hand)
        except TypeError:
            raise DealError(
                f"{where}: expected four cards such as 'As Kd 7c 2h', got {hand!r}"
            ) from None
    cards = []
    for part in parts:
        if isinstance(part, str):
            try:
                cards.append(parse_card(part))
            except CardError as error:
                raise CardError(f"{where}: {error}") from None
            continue
        code = as_integer(part)
        if code is None:
            raise CardError(f"{where}: expected a card text or code, got {part!r}")
        if not 0 <= code < NUM_CARDS:
            raise CardError(f"{where}: expected a card code from 0 to 51, got {part!r}")
        cards.append(code)
    if len(cards) != HAND_SIZE:
        raise DealError(f"{where}: expected {HAND_SIZE} cards, got {len(cards)}: {hand!r}")
    if len(set(cards)) != HAND_SIZE:
        raise DealError(f"{where}: expected {HAND_SIZE} different cards, got {hand!r}")
    return tuple(sorted(cards, reverse=True))


@dataclass(frozen=True, slots=False)
class Deck:
    """The full deck, or a small one for exact study.

    Args:
        ranks: how many ranks, 1 to 13, of the order A, 2, 3, …, K. The ace is
            the highest rank in every deck.
        suits: how many suits, 1 to 4, of the order ♠, ♥, ♣, ♦.

    Card codes are those of the full deck. A deck must seat at least two.

    Raises:
        RulesError: a number out of range, or a deck that seats fewer than two.
    """

    ranks: int = 13
    suits: int = 4

    def __post_init__(self) -> None:
        for name, high in (("ranks", len(_DECK_RANKS)), ("suits", len(_DECK_SUITS))):
            value = getattr(self, name)
            number = as_integer(value)
            if number is None or not 1 <= number <= high:
                raise RulesError(
                    f"deck.{name}: expected a whole number from 1 to {high}, got {value!r}"
                )
            object.__setattr__(self, name, number)
        if self.max_seats < 2:
            raise RulesError(
                f"deck: expected at least 8 cards, for two seats of four; {self.ranks} ranks and"
                f" {self.suits} suits make {self.ranks * self.suits}"
            )

    @property
    def size(self) -> int:
        """Number of cards."""
        return self.ranks * self.suits

    @property
    def max_seats(self) -> int:
        """How many seats of four cards the deck can deal."""
        return self.size // HAND_SIZE

    @cached_property
    def cards(self) -> tuple[int, ...]:
        """The codes of all cards, ascending."""
        return tuple(
            sorted(
                RANKS.index(rank) * 4 + SUITS.index(suit)
                for rank in _DECK_RANKS[: self.ranks]
                for suit in _DECK_SUITS[: self.suits]
            )
        )
