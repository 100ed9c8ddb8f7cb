"""Evaluation: matches, tournaments, and what can be gained against a policy."""

from __future__ import annotations

from shuiyu_env.evaluation.best_response import Gain, LowerBound, lower_bound
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
    "Gain",
    "LowerBound",
    "MatchResult",
    "Standing",
    "TournamentResult",
    "against_table",
    "lower_bound",
    "match_against",
    "play_match",
    "play_tournament",
]
