"""Counterfactual regret minimisation on the exact heads-up game.

Every iteration walks the whole game, without sampling: a side's values are exact
sums over the other side's hands (:mod:`shuiyu_env.exact.heads_up`). Two contests
need no regrets at all. A forced showdown pays what the dealer's best split pays. And
an opened hand is one of a few ways to open that pay by the outcome alone
(:mod:`shuiyu_env.exact.opened`), so that nothing is left of the signalling game
that converges slowest.

Sides are updated in turn. With R the cumulative regrets, r those of this iteration
t = 1, 2, … and S the weighted sum of strategies (by the probability of coming there),

    R <- R * (positive or negative discount) + r,        S <- S * discount + strategy

discounted first, then added to. ``CFR`` (Zinkevich et al. 2007) discounts nothing,
``CFR+`` (Tammelin 2014) keeps R from falling below zero and weights S by t,
``DCFR`` (Brown and Sandholm 2019) discounts R by (t - 1)^a / ((t - 1)^a + 1), with
alpha or beta as a, and S by ((t - 1) / t)^gamma; ``HS-DCFR`` (Zhang, McAleer and Sandholm
2024) moves these three with t; ``PCFR+`` (Farina, Kroer and Sandholm 2021) is CFR+
that plays as if the last regrets came once more.
"""

from __future__ import annotations

__all__ = ["ALGORITHMS", "Algorithm", "Average", "Discounts", "Solver"]

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shuiyu_env.compiling import compiled
from shuiyu_env.core.hands import NUM_SPLITS
from shuiyu_env.exact.best_response import dealer_best_response
from shuiyu_env.exact.dominance import run_threads
from shuiyu_env.exact.heads_up import (
    HeadsUpGame,
    PunterTables,
    Term,
)

FloatArray = npt.NDArray[np.floating[Any]]


class Discounts(NamedTuple):
    """What an iteration multiplies by before it adds."""

    positive: float  #: positive cumulative regrets
    negative: float  #: negative cumulative regrets
    average: float  #: the weighted sum of strategies


@dataclass(frozen=True)
class Algorithm:
    """A member of the family.

    Attributes:
        discounts: from the iteration t (from 1) and the horizon.
        floor: whether regrets are kept from falling below zero.
        predict: whether the last regrets count twice when a strategy is chosen.
    """

    discounts: Callable[[int, int], Discounts]
    floor: bool = False
    predict: bool = False


def _power(t: int, exponent: float) -> float:
    """Return ``(t - 1)^a / ((t - 1)^a + 1)``, without overflow; nothing is kept at t = 1."""
    return 0.0 if t == 1 else 1.0 / (1.0 + float(t - 1) ** -exponent)


def _weighted(power: float) -> Callable[[int, int], Discounts]:
    """Weight the strategy of iteration t by ``t^power``; regrets are kept."""
    return lambda t, horizon: Discounts(1.0, 1.0, ((t - 1) / t) ** power)


def _dcfr(t: int, horizon: int) -> Discounts:
    return Discounts(_power(t, 1.5), _power(t, 0.0), ((t - 1) / t) ** 2.0)


def _hs_dcfr(t: int, horizon: int) -> Discounts:
    done = min(t / horizon, 1.0)
    alpha, beta, gamma = 1.0 + 3.0 * done, -1.0 - 2.0 * done, 30.0 - 5.0 * done
    return Discounts(_power(t, alpha), _power(t, beta), ((t - 1) / t) ** gamma)


ALGORITHMS: Mapping[str, Algorithm] = {
    "cfr": Algorithm(_weighted(0.0)),
    "cfr+": Algorithm(_weighted(1.0), floor=True),
    "dcfr": Algorithm(_dcfr),
    "hs-dcfr": Algorithm(_hs_dcfr),
    "pcfr+": Algorithm(_weighted(2.0), floor=True, predict=True),
    "pcfr+5": Algorithm(_weighted(5.0), floor=True, predict=True),
}


class Decision:
    """One kind of decision, for all hands and splits: regrets, strategy and average."""

    #: The arrays that change.
    STATE = ("strategy", "regret", "total")

    def __init__(self, legal: npt.NDArray[np.bool_], dtype: Any) -> None:
        self.legal = legal
        count = np.maximum(legal.sum(axis=-1, keepdims=True), 1)
        self.strategy = (legal / count).astype(dtype)
        self.regret = np.zeros(legal.shape, dtype=dtype)
        self.total = np.zeros(legal.shape, dtype=dtype)

    def update(
        self,
        values: FloatArray,
        sign: float,
        algorithm: Algorithm,
        discounts: Discounts,
        threads: int,
    ) -> None:
        """Add the regrets of some values, and choose the next strategy."""
        size = self.legal.shape[-1]
        rows = self.strategy.size // size
        strategy, regret = self.strategy.reshape(rows, size), self.regret.reshape(rows, size)
        flat = values.reshape(rows, size)
        legal = self.legal.reshape(rows, size)

        def work(first: int, last: int) -> None:
            _update(
                (first, last), flat, legal, sign, discounts.positive, discounts.negative,
                algorithm.floor, algorithm.predict, regret, strategy,
            )  # fmt: skip

        run_threads(work, np.linspace(0, rows, threads + 1).astype(np.intp))

    def accumulate(self, reach: FloatArray | None, discount: float) -> None:
        """Add the strategy, times the probability of coming there, to the average."""
        self.total *= self.total.dtype.type(discount)
        self.total += self.strategy if reach is None else self.strategy * reach[..., None]

    def average(self) -> FloatArray:
        """Return the average strategy; the uniform one where nothing was accumulated."""
        total = self.total.astype(np.float64)
        norm = total.sum(axis=-1, keepdims=True)
        count = np.maximum(self.legal.sum(axis=-1, keepdims=True), 1)
        return np.where(norm > 0.0, total / np.where(norm > 0.0, norm, 1.0), self.legal / count)


@compiled
def _update(  # type: ignore[no-untyped-def]
    bounds, values, legal, sign, positive, negative, floor, predict, regret, strategy
):
    size = values.shape[1]
    for row in range(bounds[0], bounds[1]):
        mean = 0.0
        for a in range(size):
            if legal[row, a]:
                mean += strategy[row, a] * values[row, a]
        norm = 0.0
        for a in range(size):
            if not legal[row, a]:
                continue
            now = sign * (values[row, a] - mean)
            before = regret[row, a]
            after = before * (positive if before > 0.0 else negative) + now
            if floor and after < 0.0:
                after = 0.0
            regret[row, a] = after
            weight = max(after + now, 0.0) if predict else max(after, 0.0)
            strategy[row, a] = weight
            norm += weight
        if norm > 0.0:
            for a in range(size):
                strategy[row, a] /= norm
        else:
            count = 0
            for a in range(size):
                count += legal[row, a]
            for a in range(size):
                strategy[row, a] = 1.0 / count if legal[row, a] else 0.0


@dataclass
class Average:
    """The average strategies after some iterations, and how exploitable they are.

    Attributes:
        iteration: iterations done.
        low, high: units per deal to the punter if the dealer, or the punter, answers best.
        dealer_split, dealer_calls: see :class:`~shuiyu_env.exact.heads_up.DealerTables`.
        punter: the punter's tables.
        masses: ``float64[K, 3, 3]``, the dealer's hands by outcome.
    """

    iteration: int
    low: float
    high: float
    dealer_split: FloatArray
    dealer_calls: dict[int, FloatArray]
    punter: PunterTables
    masses: FloatArray

    @property
    def nashconv(self) -> float:
        """The sum of what both sides could gain, units per deal."""
        return self.high - self.low


class Solver:
    """The state of a run: regrets and averages of both sides.

    Args:
        game: the game.
        algorithm: a name of :data:`ALGORITHMS`.
        horizon: iterations that a schedule is spread over.
        dtype: precision of regrets, strategies and weights.
    """

    def __init__(
        self, game: HeadsUpGame, algorithm: str, horizon: int, dtype: Any = np.float32
    ) -> None:
        self.game = game
        self.name = algorithm
        self.algorithm = ALGORITHMS[algorithm]
        self.horizon = horizon
        self.dtype = dtype
        self.iteration = 0
        shape = (game.classes.size, NUM_SPLITS)

        def any_of(count: int) -> npt.NDArray[np.bool_]:
            return np.ones((*shape, count), dtype=np.bool_)

        nodes = game.tree.nodes
        self.dealer_split = Decision(game.legal, dtype)
        self.dealer_calls = {
            node.id: Decision(any_of(len(node.children)), dtype) for node in game.hidden
        }
        self.punter_split = Decision(game.legal, dtype)
        #: Ways to declare: for an opened contest one for each vertex, otherwise one.
        self.options: list[tuple[int, int]] = []
        opened = {game.position(contest.node): contest for contest in game.opened}
        for position in range(len(game.declarations)):
            ways = len(opened[position].gains) if position in opened else 1
            self.options += [(position, way) for way in range(ways)]
        self.declare = Decision(any_of(len(self.options)), dtype)
        hidden_replies = [
            child
            for node in game.hidden
            for child in node.children.values()
            if not nodes[child].is_leaf
        ]
        self.replies = {
            child: Decision(any_of(len(nodes[child].children)), dtype) for child in hidden_replies
        }
        self._opened = opened
        self._forced = {
            game.position(node): game.forced_values(node, game.best_forced(node))
            for node in game.forced
        }

    def decisions(self) -> dict[str, Decision]:
        """Return every kind of decision by name."""
        return {
            "dealer_split": self.dealer_split,
            "punter_split": self.punter_split,
            "declare": self.declare,
            **{f"call_{node}": decision for node, decision in self.dealer_calls.items()},
            **{f"reply_{node}": decision for node, decision in self.replies.items()},
        }

    def step(self) -> None:
        """Do one iteration: the punter first, then the dealer."""
        self.iteration += 1
        discounts = self.algorithm.discounts(self.iteration, self.horizon)
        self._update_punter(discounts)
        self._update_dealer(discounts)

    def _option_values(
        self, plan: FloatArray, calls: Mapping[int, FloatArray], replies: Mapping[int, Any] | None
    ) -> tuple[FloatArray, dict[int, npt.NDArray[np.float64]], FloatArray]:
        """Return values of the ways to declare, of replies, and the dealer's hands by outcome.

        Replies are those of the strategies given, or the best ones.
        """
        game = self.game
        values, masses = game.hidden_values(plan, calls, masses=True, dtype=self.dtype)
        assert masses is not None
        for node, position in game.reply_nodes.items():
            if node in self.replies:
                reply = values.replies[node]
                followed = (
                    reply.max(axis=-1) if replies is None else (reply * replies[node]).sum(-1)
                )
                values.declare[..., position] += followed
        options = np.empty((*plan.shape, len(self.options)))
        for k, (position, way) in enumerate(self.options):
            if position in self._opened:
                options[..., k] = masses @ self._opened[position].gains[way]
            elif position in self._forced:
                options[..., k] = self._forced[position]
            else:
                options[..., k] = values.declare[..., position]
        return options, values.replies, masses

    def _update_punter(self, discounts: Discounts) -> None:
        threads = self.game.sums.threads
        options, replies, _ = self._option_values(
            self.game.plan(self.dealer_split.strategy),
            {node: decision.strategy for node, decision in self.dealer_calls.items()},
            {node: decision.strategy for node, decision in self.replies.items()},
        )
        for node, decision in self.replies.items():
            decision.update(replies[node], 1.0, self.algorithm, discounts, threads)
        splits = (options * self.declare.strategy).sum(axis=-1)
        self.declare.update(options, 1.0, self.algorithm, discounts, threads)
        self.punter_split.update(splits, 1.0, self.algorithm, discounts, threads)
        reach = self.punter_split.strategy
        self.punter_split.accumulate(None, discounts.average)
        self.declare.accumulate(reach, discounts.average)
        for node, decision in self.replies.items():
            option = self.options.index((self.game.reply_nodes[node], 0))
            decision.accumulate(reach * self.declare.strategy[..., option], discounts.average)

    def _update_dealer(self, discounts: Discounts) -> None:
        game, threads = self.game, self.game.sums.threads
        plan = game.plan(self.punter_split.strategy)[..., None] * self.declare.strategy
        declared, opened = self._declared(plan)
        replies = {node: decision.strategy for node, decision in self.replies.items()}
        values = game.dealer_values_of_plan(declared, replies, opened, self.dtype)
        splits = values.split.copy()
        for node, decision in self.dealer_calls.items():
            splits += (values.calls[node] * decision.strategy).sum(axis=-1)
            decision.update(values.calls[node], -1.0, self.algorithm, discounts, threads)
        self.dealer_split.update(splits, -1.0, self.algorithm, discounts, threads)
        reach = self.dealer_split.strategy
        self.dealer_split.accumulate(None, discounts.average)
        for decision in self.dealer_calls.values():
            decision.accumulate(reach, discounts.average)

    def _declared(self, plan: FloatArray) -> tuple[FloatArray, list[Term]]:
        """Return a plan by declaration, and the open hands with what their ways to open pay."""
        declared = np.zeros((*plan.shape[:2], len(self.game.declarations)), dtype=plan.dtype)
        paid: dict[int, Any] = {}
        for k, (position, way) in enumerate(self.options):
            declared[..., position] += plan[..., k]
            if position in self._opened:
                gains = self._opened[position].gains[way].astype(plan.dtype)
                paid[position] = paid.get(position, 0.0) + plan[..., k, None] * gains
        one = np.ones((1, 1), dtype=plan.dtype)
        return declared, [Term(one, payoffs) for payoffs in paid.values()]

    def average(self) -> Average:
        """Return the average strategies and their exploitability."""
        game = self.game
        split = self.dealer_split.average()
        calls = {node: decision.average() for node, decision in self.dealer_calls.items()}
        options, _, masses = self._option_values(game.plan(split), calls, None)
        best = np.where(game.legal, options.max(axis=-1), -np.inf).max(axis=-1)
        punter = self._punter_tables(masses)
        return Average(
            iteration=self.iteration,
            low=dealer_best_response(game, punter, self.dtype),
            high=game.per_deal(best),
            dealer_split=split,
            dealer_calls=calls,
            punter=punter,
            masses=masses,
        )

    def _punter_tables(self, masses: FloatArray) -> PunterTables:
        game = self.game
        options = self.declare.average()
        declare = np.zeros((*options.shape[:2], len(game.declarations)))
        for k, (position, _) in enumerate(self.options):
            declare[..., position] += options[..., k]
        replies = {node: decision.average() for node, decision in self.replies.items()}
        for contest in game.opened:
            position = game.position(contest.node)
            ways = [k for k, option in enumerate(self.options) if option[0] == position]
            weights = options[..., ways]
            norm = weights.sum(axis=-1, keepdims=True)
            # A hand that never opens replies as would be best for it.
            best = np.eye(len(ways))[(masses @ contest.gains.T).argmax(axis=-1)]
            weights = np.where(norm > 0.0, weights / np.where(norm > 0.0, norm, 1.0), best)
            for node, chances in zip(contest.reply_nodes, contest.replies, strict=True):
                if node is not None:
                    replies[node.id] = weights @ chances
        return PunterTables(split=self.punter_split.average(), declare=declare, replies=replies)
