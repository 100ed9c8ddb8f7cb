"""What is said of a table in words: shared by the text and the picture."""

from __future__ import annotations

__all__ = [
    "action_text",
    "contest_path",
    "group_text",
    "groups_of",
    "result_text",
    "seat_name",
    "situation",
    "special_text",
    "title",
    "units_text",
]

from shuiyu_env.core.actions import Action
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.hands import Hand, Outcome, Special, group_points, special_of, split_groups
from shuiyu_env.core.play import NONE, Decided
from shuiyu_env.core.view import View

Group = tuple[int, int]

_OUTCOMES = {
    Outcome.DEALER_WINS: "dealer wins",
    Outcome.PUSH: "push",
    Outcome.PUNTER_WINS: "punter wins",
}
_SPECIALS = {Special.NONE: "", Special.SHUIYU: "Shuiyu", Special.SUPREME: "Supreme"}


def seat_name(seat: int) -> str:
    """Return the name of a seat's agent, ``"player_0"``."""
    return f"player_{seat}"


def action_text(action: int) -> str:
    """Return an action's name as people read it: ``"REQUEST PUSH"``."""
    return Action(action).name.replace("_", " ")


def units_text(units: float) -> str:
    """Return won or lost units with their sign: ``"+2"``, ``"-0.5"``, ``"0"``."""
    return f"{units:+g}" if units else "0"


def title(view: View) -> str:
    """Return whose table this is: rules, seats, and through whose eyes it is seen."""
    rules = view.table.rules.name or "own rules"
    eyes = "whole table" if view.seat is None else f"seen by {seat_name(view.seat)}"
    return f"Shuiyu ({rules}), {view.table.num_players} seats, {eyes}"


def situation(view: View) -> str:
    """Return what is being decided, and by whom."""
    if view.phase == Phase.OVER:
        return "The deal is settled"
    if view.to_act == NONE:
        return "The deal is cancelled"
    actor = seat_name(view.to_act)
    what = {
        Phase.STAKE: f"{actor} picks a stake",
        Phase.ARRANGE: f"{actor} arranges the hand",
        Phase.DECLARE: f"{actor} declares",
        Phase.REPLY: f"{actor} replies to the dealer",
    }
    if view.phase in what:
        return what[Phase(view.phase)]
    punter = seat_name(view.contest)
    if view.phase == Phase.CALL:
        return f"{actor} calls, against {punter}"
    return f"{actor} rearranges, against {punter}"


def groups_of(view: View, hand: Hand, split: int) -> tuple[Group, Group]:
    """Return the head and the tail of a split."""
    first, second = split_groups(hand, split)
    strength = view.table.ranking.group
    return (second, first) if strength(second) > strength(first) else (first, second)


def group_text(group: Group) -> str:
    """Return what a group counts: ``"pair"``, ``"7 points"``."""
    points = group_points(group)
    if points is None:
        return "pair"
    return f"{points} point" if points == 1 else f"{points} points"


def special_text(hand: Hand) -> str:
    """Return ``"Shuiyu"``, ``"Supreme"``, or nothing."""
    return _SPECIALS[special_of(hand)]


def contest_path(view: View, punter: int) -> list[int]:
    """Return what has been said in a contest: declaration, call, reply, as far as they are seen."""
    said = (view.declarations[punter], view.calls[punter], view.replies[punter])
    return [action for action in said if action != NONE]


def result_text(view: View, punter: int) -> str:
    """Return how a contest ended, as far as it has: ``"push"``, ``"agreed"``, ``"by special"``."""
    decided = view.decided[punter]
    if decided == Decided.NOT_YET:
        return ""
    outcome = view.outcomes[punter]
    if decided == Decided.AGREED:
        return "agreed"
    how = "by special" if decided == Decided.BY_SPECIAL else "to be compared"
    if outcome == NONE:
        return how
    result = _OUTCOMES[Outcome(outcome)]
    return f"{result} by special" if decided == Decided.BY_SPECIAL else result
