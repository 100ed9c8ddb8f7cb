"""The deal generator: a deal is a pure function of (seed, stream, index).

The generator is Philox4x64-10 (Salmon et al., "Parallel random numbers: as
easy as 1, 2, 3", SC 2011) with

* key ``(seed, stream)``, both taken modulo 2**64;
* counter ``(block, index, purpose, 0)``, least significant word first, ``index``
  modulo 2**64 too, where ``block`` counts 0, 1, 2, … within one deal and ``purpose``
  is 0 for cards, 1 for a dealer drawn at random, 2 for actions drawn by the package.

A block gives four 64-bit words; each word is read as two 32-bit words, the
low half first. A number below ``n`` is drawn from a 32-bit word ``w`` as
``(w * n) >> 32``; words with ``(w * n) mod 2**32 < 2**32 mod n`` are skipped,
which makes the draw exactly uniform (Lemire, "Fast random integer generation
in an interval", 2019). A deal shuffles the deck's cards, ascending, from the
front: for each ``i`` from 0 to ``4 * seats - 1``, position ``i`` is swapped with
``i + draw(size - i)``; seat ``s`` gets the positions ``4 s`` to ``4 s + 3``. A
random dealer is ``draw(seats)``.

Random actions take one 32-bit word each, and skip none, so that the k-th is found
without the others: the batched engine's ``sample_actions`` gives the k-th draw of
an environment word ``k mod 8`` of block 0 of index ``k div 8``, and picks legal
action ``(word * count) >> 32``; a match gives decision ``t`` of a game word ``t`` of
the deal's index, with the rotation as stream, and inverts the policy's
distribution at ``word / 2**32``. ``VERSION`` changes if any of this does.
"""

from __future__ import annotations

__all__ = [
    "MULTIPLIER_0",
    "MULTIPLIER_1",
    "ROUNDS",
    "VERSION",
    "WEYL_0",
    "WEYL_1",
    "WORDS_PER_BLOCK",
    "Purpose",
    "deal_hands",
    "draw_below",
    "draw_dealer",
    "philox4x64",
    "random_words",
]

from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache

from shuiyu_env.core.cards import HAND_SIZE, Deck

VERSION = 1

_MASK64 = 0xFFFFFFFFFFFFFFFF
_MASK32 = 0xFFFFFFFF

# Philox4x64-10's constants.
MULTIPLIER_0 = 0xD2E7470EE14C6C93
MULTIPLIER_1 = 0xCA5A826395121157
WEYL_0 = 0x9E3779B97F4A7C15
WEYL_1 = 0xBB67AE8584CAA73B
ROUNDS = 10
#: 32-bit words that one block gives.
WORDS_PER_BLOCK = 8


class Purpose(IntEnum):
    """What a draw is for; draws for different purposes are independent."""

    CARDS = 0
    DEALER = 1
    ACTIONS = 2


@lru_cache(maxsize=4096)
def _round_keys(seed: int, stream: int) -> tuple[tuple[int, int], ...]:
    return tuple(
        ((seed + r * WEYL_0) & _MASK64, (stream + r * WEYL_1) & _MASK64) for r in range(ROUNDS)
    )


def philox4x64(
    counter: tuple[int, int, int, int], seed: int, stream: int
) -> tuple[int, int, int, int]:
    """Return the four 64-bit words of one Philox4x64-10 block."""
    c0, c1, c2, c3 = counter
    for k0, k1 in _round_keys(seed & _MASK64, stream & _MASK64):
        p0 = c0 * MULTIPLIER_0
        p1 = c2 * MULTIPLIER_1
        c0, c1, c2, c3 = (
            (p1 >> 64) ^ c1 ^ k0,
            p1 & _MASK64,
            (p0 >> 64) ^ c3 ^ k1,
            p0 & _MASK64,
        )
    return c0, c1, c2, c3


def random_words(seed: int, stream: int, index: int, purpose: Purpose) -> Iterator[int]:
    """Yield the 32-bit words of deal ``index`` of a stream, for one purpose."""
    block = 0
    while True:
        for word in philox4x64((block, index & _MASK64, purpose, 0), seed, stream):
            yield word & _MASK32
            yield word >> 32
        block += 1


def draw_below(n: int, words: Iterator[int]) -> int:
    """Draw uniformly from 0 … n-1 (n at most 2**32)."""
    while True:
        product = next(words) * n
        low = product & _MASK32
        # 2**32 mod n is below n, so most draws need no division.
        if low >= n or low >= (1 << 32) % n:
            return product >> 32


def deal_hands(
    deck: Deck, num_players: int, seed: int, stream: int, index: int
) -> list[tuple[int, ...]]:
    """Return the hands of one deal, by seat, each sorted from highest to lowest card."""
    cards = list(deck.cards)
    size = len(cards)
    words = random_words(seed, stream, index, Purpose.CARDS)
    for i in range(HAND_SIZE * num_players):
        # The last card of a fully dealt deck needs no draw, but takes one: simpler to restate.
        j = i + draw_below(size - i, words)
        cards[i], cards[j] = cards[j], cards[i]
    return [
        tuple(sorted(cards[i : i + HAND_SIZE], reverse=True))
        for i in range(0, HAND_SIZE * num_players, HAND_SIZE)
    ]


def draw_dealer(num_players: int, seed: int, stream: int, index: int) -> int:
    """Return the dealer of one deal under random rotation."""
    return draw_below(num_players, random_words(seed, stream, index, Purpose.DEALER))
