"""Measuring what a learner has learned: NashConv on the way, matches against a panel."""

from __future__ import annotations

__all__ = ["REFERENCES", "can_compute", "is_due", "match_metrics", "nashconv_metrics"]

from agents.learner import Learner
from shuiyu_env.core.game import Game
from shuiyu_env.evaluation import AgainstRow
from shuiyu_env.exact import nashconv

#: The panel of every match.
REFERENCES = ("uniform", "honest", "cautious", "bluffer")


def can_compute(game: Game) -> bool:
    """Return whether a game has a NashConv that can be computed: heads-up, zero-sum, no stakes."""
    return game.num_players == 2 and game.reward == "transfer" and game.rules.max_stake == 1


def is_due(points: int, iteration: int, iterations: int) -> bool:
    """Return whether to measure after an iteration: the last, or that at a half, a quarter, …

    Args:
        points: how many such iterations there are.
        iteration: iterations done, from 1.
        iterations: iterations in all.
    """
    # Beyond so many halves it is the first iteration again.
    halves = min(points, iterations.bit_length() + 1)
    return iteration in {-(-iterations // 2**k) for k in range(halves)}


def nashconv_metrics(learner: Learner, threads: int | None = None) -> dict[str, dict[str, float]]:
    """Return NashConv, what each role gains, and the value to the punter, by kind of policy.

    Units per deal. Where the dealer's answer to open hands had to be sampled, the name
    ends in ``_low`` and ``_high`` and there are two numbers.
    """
    found = {}
    for kind, policy in learner.policies().items():
        result = nashconv(policy, learner.game.rules, threads=threads, name=kind)
        metrics: dict[str, float] = {}
        for name in ("nashconv", "dealer_gain", "punter_gain", "value"):
            bound = getattr(result, name)
            if bound.low == bound.high:
                metrics[name] = bound.low
            else:
                metrics |= {f"{name}_low": bound.low, f"{name}_high": bound.high}
        found[kind] = metrics
    return found


def match_metrics(rows: list[AgainstRow]) -> dict[str, dict[str, float]]:
    """Return the results of a match by opponent: units per deal to the policy."""
    return {
        row.opponent: {
            "mean": row.result.both.mean,
            "low": row.result.both.low,
            "high": row.result.both.high,
            "dealer": row.result.dealer.mean,
            "punter": row.result.punter.mean,
        }
        for row in rows
    }
