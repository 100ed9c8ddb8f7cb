"""What counts as an integer, or as one of some words, wherever a user gives one."""

from __future__ import annotations

__all__ = ["as_integer", "check_choice"]

import operator
from collections.abc import Sequence

from shuiyu_env.core.errors import RulesError, closest


def as_integer(value: object) -> int | None:
    """Return an integer of any kind (NumPy's, say) as an ``int``, else ``None``."""
    if isinstance(value, bool):
        return None
    try:
        return int(operator.index(value))  # type: ignore[arg-type]
    except TypeError:
        return None


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """Return a value that is one of some words.

    Raises:
        RulesError: it is not; the message names the nearest.
    """
    if not isinstance(value, str) or value not in choices:
        raise RulesError(
            f"{name}: expected one of {', '.join(map(repr, choices))}, got"
            f" {value!r}{closest(value, choices)}"
        )
    return value
