"""Reference policies: they need no learning, and read nothing but the observation and the mask.

All but :class:`Uniform` judge their cards by :func:`chances`: how a split does
against a random hand of the full deck. They know neither deck nor tie rule,
and draw no conclusion from what others say. So they play every rule set and
any number of seats; on small decks their judgement is rougher, never illegal.
"""

from __future__ import annotations

__all__ = ["Bluffer", "Cautious", "Chances", "Honest", "Uniform", "chances"]

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.actions import Action
from shuiyu_env.core.cards import HAND_SIZE, Deck
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import PolicyError, ShuiyuError
from shuiyu_env.core.hands import NUM_SPLITS, Outcome
from shuiyu_env.observation import CALLS, infer_layout
from shuiyu_env.policy import check_inputs
from shuiyu_env.tables import hand_table

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

# The observation's `outcomes` are in the order win, push, lose for the hand's owner.
_WIN, _PUSH, _LOSE = range(len(Outcome))

_SPLITS = slice(Action.SPLIT_0, Action.SPLIT_2 + 1)
_DECLARATIONS = slice(Action.OPEN, Action.REQUEST_PUSH + 1)


@dataclass(frozen=True)
class Chances:
    """How every split of every hand of the full deck does against a random hand.

    Fractions of all 270,725 hands, each laid so that its tail is as strong as
    can be; cards in common with one's own are not excluded. Rows are hands by
    the index of :class:`~shuiyu_env.tables.HandTable`; the last is "no hand".

    Attributes:
        win: ``float32[H + 1, 3]``, hands that this split beats in both groups.
        lose: ``float32[H + 1, 3]``, hands that beat it in both groups.
        win_forced: ``float32[H + 1, 3]``, hands that it beats in both groups
            however they are laid.
    """

    win: npt.NDArray[np.float32]
    lose: npt.NDArray[np.float32]
    win_forced: npt.NDArray[np.float32]


@lru_cache(maxsize=1)
def chances() -> Chances:
    """Return the (cached) chances of all hands of the full deck; made in about a second."""
    table = hand_table(Deck(), "card")
    strengths = table.strengths[:-1].astype(np.intp)
    tails, heads = strengths[..., 0], strengths[..., 1]
    size = table.max_strength + 1
    rows = np.arange(table.num_hands)
    best = np.argmax(tails * size + heads, axis=1)

    def below(tail: npt.NDArray[np.intp], head: npt.NDArray[np.intp]) -> FloatArray:
        """Return ``[t, h]``: the fraction of hands with a tail under t and a head under h."""
        counts = np.zeros((size + 1, size + 1))
        np.add.at(counts, (tail + 1, head + 1), 1.0 / table.num_hands)
        return counts.cumsum(axis=0).cumsum(axis=1)

    def lookup(grid: FloatArray, flip: bool = False) -> npt.NDArray[np.float32]:
        t, h = (size - 1 - tails, size - 1 - heads) if flip else (tails, heads)
        result = np.concatenate([grid[t, h], np.zeros((1, NUM_SPLITS))]).astype(np.float32)
        result.flags.writeable = False  # shared by all policies
        return result

    tail, head = tails[rows, best], heads[rows, best]
    return Chances(
        win=lookup(below(tail, head)),
        # Hands above are hands below with the order turned round.
        lose=lookup(below(size - 1 - tail, size - 1 - head), flip=True),
        win_forced=lookup(below(tails.max(axis=1), heads.max(axis=1))),
    )


@dataclass(frozen=True)
class Judgement:
    """What the cards say, row by row.

    Attributes:
        win_splits, lose_splits: ``float[B, 3]``, chances of each split.
        win, lose, win_forced: ``float[B]``, chances of the committed split.
        rearranged: ``int[B, 3]``, result of each split against the hand whose
            contest is being decided (0 win, 1 push, 2 lose); of no meaning
            unless that hand is exposed to its dealer.
        outcome: ``int[B]``, that of the committed split.
        rearranging: ``bool[B]``, whether a forced showdown is being arranged.
        last_call: ``int[B]``, the dealer's call in one's own contest (an action
            id; of no meaning where there is none).
    """

    win_splits: FloatArray
    lose_splits: FloatArray
    win: FloatArray
    lose: FloatArray
    win_forced: FloatArray
    rearranged: npt.NDArray[np.intp]
    outcome: npt.NDArray[np.intp]
    rearranging: BoolArray
    last_call: npt.NDArray[np.intp]


def _judge(observation: npt.NDArray[np.float32], num_actions: int) -> Judgement:
    try:
        layout = infer_layout(observation.shape[-1], num_actions)
    except ShuiyuError as error:
        raise PolicyError(str(error)) from None
    fields = layout.views(observation)
    rows = np.arange(len(observation))
    dealt = fields["hand"].any(axis=1)
    cards = np.nonzero(fields["hand"][dealt])[1].reshape(-1, HAND_SIZE)[:, ::-1]
    hand = np.full(len(observation), -1)
    hand[dealt] = hand_table(Deck(), "card").index(cards)
    split = fields["split"].argmax(axis=1)
    contested = fields["seats.contested"][..., 0].argmax(axis=1)
    rearranged = fields["seats.outcomes"][rows, contested].argmax(axis=-1)
    table = chances()
    return Judgement(
        win_splits=table.win[hand].astype(np.float64),
        lose_splits=table.lose[hand].astype(np.float64),
        win=table.win[hand, split].astype(np.float64),
        lose=table.lose[hand, split].astype(np.float64),
        win_forced=table.win_forced[hand, split].astype(np.float64),
        rearranged=rearranged,
        outcome=rearranged[rows, split],
        rearranging=fields["phase"][:, Phase.REARRANGE] > 0.0,
        last_call=fields["seats.call"][:, 0].argmax(axis=1) + CALLS[0],
    )


def _best(scores: FloatArray, legal: BoolArray) -> FloatArray:
    """Return probability 1 on the legal action with the best score, the first of equals."""
    choice = np.where(legal, scores, -np.inf).argmax(axis=1)
    result = np.zeros(legal.shape)
    result[np.arange(len(legal)), choice] = 1.0
    return result


class Uniform:
    """Plays every legal action with the same probability, in every phase."""

    #: It looks at nothing but the mask; see :class:`~shuiyu_env.policy.Policy`.
    outcomes_only: bool = True

    def probabilities(
        self, observation: npt.NDArray[np.float32], action_mask: npt.NDArray[Any]
    ) -> FloatArray:
        """Return the probabilities ``float64[B, A]``; see :class:`Policy`."""
        _, legal = check_inputs(observation, action_mask)
        result: FloatArray = legal / legal.sum(axis=1, keepdims=True)
        return result


# Scores of OPEN, COVER, FORCE, ATTACK, REQUEST_PUSH by what is to be claimed: the best that the
# rules allow is taken.
_PREFER_FORCE = np.array([0, 2, 4, 3, 1])
_PREFER_ATTACK = np.array([1, 3, 0, 4, 2])
_PREFER_COVER = np.array([1, 4, 0, 3, 2])
_PREFER_PUSH = np.array([3, 2, 0, 1, 4])
_PREFER_OPEN = np.array([4, 2, 0, 1, 3])


class Honest:
    """Says what its cards say, and contradicts what they say is false.

    Deterministic. A statement counts as true if its probability by
    :func:`chances` is at least ``confidence``. "Wins", "loses" mean both groups.

    * Stake: the smallest.
    * Arrange: the split with the greatest chance to win less chance to lose.
    * Declare: ``FORCE`` if it wins with probability 5/6 however the dealer
      arranges (then worth the 2 units that no other declaration exceeds);
      ``ATTACK`` if it wins with probability 3/4 and ``confidence``; ``COVER``
      if it wins; ``REQUEST_PUSH`` if it rather does not lose (1/2); else
      ``OPEN``. Where the rules lack one, the nearest of the others.
    * Call on ``OPEN``, where the result is known: ``KILL`` if it wins; if it
      loses, ``SURRENDER`` where the rules have it; else ``PUSH``.
    * Call on ``COVER`` and ``ATTACK``: ``LOOK``, ``ACCEPT`` (else ``DEMAND``) if
      the claim is false: if it does not lose. Otherwise ``FOLD``, ``DECLINE``.
    * Call on ``REQUEST_PUSH``: ``REFUSE`` if it wins, else ``GRANT``.
    * Reply: ``DOUBT`` a ``KILL`` if it does not lose, a ``PUSH`` if it wins;
      ``CONTEST`` a ``DEMAND`` if it wins, a ``REFUSE`` if it does not lose;
      otherwise ``BELIEVE``, ``PAY``, ``CONCEDE``.
    * Rearrange: a split that wins, else one that pushes.

    Args:
        confidence: how sure it must be, 0 to 1.

    Raises:
        PolicyError: a confidence out of range.
    """

    #: A call on an opened hand and a rearrangement follow the outcomes alone; see
    #: :class:`~shuiyu_env.policy.Policy`. A subclass that looks further says ``False``.
    outcomes_only: bool = True

    def __init__(self, confidence: float = 0.5) -> None:
        self.confidence = _fraction("confidence", confidence)

    def probabilities(
        self, observation: npt.NDArray[np.float32], action_mask: npt.NDArray[Any]
    ) -> FloatArray:
        """Return the probabilities ``float64[B, A]``; see :class:`Policy`."""
        observation, legal = check_inputs(observation, action_mask)
        return _best(self._scores(_judge(observation, legal.shape[1]), legal.shape[1]), legal)

    def _arrangement(self, cards: Judgement) -> FloatArray:
        """Return ``float[B, 3]``, how good each split is before anything is known."""
        return cards.win_splits - cards.lose_splits

    def _scores(self, cards: Judgement, num_actions: int) -> FloatArray:
        """Return ``float[B, A]``; scores compare only actions of one decision."""
        wins = cards.win >= self.confidence
        holds = 1.0 - cards.lose >= self.confidence
        scores = np.zeros((len(wins), num_actions))
        scores[:, Action.STAKE_1 :] = -np.arange(num_actions - Action.STAKE_1)
        scores[:, _SPLITS] = np.where(
            cards.rearranging[:, None], -cards.rearranged, self._arrangement(cards)
        )
        scores[:, _DECLARATIONS] = np.select(
            [
                condition[:, None]
                for condition in (
                    wins & (cards.win_forced >= 5 / 6),
                    wins & (cards.win >= 3 / 4),
                    wins,
                    cards.lose <= 1 / 2,
                )
            ],
            [_PREFER_FORCE, _PREFER_ATTACK, _PREFER_COVER, _PREFER_PUSH],
            _PREFER_OPEN,
        )
        scores[:, Action.KILL] = np.where(cards.outcome == _WIN, 1.0, -1.0)
        scores[:, Action.SURRENDER] = np.where(cards.outcome == _LOSE, 1.0, -1.0)

        def contradict(action: Action, when: BoolArray, eagerness: float = 1.0) -> None:
            # The action that agrees, or gives way, scores 0.
            scores[:, action] = np.where(when, eagerness, -eagerness)

        contradict(Action.LOOK, holds)
        contradict(Action.ACCEPT, holds, 2.0)
        contradict(Action.DEMAND, holds)
        contradict(Action.REFUSE, wins)
        contradict(Action.DOUBT, np.where(cards.last_call == Action.KILL, holds, wins))
        contradict(Action.CONTEST, np.where(cards.last_call == Action.REFUSE, holds, wins))
        return scores


class Cautious(Honest):
    """Honest, but gives little away: risks nothing unless it is nearly sure.

    As :class:`Honest` with ``confidence`` 0.9 instead of 0.5, so it claims and
    contradicts seldom, and folds, believes, pays, concedes, opens or requests
    a push otherwise. It arranges for the smallest chance to lose both groups.
    """

    def __init__(self, confidence: float = 0.9) -> None:
        super().__init__(confidence)

    def _arrangement(self, cards: Judgement) -> FloatArray:
        return -cards.lose_splits


class Bluffer(Honest):
    """Honest, but with a fixed probability claims what its cards do not say.

    Plays as :class:`Honest`, except that, independently at each of these
    decisions, it makes a false claim with probability ``rate``:

    * Declare, where it is not honest to claim a win: ``COVER`` or ``ATTACK``,
      with equal probability where the rules have both; with neither, and if
      it would open, ``REQUEST_PUSH``.
    * Call on ``OPEN``, where the result is no win: ``KILL``.
    * Call on ``ATTACK``, where it would decline: ``DEMAND``.
    * Call on ``REQUEST_PUSH``, where it would grant: ``REFUSE``.

    It never bluffs where a comparison follows at once (``FORCE``, ``LOOK``, ``ACCEPT``, replies).

    Args:
        rate: probability of a bluff where one is possible, 0 to 1; by default 1/4.
        confidence: see :class:`Honest`.

    Raises:
        PolicyError: a number out of range.
    """

    def __init__(self, rate: float = 0.25, confidence: float = 0.5) -> None:
        super().__init__(confidence)
        self.rate = _fraction("rate", rate)

    def probabilities(
        self, observation: npt.NDArray[np.float32], action_mask: npt.NDArray[Any]
    ) -> FloatArray:
        """Return the probabilities ``float64[B, A]``; see :class:`Policy`."""
        observation, legal = check_inputs(observation, action_mask)
        cards = _judge(observation, legal.shape[1])
        scores = self._scores(cards, legal.shape[1])
        honest = _best(scores, legal)
        bluffs = np.zeros(legal.shape, dtype=np.bool_)
        no_win = cards.win < self.confidence
        bluffs[:, [Action.COVER, Action.ATTACK]] = no_win[:, None]
        bluffs[:, Action.KILL] = cards.outcome != _WIN
        bluffs[:, Action.DEMAND] = honest[:, Action.DECLINE] > 0.0
        bluffs[:, Action.REFUSE] = honest[:, Action.GRANT] > 0.0
        bluffs &= legal
        bluffs[:, Action.REQUEST_PUSH] = (honest[:, Action.OPEN] > 0.0) & ~bluffs.any(axis=1)
        bluffs &= legal
        count = bluffs.sum(axis=1, keepdims=True)
        rate = np.where(count > 0, self.rate, 0.0)
        result: FloatArray = (1.0 - rate) * honest + rate * bluffs / np.maximum(count, 1)
        return result


def _fraction(name: str, value: float) -> float:
    # np.floating: single precision is no float.
    numbers = (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, numbers) or not 0.0 <= value <= 1.0:
        raise PolicyError(f"{name}: expected a number from 0 to 1, got {value!r}")
    return float(value)
