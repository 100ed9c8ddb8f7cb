"""The compiled engine: the flow of the phases over the tables, for many games.

Every rule is read from :mod:`shuiyu_env.tables`. What stands here a second time
is the flow of a deal (:mod:`shuiyu_env.core.play`), what a seat may see
(:mod:`shuiyu_env.core.view`), where the encoder puts it
(:mod:`shuiyu_env.observation`) and the order of the generator's draws
(:mod:`shuiyu_env.core.deals`); tests hold each equal to its original.

Kernels release the GIL and work on a range of environments, so threads can
share a batch. They are compiled on first use and cached on disk, where Numba
notices changes of this file, but not of the constants that it takes from
others: whoever changes those in a checkout removes the cached files (the tests
keep theirs by the sources they were compiled from).
"""

from __future__ import annotations

__all__ = [
    "NUM_HEAD",
    "NUM_SEAT",
    "PHASE",
    "SEAT",
    "Batch",
    "Scratch",
    "Tables",
    "begin",
    "check_ranges",
    "first_illegal",
    "hands_of",
    "observe",
    "sample",
    "see",
    "step",
]

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

from shuiyu_env.compiling import compiled, inlined
from shuiyu_env.core import deals
from shuiyu_env.core.actions import Action
from shuiyu_env.core.cards import HAND_SIZE, NUM_CARDS
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.game import DealerRotation, Game
from shuiyu_env.core.hands import NUM_SPLITS, Outcome, ranking
from shuiyu_env.core.play import NONE, Decided
from shuiyu_env.observation import Offsets, layout_of
from shuiyu_env.tables import OUTCOMES, contest_tables, group_tables

_STAKE, _ARRANGE, _DECLARE, _CALL, _REPLY, _REARRANGE, _OVER = map(int, Phase)
_BY_SPECIAL = int(Decided.BY_SPECIAL)
_AGREED = int(Decided.AGREED)
_COMPARED = int(Decided.COMPARED)
_DEALER_WINS, _PUSH, _PUNTER_WINS = map(int, Outcome)
_DEALER_WINS_BY_SPECIAL = _PUNTER_WINS + 1  # the last column of the payoffs
_STAKE_1 = int(Action.STAKE_1)
_CARDS, _DEALER, _ACTIONS = map(int, deals.Purpose)


class Tables(NamedTuple):
    """What never changes: the settings of the table, and the compiled rules."""

    num_players: int
    rounds: int
    rotation: int  #: position in DealerRotation: fixed, rotate, random
    drinks: bool
    in_turn: bool
    max_stake: int
    specials_declared: bool
    at: Offsets
    deck: npt.NDArray[np.uint8]
    scaled: npt.NDArray[np.float32]  #: strengths as observations have them
    # Of shuiyu_env.tables.GroupTables:
    special: npt.NDArray[np.int8]
    laid: npt.NDArray[np.int8]
    places: npt.NDArray[np.int8]
    strengths: npt.NDArray[np.int16]
    # Of shuiyu_env.tables.ContestTables:
    next_node: npt.NDArray[np.int8]
    node_legal: npt.NDArray[np.uint32]  #: legal actions of a node, one bit an action
    split_legal: npt.NDArray[np.uint32]  #: those of arranging a hand, by special status
    stake_legal: np.uint32
    phase: npt.NDArray[np.int8]
    compares: npt.NDArray[np.bool_]
    payoffs: npt.NDArray[np.int8]
    order: npt.NDArray[np.int8]
    exposes: npt.NDArray[np.bool_]
    by_dealer: npt.NDArray[np.bool_]
    decided_by_special: npt.NDArray[np.bool_]
    special_payoffs: npt.NDArray[np.int8]
    outcomes: npt.NDArray[np.int8]

    @classmethod
    def of(cls, game: Game) -> Tables:
        """Compile a game."""
        rules = game.rules
        max_strength = ranking(rules.deck, rules.tie_break).max_strength
        groups = group_tables(rules.deck, rules.tie_break)
        contests = contest_tables(rules)
        return cls(
            num_players=game.num_players,
            rounds=game.rounds,
            rotation=get_args(DealerRotation).index(game.dealer_rotation),
            drinks=game.reward == "drinks",
            in_turn=rules.declare == "in_turn",
            max_stake=rules.max_stake,
            specials_declared=rules.specials == "declared",
            at=layout_of(game).at,
            deck=np.array(rules.deck.cards, dtype=np.uint8),
            # Divided in double, then rounded: the same numbers as the encoder's.
            scaled=(np.arange(max_strength + 1) / max_strength).astype(np.float32),
            special=groups.special,
            laid=groups.laid,
            places=groups.places,
            strengths=groups.strengths,
            next_node=contests.next_node,
            node_legal=_as_bits(contests.next_node >= 0),
            split_legal=_as_bits(groups.legal_splits),
            stake_legal=_as_bits(np.arange(game.num_actions) >= _STAKE_1),
            phase=contests.phase,
            compares=contests.compares,
            payoffs=contests.payoffs,
            order=contests.order,
            exposes=contests.exposes,
            by_dealer=contests.by_dealer,
            decided_by_special=contests.decided_by_special,
            special_payoffs=contests.special_payoffs,
            outcomes=OUTCOMES,
        )


def _as_bits(flags: npt.NDArray[np.bool_]) -> Any:
    """Return ``uint32[...]`` with bit k set where ``flags[..., k]`` is."""
    weights = np.uint32(1) << np.arange(flags.shape[-1], dtype=np.uint32)
    return (flags * weights).sum(axis=-1, dtype=np.uint32)


class Batch(NamedTuple):
    """What changes: one row an environment."""

    head: npt.NDArray[np.int32]  #: [N, NUM_HEAD]
    seats: npt.NDArray[np.int16]  #: [N, num_players, NUM_SEAT]
    counters: npt.NDArray[np.int64]  #: [N, 2]: next deal's index, actions drawn so far
    words: npt.NDArray[np.int64]  #: [N, 4]: the block that sampled actions are drawn from
    # The engine's own record of what the seat to act may do, and what a user may write to.
    legal: npt.NDArray[np.uint32]  #: [N], one bit an action
    observation: npt.NDArray[np.float32]
    action_mask: npt.NDArray[np.int8]
    seat: npt.NDArray[np.int64]
    reward: npt.NDArray[np.float32]
    settled: npt.NDArray[np.bool_]
    done: npt.NDArray[np.bool_]


class Scratch(NamedTuple):
    """Room for one thread to deal in."""

    cards: npt.NDArray[np.uint8]
    words: npt.NDArray[np.uint64]

    @classmethod
    def new(cls) -> Scratch:
        """Make one."""
        return cls(np.empty(NUM_CARDS, np.uint8), np.empty(deals.WORDS_PER_BLOCK, np.uint64))


# Columns of Batch.head: the episode, then the deal being played.
(_FIRST_DEALER, _FINISHED, _DEALS, PHASE, SEAT, _CONTEST, _POS, _LENGTH, NUM_HEAD) = range(9)
# Columns of Batch.seats. A row of _QUEUE is a place in the order of play, not a seat.
(_SPLIT, _STAKES, _DECLARED, _CALLED, _REPLIED, _FORCED, _DECIDED, _EXPOSED, _NODE, _QUEUE) = range(
    10
)
_SPECIAL = 10
_CARD = 11
_STRENGTH = _CARD + HAND_SIZE
NUM_SEAT = _STRENGTH + 2 * NUM_SPLITS
# Columns of Batch.counters.
NEXT_INDEX, DRAWN = 0, 1


def check_ranges(saved: Mapping[str, npt.NDArray[Any]], tables: Tables) -> str | None:
    """Return what lies outside the ranges that the kernels count on, or ``None``.

    Anything within them may be unreachable in play, but is never out of bounds.
    """
    n, nodes = tables.num_players, len(tables.phase)
    num_actions = tables.next_node.shape[1]
    head = {
        _FIRST_DEALER: (0, n - 1),
        _FINISHED: (0, tables.rounds - 1),
        _DEALS: (0, n - 1),
        PHASE: (_STAKE if tables.max_stake > 1 else _ARRANGE, _OVER - 1),
        SEAT: (0, n - 1),
        _CONTEST: (NONE, n - 1),
        _POS: (0, n - 1),
        _LENGTH: (1, n),
    }
    seats = {
        _SPLIT: (NONE, NUM_SPLITS - 1),
        _STAKES: (NONE, tables.max_stake),
        _DECLARED: (NONE, num_actions - 1),
        _CALLED: (NONE, num_actions - 1),
        _REPLIED: (NONE, num_actions - 1),
        _FORCED: (NONE, NUM_SPLITS - 1),
        _DECIDED: (0, _COMPARED),
        _EXPOSED: (0, 1),
        _NODE: (0, nodes - 1),
        _QUEUE: (0, n - 1),
        _SPECIAL: (0, len(tables.special_payoffs) - 1),
    }
    seats |= {_CARD + k: (0, NUM_CARDS - 1) for k in range(HAND_SIZE)}
    seats |= {_STRENGTH + k: (0, len(tables.scaled) - 1) for k in range(2 * NUM_SPLITS)}
    for name, limits in (("head", head), ("seats", seats)):
        for column, (low, high) in limits.items():
            values = saved[name][..., column]
            if values.min() < low or values.max() > high:
                return f"{name}[..., {column}]: expected {low} to {high}"
    return "counters: expected 0 or more" if saved["counters"].min() < 0 else None


def hands_of(batch: Batch) -> npt.NDArray[np.int16]:
    """Return the cards that all seats hold, ``[N, num_players, 4]``, highest first; a copy."""
    return batch.seats[:, :, _CARD : _CARD + HAND_SIZE].copy()


_M0, _M1 = np.uint64(deals.MULTIPLIER_0), np.uint64(deals.MULTIPLIER_1)
_W0, _W1 = np.uint64(deals.WEYL_0), np.uint64(deals.WEYL_1)
_ROUNDS = deals.ROUNDS
_WORDS = deals.WORDS_PER_BLOCK
_LOW = np.uint64(0xFFFFFFFF)
_TWO_32 = np.uint64(1 << 32)
_32 = np.uint64(32)


def _product_high_word(typing_context: Any, a: Any, b: Any) -> Any:
    """Return the high 64 bits of the product of two unsigned 64-bit integers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from llvmlite import ir

        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        high = builder.lshr(product, ir.Constant(wide, 64))
        return builder.trunc(high, ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


def _bit_count(typing_context: Any, bits: Any) -> Any:
    """Return how many bits of a 32-bit integer are set."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.ctpop(args[0]), context.get_value_type(types.int64))

    return types.int64(types.uint32), generate


def _lowest_bit(typing_context: Any, bits: Any) -> Any:
    """Return the position of the lowest bit set in a 32-bit integer; 32 if there is none."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from llvmlite import ir

        defined_for_zero = ir.Constant(ir.IntType(1), 0)
        place = builder.cttz(args[0], defined_for_zero)
        return builder.zext(place, context.get_value_type(types.int64))

    return types.int64(types.uint32), generate


_high_word: Any = intrinsic(_product_high_word)
_popcount: Any = intrinsic(_bit_count)
_trailing_zeros: Any = intrinsic(_lowest_bit)


@inlined
def _block(block, index, purpose, seed, stream):  # type: ignore[no-untyped-def]
    """Return the four words of one Philox4x64-10 block."""
    c0, c1, c2, c3 = np.uint64(block), np.uint64(index), np.uint64(purpose), np.uint64(0)
    k0, k1 = seed, stream
    for _ in range(_ROUNDS):
        h0, l0 = _high_word(c0, _M0), c0 * _M0
        h1, l1 = _high_word(c2, _M1), c2 * _M1
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0 += _W0
        k1 += _W1
    return c0, c1, c2, c3


@inlined
def _draw_below(n, used, words, index, purpose, seed, stream):  # type: ignore[no-untyped-def]
    """Draw from 0 … n-1; ``used`` words of the deal are gone. Return the draw and the new count."""
    bound = np.uint64(n)
    while True:
        at = used % _WORDS
        if at == 0:
            w0, w1, w2, w3 = _block(used // _WORDS, index, purpose, seed, stream)
            words[0], words[1] = w0 & _LOW, w0 >> _32
            words[2], words[3] = w1 & _LOW, w1 >> _32
            words[4], words[5] = w2 & _LOW, w2 >> _32
            words[6], words[7] = w3 & _LOW, w3 >> _32
        used += 1
        product = words[at] * bound
        low = product & _LOW
        if low >= bound or low >= _TWO_32 % bound:
            return np.int64(product >> _32), used


@inlined
def _set_hand(row, tables, a, b, c, d):  # type: ignore[no-untyped-def]
    """Write a seat's cards, highest first, and what the tables say of them."""
    if a < b:
        a, b = b, a
    if c < d:
        c, d = d, c
    if a < c:
        a, c = c, a
    if b < d:
        b, d = d, b
    if b < c:
        b, c = c, b
    row[_CARD], row[_CARD + 1], row[_CARD + 2], row[_CARD + 3] = a, b, c, d
    special = tables.special[a >> 2, b >> 2, c >> 2, d >> 2]
    row[_SPECIAL] = special
    for split in range(NUM_SPLITS):
        laid = tables.laid[special, split]
        first = tables.strengths[
            special,
            row[_CARD + tables.places[laid, 0]],
            row[_CARD + tables.places[laid, 1]],
        ]
        second = tables.strengths[
            special,
            row[_CARD + tables.places[laid, 2]],
            row[_CARD + tables.places[laid, 3]],
        ]
        row[_STRENGTH + 2 * split] = min(first, second)
        row[_STRENGTH + 2 * split + 1] = max(first, second)


@inlined
def _deal_cards(i, index, tables, batch, scratch, seed):  # type: ignore[no-untyped-def]
    """Deal by the specified generator."""
    cards = scratch.cards
    size = len(tables.deck)
    for k in range(size):
        cards[k] = tables.deck[k]
    used = 0
    for k in range(HAND_SIZE * tables.num_players):
        drawn, used = _draw_below(size - k, used, scratch.words, index, _CARDS, seed, np.uint64(i))
        cards[k], cards[k + drawn] = cards[k + drawn], cards[k]
    for seat in range(tables.num_players):
        k = HAND_SIZE * seat
        _set_hand(batch.seats[i, seat], tables, cards[k], cards[k + 1], cards[k + 2], cards[k + 3])


@inlined
def _new_deal(i, tables, batch, scratch, seed):  # type: ignore[no-untyped-def]
    """Deal the next deal of the environment's stream."""
    head = batch.head[i]
    index = batch.counters[i, NEXT_INDEX]
    batch.counters[i, NEXT_INDEX] = index + 1
    n = tables.num_players
    if tables.rotation == 0:
        head[_DEALS] = head[_FIRST_DEALER]
    elif tables.rotation == 1:
        head[_DEALS] = (head[_FIRST_DEALER] + head[_FINISHED]) % n
    else:
        drawn, _ = _draw_below(n, 0, scratch.words, index, _DEALER, seed, np.uint64(i))
        head[_DEALS] = drawn
    _deal_cards(i, index, tables, batch, scratch, seed)
    _begin_deal(i, tables, batch)


@inlined
def _begin_deal(i, tables, batch):  # type: ignore[no-untyped-def]
    """Put a deal at its first decision."""
    head, seats = batch.head[i], batch.seats[i]
    n = tables.num_players
    for seat in range(n):
        row = seats[seat]
        row[_SPLIT] = row[_DECLARED] = row[_CALLED] = row[_REPLIED] = row[_FORCED] = NONE
        row[_STAKES] = NONE if tables.max_stake > 1 else 1
        row[_DECIDED] = row[_EXPOSED] = row[_NODE] = 0
    head[_CONTEST] = NONE
    head[_POS] = 0
    if tables.max_stake > 1:
        head[PHASE] = _STAKE
        head[_LENGTH] = n - 1
        for k in range(n - 1):
            seats[k, _QUEUE] = (head[_DEALS] + 1 + k) % n
        head[SEAT] = seats[0, _QUEUE]
    else:
        _begin_arranging(i, tables, batch)


@inlined
def _begin_arranging(i, tables, batch):  # type: ignore[no-untyped-def]
    head, seats = batch.head[i], batch.seats[i]
    head[PHASE] = _ARRANGE
    head[_POS] = 0
    head[_LENGTH] = tables.num_players
    seat = head[_DEALS]
    head[SEAT] = seat
    for k in range(tables.num_players):
        seats[k, _QUEUE] = seat
        seat += 1
        if seat == tables.num_players:
            seat = 0


@inlined
def _settle_specials(i, tables, batch):  # type: ignore[no-untyped-def]
    """Decide what specials decide and turn to declarations; return whether nothing is left."""
    head, seats = batch.head[i], batch.seats[i]
    dealer = head[_DEALS]
    held = seats[dealer, _SPECIAL]
    length = 0
    for k in range(1, tables.num_players):
        punter = seats[k, _QUEUE]
        own = seats[punter, _SPECIAL]
        if tables.decided_by_special[held, own]:
            seats[punter, _DECIDED] = _BY_SPECIAL
            seats[punter, _EXPOSED] = own != 0
        else:
            seats[length, _QUEUE] = punter
            length += 1
    if tables.specials_declared:
        seats[dealer, _EXPOSED] = held != 0
    if length == 0:
        return True
    head[PHASE] = _DECLARE
    head[_POS] = 0
    head[_LENGTH] = length
    head[SEAT] = seats[0, _QUEUE]
    return False


@inlined
def _begin_contests(i, tables, batch):  # type: ignore[no-untyped-def]
    """Lay open what declarations lay open and put the contests in order."""
    head, seats = batch.head[i], batch.seats[i]
    for k in range(head[_LENGTH]):
        punter = seats[k, _QUEUE]
        declared = seats[punter, _DECLARED]
        seats[punter, _EXPOSED] = tables.exposes[declared]
        # Insertion keeps seat order within each declaration.
        place = k
        while place > 0:
            before = seats[place - 1, _QUEUE]
            if tables.order[seats[before, _DECLARED]] <= tables.order[declared]:
                break
            seats[place, _QUEUE] = before
            place -= 1
        seats[place, _QUEUE] = punter
    head[_POS] = 0
    return _next_contest(i, tables, batch)


@inlined
def _next_contest(i, tables, batch):  # type: ignore[no-untyped-def]
    """Turn to the next contest; return whether there is none."""
    head, seats = batch.head[i], batch.seats[i]
    if head[_POS] == head[_LENGTH]:
        return True
    punter = seats[head[_POS], _QUEUE]
    head[_CONTEST] = punter
    _turn_to(head, punter, seats[punter, _NODE], tables)
    return False


@inlined
def _turn_to(head, punter, node, tables):  # type: ignore[no-untyped-def]
    head[PHASE] = tables.phase[node]
    head[SEAT] = head[_DEALS] if tables.by_dealer[node] else punter


@inlined
def _apply(i, action, tables, batch):  # type: ignore[no-untyped-def]
    """Take a legal action; return whether the deal is over."""
    head, seats = batch.head[i], batch.seats[i]
    phase = head[PHASE]
    if phase > _DECLARE:
        punter = head[_CONTEST]
        row = seats[punter]
        if phase == _CALL:
            row[_CALLED] = action
        elif phase == _REPLY:
            row[_REPLIED] = action
        else:
            row[_FORCED] = action
        node = tables.next_node[row[_NODE], action]
        row[_NODE] = node
        if tables.phase[node] != _OVER:
            _turn_to(head, punter, node, tables)
            return False
        row[_DECIDED] = _COMPARED if tables.compares[node] else _AGREED
        head[_POS] += 1
        return _next_contest(i, tables, batch)
    row = seats[head[SEAT]]
    if phase == _ARRANGE:
        row[_SPLIT] = action
    elif phase == _DECLARE:
        row[_DECLARED] = action
        row[_NODE] = tables.next_node[0, action]
        if tables.in_turn:
            row[_EXPOSED] = tables.exposes[action]
    else:
        row[_STAKES] = action - _STAKE_1 + 1
    head[_POS] += 1
    if head[_POS] < head[_LENGTH]:
        head[SEAT] = seats[head[_POS], _QUEUE]
        return False
    if phase == _ARRANGE:
        return _settle_specials(i, tables, batch)
    if phase == _DECLARE:
        return _begin_contests(i, tables, batch)
    _begin_arranging(i, tables, batch)
    return False


@inlined
def _compare(dealer, dealt, punter, laid, tables):  # type: ignore[no-untyped-def]
    """Return the outcome of a dealer's split against a punter's, of their rows."""
    tail = dealer[_STRENGTH + 2 * dealt] - punter[_STRENGTH + 2 * laid]
    head = dealer[_STRENGTH + 2 * dealt + 1] - punter[_STRENGTH + 2 * laid + 1]
    return np.int64(tables.outcomes[1 + (tail > 0) - (tail < 0), 1 + (head > 0) - (head < 0)])


@inlined
def _settle(i, tables, batch):  # type: ignore[no-untyped-def]
    """Pay everything."""
    seats, reward = batch.seats[i], batch.reward[i]
    dealer = batch.head[i, _DEALS]
    for punter in range(tables.num_players):
        if punter == dealer:
            continue
        row = seats[punter]
        node = row[_NODE]
        by_special = row[_DECIDED] == _BY_SPECIAL
        column = _DEALER_WINS
        if by_special or tables.compares[node]:
            split = row[_FORCED] if row[_FORCED] != NONE else seats[dealer, _SPLIT]
            column = _compare(seats[dealer], split, row, row[_SPLIT], tables)
        if by_special:
            units = np.int64(tables.special_payoffs[seats[dealer, _SPECIAL], row[_SPECIAL], column])
        else:
            if column == _DEALER_WINS and seats[dealer, _SPECIAL] != 0:
                column = _DEALER_WINS_BY_SPECIAL
            units = np.int64(tables.payoffs[node, column])
        units *= row[_STAKES]
        if not tables.drinks:
            reward[punter] += units
            reward[dealer] -= units
        elif units < 0:
            reward[punter] += units
        else:
            reward[dealer] -= units


@inlined
def _observe(i, tables, batch):  # type: ignore[no-untyped-def]
    """Write observation, mask and seat of one environment."""
    head, seats, mask = batch.head[i], batch.seats[i], batch.action_mask[i]
    me, phase = head[SEAT], head[PHASE]
    batch.seat[i] = me

    if phase in (_ARRANGE, _REARRANGE):
        legal = tables.split_legal[seats[me, _SPECIAL]]
    elif phase == _STAKE:
        legal = tables.stake_legal
    else:
        legal = tables.node_legal[0 if phase == _DECLARE else seats[head[_CONTEST], _NODE]]
    batch.legal[i] = legal
    for action in range(len(mask)):
        mask[action] = (legal >> np.uint32(action)) & np.uint32(1)
    _see(i, me, batch.observation[i], tables, batch)


@inlined
def _see(i, me, out, tables, batch):  # type: ignore[no-untyped-def]
    """Write what one seat sees of one environment."""
    head, seats, at = batch.head[i], batch.seats[i], tables.at
    n = tables.num_players
    dealer, phase, contest = head[_DEALS], head[PHASE], head[_CONTEST]
    own = seats[me]
    dealing = me == dealer

    out[:] = 0.0
    out[phase] = 1.0
    out[at.role + (0 if dealing else 1)] = 1.0
    if phase != _STAKE:
        for k in range(HAND_SIZE):
            out[at.hand + own[_CARD + k]] = 1.0
        if own[_SPLIT] != NONE:
            out[at.split + own[_SPLIT]] = 1.0
        for k in range(2 * NUM_SPLITS):
            out[at.strengths + k] = tables.scaled[own[_STRENGTH + k]]
    hide_declarations = phase == _DECLARE and not tables.in_turn
    seat = me
    for j in range(n):
        row = seats[seat]
        block = at.seats + j * at.seat_size
        if seat == dealer:
            out[block + at.dealer] = 1.0
        if seat == head[SEAT]:
            out[block + at.to_act] = 1.0
        if seat == contest:
            out[block + at.contested] = 1.0
        if tables.max_stake > 1 and row[_STAKES] != NONE:
            out[block + at.stake + row[_STAKES]] = 1.0
        if row[_DECLARED] != NONE and (j == 0 or not hide_declarations):
            out[block + at.declaration + row[_DECLARED]] = 1.0
            if row[_CALLED] != NONE:
                out[block + at.call + row[_CALLED]] = 1.0
                if row[_REPLIED] != NONE:
                    out[block + at.reply + row[_REPLIED]] = 1.0
            if dealing and row[_FORCED] != NONE:
                out[block + at.force_split + row[_FORCED]] = 1.0
        if row[_DECIDED] != 0:
            out[block + at.decided + row[_DECIDED]] = 1.0
        if row[_EXPOSED] != 0:
            split = row[_SPLIT]
            out[block + at.exposed] = 1.0
            for k in range(HAND_SIZE):
                out[block + at.shown_hand + row[_CARD + k]] = 1.0
            out[block + at.shown_split + split] = 1.0
            for k in range(2):
                out[block + at.shown_strengths + k] = tables.scaled[row[_STRENGTH + 2 * split + k]]
            if j != 0 and (dealing or seat == dealer):
                for k in range(NUM_SPLITS):
                    if dealing:
                        outcome = _compare(own, k, row, split, tables)
                    else:
                        outcome = _PUNTER_WINS - _compare(row, split, own, k, tables)
                    out[block + at.outcomes + 3 * k + outcome] = 1.0
        seat += 1
        if seat == n:
            seat = 0


@compiled
def begin(first, last, scratch, tables, batch, seed, hands, dealers):  # type: ignore[no-untyped-def]
    """Begin an episode in environments ``first`` to ``last - 1``.

    ``hands`` is ``[N, n, 4]`` and ``dealers`` ``[N]``, or empty for none given.
    """
    for i in range(first, last):
        head = batch.head[i]
        head[_FINISHED] = 0
        head[_FIRST_DEALER] = dealers[i] if len(dealers) else 0
        batch.reward[i, :] = 0.0
        batch.settled[i] = False
        batch.done[i] = False
        _new_deal(i, tables, batch, scratch, seed)
        if len(dealers):
            head[_DEALS] = dealers[i]
        if len(hands):
            for seat in range(tables.num_players):
                hand = hands[i, seat]
                _set_hand(batch.seats[i, seat], tables, hand[0], hand[1], hand[2], hand[3])
        _begin_deal(i, tables, batch)
        _observe(i, tables, batch)


@compiled
def step(first, last, scratch, tables, batch, seed, actions):  # type: ignore[no-untyped-def]
    """Step environments ``first`` to ``last - 1``. The actions must be legal."""
    for i in range(first, last):
        batch.reward[i, :] = 0.0
        batch.settled[i] = False
        batch.done[i] = False
        if _apply(i, actions[i], tables, batch):
            _settle(i, tables, batch)
            batch.settled[i] = True
            head = batch.head[i]
            head[_FINISHED] += 1
            if head[_FINISHED] == tables.rounds:
                batch.done[i] = True
                head[_FINISHED] = 0
                head[_FIRST_DEALER] = 0
            _new_deal(i, tables, batch, scratch, seed)
        _observe(i, tables, batch)


@compiled
def observe(first, last, scratch, tables, batch):  # type: ignore[no-untyped-def]
    """Write observation, mask and seat of environments ``first`` to ``last - 1`` anew."""
    for i in range(first, last):
        _observe(i, tables, batch)


@compiled
def see(first, last, scratch, tables, batch, seats, out):  # type: ignore[no-untyped-def]
    """Write to ``out`` what ``seats[i]`` sees in environments ``first`` to ``last - 1``."""
    for i in range(first, last):
        _see(i, seats[i], out[i], tables, batch)


@compiled
def first_illegal(legal, actions):  # type: ignore[no-untyped-def]
    """Return the first environment whose action is not legal, or -1."""
    for i in range(len(actions)):
        action = actions[i]
        if action < 0 or action > 31 or not (legal[i] >> np.uint32(action)) & np.uint32(1):
            return i
    return -1


@compiled
def sample(first, last, scratch, batch, seed, actions):  # type: ignore[no-untyped-def]
    """Draw a random legal action for environments ``first`` to ``last - 1``.

    How is specified in :mod:`shuiyu_env.core.deals`.
    """
    for i in range(first, last):
        words = batch.words[i]
        drawn = batch.counters[i, DRAWN]
        batch.counters[i, DRAWN] = drawn + 1
        at = drawn % _WORDS
        if at == 0:
            w0, w1, w2, w3 = _block(0, drawn // _WORDS, _ACTIONS, seed, np.uint64(i))
            words[0], words[1] = np.int64(w0), np.int64(w1)
            words[2], words[3] = np.int64(w2), np.int64(w3)
        word = np.uint64(words[at // 2])
        word = (word >> _32) if at % 2 else (word & _LOW)
        left = batch.legal[i]
        for _ in range(np.int64((word * np.uint64(_popcount(left))) >> _32)):
            left &= left - np.uint32(1)  # drops the lowest
        actions[i] = _trailing_zeros(left)
