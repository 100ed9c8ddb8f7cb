"""What one seat may see of a deal: the one place where hidden things are left out.

Observations, renderings, the last deal in an environment's info and histories
handed to a seat are all made from a :class:`View`, never from the deal itself.
"""

from __future__ import annotations

__all__ = ["View", "view_of"]

from dataclasses import dataclass

from shuiyu_env.core.checks import as_integer
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import DealError
from shuiyu_env.core.hands import Hand
from shuiyu_env.core.play import NONE, Deal, Table

_STAKE, _DECLARE, _OVER = int(Phase.STAKE), int(Phase.DECLARE), int(Phase.OVER)


@dataclass(slots=True)
class View:
    """A deal as one seat sees it, or the whole table.

    Per-seat lists are in absolute seat order and hold -1 (hands: ``None``) for
    what is not there yet or may not be seen.

    Attributes:
        table: the game's shared data (rules, strengths, tree).
        seat: whose view it is; ``None`` for the whole table, all dealt cards open.
        dealer: the dealer's seat.
        phase: an integer of :class:`~shuiyu_env.core.contest.Phase`.
        to_act: the seat to act, -1 when the deal is over.
        contest: the punter whose contest is being decided, or -1.
        hands: the cards of each seat that may be seen, highest first.
        splits: the split of each seat that may be seen.
        exposed: whether a seat's hand and split lie face up for everybody.
        declarations, calls, replies: action ids; calls stand at the punter's seat.
        stakes: units each punter plays for.
        decided: how each punter's contest ended, an integer of
            :class:`~shuiyu_env.core.play.Decided`.
        force_splits: the dealer's split for a forced showdown, by punter.
        outcomes: how each comparison ended, by punter, an integer of
            :class:`~shuiyu_env.core.hands.Outcome`; known when the deal is over.
        rewards: units to each seat; known when the deal is over.
    """

    table: Table
    seat: int | None
    dealer: int
    phase: int
    to_act: int
    contest: int
    hands: list[Hand | None]
    splits: list[int]
    exposed: list[bool]
    declarations: list[int]
    calls: list[int]
    replies: list[int]
    stakes: list[int]
    decided: list[int]
    force_splits: list[int]
    outcomes: list[int]
    rewards: list[float]


def view_of(deal: Deal, seat: int | None) -> View:
    """Return what ``seat`` may see now, or with ``None`` the whole table.

    The view is a snapshot: it does not change when the deal goes on.

    Raises:
        DealError: there is no such seat.
    """
    phase = deal.phase
    exposed = deal.exposed
    # A negative seat would index another's hand.
    if seat is not None and (type(seat) is not int or not 0 <= seat < len(exposed)):
        seat = _checked_seat(seat, len(exposed))
    if seat is None:
        hands: list[Hand | None] = [None] * len(exposed) if phase == _STAKE else list(deal.hands)
        splits = deal.splits[:]
        declarations = deal.declarations[:]
        force_splits = deal.force_splits[:]
    else:
        hands = [None] * len(exposed)
        splits = [NONE] * len(exposed)
        if phase != _STAKE:
            if True in exposed:
                for owner, shown in enumerate(exposed):
                    if shown:
                        hands[owner] = deal.hands[owner]
                        splits[owner] = deal.splits[owner]
            hands[seat] = deal.hands[seat]
            splits[seat] = deal.splits[seat]
        if phase == _DECLARE and not deal.table.declare_in_turn:
            declarations = [NONE] * len(exposed)
            declarations[seat] = deal.declarations[seat]
        else:
            declarations = deal.declarations[:]
        if seat == deal.dealer or phase == _OVER:
            force_splits = deal.force_splits[:]
        else:
            force_splits = [NONE] * len(exposed)
    return View(
        deal.table,
        seat,
        deal.dealer,
        phase,
        deal.seat,
        deal.contest,
        hands,
        splits,
        exposed[:],
        declarations,
        deal.calls[:],
        deal.replies[:],
        deal.stakes[:],
        deal.decided[:],
        force_splits,
        deal.outcomes[:],
        deal.rewards[:],
    )


def _checked_seat(seat: object, num_players: int) -> int:
    number = as_integer(seat)
    if number is not None and 0 <= number < num_players:
        return number
    raise DealError(
        f"seat: expected a seat from 0 to {num_players - 1}, or None for the whole table, got"
        f" {seat!r}"
    )
