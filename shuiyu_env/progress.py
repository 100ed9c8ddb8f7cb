"""A progress bar where one is wanted and can be shown."""

from __future__ import annotations

__all__ = ["progress_bar"]

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
