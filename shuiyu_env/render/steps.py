"""A game, step by step, as text."""

from __future__ import annotations

__all__ = ["steps"]

from collections.abc import Iterator

from shuiyu_env.core.game import State
from shuiyu_env.core.view import view_of
from shuiyu_env.render.ansi import render_ansi
from shuiyu_env.render.words import action_text, seat_name


def steps(state: State, seat: int | None = None) -> Iterator[str]:
    """Give a text for the beginning and one for every decision of an episode.

    Args:
        state: the episode so far.
        seat: through whose eyes; ``None`` for all cards open. What others arrange or declare
            face down is told when it is done, not what it was.

    Raises:
        ObserverError: there is no such seat.
    """
    again = state.clone()
    turns = state.history
    for _ in turns:
        again.undo()
    yield render_ansi(again.view(seat))
    for turn in turns:
        before = len(again.finished)
        again.apply(int(turn.action or 0))
        told = again.history[-1] if seat is None else again.observed_history(seat)[-1]
        what = "something face down" if told.action is None else action_text(told.action)
        over = len(again.finished) > before
        view = view_of(again.finished[-1], seat) if over else again.view(seat)
        yield render_ansi(view, f"{seat_name(turn.seat)}: {what}")
        if over and not again.is_terminal:
            yield render_ansi(again.view(seat))
