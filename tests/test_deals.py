"""The deal generator, against NumPy's Philox and published vectors (``core/deals.py``)."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from shuiyu_env.core import deals
from shuiyu_env.core.cards import Deck, parse_card, parse_hand
from shuiyu_env.core.deals import Purpose, deal_hands, draw_below, draw_dealer, philox4x64
from shuiyu_env.core.game import Game
from shuiyu_env.tables import hand_table

MASK = 2**64 - 1


def words64(value: int, count: int) -> list[int]:
    """The 64-bit words of a long integer, least significant first."""
    return [value >> 64 * i & MASK for i in range(count)]


def numpy_blocks(counter: int, seed: int, stream: int, blocks: int) -> list[int]:
    """64-bit words of so many blocks from a 256-bit counter on, by NumPy."""
    # NumPy increments its counter before the first block.
    before = words64((counter - 1) % 2**256, 4)
    bits = np.random.Philox(
        key=np.array([seed & MASK, stream & MASK], dtype=np.uint64),
        counter=np.array(before, dtype=np.uint64),
    )
    return [int(word) for word in bits.random_raw(4 * blocks)]


def limit(degrees: int) -> float:
    """A value that a chi-square of so many degrees exceeds in about one case in a million."""
    return degrees + 5 * math.sqrt(2 * degrees) + 15


def chi_square(counts: list[int], cells: int) -> float:
    expected = sum(counts) / cells
    return sum((count - expected) ** 2 / expected for count in counts) + expected * (
        cells - len(counts)
    )


def test_version() -> None:
    # Another number means other deals: leaderboards and records of the old one are void.
    assert deals.VERSION == 1


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        (
            [0] * 4,
            [0] * 2,
            "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b",
        ),
        (
            [MASK] * 4,
            [MASK] * 2,
            "87b092c3013fe90b 438c3c67be8d0224 9cc7d7c69cd777b6 a09caebf594f0ba0",
        ),
        (
            # The digits of pi.
            [0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89],
            [0x452821E638D01377, 0xBE5466CF34E90C6C],
            "a528f45403e61d95 38c72dbd566e9788 a5a1610e72fd18b5 57bd43b5e52b7fe6",
        ),
    ],
)
def test_known_answers_of_random123(counter: list[int], key: list[int], words: str) -> None:
    expected = tuple(int(word, 16) for word in words.split())
    assert philox4x64(tuple(counter), *key) == expected  # type: ignore[arg-type]
    whole = sum(word << 64 * i for i, word in enumerate(counter))
    assert tuple(numpy_blocks(whole, *key, 1)) == expected


def test_philox_is_numpys() -> None:
    rng = random.Random(1)
    for _ in range(300):
        counter, key = rng.getrandbits(256), rng.getrandbits(128)
        seed, stream = words64(key, 2)
        expected = tuple(numpy_blocks(counter, seed, stream, 1))
        assert philox4x64(tuple(words64(counter, 4)), seed, stream) == expected  # type: ignore[arg-type]


def numpy_words(seed: int, stream: int, index: int, purpose: int, count: int) -> Iterator[int]:
    """The 32-bit words of one purpose of one deal, as the module's documentation has them."""
    counter = (index & MASK) << 64 | purpose << 128
    for word in numpy_blocks(counter, seed, stream, count // 8 + 1):
        yield word % 2**32
        yield word // 2**32


@pytest.mark.parametrize("seed", [0, 1, -1, 7, 2**63, 2**64 + 5])
@pytest.mark.parametrize("purpose", list(Purpose))
def test_word_streams(seed: int, purpose: Purpose) -> None:
    for stream, index in ((0, 0), (3, 0), (0, 2), (2**40, 10**12), (-1, 2**64 + 1)):
        ours = itertools.islice(deals.random_words(seed, stream, index, purpose), 100)
        assert list(ours) == list(numpy_words(seed, stream, index, purpose, 100))[:100]


def plainly_dealt(
    deck: Deck, num_players: int, seed: int, stream: int, index: int
) -> list[list[int]]:
    """A deal as documented, by NumPy's generator and a shuffle written down plainly."""
    words = numpy_words(seed, stream, index, 0, 800)

    def draw(n: int) -> int:
        while True:
            high, low = divmod(next(words) * n, 2**32)
            if low >= 2**32 % n:
                return high

    cards = sorted(deck.cards)
    for i in range(4 * num_players):
        j = i + draw(len(cards) - i)
        cards[i], cards[j] = cards[j], cards[i]
    return [cards[4 * seat : 4 * seat + 4] for seat in range(num_players)]


@pytest.mark.parametrize("deck", [Deck(), Deck(4, 4), Deck(5, 2), Deck(9, 1)])
def test_deals_by_another_route(deck: Deck) -> None:
    rng = random.Random(deck.size)
    for _ in range(60):
        n = rng.randint(2, deck.max_seats)
        where = rng.getrandbits(64), rng.choice([0, 1, rng.getrandbits(64)]), rng.randrange(10**6)
        hands = deal_hands(deck, n, *where)
        assert [sorted(hand) for hand in hands] == [
            sorted(hand) for hand in plainly_dealt(deck, n, *where)
        ]
        assert all(list(hand) == sorted(hand, reverse=True) for hand in hands)
        assert len({card for hand in hands for card in hand}) == 4 * n


# Worked out by `plainly_dealt`; these are the deals of generator version 1 for ever.
PINNED = {
    (2, 0, 0, 0): ["Kd Qc 7h 3c", "Ad Kh 9c 2s"],
    (4, 7, 0, 0): ["Kh Qc Jd 4d", "Ah Qd Td 4s", "7s 5s 3c 2c", "9c 8d 5c 3d"],
    (3, 9223372036854775808, 12, 345): ["Kd Qh 6s 2d", "Tc 9d 7h 3h", "Ah Qs 8c 6c"],
    (13, 123456789, 1, 2): [
        "Ac Ks 9h 4s",
        "7c 6h 4c 2c",
        "Jc Td 7s 5d",
        "Tc 9d 7h 4d",
        "8c 5c 3d 2s",
        "Kd Qs 5h 4h",
        "Ad Qd Jd 8d",
        "Kc 7d 5s 3s",
        "Qc 3h 2h 2d",
        "Ah Js Th 9s",
        "Jh 8s 8h 3c",
        "Kh Ts 6s 6c",
        "As Qh 9c 6d",
    ],
}


def test_pinned_deals() -> None:
    for (n, *where), hands in PINNED.items():
        assert deal_hands(Deck(), n, *where) == [parse_hand(hand) for hand in hands]


def test_states_play_the_generators_deals() -> None:
    game = Game(3, rounds=4, dealer_rotation="random")
    state = game.new_state(11, stream=5, index=20)
    rng = random.Random(0)
    while not state.is_terminal:
        number = 20 + len(state.finished)
        assert list(state.deal.hands) == deal_hands(Deck(), 3, 11, 5, number)
        assert state.deal.dealer == draw_dealer(3, 11, 5, number)
        state.apply(rng.choice(state.legal_actions()))


def test_a_random_dealer_is_drawn_from_its_own_words() -> None:
    for n in range(2, 14):
        for index in range(30):
            first = next(numpy_words(9, 4, index, 1, 1))
            assert draw_dealer(n, 9, 4, index) == first * n // 2**32


# ---- drawing below n ------------------------------------------------------------------------


@pytest.mark.parametrize("n", [*range(1, 53), 2**16 + 1, 10**9, 2**31 + 1, 2**32 - 1, 2**32])
def test_every_number_has_equally_many_words(n: int) -> None:
    share = 2**32 // n
    for value in {0, 1 % n, n // 2, n - 1}:
        # The words that give a value lie together; those before the first good one are skipped.
        first = -(-value * 2**32 // n)
        while first * n % 2**32 < 2**32 % n:
            first += 1
        last = first + share - 1
        assert first * n // 2**32 == last * n // 2**32 == value
        for word in (first, last):
            assert draw_below(n, iter([word])) == value
        if first > 0:
            # The word before is either another value's or skipped.
            result = draw_below(n, iter([first - 1, first]))
            before = (first - 1) * n
            skipped = before % 2**32 < 2**32 % n
            assert result == (value if skipped else before // 2**32)
            assert skipped or result == value - 1


def test_words_that_would_bias_are_skipped() -> None:
    words = iter([0, 0, 5])
    # 2**32 mod 3 is 1, and 0 * 3 leaves 0.
    assert draw_below(3, words) == 0
    assert list(words) == []
    # A power of two divides 2**32: nothing is skipped.
    words = iter([0, 1])
    assert draw_below(4, words) == 0
    assert list(words) == [1]


def test_drawing_one_of_one_takes_a_word() -> None:
    words = iter([17, 18])
    assert draw_below(1, words) == 0
    assert list(words) == [18]


# ---- statistics, with fixed seeds -----------------------------------------------------------


def test_every_seat_gets_every_card_equally_often() -> None:
    counts: Counter[tuple[int, int]] = Counter()
    for index in range(4_000):
        for seat, hand in enumerate(deal_hands(Deck(), 4, 2024, 0, index)):
            counts.update((seat, card) for card in hand)
    assert chi_square(list(counts.values()), 4 * 52) < limit(4 * 51)


@pytest.mark.parametrize("seat", [0, 1])
def test_all_hands_of_a_small_deck_are_equally_likely(seat: int) -> None:
    deck = Deck(5, 2)
    table = hand_table(deck, "card")
    hands = [deal_hands(deck, 2, 5, 1, index)[seat] for index in range(21_000)]
    counts = np.bincount(table.index(hands), minlength=210)
    assert len(counts) == 210
    assert chi_square(counts.tolist(), 210) < limit(209)


def test_dealers_are_equally_likely() -> None:
    counts = Counter(draw_dealer(13, 6, 0, index) for index in range(13_000))
    assert chi_square(list(counts.values()), 13) < limit(12)


@pytest.mark.parametrize(
    "neighbour", [(1, 0, 0), (0, 1, 0), (0, 0, 1)], ids=["seed", "stream", "index"]
)
def test_neighbouring_deals_are_independent(neighbour: tuple[int, int, int]) -> None:
    """Which red aces the first seat holds in two neighbouring deals: a contingency table."""
    deck = Deck(4, 4)
    counts: Counter[tuple[int, ...]] = Counter()
    step = 2 if neighbour == (0, 0, 1) else 1
    for index in range(6_000):
        pair = []
        for i in (0, 1):
            d_seed, d_stream, d_index = (i * d for d in neighbour)
            where = 77 + d_seed, 3 + d_stream, step * index + d_index
            hand = deal_hands(deck, 2, *where)[0]
            pair.append((parse_card("Ad") in hand) + 2 * (parse_card("Ah") in hand))
        counts[tuple(pair)] += 1
    rows = [sum(counts[a, b] for b in range(4)) for a in range(4)]
    columns = [sum(counts[a, b] for a in range(4)) for b in range(4)]
    total = sum(rows)
    statistic = sum(
        (counts[a, b] - rows[a] * columns[b] / total) ** 2 / (rows[a] * columns[b] / total)
        for a in range(4)
        for b in range(4)
    )
    assert statistic < limit(9)


def test_words_of_all_streams_and_purposes_differ() -> None:
    seen = Counter(
        tuple(itertools.islice(deals.random_words(seed, stream, index, purpose), 4))
        for seed in range(5)
        for stream in range(5)
        for index in range(5)
        for purpose in Purpose
    )
    assert len(seen) == 5 * 5 * 5 * len(Purpose)


def test_a_smaller_table_sees_the_same_first_hands() -> None:
    # A consequence of the specified order of draws; worth keeping, as logs are compared by it.
    assert deal_hands(Deck(), 13, 4, 2, 9)[:3] == deal_hands(Deck(), 3, 4, 2, 9)
