"""Evaluation: matches between policies."""

from __future__ import annotations

from shuiyu_env.evaluation.estimate import Estimate
from shuiyu_env.evaluation.match import (
    AgainstRow,
    EntryResult,
    MatchResult,
    against_table,
    match_against,
    play_match,
)

__all__ = [
    "AgainstRow",
    "EntryResult",
    "Estimate",
    "MatchResult",
    "against_table",
    "match_against",
    "play_match",
]
