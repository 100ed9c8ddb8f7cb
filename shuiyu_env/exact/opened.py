"""Contests in which the punter's hand lies open: small signalling games, solved in closed form.

After ``OPEN`` only the dealer knows how his split compares, so he has one type
for each outcome. He calls, the punter believes or doubts. Given how much mass m
each type has, the punter's best value is

    V(m) = max over replies rho of  sum over outcomes o of  m_o * min over calls c of A_co(rho)

with ``A_co(rho)`` what a call pays the punter in expectation of its reply: a
linear programme whose constraints do not depend on m. So V is the maximum of
``m @ g`` over its finitely many vertices (rho, g), whatever the hands: a punter
loses nothing by treating each vertex as a way to open that pays ``g`` by the
outcome, with no call at all. The dealer's equilibrium calls are the dual solution.
"""

from __future__ import annotations

__all__ = ["OpenedContest", "opened_contest"]

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.contest import Node, compile_tree
from shuiyu_env.core.hands import Outcome
from shuiyu_env.core.rules import RuleSet

FloatArray = npt.NDArray[np.float64]

NUM_OUTCOMES = len(Outcome)

_TOLERANCE = 1e-9
# Rows of masses that are solved at once: bounds the memory that it takes.
_CHUNK = 1 << 16


@dataclass(frozen=True, eq=False)
class OpenedContest:
    """The signalling game after a declaration that lays the hand open.

    C calls, R replies in all (calls without a reply count as having a single one),
    V vertices, B bases.

    Attributes:
        node: the node where the dealer calls.
        reply_nodes: by call, the node where the punter replies, or ``None``.
        payoffs: by call, ``float64[replies, 3]``, to the punter by reply and outcome.
        replies: by call, ``float64[V, replies]``, the punter's replies at each vertex.
        gains: ``float64[V, 3]``, what each vertex pays the punter by the outcome.
        duals: ``float64[B, M, 3]``: by basis, the dual solution as a linear function
            of the masses; its first 3C numbers are the masses that each call gets
            from each outcome, and it is optimal for masses where none is negative.
        vertex_of: ``int[B]``, the vertex of each basis.
    """

    node: Node
    reply_nodes: tuple[Node | None, ...]
    payoffs: tuple[FloatArray, ...]
    replies: tuple[FloatArray, ...]
    gains: FloatArray
    duals: FloatArray
    vertex_of: npt.NDArray[np.intp]

    def by_outcome(self, replies: dict[int, FloatArray]) -> FloatArray:
        """Return what a dealer who knows the outcome makes of the punter's replies.

        Args:
            replies: ``float64[..., replies]`` by reply node.

        Returns:
            ``float64[..., 3]``: units to the punter, by outcome, if the dealer calls best.
        """
        shape = next((r.shape[:-1] for r in replies.values()), ())
        calls = np.stack(
            [
                np.broadcast_to(payoffs[0], (*shape, NUM_OUTCOMES))
                if node is None
                else replies[node.id] @ payoffs
                for node, payoffs in zip(self.reply_nodes, self.payoffs, strict=True)
            ]
        )
        best: FloatArray = calls.min(axis=0)
        return best

    def solve(self, masses: FloatArray) -> tuple[npt.NDArray[np.intp], FloatArray]:
        """Solve the signalling games of some masses.

        Args:
            masses: ``float64[N, 3]``, not negative: the dealer's, by the outcome.

        Returns:
            The punter's best vertex, ``int[N]``, and the dealer's calls that
            leave no reply better than it, ``float64[N, 3, C]``: by outcome, rows
            sum to 1. An outcome without mass gets a best answer to the vertex.
        """
        vertices = np.empty(len(masses), dtype=np.intp)
        calls = np.empty((len(masses), NUM_OUTCOMES, len(self.payoffs)))
        for start in range(0, len(masses), _CHUNK):
            part = slice(start, start + _CHUNK)
            vertices[part], calls[part] = self._solve(masses[part])
        return vertices, calls

    def _solve(self, masses: FloatArray) -> tuple[npt.NDArray[np.intp], FloatArray]:
        rows = np.arange(len(masses))
        # A basis is optimal where its dual solution is nowhere negative: take the least negative.
        duals = self.duals @ masses.T  # [B, M, N]
        basis = duals.min(axis=1).argmax(axis=0)
        vertex = self.vertex_of[basis]
        size = len(self.payoffs) * NUM_OUTCOMES
        plan = np.clip(duals[basis, :size, rows], 0.0, None)
        plan = plan.reshape(-1, len(self.payoffs), NUM_OUTCOMES).transpose(0, 2, 1)
        # Where there is no mass, or none to speak of, the type answers the vertex as best it can.
        answers = np.stack(
            [replies @ payoffs for replies, payoffs in zip(self.replies, self.payoffs, strict=True)]
        )  # [C, V, 3]
        best = answers.argmin(axis=0)[vertex]
        fallback = np.arange(len(self.payoffs)) == best[:, :, None]
        total = plan.sum(axis=2, keepdims=True)
        scale = masses.sum(axis=1)[:, None, None]
        known = total > _TOLERANCE * scale
        return vertex, np.where(known, plan / np.where(known, total, 1.0), fallback)


@lru_cache(maxsize=64)
def opened_contest(rules: RuleSet, node_id: int) -> OpenedContest:
    """Compile the signalling game at a node where the dealer calls on an open hand."""
    tree = compile_tree(rules)
    node = tree.nodes[node_id]
    children = [tree.nodes[child] for child in node.children.values()]
    payoffs = []
    for child in children:
        leaves = [child] if child.is_leaf else [tree.nodes[n] for n in child.children.values()]
        payoffs.append(np.array([_by_outcome(leaf) for leaf in leaves]))
    first, a, b = _constraints(payoffs)
    size = a.shape[1]
    objective = slice(size - NUM_OUTCOMES, size)
    points: list[FloatArray] = []
    vertex_of: list[int] = []
    duals: list[FloatArray] = []
    for active in map(list, combinations(range(len(a)), size)):
        if abs(np.linalg.det(a[active])) < _TOLERANCE:
            continue
        point = np.linalg.solve(a[active], b[active]).astype(np.float64)
        if (a @ point > b + _TOLERANCE).any():
            continue
        dual = np.zeros((len(a), NUM_OUTCOMES))
        dual[active] = np.linalg.inv(a[active].T)[:, objective]
        if not _has_interior(dual):
            continue  # optimal for no masses, or only where another vertex is as well
        # Vertices that pay the same are the same way to open: the first one's replies will do.
        gains = point[objective]
        same = [k for k, other in enumerate(points) if np.allclose(other[objective], gains)]
        if not same:
            points.append(point)
        vertex_of.append(same[0] if same else len(points) - 1)
        duals.append(dual)
    vertices = np.array(points)
    replies = []
    for c in range(len(payoffs)):
        others = vertices[:, first[c] : first[c + 1]]
        replies.append(np.concatenate([1.0 - others.sum(axis=1, keepdims=True), others], axis=1))
    return OpenedContest(
        node=node,
        reply_nodes=tuple(None if child.is_leaf else child for child in children),
        payoffs=tuple(payoffs),
        replies=tuple(replies),
        gains=vertices[:, objective],
        duals=np.array(duals),
        vertex_of=np.array(vertex_of),
    )


def _by_outcome(leaf: Node) -> FloatArray:
    """Return a leaf's payoffs by outcome; those of an open hand know no specials."""
    assert leaf.payoffs is not None
    assert leaf.payoffs.dealer_wins_by_special == leaf.payoffs.dealer_wins
    return np.array([leaf.payoffs[outcome] for outcome in Outcome], dtype=np.float64)


def _constraints(payoffs: list[FloatArray]) -> tuple[list[int], FloatArray, FloatArray]:
    """Return where each call's unknowns begin, and all constraints ``a @ x <= b``.

    Unknowns are the probability of every reply but the first of its call, then a
    gain for each outcome. The first constraints, by call and outcome, say that a
    gain is no more than what the call pays; the others, that replies are probabilities.
    """
    first = [0]
    for values in payoffs:
        first.append(first[-1] + len(values) - 1)
    size = first[-1] + NUM_OUTCOMES
    rows, bounds = [], []
    for c, values in enumerate(payoffs):
        for outcome in range(NUM_OUTCOMES):
            row = np.zeros(size)
            row[first[-1] + outcome] = 1.0
            row[first[c] : first[c + 1]] = values[0, outcome] - values[1:, outcome]
            rows.append(row)
            bounds.append(values[0, outcome])
    for c in range(len(payoffs)):
        for unknown in range(first[c], first[c + 1]):
            row = np.zeros(size)
            row[unknown] = -1.0
            rows.append(row)
            bounds.append(0.0)
        if first[c] < first[c + 1]:
            row = np.zeros(size)
            row[first[c] : first[c + 1]] = 1.0
            rows.append(row)
            bounds.append(1.0)
    return first, np.array(rows), np.array(bounds)


def _has_interior(dual: FloatArray) -> bool:
    """Whether ``dual @ m`` is positive, where it is not zero for all m, for some masses m > 0.

    The masses of sum 1 for which it is nowhere negative form a polygon, whose corners lie
    where two of the conditions hold with equality.
    """
    conditions = np.concatenate([dual, np.eye(NUM_OUTCOMES)])
    conditions = conditions[np.abs(conditions).max(axis=1) > _TOLERANCE]
    corners = []
    for u, v in combinations(conditions, 2):
        corner = np.cross(u, v)
        if abs(corner.sum()) > _TOLERANCE:
            corner = corner / corner.sum()
            if (conditions @ corner >= -_TOLERANCE).all():
                corners.append(corner)
    return bool(corners) and bool((conditions @ np.mean(corners, axis=0) > _TOLERANCE).all())
