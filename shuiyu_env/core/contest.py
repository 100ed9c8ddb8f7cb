"""The contest tree: what a declaration leads to, as data (rules, section "The contest tree").

A :class:`RuleSet` compiles to a :class:`ContestTree`. It says who acts, which
actions there are, what is laid face up, in which order contests are decided,
what specials pay, and what every leaf pays. Whoever needs a rule of the game
reads it here; payoffs and legal actions are written down nowhere else.

All payoffs are units to the punter per unit of stake; the dealer gets the negative.
"""

from __future__ import annotations

__all__ = ["ContestTree", "Node", "Payoffs", "Phase", "compile_tree"]

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from shuiyu_env.core.actions import Action
from shuiyu_env.core.hands import NUM_SPLITS, Outcome, Special
from shuiyu_env.core.rules import RuleSet


class Phase(IntEnum):
    """What is being decided at a table. A node's phase says who acts in it and when."""

    STAKE = 0
    ARRANGE = 1
    DECLARE = 2
    CALL = 3
    REPLY = 4
    REARRANGE = 5
    OVER = 6

    @property
    def by_dealer(self) -> bool:
        """Whether only the dealer acts in a contest of this phase."""
        return self in (Phase.CALL, Phase.REARRANGE)


class Payoffs(NamedTuple):
    """What a leaf pays, by how its comparison ends; all equal where there is none."""

    dealer_wins: int
    push: int
    punter_wins: int
    dealer_wins_by_special: int

    def of(self, outcome: Outcome, dealer_special: Special) -> int:
        """Return the units for an outcome (specials matter only where they reach a showdown)."""
        if outcome == Outcome.DEALER_WINS and dealer_special:
            return self.dealer_wins_by_special
        return self[outcome]


@dataclass(frozen=True)
class Node:
    """One point of a contest.

    Attributes:
        id: position in :attr:`ContestTree.nodes`.
        phase: ``DECLARE`` (root), ``CALL``, ``REPLY``, ``REARRANGE``, or ``OVER`` for a leaf.
        path: the actions that lead here (a ``REARRANGE`` adds none: its split
            is no public action).
        children: the node each action leads to, ascending by action. A
            rearrangement has all three splits; a hand may allow fewer.
        compares: a leaf that compares the hands.
        payoffs: a leaf's payoffs.
    """

    id: int
    phase: Phase
    path: tuple[Action, ...]
    children: Mapping[Action, int] = field(default_factory=dict)
    compares: bool = False
    payoffs: Payoffs | None = None

    @property
    def is_leaf(self) -> bool:
        """Whether the contest is decided here."""
        return self.payoffs is not None


@dataclass(frozen=True)
class ContestTree:
    """A rule set, compiled.

    Attributes:
        rules: where it comes from.
        nodes: all nodes; the root, where the punter declares, is ``nodes[0]``.
        order: position of each declaration in the order in which contests are decided.
        exposes: the declarations that lay the punter's hand and split face up.
        special_payoffs: what a contest pays that specials decide before
            declarations, by ``[dealer's Special][punter's Special]``; ``None``
            where they decide nothing.
    """

    rules: RuleSet
    nodes: tuple[Node, ...]
    order: Mapping[Action, int]
    exposes: frozenset[Action]
    special_payoffs: tuple[tuple[Payoffs | None, ...], ...]

    @property
    def root(self) -> Node:
        """The node where a punter declares."""
        return self.nodes[0]


# Contests are decided in this order; a forced showdown comes after all replies.
_ORDER = (Action.OPEN, Action.REQUEST_PUSH, Action.COVER, Action.ATTACK, Action.FORCE)
_EXPOSES = frozenset({Action.OPEN, Action.FORCE})
_SPECIAL_UNITS = {Special.NONE: 0, Special.SHUIYU: 2, Special.SUPREME: 4}
_PHASE_OF_DEPTH = (Phase.DECLARE, Phase.CALL, Phase.REPLY)

# While compiling: a leaf is its payoffs and whether it compares, a decision maps actions on.
_Leaf = tuple[Payoffs, bool]
_Branch = dict[Action, "_Branch | _Leaf"]


def _agreed(units: int) -> _Leaf:
    """A leaf without a comparison."""
    return Payoffs(units, units, units, units), False


def _compare(dealer_wins: int, push: int, punter_wins: int, special: int | None = None) -> _Leaf:
    """A leaf with one; ``special`` if a dealer who wins by a special is paid otherwise."""
    special = dealer_wins if special is None else special
    return Payoffs(dealer_wins, push, punter_wins, special), True


def _contests(rules: RuleSet) -> _Branch:
    """Return what each declaration leads to, before the rule set's selection of them."""
    attack = _compare(-2, rules.attack_on_push, 2)
    call_open: _Branch = {
        Action.KILL: {Action.BELIEVE: _agreed(-1), Action.DOUBT: _compare(-2, 2, 2)},
        Action.PUSH: {
            Action.BELIEVE: _agreed(0),
            Action.DOUBT: _compare(rules.doubted_push_when_dealer_wins, -2, 2),
        },
    }
    if rules.surrender_to_open:
        call_open[Action.SURRENDER] = _agreed(1)
    call_attack: _Branch = {Action.DECLINE: _agreed(1)}
    if rules.attack_accept:
        call_attack[Action.ACCEPT] = attack
    call_attack[Action.DEMAND] = {Action.PAY: _agreed(-1), Action.CONTEST: attack}
    force = _compare(-3, rules.force_on_push, 3)
    return {
        Action.OPEN: call_open,
        Action.COVER: {
            Action.LOOK: _compare(-2, -2, 2, special=-2 * rules.cover_lost_to_special),
            Action.FOLD: _agreed(1),
        },
        Action.FORCE: {Action(split): force for split in range(NUM_SPLITS)},
        Action.ATTACK: call_attack,
        Action.REQUEST_PUSH: {
            Action.GRANT: _agreed(0),
            Action.REFUSE: {Action.CONCEDE: _agreed(-1), Action.CONTEST: _compare(-2, 2, 2)},
        },
    }


def _special_payoffs(rules: RuleSet, dealer: Special, punter: Special) -> Payoffs | None:
    if rules.specials != "declared" or not (dealer or punter):
        return None
    units = max(_SPECIAL_UNITS[dealer], _SPECIAL_UNITS[punter])
    return Payoffs(-units, 0, units, -units)


@lru_cache(maxsize=256)
def compile_tree(rules: RuleSet) -> ContestTree:
    """Compile a rule set (cached: equal rule sets share one tree)."""
    nodes: list[Node] = []

    def add(branch: _Branch | _Leaf, path: tuple[Action, ...]) -> int:
        node_id = len(nodes)
        nodes.append(Node(node_id, Phase.OVER, path))  # reserves the id
        if isinstance(branch, tuple):
            payoffs, compares = branch
            nodes[node_id] = Node(node_id, Phase.OVER, path, {}, compares, payoffs)
        elif Action.SPLIT_0 in branch:
            leaf = add(branch[Action.SPLIT_0], path)
            nodes[node_id] = Node(node_id, Phase.REARRANGE, path, dict.fromkeys(branch, leaf))
        else:
            children = {action: add(branch[action], (*path, action)) for action in sorted(branch)}
            nodes[node_id] = Node(node_id, _PHASE_OF_DEPTH[len(path)], path, children)
        return node_id

    contests = _contests(rules)
    add({Action[name]: contests[Action[name]] for name in rules.declarations}, ())
    return ContestTree(
        rules=rules,
        nodes=tuple(nodes),
        order={action: i for i, action in enumerate(_ORDER)},
        exposes=_EXPOSES,
        special_payoffs=tuple(
            tuple(_special_payoffs(rules, dealer, punter) for punter in Special)
            for dealer in Special
        ),
    )
