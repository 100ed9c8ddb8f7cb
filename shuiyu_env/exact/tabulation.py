"""Policies as tables: asked in all their information sets of the heads-up game.

What a policy does on its own cards and what is public is one question for every
hand and split. What a *dealer* does once the punter's hand lies open, at a call on
an opened hand and in a forced showdown, depends on both hands, which make some
5e10 questions on the full deck. So there are three ways, the first that is open:

* by outcomes: the policy promises (``outcomes_only``) that there it looks at its own
  cards only through their outcomes against the open hand. One question for each of
  the punter's hands and splits and each (triple of) outcome(s); exact.
* by pairs: a deck so small (:data:`MOST_PAIRS`) that all pairs can be asked; exact.
* by samples: dealer's hands drawn for each of the punter's hands and splits; unbiased.

Nothing of the game's flow is written here: each kind of decision is reached once by
playing a :class:`~shuiyu_env.core.game.State`, and what its seat then sees, with
other hands put in, is what the policy is asked.
"""

from __future__ import annotations

__all__ = ["MOST_PAIRS", "count_questions", "tabulate"]

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from math import comb
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.actions import Action
from shuiyu_env.core.cards import HAND_SIZE, card_text
from shuiyu_env.core.checks import as_integer
from shuiyu_env.core.contest import Node, Phase
from shuiyu_env.core.errors import DealError, PolicyError
from shuiyu_env.core.game import Game
from shuiyu_env.core.hands import NUM_SPLITS, Outcome
from shuiyu_env.core.play import NONE
from shuiyu_env.core.rules import RuleSet, resolve_rules
from shuiyu_env.exact.heads_up import (
    DealerTables,
    HeadsUpGame,
    PolicyTables,
    PunterTables,
    Term,
    heads_up_game,
)
from shuiyu_env.exact.rearrange import TRIPLES
from shuiyu_env.observation import ViewBatch, layout_of
from shuiyu_env.policy import (
    SUM_TOLERANCE,
    Policy,
    checked_probabilities,
    is_policy,
    sample_actions,
)
from shuiyu_env.progress import progress_bar
from shuiyu_env.tables import OUTCOMES

Integers = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.floating[Any]]

#: Pairs of disjoint hands, each with its splits, up to which all are asked: decks of 16 cards.
MOST_PAIRS = 10_000_000

#: Dealer's hands that may be drawn for each of the punter's hands and splits.
MOST_SAMPLES = 1024

_NUM_OUTCOMES = len(Outcome)
# By triple of outcomes: whether they differ, so that it matters which split is chosen.
_MATTERS = (TRIPLES[:, :1] != TRIPLES).any(axis=1)
# Rows of punter's hands and splits that are worked on at once. Samples are drawn by these blocks,
# so another size gives other samples.
_BLOCK = 8192
# Deals on which a promise of `outcomes_only` is put to the test.
_TRIALS = 1024


def tabulate(
    policy: Policy,
    rules: str | RuleSet | Mapping[str, Any],
    *,
    samples: int = 16,
    seed: int = 0,
    batch_size: int = 4096,
    progress: bool = False,
    name: str | None = None,
    threads: int | None = None,
) -> PolicyTables:
    """Return what a policy does in all its information sets of the heads-up game.

    Rows of hands and splits that never come to a decision are uniform (nobody reads
    them), or, in what comes of open hands, zero. Answers are scaled to sum to 1.

    Args:
        policy: the policy.
        rules: the rules: a preset's name, a :class:`RuleSet` or a mapping.
        samples: even; if what comes of open hands must be sampled, how many dealer's
            hands are drawn for each of the punter's hands and splits, half of them
            for each of :attr:`PolicyTables.halves`. Each is a question by itself.
        seed: of the samples, an integer. They do not depend on ``batch_size``.
        batch_size: rows that the policy is asked at once.
        progress: whether to show a progress bar (if tqdm is installed).
        name: how errors name the policy; by default its class's name.
        threads: threads that sums are shared among; ``None``: all that there are.

    Raises:
        PolicyError: no policy, one that answered with something unusable, one that
            breaks its promise of ``outcomes_only``, or one that is not a function of what it
            sees: asked again it answers differently.
        RulesError: no rules, or rules with stakes.
        DealError: samples, seed or batch size out of range.
    """
    if not is_policy(policy):
        raise PolicyError(
            f"expected a policy, an object with a method probabilities(observation, action_mask),"
            f" got {policy!r}; shuiyu_env.policies.load makes one of a name or a file"
        )
    samples = _whole("samples", samples, 2)
    if samples % 2 or samples > MOST_SAMPLES:
        raise DealError(
            f"samples: expected an even number, for two halves, up to {MOST_SAMPLES}, got {samples}"
        )
    seed = _whole("seed", seed, None)
    batch_size = _whole("batch_size", batch_size, 1)
    name = type(policy).__name__ if name is None else name
    game = heads_up_game(resolve_rules(rules), False, threads)
    spots = _Spots(game)
    questions = _Questions(policy, game, batch_size, name)
    hands = np.arange(game.classes.size)
    dealer_split = questions.ask(spots.dealer_arranges, _Rows(hands))
    _check_function(questions, spots, dealer_split)
    plan = game.plan(dealer_split)
    points = int(game.legal.sum())
    # How to ask about open hands: once, or by halves.
    parts: list[Callable[[], _Opened]]
    if not spots.opened and not spots.forced:
        parts = [partial(_Opened, game, spots)]
    elif getattr(policy, "outcomes_only", False):
        _check_promise(questions, spots, dealer_split)
        parts = [partial(_by_outcomes, questions, spots, plan)]
    elif _by_pairs(game):
        parts = [partial(_of_deals, questions, spots, _all_deals(game, plan))]
    else:
        drawn = [_drawn_deals(game, dealer_split, samples, seed, half) for half in range(2)]
        parts = [partial(_of_deals, questions, spots, deals) for deals in drawn]
    rows = _num_shown(policy, game, spots, plan > 0.0, samples)
    rows += len(hands) + points * (1 + len(spots.calls) + len(spots.replies))
    if questions.kinds is not None:
        _check_strengths(questions, spots)
    with progress_bar(rows, progress, unit="row", unit_scale=True) as questions.bar:
        calls = {node: questions.table(spot) for node, spot in spots.calls.items()}
        punter = PunterTables(
            split=questions.ask(spots.punter_arranges, _Rows(hands)),
            declare=questions.table(spots.declare),
            replies={node: questions.table(spot) for node, spot in spots.replies.items()},
        )
        dealers = [part().tables(dealer_split, calls) for part in parts]
    if len(dealers) == 1:
        return PolicyTables(game, dealers[0], punter)
    first, second = dealers
    mean = DealerTables(
        split=dealer_split,
        calls=calls,
        opened={node: (part + second.opened[node]) / 2 for node, part in first.opened.items()},
        forced={node: (part + second.forced[node]) / 2 for node, part in first.forced.items()},
    )
    return PolicyTables(game, mean, punter, (first, second))


def count_questions(
    policy: Policy, rules: str | RuleSet | Mapping[str, Any], samples: int = 16
) -> int:
    """Return how many rows :func:`tabulate` would ask a policy about, at most.

    Small decks may need a third: a dealer is asked only about splits that he might lay.

    Args:
        policy: the policy; its promises decide how it is asked. It is not asked here.
        rules, samples: see :func:`tabulate`.
    """
    game = heads_up_game(resolve_rules(rules), False)
    spots = _Spots(game)
    hands, points = game.classes.size, int(game.legal.sum())
    hidden = 2 * hands + points * (1 + len(spots.calls) + len(spots.replies))
    shown = _num_shown(policy, game, spots, game.legal, samples)
    if getattr(policy, "strengths_only", False):
        # Of hands that look the same one is asked about.
        kinds = _Kinds(game)
        hidden = hidden * int(kinds.own.max() + 1) // hands
        shown = shown * int(kinds.shown.max() + 1) // kinds.shown.size
    return hidden + shown


def _num_shown(
    policy: Policy,
    game: HeadsUpGame,
    spots: _Spots,
    laid: npt.NDArray[np.bool_],
    samples: int,
) -> int:
    """Return how many rows are asked about open hands; ``laid``: the dealer's possible splits."""
    points = int(game.legal.sum())
    if getattr(policy, "outcomes_only", False):
        rows = points * _NUM_OUTCOMES * len(spots.opened)
        if spots.forced:
            asked = game.triples[game.legal][:, _MATTERS] > 0.0
            rows += int(asked.sum()) * len(spots.forced)
        return rows
    if _by_pairs(game):
        others = _disjoint_total(game, laid)
        return round(float((others[:, None] * game.legal).sum())) * spots.num_open
    return points * samples * spots.num_open


def _by_pairs(game: HeadsUpGame) -> bool:
    """Whether a deck is so small that all pairs of hands can be asked."""
    return game.num_deals * NUM_SPLITS**2 <= MOST_PAIRS


class _Spot(NamedTuple):
    """One kind of decision, as its seat sees it with the hands of some deal.

    Attributes:
        seat: who decides; 0 deals.
        phase: what is decided.
        actions: ids of the actions that answers are given for, ascending.
        view: what the seat sees, a batch of one.
        after: the public actions that lead here.
    """

    seat: int
    phase: Phase
    actions: tuple[int, ...]
    view: ViewBatch
    after: tuple[Action, ...]


class _Spots:
    """All kinds of decisions of a game.

    Attributes:
        dealer_arranges, punter_arranges, declare: the decisions before contests.
        calls: by node of hidden contests, the dealer's call.
        opened: by node of opened contests, the dealer's call.
        forced: by node of forced showdowns, the dealer's rearrangement.
        replies: by node, the punter's reply.
    """

    def __init__(self, game: HeadsUpGame) -> None:
        self.table = game.classes.table
        self.game = Game(2, game.rules)
        bits = _card_bits(game)
        hand = int(np.flatnonzero(game.active)[0])
        other = int(np.flatnonzero(game.active & (bits & bits[hand] == 0))[0])
        self._hands = [self.table.cards[index].tolist() for index in (hand, other)]
        self.dealer_arranges = self._reach(0)
        self.punter_arranges = self._reach(1)
        self.declare = self._reach(2)

        def at(nodes: Sequence[Node]) -> dict[int, _Spot]:
            return {node.id: self._reach(2, node.path) for node in nodes}

        self.calls = at(game.hidden)
        self.opened = at([contest.node for contest in game.opened])
        self.forced = at(game.forced)
        self.replies = at([game.tree.nodes[node] for node in game.reply_nodes])
        self.num_open = len(self.opened) + len(self.forced)

    def _reach(self, arranged: int, path: tuple[Action, ...] = ()) -> _Spot:
        """Play to a decision: how many have arranged, and what was done then."""
        state = self.game.new_state(hands=self._hands)
        for _ in range(arranged):
            state.apply(state.legal_actions()[0])
        for action in path:
            state.apply(action)
        seat = state.current_player
        assert seat is not None, "somebody decides here"
        actions = state.legal_actions()
        if state.phase in (Phase.ARRANGE, Phase.REARRANGE):
            actions = tuple(range(NUM_SPLITS))  # these depend on the hand
        view = ViewBatch.from_views([state.view(seat)], self.table)
        return _Spot(seat, state.phase, actions, view, path)


class _Rows(NamedTuple):
    """The hands in a spot, row by row.

    Attributes:
        hands: ``int[N]``, one's own by the hand table's index; -1 to hide them.
        splits: ``int[N]``, one's own, if committed.
        shown_hands, shown_splits: ``int[N]``, the opponent's, if exposed.
        outcomes: ``int[N, 3]``, of each of one's own splits against the hand shown, from
            the dealer's point of view; to be said where one's own hands are hidden.
    """

    hands: Integers
    splits: Integers | None = None
    shown_hands: Integers | None = None
    shown_splits: Integers | None = None
    outcomes: Integers | None = None

    @classmethod
    def hidden(cls, hands: Integers, splits: Integers, outcomes: Integers) -> _Rows:
        """Return rows of a dealer who sees of his own hand but its outcomes against others'."""
        # He has committed to a split, as always; which one is hidden as well.
        unknown = np.full(len(hands), NONE)
        return cls(unknown, np.zeros_like(unknown), hands, splits, outcomes)

    def part(self, rows: slice | Integers) -> _Rows:
        """Return some of the rows."""
        return _Rows(self.hands[rows], *(c if c is None else c[rows] for c in self[1:]))


class _Kinds:
    """What hands look like to a policy that reads strengths but no cards.

    Attributes:
        own: ``int64[K + 1]``, by hand: equal where all strengths and legal splits are.
        shown: ``int64[K + 1, 3]``, by hand and split: equal where its two strengths are.
    """

    def __init__(self, game: HeadsUpGame) -> None:
        table = game.classes.table
        strengths = table.strengths.astype(np.int64)
        # The last row stands for "no hand", with whose strengths, zeros, real ones may agree.
        nobody = np.arange(len(strengths)) == len(strengths) - 1
        base = table.max_strength + 1
        shown = strengths[..., 0] * base + strengths[..., 1]
        own = np.stack([nobody, table.legal_splits @ (1, 2, 4), *shown.T], axis=1)
        self.own = np.unique(own, axis=0, return_inverse=True)[1].astype(np.int64)
        shown = shown * 2 + nobody[:, None]
        self.shown = np.unique(shown, return_inverse=True)[1].reshape(shown.shape).astype(np.int64)

    def of(self, rows: _Rows) -> npt.NDArray[np.int64]:
        """Return ``int64[N]``: equal where the rows look the same."""
        kind: npt.NDArray[np.int64] = self.own[rows.hands]
        if rows.splits is not None:
            kind = kind * (NUM_SPLITS + 1) + rows.splits + 1
        if rows.shown_hands is not None and rows.shown_splits is not None:
            shown = self.shown[rows.shown_hands, rows.shown_splits] * NUM_SPLITS + rows.shown_splits
            kind = kind * (self.shown.max() + 1) * NUM_SPLITS + shown
        if rows.outcomes is not None:
            for outcome in rows.outcomes.T:
                kind = kind * _NUM_OUTCOMES + outcome
        return kind


class _Questions:
    """Asks a policy, in batches, about many hands in the same spot."""

    def __init__(self, policy: Policy, game: HeadsUpGame, batch_size: int, name: str) -> None:
        self.policy = policy
        self.game = game
        self.name = name
        self.batch_size = batch_size
        self.bar: Any = progress_bar(0, False)
        self.table_of_hands = game.classes.table
        self.kinds = _Kinds(game) if getattr(policy, "strengths_only", False) else None
        self._layout = layout_of(Game(2, game.rules))
        try:
            self._observation = np.empty((batch_size, self._layout.size), dtype=np.float32)
            self._mask = np.empty((batch_size, self._layout.num_actions), dtype=np.int8)
        except (MemoryError, ValueError) as error:
            raise DealError(
                f"batch_size: {batch_size} rows do not fit into memory ({error})"
            ) from None

    def observe(
        self, spot: _Spot, rows: _Rows
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int8]]:
        """Return observations and masks of at most a batch; the next call overwrites both."""
        size = len(rows.hands)
        view = ViewBatch(
            **{
                field.name: np.broadcast_to(
                    getattr(spot.view, field.name),
                    (size, *getattr(spot.view, field.name).shape[1:]),
                )
                for field in fields(ViewBatch)
            }
        )
        view.hands, view.splits = view.hands.copy(), view.splits.copy()
        view.hands[:, 0] = rows.hands
        if rows.splits is not None:
            view.splits[:, 0] = rows.splits
        if rows.shown_hands is not None:
            view.hands[:, 1], view.splits[:, 1] = rows.shown_hands, rows.shown_splits
        observation = self._layout.encode_many(
            view, self.table_of_hands, out=self._observation[:size]
        )
        if rows.outcomes is not None:
            # The seat is the dealer's, for whom to win, push and lose are 0, 1 and 2.
            results = self._layout.views(observation)["seats.outcomes"]
            results[np.arange(size)[:, None], 1, np.arange(NUM_SPLITS), rows.outcomes] = 1.0
        mask = self._mask[:size]
        mask[...] = 0
        mask[:, spot.actions] = 1
        if spot.phase in (Phase.ARRANGE, Phase.REARRANGE) and rows.outcomes is None:
            mask[:, spot.actions] = self.table_of_hands.legal_splits[rows.hands]
        return observation, mask

    def ask(self, spot: _Spot, rows: _Rows) -> FloatArray:
        """Return the probabilities ``float64[N, actions of the spot]``."""
        if self.kinds is None:
            return self.ask_each(spot, rows)
        # Of rows that look the same to the policy, one is enough.
        _, first, same = np.unique(self.kinds.of(rows), return_index=True, return_inverse=True)
        self.bar.update(len(same) - len(first))
        return self.ask_each(spot, rows.part(first))[same]

    def ask_each(self, spot: _Spot, rows: _Rows) -> FloatArray:
        """Ask about every row, also those that should look the same."""
        result = np.empty((len(rows.hands), len(spot.actions)))
        for start in range(0, len(result), self.batch_size):
            part = slice(start, start + self.batch_size)
            observation, mask = self.observe(spot, rows.part(part))
            seats = np.full(len(mask), spot.seat)
            answers = checked_probabilities(self.policy, observation, mask, self.name, seats)
            chosen = answers[:, spot.actions]
            result[part] = chosen / chosen.sum(axis=1, keepdims=True)
            self.bar.update(len(mask))
        return result

    def table(self, spot: _Spot) -> FloatArray:
        """Return the probabilities of all hands and splits, ``float64[K, 3, actions]``."""
        legal = self.game.legal
        result = np.full((*legal.shape, len(spot.actions)), 1.0 / len(spot.actions))
        hands, splits = np.nonzero(legal)
        result[hands, splits] = self.ask(spot, _Rows(hands, splits))
        return result


class _Opened:
    """What comes of open hands: sums over dealer's hands, by the punter's hand and split.

    Attributes:
        opened: by node, ``float64[calls, K * 3 * 3]``: hand, split and outcome.
        forced: by node, ``float64[K * 3 * 3]``.
    """

    def __init__(self, game: HeadsUpGame, spots: _Spots) -> None:
        self.shape = (game.classes.size, NUM_SPLITS, _NUM_OUTCOMES)
        size = game.classes.size * NUM_SPLITS * _NUM_OUTCOMES
        self.opened = {
            node: np.zeros((len(spot.actions), size)) for node, spot in spots.opened.items()
        }
        self.forced = {node: np.zeros(size) for node in spots.forced}

    def tables(self, split: FloatArray, calls: Mapping[int, FloatArray]) -> DealerTables:
        """Return the dealer's tables."""
        return DealerTables(
            split=split,
            calls=calls,
            opened={
                node: np.ascontiguousarray(np.moveaxis(sums.reshape(len(sums), *self.shape), 0, -2))
                for node, sums in self.opened.items()
            },
            forced={node: sums.reshape(self.shape) for node, sums in self.forced.items()},
        )


def _by_outcomes(questions: _Questions, spots: _Spots, plan: FloatArray) -> _Opened:
    """Ask a policy that sees an open hand through outcomes only."""
    game = questions.game
    result = _Opened(game, spots)
    hands, splits = np.nonzero(game.legal)
    if questions.kinds is not None:
        # So that hands that look the same come together, in one block.
        order = np.argsort(questions.kinds.shown[hands, splits], kind="stable")
        hands, splits = hands[order], splits[order]
    rows = hands * NUM_SPLITS + splits
    if spots.opened:
        # Differences of sums: what should be zero may be a rounding error below it.
        outputs = [[Term(plan, one)] for one in np.eye(_NUM_OUTCOMES)]
        masses = game.expect(outputs, "punter").clip(0.0)
    for start in range(0, len(rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        b, j, row = hands[part], splits[part], rows[part]
        for node, spot in spots.opened.items():
            for outcome in range(_NUM_OUTCOMES):
                same = np.full((len(row), NUM_SPLITS), outcome)
                answers = questions.ask(spot, _Rows.hidden(b, j, same))
                weighted = answers * masses[b, j, outcome][:, None]
                result.opened[node][:, row * _NUM_OUTCOMES + outcome] = weighted.T
        if not spots.forced:
            continue
        at, triple = np.nonzero(game.triples[b, j] > 0.0)
        counts = game.triples[b[at], j[at], triple]
        outcomes = TRIPLES[triple]
        matters = _MATTERS[triple]
        for node, spot in spots.forced.items():
            answers = np.full(outcomes.shape, 1.0 / NUM_SPLITS)
            answers[matters] = questions.ask(
                spot, _Rows.hidden(b[at][matters], j[at][matters], outcomes[matters])
            )
            _add(result.forced[node], row[at], outcomes, answers * counts[:, None])
    return result


class _Deals(NamedTuple):
    """Deals in which the punter's hand lies open.

    Attributes:
        hands, splits: ``int[N]``, the dealer's.
        shown_hands, shown_splits: ``int[N]``, the punter's.
        weights: ``float64[N]``, what each counts for.
    """

    hands: Integers
    splits: Integers
    shown_hands: Integers
    shown_splits: Integers
    weights: FloatArray

    @property
    def rows(self) -> _Rows:
        """What the dealer sees of them."""
        return _Rows(*self[:4])


def _of_deals(questions: _Questions, spots: _Spots, blocks: Iterator[_Deals]) -> _Opened:
    """Ask a policy about deals as they are, and add up what comes of them."""
    game = questions.game
    result = _Opened(game, spots)
    for deals in blocks:
        outcomes = _outcomes(game, deals)
        rows = deals.shown_hands * NUM_SPLITS + deals.shown_splits
        committed = outcomes[np.arange(len(rows)), deals.splits]
        for node, spot in spots.opened.items():
            weighted = questions.ask(spot, deals.rows) * deals.weights[:, None]
            for call, sums in enumerate(result.opened[node]):
                np.add.at(sums, rows * _NUM_OUTCOMES + committed, weighted[:, call])
        for node, spot in spots.forced.items():
            weighted = questions.ask(spot, deals.rows) * deals.weights[:, None]
            _add(result.forced[node], rows, outcomes, weighted)
    return result


def _add(sums: FloatArray, rows: Integers, outcomes: Integers, weights: FloatArray) -> None:
    """Add weights ``[N, 3]`` of splits to the sums of their outcomes ``[N, 3]``."""
    np.add.at(sums, (rows[:, None] * _NUM_OUTCOMES + outcomes).ravel(), weights.ravel())


def _outcomes(game: HeadsUpGame, deals: _Deals) -> npt.NDArray[np.int8]:
    """Return ``int8[N, 3]``, the outcome of each of the dealer's splits."""
    strengths = game.classes.strengths
    shown = strengths[deals.shown_hands, deals.shown_splits]
    signs = np.sign(strengths[deals.hands] - shown[:, None, :])
    outcomes: npt.NDArray[np.int8] = OUTCOMES[1 + signs[..., 0], 1 + signs[..., 1]]
    return outcomes


def _all_deals(game: HeadsUpGame, plan: FloatArray) -> Iterator[_Deals]:
    """Give every pair of disjoint hands with each of their splits that has a weight."""
    bits = _card_bits(game)
    hands, splits = np.nonzero(plan > 0.0)
    shown_hands, shown_splits = np.nonzero(game.legal)
    step = max(1, 4 * _BLOCK // len(hands))
    for start in range(0, len(shown_hands), step):
        b, j = shown_hands[start : start + step], shown_splits[start : start + step]
        row, column = np.nonzero(bits[hands] & bits[b][:, None] == 0)
        a, i = hands[column], splits[column]
        yield _Deals(a, i, b[row], j[row], plan[a, i])


def _drawn_deals(
    game: HeadsUpGame, split: FloatArray, samples: int, seed: int, half: int
) -> Iterator[_Deals]:
    """Give one half of the samples of dealer's hands for each of the punter's hands and splits."""
    shown_hands, shown_splits = np.nonzero(game.legal)
    number = samples // 2
    weights = _disjoint_total(game, game.legal[:, :1]) / number
    for block, start in enumerate(range(0, len(shown_hands), _BLOCK)):
        part = slice(start, start + _BLOCK)
        # A generator for each block and half, told apart by the last word of the counter.
        counter = np.array([0, 0, block, half], dtype=np.uint64)
        key = np.array([seed % 2**64, 0], dtype=np.uint64)
        rng = np.random.Generator(np.random.Philox(counter=counter, key=key))
        yield _draw(
            rng,
            game,
            split,
            np.repeat(shown_hands[part], number),
            np.repeat(shown_splits[part], number),
            weights,
        )


def _draw(
    rng: np.random.Generator,
    game: HeadsUpGame,
    split: FloatArray,
    shown_hands: Integers,
    shown_splits: Integers,
    weights: FloatArray,
) -> _Deals:
    """Draw a dealer's hand, uniformly from the active ones disjoint from each hand, and its split.

    Of k questions, k hands with one split each say more than k / 3 hands with all three.

    Args:
        rng: the generator.
        game: the game.
        split: ``float64[K, 3]``, the dealer's probabilities of splits.
        shown_hands, shown_splits: ``int[N]``, the punter's.
        weights: ``float64[K]``, what a deal counts for, by the punter's hand.
    """
    table = game.classes.table
    codes = np.array(table.deck.cards)
    place = np.zeros(codes[-1] + 1, dtype=np.intp)
    place[codes] = np.arange(len(codes))
    # Hands are numbered colexicographically: the first so many have only the first so many cards.
    count = comb(len(codes) - HAND_SIZE, HAND_SIZE)
    hands = np.empty(len(shown_hands), dtype=np.int32)
    left = np.arange(len(hands))
    while len(left):
        cards = place[table.cards[rng.integers(count, size=len(left))]]
        # Moved up by one for each card of the punter's that stands in the way.
        for taken in place[table.cards[shown_hands[left]]].T[::-1]:
            cards += cards >= taken[:, None]
        drawn = table.index(codes[cards])
        good = game.active[drawn]
        hands[left[good]] = drawn[good]
        left = left[~good]
    splits = sample_actions(split[hands], table.legal_splits[hands], rng.random(len(hands)))
    return _Deals(hands, splits, shown_hands, shown_splits, weights[shown_hands])


def _check_function(questions: _Questions, spots: _Spots, split: FloatArray) -> None:
    """Refuse a policy that answers the same question differently when it is asked again."""
    rng = np.random.default_rng(0)
    hands = rng.permutation(len(split))[:_TRIALS]
    again = questions.ask_each(spots.dealer_arranges, _Rows(hands))
    # Batches of other sizes may round differently.
    apart = np.abs(again - split[hands]).max()
    if apart > SUM_TOLERANCE:
        raise PolicyError(
            f"policy {questions.name!r}: asked twice about the same hands it gives probabilities"
            f" that differ by {apart:.3g}; what is random or remembers cannot be evaluated exactly:"
            " return the probabilities themselves, or evaluate it by playing"
        )


def _check_promise(questions: _Questions, spots: _Spots, split: FloatArray) -> None:
    """Raise a :class:`PolicyError` if a policy that says ``outcomes_only`` looks at its cards."""
    game = questions.game
    rng = np.random.Generator(np.random.Philox(key=0))
    legal = np.stack(np.nonzero(game.legal))
    rows = legal[:, rng.integers(legal.shape[1], size=_TRIALS)]
    deals = _draw(rng, game, split, rows[0], rows[1], np.ones(game.classes.size))
    outcomes = _outcomes(game, deals)
    committed = np.repeat(outcomes[np.arange(_TRIALS), deals.splits][:, None], NUM_SPLITS, axis=1)
    for spot in (*spots.opened.values(), *spots.forced.values()):
        said = committed if spot.phase is Phase.CALL else outcomes
        seen = questions.ask(spot, deals.rows)
        unseen = questions.ask(spot, _Rows.hidden(deals.shown_hands, deals.shown_splits, said))
        if spot.phase is Phase.REARRANGE:
            # Splits of one outcome are as good as each other.
            kinds = np.eye(_NUM_OUTCOMES)[outcomes]
            seen, unseen = (np.einsum("ns,nso->no", p, kinds) for p in (seen, unseen))
        wrong = np.abs(seen - unseen).max(axis=1) > SUM_TOLERANCE
        if wrong.any():
            row = int(np.argmax(wrong))
            cards = game.classes.table.cards
            mine, shown = (
                " ".join(map(card_text, cards[hand].tolist()))
                for hand in (deals.hands[row], deals.shown_hands[row])
            )
            raise PolicyError(
                f"policy {questions.name!r}, seat {spot.seat}, phase {spot.phase.name} after"
                f" {spot.after[0].name}: it says outcomes_only, but with {mine} (split"
                f" {deals.splits[row]}) against {shown} (split {deals.shown_splits[row]}) it"
                f" answers {seen[row].tolist()}, and {unseen[row].tolist()} if it is shown the"
                " outcomes without its cards; it should not have the attribute"
            )


def _check_strengths(questions: _Questions, spots: _Spots) -> None:
    """Raise a :class:`PolicyError` if a policy that says ``strengths_only`` looks at its cards."""
    game, kinds = questions.game, questions.kinds
    assert kinds is not None, "only asked of policies that say so"
    rng = np.random.Generator(np.random.Philox(key=0))
    hands = rng.integers(game.classes.size, size=_TRIALS)
    # Of each kind the last hand, which tabulating, that takes the first, does not ask about.
    others = np.zeros(kinds.own.max() + 1, dtype=np.intp)
    others[kinds.own[: game.classes.size]] = np.arange(game.classes.size)
    twins = others[kinds.own[hands]]
    for spot in (spots.dealer_arranges, spots.punter_arranges):
        one, other = (questions.ask_each(spot, _Rows(rows)) for rows in (hands, twins))
        wrong = np.abs(one - other).max(axis=1) > SUM_TOLERANCE
        if wrong.any():
            row = int(np.argmax(wrong))
            cards = [
                " ".join(map(card_text, game.classes.table.cards[hand[row]].tolist()))
                for hand in (hands, twins)
            ]
            raise PolicyError(
                f"policy {questions.name!r}, seat {spot.seat}: it says strengths_only, but it"
                f" splits {cards[0]} and {cards[1]}, whose strengths are the same, by"
                f" {one[row].tolist()} and {other[row].tolist()}; it should not have the attribute"
            )


def _disjoint_total(game: HeadsUpGame, counted: npt.NDArray[np.bool_]) -> FloatArray:
    """Return ``float64[K]``: for each hand, the sum over disjoint hands of ``counted[K, n]``."""
    none = np.zeros((game.classes.size, NUM_SPLITS, 0))
    weights = np.zeros((game.classes.size, NUM_SPLITS, 1))
    weights[:, 0, 0] = counted.sum(axis=1)
    return game.sums(none, none, weights, "punter").total[:, 0]


def _card_bits(game: HeadsUpGame) -> npt.NDArray[np.int64]:
    """Return ``int64[K]``, the cards of each hand as bits."""
    cards = game.classes.table.cards[:-1].astype(np.int64)
    bits: npt.NDArray[np.int64] = (np.int64(1) << cards).sum(axis=1)
    return bits


def _whole(name: str, value: object, low: int | None) -> int:
    number = as_integer(value)
    if number is None or (low is not None and number < low):
        bound = "" if low is None else f" of {low} or more"
        raise DealError(f"{name}: expected an integer{bound}, got {value!r}")
    return number
