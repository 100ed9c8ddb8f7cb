"""How often a policy does what when it plays itself: exact frequencies, without sampling.

All statistics are made of the leaves of the contest tree. For each leaf and each way
its comparison ends (or would end: hands need not be shown) there is the fraction of
all deals that come there. Everything else is a sum of these: how often an action is
taken, how often a claim is false, what the game is worth.

Ways to end are the columns of :class:`~shuiyu_env.core.contest.Payoffs`: dealer wins,
push, punter wins; the fourth is kept apart from the first only where the dealer wins
by a special and the leaf pays otherwise then. So frequencies times payoffs are units.
"""

from __future__ import annotations

__all__ = [
    "Path",
    "Strength",
    "by_strength",
    "deals_declared",
    "expected_units",
    "leaf_frequencies",
    "leaf_masses",
    "with_decisions",
]

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.actions import Action
from shuiyu_env.core.checks import as_integer, check_choice
from shuiyu_env.core.contest import Node, Payoffs
from shuiyu_env.core.errors import ConfigError
from shuiyu_env.core.hands import NUM_SPLITS, Outcome
from shuiyu_env.exact.dominance import Side
from shuiyu_env.exact.heads_up import (
    ONE_OF_EACH,
    HeadsUpGame,
    PolicyTables,
    Term,
    payoffs_of,
)

FloatArray = npt.NDArray[np.floating[Any]]
Floats = npt.NDArray[np.float64]
Path = tuple[Action, ...]  #: declaration, call and reply, as far as they go

_COLUMNS = len(Payoffs._fields)
_SPECIAL = _COLUMNS - 1
_ALL = Payoffs(1, 1, 1, 1)


def leaf_masses(tables: PolicyTables, side: Side) -> Iterator[tuple[Node, Floats]]:
    """Give the fraction of all deals that comes to each leaf, by one side's hand and split.

    Args:
        tables: the policy; if its answers to open hands were sampled, those are estimates.
        side: whose hands. On the dealer's side leaves after ``OPEN`` and ``FORCE`` are
            missing: his answers to an open hand are tabulated by that hand.

    Yields:
        Leaves, each with ``float64[K, 3, 4]``: by class of hands, split and column of ``Payoffs``.
    """
    check_choice("side", side, get_args(Side))
    game = tables.game
    # Either side's hands that come to declare; one's own as fractions of all deals.
    dealer, punter = game.plan(tables.dealer.split), game.plan(tables.punter.split)
    own = (game.classes.multiplicity / game.num_deals)[:, None]
    declared = punter[..., None] * tables.punter.declare
    for node in game.hidden:
        coming = declared[..., game.position(node)]
        for k, child in enumerate(map(game.tree.nodes.__getitem__, node.children.values())):
            calling = dealer * tables.dealer.calls[node.id][..., k]
            leaves = _leaves(tables, child)
            if not coming.any() or not calling.any():
                yield from ((leaf, np.zeros((*game.legal.shape, _COLUMNS))) for leaf, _ in leaves)
            elif side == "punter":
                special = any(_pays_otherwise(leaf) for leaf, _ in leaves)
                columns = _by_column(game, calling, side, special)
                for leaf, chance in leaves:
                    yield leaf, (own * coming * chance)[..., None] * columns
            else:
                for leaf, chance in leaves:
                    columns = _by_column(game, coming * chance, side, _pays_otherwise(leaf))
                    yield leaf, (own * calling)[..., None] * columns
    if side == "dealer":
        return
    for contest in game.opened:
        mine = own * declared[..., game.position(contest.node)]
        masses = tables.dealer.opened[contest.node.id]
        for k, child in enumerate(map(game.tree.nodes.__getitem__, contest.node.children.values())):
            for leaf, chance in _leaves(tables, child):
                yield leaf, _padded((mine * chance)[..., None] * masses[..., k, :])
    for node in game.forced:
        mine = own * declared[..., game.position(node)]
        leaf = game.tree.nodes[next(iter(node.children.values()))]
        yield leaf, _padded(mine[..., None] * tables.dealer.forced[node.id])


def leaf_frequencies(tables: PolicyTables) -> dict[Path, Floats]:
    """Return the fraction of all deals that comes to each leaf.

    Returns:
        By path, ``float64[4]`` by column of ``Payoffs``. Deals that specials decide before
        declarations are missing: all sum to :func:`deals_declared`.
    """
    return {leaf.path: mass.sum(axis=(0, 1)) for leaf, mass in leaf_masses(tables, "punter")}


def deals_declared(game: HeadsUpGame) -> float:
    """Return the fraction of all deals that come to a declaration, whatever is played."""
    first = np.broadcast_to(np.eye(NUM_SPLITS)[0], game.legal.shape)
    others = game.expect([[Term(game.plan(first), _ALL)]], "punter")[:, 0, 0]
    pairs = np.where(game.active, others, 0.0) @ game.classes.multiplicity
    return float(pairs) / game.num_deals


def with_decisions(leaves: Mapping[Path, FloatArray]) -> dict[Path, FloatArray]:
    """Return leaves and, by its path, the sum of all that come through each decision.

    The path of the declaration itself is empty. So ``frequencies[path]`` over
    ``frequencies[path[:-1]]``, both summed over outcomes, is how often an action is taken.
    """
    result: dict[Path, FloatArray] = {}
    for path, values in leaves.items():
        for length in range(len(path) + 1):
            result[path[:length]] = result.get(path[:length], 0.0) + values
    return result


def expected_units(game: HeadsUpGame, leaves: Mapping[Path, FloatArray]) -> float:
    """Return what the frequencies of leaves are worth, in units to the punter per deal."""
    payoffs = {node.path: node.payoffs for node in game.tree.nodes if node.payoffs is not None}
    return game.constant + sum(float(values @ payoffs[path]) for path, values in leaves.items())


@dataclass(frozen=True)
class Strength:
    """What comes of one side's hands, from weak to strong.

    A hand's strength is the chance that its split wins both groups against the
    arrangement of the other side's hands. Bins hold equal fractions of all deals that come to
    a declaration; equal strengths are spread alike over the bins that they lie in.

    Attributes:
        side: whose hands.
        outcomes: ``float64[bins, 3]``, mean chances of dealer wins, push, punter wins.
        leaves: by path, ``float64[bins, 4]``, fractions of all deals, as
            :func:`leaf_masses` gives them.
    """

    side: Side
    outcomes: Floats
    leaves: dict[Path, Floats]


def by_strength(tables: PolicyTables, side: Side, bins: int = 20) -> Strength:
    """Return what a policy does by the strength of one side's hand.

    Args:
        tables: the policy.
        side: whose hands; see :func:`leaf_masses` for what is missing on the dealer's.
        bins: how many bins of equal mass.

    Raises:
        RulesError: no such side.
        ConfigError: fewer than one bin.
    """
    check_choice("side", side, get_args(Side))
    number = as_integer(bins)
    if number is None or number < 1:
        raise ConfigError(f"bins: expected a whole number of 1 or more, got {bins!r}")
    game = tables.game
    players = {"dealer": tables.dealer.split, "punter": tables.punter.split}
    mine = game.plan(players.pop(side))
    (theirs,) = map(game.plan, players.values())
    outcomes = np.clip(game.expect([[Term(theirs, one)] for one in ONE_OF_EACH], side), 0.0, None)
    total = outcomes.sum(axis=-1)
    won = outcomes[..., Outcome.DEALER_WINS if side == "dealer" else Outcome.PUNTER_WINS]
    # Rounded, so that equal hands are equal.
    chance = np.round(np.where(total > 0.0, won / np.where(total > 0.0, total, 1.0), 0.0), 10)
    masses = mine * game.classes.multiplicity[:, None] / game.num_deals
    binned = _Bins(chance, masses * total, number)
    by_outcome = binned.sums(masses[..., None] * outcomes)
    return Strength(
        side=side,
        outcomes=by_outcome / by_outcome.sum(axis=-1, keepdims=True),
        leaves={leaf.path: binned.sums(mass) for leaf, mass in leaf_masses(tables, side)},
    )


class _Bins:
    """Bins of equal mass along a scale."""

    def __init__(self, scale: FloatArray, mass: FloatArray, bins: int) -> None:
        there = mass.ravel() > 0.0
        self.rows = np.flatnonzero(there)
        _, self.place = np.unique(scale.ravel()[there], return_inverse=True)
        ends = np.cumsum(np.bincount(self.place, mass.ravel()[there]))
        self.ends = np.concatenate([[0.0], ends])
        self.cuts = np.linspace(0.0, self.ends[-1], bins + 1)

    def sums(self, masses: FloatArray) -> Floats:
        """Return ``float64[bins, C]``, the sums of ``masses[K, 3, C]`` in each bin."""
        flat = masses.reshape(-1, masses.shape[-1])[self.rows]
        columns = []
        for column in flat.T:
            so_far = np.cumsum(np.bincount(self.place, column))
            columns.append(np.diff(np.interp(self.cuts, self.ends, np.append(0.0, so_far))))
        return np.stack(columns, axis=-1)


def _leaves(tables: PolicyTables, node: Node) -> list[tuple[Node, Any]]:
    """Return the leaves at or below a dealer's call, and how likely the punter goes there."""
    if node.is_leaf:
        return [(node, 1.0)]
    replies = tables.punter.replies[node.id]
    leaves = map(tables.game.tree.nodes.__getitem__, node.children.values())
    return [(leaf, replies[..., r]) for r, leaf in enumerate(leaves)]


def _pays_otherwise(leaf: Node) -> bool:
    payoffs = payoffs_of(leaf)
    return payoffs.dealer_wins_by_special != payoffs.dealer_wins


def _by_column(game: HeadsUpGame, weights: FloatArray, side: Side, special: bool) -> Floats:
    """Return ``float64[K, 3, 4]``: the other side's weighted hands against every hand of one."""
    wins = (Payoffs(1, 0, 0, 0), Payoffs(0, 0, 0, 1)) if special else (Payoffs(1, 0, 0, 1),)
    wanted: Sequence[Payoffs] = (_ALL, Payoffs(0, 0, 1, 0), *wins)
    sums = game.expect([[Term(weights, one)] for one in wanted], side)
    result = np.zeros((game.classes.size, NUM_SPLITS, _COLUMNS))
    result[..., Outcome.PUNTER_WINS] = sums[..., 1]
    result[..., Outcome.DEALER_WINS] = sums[..., 2]
    if special:
        result[..., _SPECIAL] = sums[..., 3]
    result[..., Outcome.PUSH] = sums[..., 0] - sums[..., 1:].sum(axis=-1)
    # Differences of sums: what should be zero may be a rounding error below it.
    return np.clip(result, 0.0, None)


def _padded(by_outcome: FloatArray) -> Floats:
    # After an open hand no leaf pays otherwise for specials.
    zeros = np.zeros((*by_outcome.shape[:-1], _COLUMNS - len(Outcome)))
    return np.concatenate([by_outcome, zeros], axis=-1)
