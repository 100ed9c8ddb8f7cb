"""Best responses and NashConv: how much each side could gain against a policy.

Units are units per deal, over all deals, specials included. NashConv is the sum of
what both roles could gain by a best response while the other stays (Lanctot et al.
2017); exploitability is half of it. A best response is computed over all information
sets at once; where the dealer's answers to open hands were only sampled, the result
is an interval.
"""

from __future__ import annotations

__all__ = [
    "Bound",
    "NashConv",
    "dealer_best_response",
    "expected_value",
    "expected_values",
    "nashconv",
    "punter_best_response",
]

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.errors import RulesError, ShuiyuError
from shuiyu_env.core.rules import RuleSet, resolve_rules
from shuiyu_env.exact.heads_up import (
    HeadsUpGame,
    PolicyTables,
    PunterTables,
    PunterValues,
    rules_key,
)
from shuiyu_env.exact.tabulation import tabulate
from shuiyu_env.policy import Policy

FloatArray = npt.NDArray[np.floating[Any]]

#: Of intervals, where something was sampled.
CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class Bound:
    """A number that is known exactly, or lies in an interval.

    Exact ones (``low == high``) behave as numbers; an interval has no single value, and
    says so where one is asked for.

    Attributes:
        low, high: its ends.
        confidence: that the interval holds the number; 1 where it is exact.
    """

    low: float
    high: float
    confidence: float = 1.0

    @property
    def exact(self) -> bool:
        """Whether both ends are the same."""
        return self.low == self.high

    def __float__(self) -> float:
        if not self.exact:
            raise ShuiyuError(
                f"expected an exact number, got the interval {self}: use .low, .high or .middle"
            )
        return self.low

    @property
    def middle(self) -> float:
        """The middle of the interval."""
        return (self.low + self.high) / 2

    def __str__(self) -> str:
        if self.exact:
            return f"{self.low:+.6f}"
        return f"{self.low:+.6f} to {self.high:+.6f} ({self.confidence:.0%})"

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)

    def __bool__(self) -> bool:
        return bool(float(self))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Bound):
            return (self.low, self.high) == (other.low, other.high)
        return self.exact and self.low == other

    def __hash__(self) -> int:
        return hash(self.low if self.exact else (self.low, self.high))

    def __add__(self, other: Any) -> float:
        return float(self) + float(other)

    def __sub__(self, other: Any) -> float:
        return float(self) - float(other)

    def __rsub__(self, other: Any) -> float:
        return float(other) - float(self)

    def __mul__(self, other: Any) -> float:
        return float(self) * float(other)

    def __truediv__(self, other: Any) -> float:
        return float(self) / float(other)

    def __rtruediv__(self, other: Any) -> float:
        return float(other) / float(self)

    def __pow__(self, other: Any) -> Any:
        return float(self) ** float(other)

    def __round__(self, digits: int | None = None) -> Any:
        return round(float(self), digits)

    def __neg__(self) -> float:
        return -float(self)

    def __pos__(self) -> float:
        return float(self)

    def __abs__(self) -> float:
        return abs(float(self))

    def __lt__(self, other: Any) -> bool:
        return float(self) < float(other)

    def __le__(self, other: Any) -> bool:
        return float(self) <= float(other)

    def __gt__(self, other: Any) -> bool:
        return float(self) > float(other)

    def __ge__(self, other: Any) -> bool:
        return float(self) >= float(other)

    __radd__ = __add__
    __rmul__ = __mul__


@dataclass(frozen=True)
class NashConv:
    """How exploitable a policy is heads-up; all in units per deal.

    Attributes:
        value: to the punter, when the policy plays both roles.
        dealer_gain: what a dealer who answers best gains against the policy as punter.
        punter_gain: what a punter who answers best gains against it as dealer.
        nashconv: the sum of both gains.
        exploitability: half of it.
    """

    value: Bound
    dealer_gain: Bound
    punter_gain: Bound
    nashconv: Bound

    @property
    def exploitability(self) -> Bound:
        """Half of NashConv: the mean gain per role."""
        whole = self.nashconv
        return Bound(whole.low / 2, whole.high / 2, whole.confidence)

    def __str__(self) -> str:
        return "\n".join(
            f"{name:<15} {value}"
            for name, value in (
                ("value to punter", self.value),
                ("dealer's gain", self.dealer_gain),
                ("punter's gain", self.punter_gain),
                ("NashConv", self.nashconv),
                ("exploitability", self.exploitability),
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; each bound as ``{"low", "high", "confidence"}``."""
        names = ("value", "dealer_gain", "punter_gain", "nashconv", "exploitability")
        return {name: dict(vars(getattr(self, name))) for name in names}


def nashconv(
    policy: Policy | PolicyTables,
    rules: str | RuleSet | Mapping[str, Any] | None = None,
    *,
    samples: int = 16,
    seed: int = 0,
    batch_size: int = 4096,
    progress: bool = False,
    name: str | None = None,
    threads: int | None = None,
) -> NashConv:
    """Return how exploitable a policy is in the heads-up game.

    Args:
        policy: a policy, or what :func:`~shuiyu_env.exact.tabulation.tabulate` made of one.
        rules: the rules; may be left out where tables, or an equilibrium, say.
        samples, seed, batch_size, progress, name, threads: how a policy is asked, see
            :func:`~shuiyu_env.exact.tabulation.tabulate`; of no effect for tables and
            equilibria, which need not be asked.

    Returns:
        Exact numbers for tables that are exact: those of policies that read an open
        hand through outcomes only, and of any policy on a small deck. Otherwise
        intervals: a best response chosen on one half of the samples and valued on the
        other is the lower end, one valued where it was chosen the upper.

    Raises:
        RulesError: stakes, no rules, or rules that are not those of the tables.
        PolicyError: no policy, or one that answers with something unusable.
        ConfigError, DealError: an option out of range.
    """
    made = getattr(policy, "policy_tables", None)
    tables = made() if callable(made) and not isinstance(policy, type) else policy
    if isinstance(tables, PolicyTables):
        if rules is not None and rules_key(resolve_rules(rules)) != rules_key(tables.game.rules):
            raise RulesError("these tables were made for other rules: leave rules out")
        return _of_tables(tables)
    if rules is None:
        raise RulesError("expected the rules that the policy is to be evaluated under, got none")
    return _of_tables(
        tabulate(
            tables,
            rules,
            samples=samples,
            seed=seed,
            batch_size=batch_size,
            progress=progress,
            name=name,
            threads=threads,
        )
    )


def _of_tables(tables: PolicyTables) -> NashConv:
    game, punter = tables.game, tables.punter
    dealer_best = dealer_best_response(game, punter)
    if tables.halves is None:
        values = game.punter_values(tables.dealer)
        value = game.per_deal(_follow(game, values, punter))
        punter_best = game.per_deal(punter_best_response(game, values))
        # What is zero but for rounding is never reported as a gain below zero.
        gains = max(value - dealer_best, 0.0), max(punter_best - value, 0.0)
        return NashConv(_exact(value), _exact(gains[0]), _exact(gains[1]), _exact(sum(gains)))
    # Two-sided, over the sampled hands; every hand's samples are its own.
    halves = [game.punter_values(half) for half in tables.halves]
    followed = np.array([_follow(game, half, punter) for half in halves])
    crossed = np.array(
        [
            _follow(game, values, _answer(game, chosen))
            for chosen, values in (halves, reversed(halves))
        ]
    )
    pooled = punter_best_response(game, game.punter_values(tables.dealer))
    value = game.per_deal(followed.mean(axis=0))
    low, high = game.per_deal(crossed.mean(axis=0)), game.per_deal(pooled)
    at_value, at_best, at_gain = (
        _margin(game, pair) for pair in (followed, crossed, crossed - followed)
    )
    dealer_gain = value - dealer_best
    return NashConv(
        value=Bound(value - at_value, value + at_value, CONFIDENCE),
        dealer_gain=_gain(dealer_gain - at_value, dealer_gain + at_value),
        punter_gain=_gain(low - value - at_gain, high - value + at_gain),
        nashconv=_gain(low - dealer_best - at_best, high - dealer_best + at_best),
    )


def expected_value(dealer: PolicyTables, punter: PolicyTables) -> Bound:
    """Return what one policy wins as punter from another as dealer, in units per deal.

    Args:
        dealer, punter: the two policies, tabulated for the same rules. They may be the same.

    Returns:
        To the punter: exact, or an interval where the dealer's answers to open hands were
        sampled.

    Raises:
        RulesError: they were tabulated for different rules.
    """
    return expected_values(dealer, [punter])[0]


def expected_values(dealer: PolicyTables, punters: Sequence[PolicyTables]) -> list[Bound]:
    """Return :func:`expected_value` for several punters; faster than one at a time."""
    game = dealer.game
    if any(rules_key(game.rules) != rules_key(punter.game.rules) for punter in punters):
        raise RulesError("the policies were tabulated for different rules")
    dealers = (dealer.dealer,) if dealer.halves is None else dealer.halves
    halves = [game.punter_values(half) for half in dealers]
    result = []
    for punter in punters:
        found = np.array([_follow(game, half, punter.punter) for half in halves])
        value = game.per_deal(found.mean(axis=0))
        if dealer.halves is None:
            result.append(_exact(value))
        else:
            margin = _margin(game, found)
            result.append(Bound(value - margin, value + margin, CONFIDENCE))
    return result


def _margin(game: HeadsUpGame, pair: FloatArray) -> float:
    """Return half the width of the interval of the mean of two independent estimates."""
    differences = np.where(game.active, pair[0] - pair[1], 0.0)
    # Classes are single hands here, so each difference counts once.
    quantile = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    return quantile * math.sqrt(float(np.square(differences).sum())) / 2 / game.num_deals


def _exact(value: float) -> Bound:
    return Bound(float(value), float(value))


def _gain(low: float, high: float) -> Bound:
    # No side can lose by answering best.
    return Bound(max(low, 0.0), max(high, 0.0), CONFIDENCE)


def dealer_best_response(game: HeadsUpGame, punter: PunterTables, dtype: Any = np.float64) -> float:
    """Return what a dealer who answers best leaves a punter, in units per deal."""
    values = game.dealer_values(punter, dtype)
    answers = values.split.copy()
    for calls in values.calls.values():
        answers += calls.min(axis=-1)
    lowest = np.where(game.legal, answers, np.inf).min(axis=-1)
    # In a forced showdown he arranges anew, whatever he did before.
    declared = game.plan(punter.split)[..., None] * punter.declare
    for node in game.forced:
        values_of_best = game.forced_values(node, game.best_forced(node))
        lowest = lowest + (declared[..., game.position(node)] * values_of_best).sum(axis=-1)
    return game.per_deal(lowest)


def punter_best_response(game: HeadsUpGame, values: PunterValues) -> npt.NDArray[np.float64]:
    """Return what a punter who answers best gets with each hand, ``float64[K]``."""
    declare = values.declare.copy()
    for node, position in game.reply_nodes.items():
        declare[..., position] += values.replies[node].max(axis=-1)
    best: npt.NDArray[np.float64] = np.where(game.legal, declare.max(axis=-1), -np.inf).max(axis=-1)
    return best


def _follow(
    game: HeadsUpGame, values: PunterValues, punter: PunterTables
) -> npt.NDArray[np.float64]:
    """Return what a punter's strategy gets with each hand, ``float64[K]``."""
    declare = values.declare.copy()
    for node, position in game.reply_nodes.items():
        declare[..., position] += (values.replies[node] * punter.replies[node]).sum(axis=-1)
    splits = (declare * punter.declare).sum(axis=-1)
    followed: npt.NDArray[np.float64] = (game.plan(punter.split) * splits).sum(axis=-1)
    return followed


def _answer(game: HeadsUpGame, values: PunterValues) -> PunterTables:
    """Return the best response to some values, as a strategy."""
    declare = values.declare.copy()
    replies: dict[int, FloatArray] = {}
    for node, position in game.reply_nodes.items():
        reply = values.replies[node]
        replies[node] = np.eye(reply.shape[-1])[reply.argmax(axis=-1)]
        declare[..., position] += reply.max(axis=-1)
    best = np.where(game.legal, declare.max(axis=-1), -np.inf).argmax(axis=-1)
    return PunterTables(
        split=np.eye(game.legal.shape[-1])[best],
        declare=np.eye(declare.shape[-1])[declare.argmax(axis=-1)],
        replies=replies,
    )
