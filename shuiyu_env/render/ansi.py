"""A table as text."""

from __future__ import annotations

__all__ = ["render_ansi"]

from shuiyu_env.core.cards import HAND_SIZE, pretty_card
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.hands import Hand
from shuiyu_env.core.play import NONE
from shuiyu_env.core.view import View
from shuiyu_env.render.words import (
    action_text,
    group_text,
    groups_of,
    result_text,
    seat_name,
    situation,
    special_text,
    title,
    units_text,
)

_FACE_DOWN = " ".join(["??"] * HAND_SIZE)
_HEADINGS = ("", "seat", "head / tail", "cards", "stake", "declares", "call", "reply", "result")


def _split_text(view: View, hand: Hand, split: int) -> str:
    return " / ".join(
        f"{' '.join(map(pretty_card, group))} ({group_text(group)})"
        for group in groups_of(view, hand, split)
    )


def _hand_text(view: View, seat: int) -> str:
    if view.phase == Phase.STAKE:
        return "not dealt yet"
    hand, split = view.hands[seat], view.splits[seat]
    if hand is None:
        return _FACE_DOWN
    if split == NONE:
        return " ".join(map(pretty_card, hand))
    special = special_text(hand)
    return f"{_split_text(view, hand, split)}{special and f' {special}'}"


def _row(view: View, seat: int) -> list[str]:
    def said(actions: list[int]) -> str:
        return "" if actions[seat] == NONE else action_text(actions[seat])

    dealing = seat == view.dealer
    return [
        ">" if seat == view.to_act else "",
        seat_name(seat) + (" (dealer)" if dealing else ""),
        _hand_text(view, seat),
        "" if view.splits[seat] == NONE else "face up" if view.exposed[seat] else "face down",
        str(view.stakes[seat]) if view.table.stake_actions and view.stakes[seat] != NONE else "",
        said(view.declarations),
        said(view.calls),
        said(view.replies),
        "" if dealing else result_text(view, seat),
        units_text(view.rewards[seat]) if view.phase == Phase.OVER else "",
    ]


def render_ansi(view: View, caption: str = "") -> str:
    """Return a view as text, one line per seat; no colours, cards as ``A♠``, ``??`` if unseen.

    Args:
        view: what is drawn.
        caption: a line of the caller's own.
    """
    rows = [_row(view, seat) for seat in range(view.table.num_players)]
    columns = [
        [heading, *cells]
        for heading, cells in zip(
            (*_HEADINGS, "units"), map(list, zip(*rows, strict=True)), strict=True
        )
        if any(cells)
    ]
    widths = [max(map(len, column)) for column in columns]
    lines = [title(view), situation(view)]
    if caption:
        lines.append(caption)
    for row in zip(*columns, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells).rstrip())
    dealt = view.hands[view.dealer]
    for punter, split in enumerate(view.force_splits):
        if split != NONE and dealt is not None:
            lines.append(
                f"against {seat_name(punter)} the dealer lays {_split_text(view, dealt, split)}"
            )
    return "\n".join(lines)
