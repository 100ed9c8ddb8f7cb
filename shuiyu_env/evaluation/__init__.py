"""Evaluation: matches between policies, and tournaments of them."""

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
from shuiyu_env.evaluation.tournament import Cell, Standing, TournamentResult, play_tournament

__all__ = [
    "AgainstRow",
    "Cell",
    "EntryResult",
    "Estimate",
    "MatchResult",
    "Standing",
    "TournamentResult",
    "against_table",
    "match_against",
    "play_match",
    "play_tournament",
]
