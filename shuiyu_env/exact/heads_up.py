"""The heads-up game, exactly: strategies as tables, and what every decision is worth.

All of it is read off the contest tree. A contest is *hidden* if its declaration
shows nothing (the dealer calls by his own hand, split and the declaration), *opened*
if the punter's hand lies open and the dealer calls (:mod:`shuiyu_env.exact.opened`),
or *forced* if it lies open and the dealer arranges anew.

Tables have a row for each of the K classes of hands (:class:`HandClasses`) and for
each of its three splits. Values are counterfactual: weighted by the other side's
probabilities and summed over the hands it can hold, in units to the punter times
deals, until :meth:`HeadsUpGame.per_deal` makes units per deal of them.
"""

from __future__ import annotations

__all__ = [
    "ONE_OF_EACH",
    "DealerTables",
    "DealerValues",
    "HeadsUpGame",
    "PolicyTables",
    "PunterTables",
    "PunterValues",
    "Term",
    "heads_up_game",
    "rules_key",
]

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.cards import HAND_SIZE
from shuiyu_env.core.checks import as_integer
from shuiyu_env.core.contest import Node, Payoffs, Phase, compile_tree
from shuiyu_env.core.errors import ConfigError, RulesError
from shuiyu_env.core.hands import NUM_SPLITS, Outcome, Special
from shuiyu_env.core.rules import RuleSet
from shuiyu_env.exact.dominance import HandClasses, Side, disjoint_sums, hand_classes
from shuiyu_env.exact.opened import NUM_OUTCOMES, OpenedContest, opened_contest
from shuiyu_env.exact.rearrange import TRIPLES, outcome_triples

FloatArray = npt.NDArray[np.floating[Any]]
NodeArrays = Mapping[int, FloatArray]


@dataclass
class DealerTables:
    """A dealer's strategy, and what comes of it when a hand lies open.

    Attributes:
        split: ``float[K, 3]``, probability of each split.
        calls: by the node of a hidden contest, ``float[K, 3, calls]``, probabilities.
        opened: by the node of an opened contest, ``float[K, 3, calls, 3]``: for each hand
            and split of the *punter*, how many dealer's hands, weighted by the
            probabilities of their splits, make each call with each outcome.
        forced: by the node of a forced showdown, ``float[K, 3, 3]``: the same, by
            the outcome of the dealer's new split.
    """

    split: FloatArray
    calls: NodeArrays
    opened: NodeArrays
    forced: NodeArrays


@dataclass
class PunterTables:
    """A punter's strategy.

    Attributes:
        split: ``float[K, 3]``, probability of each split.
        declare: ``float[K, 3, declarations]``, probabilities, in the order of the root's children.
        replies: by node, ``float[K, 3, replies]``, probabilities.
    """

    split: FloatArray
    declare: FloatArray
    replies: NodeArrays


@dataclass
class PolicyTables:
    """A policy, tabulated: what it does in both roles, for every hand and split.

    Attributes:
        game: the exact game it was tabulated for.
        dealer, punter: its two roles.
        halves: if what comes of open hands was sampled, two independent estimates of
            the dealer's tables that differ in ``opened`` and ``forced`` only, while
            ``dealer`` holds their mean; ``None`` if everything is exact.
    """

    game: HeadsUpGame
    dealer: DealerTables
    punter: PunterTables
    halves: tuple[DealerTables, DealerTables] | None = None


@dataclass
class PunterValues:
    """What a punter's decisions are worth against a dealer.

    Attributes:
        declare: ``float64[K, 3, declarations]``: what comes of a declaration where the
            punter is not asked again.
        replies: by node, ``float64[K, 3, replies]``: what comes where he replies.
    """

    declare: npt.NDArray[np.float64]
    replies: dict[int, npt.NDArray[np.float64]]


@dataclass
class DealerValues:
    """What a dealer's decisions are worth, in units to the punter, against a punter.

    Attributes:
        split: ``float64[K, 3]``: what comes of open hands, answered as well as can be.
        calls: by the node of a hidden contest, ``float64[K, 3, calls]``.
    """

    split: npt.NDArray[np.float64]
    calls: dict[int, npt.NDArray[np.float64]]


class Term(NamedTuple):
    """Weights of one side's hands and splits, and what they pay by the outcome.

    Attributes:
        weights: ``float[K, 3]``.
        payoffs: of a leaf; or ``float[K, 3, 3]``, by hand, split and outcome.
    """

    weights: FloatArray
    payoffs: Payoffs | FloatArray


#: Counts hands by outcome: each pays 1 for one of them.
ONE_OF_EACH = (Payoffs(1, 0, 0, 1), Payoffs(0, 1, 0, 0), Payoffs(0, 0, 1, 0))


def _not_negative(masses: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    # Differences of sums: what should be zero may be a rounding error below it.
    return np.clip(masses, 0.0, None)


class HeadsUpGame:
    """A rule set, compiled for exact evaluation of the game of two.

    Args:
        rules: the rules; ``max_stake`` must be 1.
        by_ranks: see :func:`~shuiyu_env.exact.dominance.hand_classes`.
        threads: threads that sums are shared among; ``None``: all that there are.

    Raises:
        RulesError: stakes: they multiply every value, so solve the game without.
        ConfigError: a number of threads below 1.

    Attributes:
        rules, tree: the rules.
        classes: the K classes of hands.
        root: where the punter declares.
        declarations: the declarations, in the order of the root's children.
        hidden, opened, forced: nodes after a declaration, by kind of contest.
        reply_nodes: nodes where the punter replies, with the position of the declaration.
        active: ``bool[K]``, hands that come to declare.
        num_deals: deals of two hands.
        constant: units per deal from contests that specials decide before anybody declares.
    """

    def __init__(
        self, rules: RuleSet, by_ranks: bool | None = None, threads: int | None = None
    ) -> None:
        if rules.max_stake > 1:
            raise RulesError(
                f"exact evaluation: expected max_stake=1, got {rules.max_stake}; a stake multiplies"
                " every payoff, so evaluate the rules without it"
            )
        if threads is not None and (as_integer(threads) or 0) < 1:
            raise ConfigError(f"threads: expected a whole number of 1 or more, got {threads!r}")
        self.rules = rules
        self.tree = compile_tree(rules)
        self.root = self.tree.root
        self.classes: HandClasses = hand_classes(rules.deck, rules.tie_break, by_ranks)
        self.sums = disjoint_sums(self.classes, threads)
        self.declarations = tuple(self.root.children)
        self.hidden: list[Node] = []
        self.opened: list[OpenedContest] = []
        self.forced: list[Node] = []
        self.reply_nodes: dict[int, int] = {}
        for position, (declaration, child) in enumerate(self.root.children.items()):
            node = self.tree.nodes[child]
            exposed = declaration in self.tree.exposes
            if exposed and node.phase is Phase.CALL:
                self.opened.append(opened_contest(rules, node.id))
            elif exposed and node.phase is Phase.REARRANGE:
                self.forced.append(node)
            elif not exposed and node.phase is Phase.CALL:
                self.hidden.append(node)
            else:
                raise NotImplementedError(f"no exact evaluation of {declaration.name}")
            if node.phase is Phase.CALL:
                for grandchild in map(self.tree.nodes.__getitem__, node.children.values()):
                    if not grandchild.is_leaf:
                        self.reply_nodes[grandchild.id] = position
        deck = rules.deck
        self.num_deals = comb(deck.size, HAND_SIZE) * comb(deck.size - HAND_SIZE, HAND_SIZE)
        special = self.classes.special
        decides = np.array(
            [[payoffs is not None for payoffs in row] for row in self.tree.special_payoffs]
        )
        self.active: npt.NDArray[np.bool_] = ~decides[special, Special.NONE]
        self.legal = self.classes.legal_splits & self.active[:, None]

    @cached_property
    def constant(self) -> float:
        """Units to the punter per deal from contests that specials decide."""
        kinds = np.eye(len(Special))[self.classes.special]  # [K, 3]
        weights = np.zeros((self.classes.size, NUM_SPLITS, len(Special)))
        # All of a special's splits are compared alike, so the first stands for the hand.
        weights[:, 0, :] = kinds
        sums = self.sums.outcomes(weights, "dealer")
        counts = np.zeros((len(Outcome), len(Special), len(Special)))
        wins, loses = sums.less[:, 0], sums.greater[:, 0]
        for outcome, values in (
            (Outcome.DEALER_WINS, wins),
            (Outcome.PUSH, sums.total - wins - loses),
            (Outcome.PUNTER_WINS, loses),
        ):
            counts[outcome] = (kinds * self.classes.multiplicity[:, None]).T @ values
        units = 0.0
        for dealer in Special:
            for punter in Special:
                payoffs = self.tree.special_payoffs[dealer][punter]
                if payoffs is not None:
                    for outcome in Outcome:
                        paid = payoffs.of(outcome, dealer)
                        units += paid * counts[outcome, dealer, punter]
        return float(units) / self.num_deals

    @cached_property
    def triples(self) -> npt.NDArray[np.int32]:
        """How many active dealer's hands have each triple of outcomes; see ``outcome_triples``."""
        return outcome_triples(self.classes, self.active)

    def best_forced(self, node: Node) -> npt.NDArray[np.float64]:
        """Return ``float64[K, 3, 3]``: outcomes of a forced showdown, the dealer arranging best."""
        return self._best_forced[node.id]

    @cached_property
    def _best_forced(self) -> dict[int, npt.NDArray[np.float64]]:
        result = {}
        for node in self.forced:
            payoffs = np.array(self.forced_payoffs(node))
            chosen = TRIPLES[np.arange(len(TRIPLES)), payoffs[TRIPLES].argmin(axis=1)]
            result[node.id] = self.triples @ np.eye(len(Outcome))[chosen]
        return result

    def per_deal(self, values: FloatArray) -> float:
        """Return units per deal: the constant, and values ``[K]`` of each class of hands."""
        total = float(np.dot(np.where(self.active, values, 0.0), self.classes.multiplicity))
        return total / self.num_deals + self.constant

    def expect(
        self, outputs: Sequence[Sequence[Term]], side: Side, dtype: Any = np.float64
    ) -> npt.NDArray[np.float64]:
        """Return what weighted hands of the other side pay against every hand and split of one.

        Args:
            outputs: for each output, the terms that it is the sum of.
            side: whose hands and splits the values are for; weights are the other side's.
            dtype: precision of the weights; sums are in double precision in any case.

        Returns:
            ``float64[K, 3, outputs]``.
        """
        shape = (self.classes.size, NUM_SPLITS)
        dealer_special = self.classes.special > 0
        less, greater, total = _Columns(shape), _Columns(shape), _Columns(shape)
        # Where a dealer's special pays otherwise and the values are the dealer's: that difference.
        by_special = _Columns(shape)
        win, lose = (0, 2) if side == "dealer" else (2, 0)
        for number, terms in enumerate(outputs):
            for weights, payoffs in terms:
                if isinstance(payoffs, Payoffs):
                    paid: list[Any] = [float(units) for units in payoffs[: len(Outcome)]]
                    difference = float(payoffs.dealer_wins_by_special) - paid[0]
                    if difference and side == "punter":
                        paid[0] = paid[0] + difference * dealer_special[:, None]
                    elif difference:
                        by_special.add(number, weights * difference)
                else:
                    paid = [payoffs[..., outcome] for outcome in Outcome]
                push = paid[Outcome.PUSH]
                total.add(number, weights, push)
                less.add(number, weights, paid[win] - push)
                greater.add(number, weights, paid[lose] - push)
        lessers = _Columns.joined(less, by_special, dtype)
        sums = self.sums(lessers, greater.stacked(dtype), total.stacked(dtype), side)
        result = np.zeros((len(outputs), *shape))  # one after the other in memory
        for k, number in enumerate(total.numbers):
            result[number] += sums.total[:, k, None]
        for k, number in enumerate(less.numbers):
            result[number] += sums.less[..., k]
        for k, number in enumerate(greater.numbers):
            result[number] += sums.greater[..., k]
        for k, number in enumerate(by_special.numbers, len(less.numbers)):
            result[number] += sums.less[..., k] * dealer_special[:, None]
        return np.moveaxis(result, 0, -1)

    def punter_values(self, dealer: DealerTables, dtype: Any = np.float64) -> PunterValues:
        """Return what the punter's decisions are worth against a dealer."""
        plan = self.plan(dealer.split)
        values, _ = self.hidden_values(plan, dealer.calls, dtype=dtype)
        for contest in self.opened:
            masses = dealer.opened[contest.node.id]
            for c, (reply_node, payoffs) in enumerate(
                zip(contest.reply_nodes, contest.payoffs, strict=True)
            ):
                paid = masses[..., c, :] @ payoffs.T
                if reply_node is None:
                    values.declare[..., self.position(contest.node)] += paid[..., 0]
                else:
                    values.replies[reply_node.id][...] = paid
        for node in self.forced:
            values.declare[..., self.position(node)] = self.forced_values(
                node, dealer.forced[node.id]
            )
        return values

    def hidden_values(
        self,
        plan: FloatArray,
        calls: Mapping[int, FloatArray],
        masses: bool = False,
        dtype: Any = np.float64,
    ) -> tuple[PunterValues, npt.NDArray[np.float64] | None]:
        """Return what the punter's decisions in hidden contests are worth; others are zero.

        Args:
            plan: ``float[K, 3]``, the dealer's probabilities of hand's splits.
            calls: by node of hidden contests, ``float[K, 3, calls]``.
            masses: also count the dealer's hands by outcome.
            dtype: see :meth:`expect`.

        Returns:
            The values; and ``float64[K, 3, 3]``, for each hand and split of the punter the
            dealer's hands by outcome, or ``None``.
        """
        outputs: list[list[Term]] = []
        places: list[
            tuple[int, int]
        ] = []  # of each output: node (the root for a declaration), column
        for node in self.hidden:
            fixed: list[Term] = []
            for k, child in enumerate(node.children.values()):
                weights = plan * calls[node.id][..., k]
                reply = self.tree.nodes[child]
                if reply.payoffs is not None:
                    fixed.append(Term(weights, reply.payoffs))
                    continue
                for r, leaf in enumerate(reply.children.values()):
                    outputs.append([Term(weights, payoffs_of(self.tree.nodes[leaf]))])
                    places.append((reply.id, r))
            outputs.append(fixed)
            places.append((self.root.id, self.position(node)))
        if masses:
            outputs += [[Term(plan, one)] for one in ONE_OF_EACH]
        sums = self.expect(outputs, "punter", dtype)
        shape = (self.classes.size, NUM_SPLITS)
        values = PunterValues(
            declare=np.zeros((*shape, len(self.declarations))),
            replies={
                node: np.zeros((*shape, len(self.tree.nodes[node].children)))
                for node in self.reply_nodes
            },
        )
        for number, (node_id, column) in enumerate(places):
            is_root = node_id == self.root.id
            target = values.declare if is_root else values.replies[node_id]
            target[..., column] = sums[..., number]
        return values, _not_negative(sums[..., -NUM_OUTCOMES:]) if masses else None

    def masses(self, plan: FloatArray) -> npt.NDArray[np.float64]:
        """Return the dealer's hands by outcome alone; see :meth:`hidden_values`."""
        return _not_negative(self.expect([[Term(plan, one)] for one in ONE_OF_EACH], "punter"))

    def forced_payoffs(self, node: Node) -> tuple[int, ...]:
        """Return what a forced showdown pays by outcome, whatever the split it is won with."""
        leaf = self.tree.nodes[next(iter(node.children.values()))]
        return payoffs_of(leaf)[:NUM_OUTCOMES]

    def forced_values(self, node: Node, outcomes: FloatArray) -> FloatArray:
        """Return ``float[..., ]``: what a forced showdown pays, from ``[..., 3]`` by outcome."""
        return outcomes @ np.array(self.forced_payoffs(node), dtype=np.float64)

    def dealer_values(self, punter: PunterTables, dtype: Any = np.float64) -> DealerValues:
        """Return what the dealer's decisions are worth against a punter."""
        plan = self.plan(punter.split)[..., None] * punter.declare
        opened = []
        for contest in self.opened:
            paid = contest.by_outcome(
                {
                    node.id: np.asarray(punter.replies[node.id], dtype=np.float64)
                    for node in contest.reply_nodes
                    if node is not None
                }
            )
            opened.append(Term(plan[..., self.position(contest.node)], paid))
        return self.dealer_values_of_plan(plan, punter.replies, opened, dtype)

    def dealer_values_of_plan(
        self,
        plan: FloatArray,
        replies: Mapping[int, FloatArray],
        opened: Sequence[Term],
        dtype: Any = np.float64,
    ) -> DealerValues:
        """Return the same, from a punter's plan.

        Args:
            plan: ``float[K, 3, declarations]``, probabilities of split and declaration.
            replies: by node of hidden contests, ``float[K, 3, replies]``.
            opened: open hands, and what they pay by the outcome.
            dtype: see :meth:`expect`.
        """
        outputs: list[list[Term]] = [list(opened)]
        for node in self.hidden:
            declared = plan[..., self.position(node)]
            for child in node.children.values():
                reply = self.tree.nodes[child]
                if reply.payoffs is not None:
                    outputs.append([Term(declared, reply.payoffs)])
                    continue
                outputs.append(
                    [
                        Term(
                            declared * replies[reply.id][..., r], payoffs_of(self.tree.nodes[leaf])
                        )
                        for r, leaf in enumerate(reply.children.values())
                    ]
                )
        sums = self.expect(outputs, "dealer", dtype)
        calls = {}
        first = 1
        for node in self.hidden:
            calls[node.id] = sums[..., first : first + len(node.children)]
            first += len(node.children)
        return DealerValues(split=sums[..., 0], calls=calls)

    def plan(self, split: FloatArray) -> FloatArray:
        """Return probabilities of splits, of hands that come to declare only."""
        return np.where(self.legal, split, 0.0)

    def position(self, node: Node) -> int:
        """Return the place among the declarations of the one that leads to a node."""
        return self.declarations.index(node.path[0])


class _Columns:
    """Weights to be summed, each for one output; columns of zeros are left out."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.weights: list[FloatArray] = []
        self.numbers: list[int] = []

    def add(self, number: int, weights: FloatArray, factor: Any = 1.0) -> None:
        """Add weights times a factor to an output's column."""
        if isinstance(factor, float) and factor == 0.0:
            return
        column = weights * factor
        if self.numbers and self.numbers[-1] == number:
            self.weights[-1] = self.weights[-1] + column
        else:
            self.weights.append(column)
            self.numbers.append(number)

    def stacked(self, dtype: Any) -> FloatArray:
        """Return ``dtype[K, 3, C]``."""
        return self.joined(self, _Columns(self.shape), dtype)

    @staticmethod
    def joined(first: _Columns, second: _Columns, dtype: Any) -> FloatArray:
        """Return the columns of both, ``dtype[K, 3, C]``."""
        weights = first.weights + second.weights
        result = np.empty((*first.shape, len(weights)), dtype=dtype)
        for k, column in enumerate(weights):
            result[..., k] = column
        return result


def payoffs_of(leaf: Node) -> Payoffs:
    """Return a leaf's payoffs."""
    assert leaf.payoffs is not None, "a reply ends a contest"
    return leaf.payoffs


def rules_key(rules: RuleSet) -> str:
    """Return the hash of what a heads-up equilibrium depends on: compiled tree, deck, tie rule.

    Rule sets that differ in nothing else, such as the order of declaring, share it.
    """
    tree = compile_tree(rules)
    data = {
        "nodes": [
            [int(n.phase), [int(a) for a in n.path], dict(n.children), n.compares, n.payoffs]
            for n in tree.nodes
        ],
        "exposes": sorted(map(int, tree.exposes)),
        "specials": tree.special_payoffs,
        "deck": [rules.deck.ranks, rules.deck.suits],
        "tie_break": rules.tie_break,
        "max_stake": rules.max_stake,
    }
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=8)
def heads_up_game(
    rules: RuleSet, by_ranks: bool | None = None, threads: int | None = None
) -> HeadsUpGame:
    """Return the (cached) exact game of a rule set; see :class:`HeadsUpGame`."""
    return HeadsUpGame(rules, by_ranks, threads)
