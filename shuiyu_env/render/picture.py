"""A table as a picture, drawn by pygame in memory: no display, no font but pygame's own.

Seats sit clockwise, so the left neighbour of a seat is the next seat. The
viewer, or seat 0 when the whole table is drawn, sits at the bottom.
"""

from __future__ import annotations

__all__ = ["PICTURE_SIZE", "check_pygame", "draw_table", "render_rgb", "save_picture"]

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.cards import HAND_SIZE, pretty_card
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import ShuiyuError
from shuiyu_env.core.play import NONE
from shuiyu_env.core.view import View
from shuiyu_env.render.canvas import Canvas, Color, load_pygame
from shuiyu_env.render.words import (
    action_text,
    contest_path,
    group_text,
    groups_of,
    result_text,
    seat_name,
    situation,
    special_text,
    title,
    units_text,
)

#: Width and height of a picture, in pixels.
PICTURE_SIZE = (1280, 800)

_FORMATS = (".png", ".jpg", ".bmp")

_BACKGROUND: Color = (24, 30, 36)
_RIM: Color = (92, 62, 38)
_FELT: Color = (27, 94, 68)
_FELT_LINE: Color = (45, 118, 88)
_PANEL: Color = (20, 46, 40)
_PANEL_LINE: Color = (58, 92, 80)
_TEXT: Color = (240, 240, 232)
_FAINT: Color = (165, 190, 178)
_GOLD: Color = (248, 200, 72)
_CONTEST: Color = (120, 196, 240)
_CARD: Color = (250, 249, 244)
_CARD_DOWN: Color = (206, 212, 206)  # seen by the viewer, face down on the table
_CARD_LINE: Color = (96, 104, 100)
_BACK: Color = (38, 70, 128)
_BACK_LINE: Color = (118, 152, 208)
_RED: Color = (204, 36, 48)
_BLACK: Color = (28, 30, 36)
_WON: Color = (112, 222, 130)
_LOST: Color = (255, 124, 112)
# Declarations, calls and replies, by their place in a contest.
_PILLS: tuple[Color, ...] = ((92, 72, 148), (156, 84, 32), (34, 108, 136))

# Of a panel, before it is scaled.
_PANEL_WIDTH, _PANEL_HEIGHT = 246, 182

# Of the lines of a caption, between the middle and the lower panels.
_CAPTION_HEIGHT = 60


class _Arrangement(NamedTuple):
    """How many panels stand at each side of the table, and how large they are."""

    bottom: int
    left: int
    top: int
    right: int
    scale: float


_ARRANGEMENTS = {
    2: _Arrangement(1, 0, 1, 0, 1.6),
    3: _Arrangement(1, 1, 0, 1, 1.6),
    4: _Arrangement(1, 1, 1, 1, 1.6),
    5: _Arrangement(1, 1, 2, 1, 1.35),
    6: _Arrangement(1, 1, 3, 1, 1.35),
    7: _Arrangement(3, 1, 2, 1, 1.35),
    8: _Arrangement(3, 1, 3, 1, 1.35),
    9: _Arrangement(3, 1, 4, 1, 1.25),
    10: _Arrangement(3, 2, 3, 2, 1.0),
    11: _Arrangement(3, 2, 4, 2, 1.0),
    12: _Arrangement(3, 2, 5, 2, 1.0),
    13: _Arrangement(5, 2, 4, 2, 1.0),
}


def check_pygame() -> None:
    """Make sure that pictures can be drawn.

    Raises:
        ShuiyuError: pygame is not installed.
    """
    load_pygame()


def render_rgb(view: View, caption: str = "") -> npt.NDArray[np.uint8]:
    """Return a view as a picture ``uint8[800, 1280, 3]``, rows first; needs no display.

    Args:
        view: what is drawn.
        caption: a line of the caller's own, in the middle of the table.

    Raises:
        ShuiyuError: pygame is not installed.
    """
    pygame = load_pygame()
    columns = pygame.surfarray.array3d(draw_table(view, caption))
    return np.ascontiguousarray(columns.swapaxes(0, 1))


def save_picture(view: View, path: str | os.PathLike[str], caption: str = "") -> None:
    """Write a view to a picture file, ``.png``, ``.jpg`` or ``.bmp`` by its name.

    Raises:
        ShuiyuError: another ending, or pygame is not installed.
        OSError: the file cannot be written.
    """
    target = Path(path)
    if target.suffix.lower() not in _FORMATS:
        raise ShuiyuError(f"expected a file name ending in {', '.join(_FORMATS)}, got {target}")
    surface = draw_table(view, caption)
    # The ending comes last: pygame takes the format from it.
    partial = target.with_name(f".{target.stem}.partial{target.suffix}")
    try:
        load_pygame().image.save(surface, partial)
        partial.replace(target)
    except load_pygame().error as error:
        raise OSError(f"cannot write {target}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def draw_table(view: View, caption: str = "") -> Any:
    """Return a view as a pygame surface of :data:`PICTURE_SIZE`."""
    canvas = Canvas(PICTURE_SIZE)
    width, height = PICTURE_SIZE
    canvas.fill(_BACKGROUND)
    canvas.box((70, 60, width - 140, height - 120), _RIM, radius=250)
    canvas.box((84, 74, width - 168, height - 148), _FELT, radius=236)
    canvas.box((102, 92, width - 204, height - 184), _FELT_LINE, radius=218, line=2)
    _draw_middle(canvas, view, caption)
    seats = view.table.num_players
    first = view.seat or 0
    for place, (x, y) in enumerate(_places(seats)):
        panel = canvas.part(x, y, _ARRANGEMENTS[seats].scale)
        _draw_panel(panel, view, (first + place) % seats)
    return canvas.finish()


def _places(seats: int) -> list[tuple[float, float]]:
    """Return where each panel's top left corner lies, clockwise from the bottom's middle."""
    width, height = PICTURE_SIZE
    at = _ARRANGEMENTS[seats]
    panel_width, panel_height = _PANEL_WIDTH * at.scale, _PANEL_HEIGHT * at.scale
    margin = 10

    def spread(count: int, size: float, room: float) -> list[float]:
        """Place panels of a size side by side in a room, with equal gaps around them."""
        gap = (room - count * size) / (count + 1)
        return [gap + i * (size + gap) for i in range(count)]

    bottom_y, top_y = height - margin - panel_height, margin
    left_x, right_x = margin, width - margin - panel_width
    bottom = [(x, bottom_y) for x in reversed(spread(at.bottom, panel_width, width))]
    # Side panels keep clear of the corners, where the rows end.
    side_room = height - 2 * (panel_height + margin)
    left = [
        (left_x, top_y + panel_height + y)
        for y in reversed(spread(at.left, panel_height, side_room))
    ]
    top = [(x, top_y) for x in spread(at.top, panel_width, width)]
    right = [(right_x, top_y + panel_height + y) for y in spread(at.right, panel_height, side_room)]
    middle = at.bottom // 2
    return [*bottom[middle:], *left, *top, *right, *bottom[:middle]]


def _draw_middle(canvas: Canvas, view: View, caption: str) -> None:
    x, y = PICTURE_SIZE[0] / 2, PICTURE_SIZE[1] / 2
    scale = _ARRANGEMENTS[view.table.num_players].scale
    room = PICTURE_SIZE[0] - 2 * _PANEL_WIDTH * scale - 60
    canvas.text(title(view), (x, y - 34), 20, _FAINT, at="center", room=room)
    canvas.text(situation(view), (x, y), 32, _TEXT, at="center", room=room)
    size = 20.0
    while len(lines := canvas.wrap(caption, size, room)) * size > _CAPTION_HEIGHT and size > 8:
        size -= 1
    for number, line in enumerate(lines):
        canvas.text(line, (x, y + 36 + 1.1 * size * number), size, _FAINT, at="center", room=room)


def _draw_panel(panel: Canvas, view: View, seat: int) -> None:
    acting, contested = seat == view.to_act, seat == view.contest
    border = _GOLD if acting else _CONTEST if contested else _PANEL_LINE
    panel.box((0, 0, _PANEL_WIDTH, _PANEL_HEIGHT), _PANEL, radius=12)
    panel.box(
        (0, 0, _PANEL_WIDTH, _PANEL_HEIGHT),
        border,
        radius=12,
        line=4 if acting else 3 if contested else 1.5,
    )
    _draw_name(panel, view, seat)
    _draw_hand(panel, view, seat)
    _draw_contest(panel, view, seat)
    if view.phase == Phase.OVER:
        units = view.rewards[seat]
        color = _WON if units > 0 else _LOST if units < 0 else _TEXT
        panel.text(units_text(units), (_PANEL_WIDTH - 14, 163), 30, color, at="right")


def _draw_name(panel: Canvas, view: View, seat: int) -> None:
    x = 14.0
    if seat == view.dealer:
        panel.disc((x + 9, 20), 11, _GOLD)
        panel.text("D", (x + 9, 20), 17, _BLACK, at="center")
        x += 28
    acting = seat == view.to_act
    x += panel.text(seat_name(seat), (x, 20), 20, _GOLD if acting else _TEXT, at="left")
    if seat == view.seat:
        x += panel.text(" (you)", (x, 20), 16, _FAINT, at="left")
    if view.table.stake_actions and view.stakes[seat] != NONE:
        panel.pill(f"stake {view.stakes[seat]}", (x + 10, 20), 14, _GOLD, _BLACK)
    hand = view.hands[seat]
    if view.exposed[seat]:
        panel.text("face up", (_PANEL_WIDTH - 12, 20), 14, _FAINT, at="right")
    elif hand is not None and view.phase != Phase.STAKE:
        panel.text("face down", (_PANEL_WIDTH - 12, 20), 14, _FAINT, at="right")


def _draw_hand(panel: Canvas, view: View, seat: int) -> None:
    """Draw four cards: laid in two groups, or in a row while the split is not seen."""
    card_width, card_height, gap, y = 50, 66, 4, 36
    hand, split = view.hands[seat], view.splits[seat]
    dealt = view.phase != Phase.STAKE
    laid = dealt and hand is not None and split != NONE
    # A hand out of sight lies in its groups too, once its seat must have arranged it.
    between = 16 if laid or view.phase not in (Phase.STAKE, Phase.ARRANGE) else gap
    pair_width = 2 * card_width + gap
    left = (_PANEL_WIDTH - 2 * pair_width - between) / 2
    starts = (left, left + pair_width + between)
    if laid:
        assert hand is not None
        groups = groups_of(view, hand, split)
        cards: list[int | None] = [*groups[0], *groups[1]]
        for start, group in zip(starts, groups, strict=True):
            middle = start + pair_width / 2
            panel.text(group_text(group), (middle, y + card_height + 12), 15, _TEXT, at="center")
        special = special_text(hand)
        if special:
            panel.pill(
                special, (_PANEL_WIDTH / 2, y + card_height + 12), 14, _GOLD, _BLACK, "center"
            )
    else:
        cards = list(hand) if hand is not None and dealt else [None] * HAND_SIZE
    for i, card in enumerate(cards):
        x = starts[i // 2] + (i % 2) * (card_width + gap)
        rect = (x, y, card_width, card_height)
        if not dealt:
            panel.box(rect, _PANEL_LINE, radius=6, line=1.5)
        elif card is None:
            panel.box(rect, _BACK, radius=6)
            panel.box((x + 5, y + 5, card_width - 10, card_height - 10), _BACK_LINE, 4, line=1.5)
            panel.diamond((x + card_width / 2, y + card_height / 2), 11, _BACK_LINE)
        else:
            paper = _CARD if view.exposed[seat] or view.phase == Phase.ARRANGE else _CARD_DOWN
            _draw_card(panel, rect, card, paper)


def _draw_card(
    panel: Canvas, rect: tuple[float, float, float, float], card: int, paper: Color
) -> None:
    x, y, width, height = rect
    panel.box(rect, paper, radius=6)
    panel.box(rect, _CARD_LINE, radius=6, line=1)
    ink = _RED if card & 3 in (0, 2) else _BLACK
    rank = pretty_card(card)[:-1]
    panel.text(rank, (x + 6, y + 18), 30, ink, at="left", room=width - 10)
    suit = (panel.diamond, panel.club, panel.heart, panel.spade)[card & 3]
    suit((x + width - 18, y + height - 19), 13, ink)


def _draw_contest(panel: Canvas, view: View, seat: int) -> None:
    """Draw what has been said in a punter's contest, and how it ended."""
    if seat == view.dealer:
        return
    path = contest_path(view, seat)
    labels = [action_text(action) for action in path]
    size = 15.0
    # Long paths are written smaller.
    while sum(panel.pill_width(label, size) + 6 for label in labels) > _PANEL_WIDTH - 20:
        size -= 0.5
    x = 12.0
    for i, label in enumerate(labels):
        x += panel.pill(label, (x, 137), size, _PILLS[i], _TEXT) + 6
    result = result_text(view, seat)
    dealt, split = view.hands[view.dealer], view.force_splits[seat]
    if dealt is not None and split != NONE:
        laid = " / ".join(group_text(group) for group in groups_of(view, dealt, split))
        panel.text(f"dealer: {laid}", (14, 171), 14, _FAINT, at="left")
        panel.text(result, (14, 157), 16, _TEXT, at="left")
    elif result:
        panel.text(result, (14, 163), 18, _TEXT, at="left")
