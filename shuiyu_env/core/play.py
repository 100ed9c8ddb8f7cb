"""One deal, phase by phase (rules, section "A deal, phase by phase").

Only the flow of the phases is written here. What may be done, what it shows
and what it pays is read from the compiled :class:`ContestTree`.
"""

from __future__ import annotations

__all__ = ["NONE", "Deal", "Decided", "RewardMode", "Table", "illegal_action"]

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Literal

from shuiyu_env.core.actions import Action
from shuiyu_env.core.checks import as_integer
from shuiyu_env.core.contest import Phase, compile_tree
from shuiyu_env.core.errors import IllegalActionError
from shuiyu_env.core.hands import Hand, compare, legal_splits, ranking, special_of
from shuiyu_env.core.rules import RuleSet

RewardMode = Literal["transfer", "drinks"]

#: Stands for "none yet" in all per-seat lists of small integers.
NONE = -1

# Plain integers: comparing members of an IntEnum costs more than the rest of a step.
_STAKE, _ARRANGE, _DECLARE, _CALL, _REPLY, _REARRANGE, _OVER = map(int, Phase)


class Decided(IntEnum):
    """How a contest came to its end."""

    NOT_YET = 0
    BY_SPECIAL = 1
    AGREED = 2
    COMPARED = 3


_BY_SPECIAL, _AGREED, _COMPARED = map(int, list(Decided)[1:])


class Table:
    """What all deals of a game share: the rules, compiled for a number of seats."""

    __slots__ = (
        "actions",
        "by_dealer",
        "declare_in_turn",
        "next_node",
        "nodes",
        "num_players",
        "phases",
        "punters",
        "ranking",
        "reward",
        "rules",
        "seat_order",
        "specials_declared",
        "stake_actions",
        "tree",
    )

    def __init__(self, num_players: int, rules: RuleSet, reward: RewardMode) -> None:
        self.num_players = num_players
        self.rules = rules
        self.reward = reward
        self.tree = compile_tree(rules)
        self.nodes = self.tree.nodes
        self.phases = [int(node.phase) for node in self.nodes]
        self.by_dealer = [node.phase.by_dealer for node in self.nodes]
        self.actions = [tuple(map(int, node.children)) for node in self.nodes]
        self.next_node = [
            {int(action): child for action, child in node.children.items()} for node in self.nodes
        ]
        self.ranking = ranking(rules.deck, rules.tie_break)
        self.declare_in_turn = rules.declare == "in_turn"
        self.specials_declared = rules.specials == "declared"
        self.stake_actions = tuple(
            range(Action.STAKE_1, Action.STAKE_1 + rules.max_stake) if rules.max_stake > 1 else ()
        )
        #: By dealer: all seats from the dealer on, and the punters in seat order.
        self.seat_order = [
            tuple((dealer + i) % num_players for i in range(num_players))
            for dealer in range(num_players)
        ]
        self.punters = [order[1:] for order in self.seat_order]

    # Compiled again where it is unpickled: small, and never out of step with the code.
    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (self.num_players, self.rules, self.reward)


class Deal:
    """One deal in progress: everything, open. What one seat may see is :func:`view_of`'s business.

    Per-seat lists are in absolute seat order and hold ``NONE`` (-1) where there
    is nothing yet. Treat all attributes as read-only; :meth:`apply` changes them.

    Attributes:
        dealer: the dealer's seat.
        hands: each seat's cards, highest first; dealt, in the game's sense, once
            ``phase`` has passed ``STAKE``.
        phase: what is decided next, as an integer of :class:`Phase`.
        seat: the seat to act, ``NONE`` when the deal is over.
        contest: the punter whose contest is being decided, or ``NONE``.
        legal: legal action ids of the seat to act, ascending.
        stakes, splits, declarations, calls, replies: what each seat chose, as
            units, split numbers and action ids. Calls stand at the punter's seat.
        force_splits: the dealer's split for each forced showdown, by punter.
        decided: :class:`Decided` of each punter's contest.
        exposed: whether a seat's hand and split lie face up.
        outcomes: :class:`Outcome` of each comparison, by punter, once over.
        rewards: units to each seat, once over.
        actions, seats: what was done so far, and by whom.
    """

    __slots__ = (
        "_node",
        "_pos",
        "_queue",
        "actions",
        "calls",
        "contest",
        "dealer",
        "decided",
        "declarations",
        "exposed",
        "force_splits",
        "hands",
        "legal",
        "outcomes",
        "phase",
        "replies",
        "rewards",
        "seat",
        "seats",
        "splits",
        "stakes",
        "table",
    )

    def __init__(self, table: Table, hands: Sequence[Hand], dealer: int) -> None:
        self.table = table
        self.hands = tuple(hands)
        self.dealer = dealer
        self._begin()

    def _begin(self) -> None:
        table = self.table
        blank = [NONE] * table.num_players
        self.actions: list[int] = []
        self.seats: list[int] = []
        self.splits = blank[:]
        self.declarations = blank[:]
        self.calls = blank[:]
        self.replies = blank[:]
        self.force_splits = blank[:]
        self.outcomes = blank[:]
        self._node = [0] * table.num_players
        self.decided = [0] * table.num_players
        self.exposed = [False] * table.num_players
        self.rewards = [0.0] * table.num_players
        self.contest = NONE
        self._pos = 0
        if table.stake_actions:
            self.stakes = blank
            self.phase = _STAKE
            self._queue: Sequence[int] = table.punters[self.dealer]
            self.seat = self._queue[0]
            self.legal: tuple[int, ...] = table.stake_actions
        else:
            self.stakes = [1] * table.num_players
            self.stakes[self.dealer] = NONE
            self._begin_arranging()

    @property
    def is_over(self) -> bool:
        """Whether the deal is settled."""
        return self.phase == _OVER

    def apply(self, action: int) -> None:
        """Take an action for the seat to act.

        Raises:
            IllegalActionError: it is not legal now; nothing has changed.
        """
        if type(action) is not int:
            action = self._as_int(action)
        if action not in self.legal:
            raise illegal_action(action, self.seat, Phase(self.phase), self.legal)
        seat = self.seat
        self.actions.append(action)
        self.seats.append(seat)
        phase = self.phase
        if phase == _ARRANGE:
            self.splits[seat] = action
            self._pos += 1
            if self._pos < len(self._queue):
                self.seat = seat = self._queue[self._pos]
                self.legal = legal_splits(self.hands[seat])
            else:
                self._settle_specials()
        elif phase == _DECLARE:
            self.declarations[seat] = action
            self._node[seat] = self.table.next_node[0][action]
            if self.table.declare_in_turn:
                self.exposed[seat] = action in self.table.tree.exposes
            self._pos += 1
            if self._pos < len(self._queue):
                self.seat = self._queue[self._pos]
            else:
                self._begin_contests()
        elif phase == _STAKE:
            self.stakes[seat] = action - Action.STAKE_1 + 1
            self._pos += 1
            if self._pos < len(self._queue):
                self.seat = self._queue[self._pos]
            else:
                self._begin_arranging()
        else:
            punter = self.contest
            if phase == _CALL:
                self.calls[punter] = action
            elif phase == _REPLY:
                self.replies[punter] = action
            else:
                self.force_splits[punter] = action
            node = self.table.next_node[self._node[punter]][action]
            self._node[punter] = node
            if self.table.phases[node] == _OVER:
                self.decided[punter] = _COMPARED if self.table.nodes[node].compares else _AGREED
                self._pos += 1
                self._next_contest()
            else:
                self._turn_to(punter, node)

    def _begin_arranging(self) -> None:
        self.phase = _ARRANGE
        self._pos = 0
        self._queue = self.table.seat_order[self.dealer]
        self.seat = self.dealer
        self.legal = legal_splits(self.hands[self.dealer])

    def _settle_specials(self) -> None:
        punters: Sequence[int] = self.table.punters[self.dealer]
        if self.table.specials_declared:
            specials = [special_of(hand) for hand in self.hands]
            if any(specials):
                payoffs = self.table.tree.special_payoffs[specials[self.dealer]]
                for punter in punters:
                    if payoffs[specials[punter]] is not None:
                        self.decided[punter] = _BY_SPECIAL
                        self.exposed[punter] = bool(specials[punter])
                self.exposed[self.dealer] = bool(specials[self.dealer])
                punters = [punter for punter in punters if not self.decided[punter]]
        if not punters:
            self._settle()
            return
        self.phase = _DECLARE
        self._queue = punters
        self._pos = 0
        self.seat = punters[0]
        self.legal = self.table.actions[0]

    def _begin_contests(self) -> None:
        tree = self.table.tree
        declarations = self.declarations
        for punter in self._queue:
            self.exposed[punter] = declarations[punter] in tree.exposes
        if len(self._queue) > 1:
            # Sorting is stable, so seat order stands within each declaration.
            order = tree.order
            self._queue = sorted(self._queue, key=lambda punter: order[declarations[punter]])  # type: ignore[index]
        self._pos = 0
        self._next_contest()

    def _next_contest(self) -> None:
        if self._pos == len(self._queue):
            self._settle()
            return
        self.contest = punter = self._queue[self._pos]
        self._turn_to(punter, self._node[punter])

    def _turn_to(self, punter: int, node: int) -> None:
        self.phase = phase = self.table.phases[node]
        self.seat = self.dealer if self.table.by_dealer[node] else punter
        if phase == _REARRANGE:
            self.legal = legal_splits(self.hands[self.dealer])
        else:
            self.legal = self.table.actions[node]

    def _settle(self) -> None:
        """Reveal what is to be revealed and pay everything."""
        table, dealer, hands = self.table, self.dealer, self.hands
        strengths = table.ranking.strengths
        committed = None
        self.phase = _OVER
        self.seat = self.contest = NONE
        self.legal = ()
        for punter in table.punters[dealer]:
            by_special = self.decided[punter] == _BY_SPECIAL
            leaf = table.nodes[self._node[punter]]
            if not by_special and not leaf.compares:
                units = leaf.payoffs[0]  # type: ignore[index]
            else:
                force_split = self.force_splits[punter]
                if force_split != NONE:
                    dealt = strengths(hands[dealer], force_split)
                else:
                    if committed is None:
                        committed = strengths(hands[dealer], self.splits[dealer])
                    dealt = committed
                outcome = compare(dealt, strengths(hands[punter], self.splits[punter]))
                self.outcomes[punter] = int(outcome)
                held = special_of(hands[dealer])
                payoffs = leaf.payoffs
                if by_special:
                    payoffs = table.tree.special_payoffs[held][special_of(hands[punter])]
                else:
                    self.exposed[punter] = self.exposed[dealer] = True
                units = payoffs.of(outcome, held)  # type: ignore[union-attr]
            units *= self.stakes[punter]
            # Adding keeps a reward of zero at +0.0.
            if table.reward == "transfer":
                self.rewards[punter] += units
                self.rewards[dealer] -= units
            elif units < 0:
                self.rewards[punter] += units
            else:
                self.rewards[dealer] -= units

    def undo(self) -> None:
        """Take the last action back.

        Raises:
            IndexError: there is none.
        """
        if not self.actions:
            raise IndexError("undo: no action has been taken in this deal")
        actions = self.actions[:-1]
        # A deal is short: playing it again is simpler, and surer, than a log of changes.
        self._begin()
        for action in actions:
            self.apply(action)

    def clone(self) -> Deal:
        """Return an independent copy."""
        copy: Deal = object.__new__(Deal)
        for name in _SHARED:
            setattr(copy, name, getattr(self, name))
        for name in _COPIED:
            setattr(copy, name, getattr(self, name)[:])
        return copy

    __copy__ = clone

    def __deepcopy__(self, memo: dict[int, Any]) -> Deal:
        return self.clone()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Deal):
            return NotImplemented
        return (
            self.hands == other.hands
            and self.dealer == other.dealer
            and self.actions == other.actions
            and self.table.rules == other.table.rules
            and self.table.reward == other.table.reward
        )

    __hash__ = None  # type: ignore[assignment]

    @staticmethod
    def _as_int(action: object) -> int:
        number = as_integer(action)
        if number is None:
            raise IllegalActionError(f"expected an action id (an integer), got {action!r}")
        return number


def illegal_action(
    action: int, seat: int, phase: Phase, legal: Sequence[int]
) -> IllegalActionError:
    """Return the error for an action that is not legal."""
    if phase == Phase.OVER:
        return IllegalActionError(f"the deal is over: no action is legal, got {action}")
    got = Action(action).name if action in list(Action) else "no action"
    names = ", ".join(f"{Action(a).name} ({a})" for a in legal)
    return IllegalActionError(
        f"illegal action {action} ({got}) for seat {seat} in phase {phase.name}; legal: {names}"
    )


_COPIED = (
    "actions",
    "calls",
    "decided",
    "declarations",
    "exposed",
    "force_splits",
    "outcomes",
    "replies",
    "rewards",
    "seats",
    "splits",
    "stakes",
    "_node",
)
_SHARED = tuple(name for name in Deal.__slots__ if name not in _COPIED)
