"""What long work shares: a progress bar, and how it is interrupted."""

from __future__ import annotations

__all__ = ["Interrupt", "progress_bar"]

import signal
import sys
from types import FrameType
from typing import Any


class _NoBar:
    """Stands for a progress bar that is not shown."""

    def __enter__(self) -> _NoBar:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, count: int = 1) -> None:
        pass

    def set_postfix_str(self, text: str) -> None:
        pass


def progress_bar(total: int, wanted: bool, **options: Any) -> Any:
    """Return a context manager with tqdm's ``update``; without tqdm it shows nothing.

    Args:
        total: what is to be done.
        wanted: whether to show anything at all.
        **options: tqdm's, such as ``unit``, ``desc``, ``initial``.
    """
    if wanted:
        try:
            from tqdm import tqdm
        except ModuleNotFoundError:
            return _NoBar()
        return tqdm(total=total, **options)
    return _NoBar()


class Interrupt:
    """Turns the first Ctrl-C, or SIGTERM, into a request to stop after the current iteration.

    A second one interrupts at once. Outside the main thread, where signals cannot be
    handled, it does nothing.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupt:
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._previous[number] = signal.signal(number, self._handle)
            except ValueError:  # not the main thread
                break
        return self

    def __exit__(self, *error: object) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        print("\nstopping after this iteration (Ctrl-C again: at once)", file=sys.stderr)
