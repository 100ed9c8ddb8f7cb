"""Every exception that the package raises on purpose.

All derive from :class:`ShuiyuError`, itself a ``ValueError``, so callers can
catch one fault, one family, or everything.
"""

from __future__ import annotations

__all__ = [
    "CardError",
    "CheckpointError",
    "ConfigError",
    "DealError",
    "IllegalActionError",
    "PolicyError",
    "RecordError",
    "RulesError",
    "ShuiyuError",
    "closest",
]

import difflib
from collections.abc import Iterable


class ShuiyuError(ValueError):
    """Base of all errors raised by this package."""


class CardError(ShuiyuError):
    """A card, or the text of one, that the deck does not have."""


class DealError(ShuiyuError):
    """Hands, a dealer or a seed that cannot be dealt."""


class RulesError(ShuiyuError):
    """A rule set, a preset or a table setting that does not exist or is out of range."""


class IllegalActionError(ShuiyuError):
    """An action that the seat to act may not take now."""


class RecordError(ShuiyuError):
    """A hand history that is malformed or does not replay."""


class PolicyError(ShuiyuError):
    """A policy that cannot be found, or that answered with something unusable."""


class CheckpointError(ShuiyuError):
    """A checkpoint that is damaged, or was made for another game."""


class ConfigError(ShuiyuError):
    """A training configuration with an unknown key or an unusable value."""


def closest(name: object, valid: Iterable[str]) -> str:
    """Return ``'; did you mean "x"?'`` for the valid name nearest to ``name``, or ``''``."""
    matches = difflib.get_close_matches(str(name), list(valid), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""
