"""How a policy bluffs, and how it deals with bluffs, when it plays against itself.

A *claim* is something said that the other side may believe, for a fixed price, or challenge,
which brings a comparison: an open hand that was killed, a covered hand. It is *false*, a
bluff, if the challenge would pay the challenger more than giving way. Of a tabulated
policy all figures are exact (:mod:`shuiyu_env.exact.statistics`) as far as the tables are.
"""

from __future__ import annotations

__all__ = ["Claim", "ClaimRates", "Profile", "Rates", "claims", "opened", "profile"]

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.actions import Action
from shuiyu_env.core.contest import ContestTree, Node, Payoffs, Phase
from shuiyu_env.core.hands import Outcome
from shuiyu_env.exact import PolicyTables
from shuiyu_env.exact import statistics as stats
from shuiyu_env.exact.heads_up import HeadsUpGame, payoffs_of

Floats = npt.NDArray[np.floating[Any]]


class Claim(NamedTuple):
    """Something said that the other side may challenge.

    Attributes:
        path: what was said last.
        challenges: the answers that challenge it, with those that follow from them.
        false: by outcome, whether a challenge would pay the challenger more than giving way.
        challenger: who may challenge.
    """

    path: stats.Path
    challenges: tuple[Action, ...]
    false: npt.NDArray[np.bool_]
    challenger: str


def claims(tree: ContestTree) -> Iterator[Claim]:
    """Give the claims of a tree: what can be believed for a fixed price, or compared."""
    for node in tree.nodes[1:]:
        children = {action: tree.nodes[child] for action, child in node.children.items()}
        agreed = [child for child in children.values() if child.is_leaf and not child.compares]
        compared = [child for child in children.values() if child.compares]
        if len(agreed) == 1 and compared:
            dealer = node.phase.by_dealer
            gains = np.array(payoffs_of(compared[0])) - np.array(payoffs_of(agreed[0]))
            yield Claim(
                node.path,
                tuple(action for action, child in children.items() if child not in agreed),
                (gains < 0) if dealer else (gains > 0),
                "dealer" if dealer else "punter",
            )


@dataclass(frozen=True)
class ClaimRates:
    """How often a claim is made, false, challenged and rightly so.

    Attributes:
        path: the declaration, and the call if the claim is the call.
        challenger: who may challenge, ``"dealer"`` or ``"punter"``.
        made: fraction of all deals that come to a declaration.
        false: fraction of those made; ``None`` if none is.
        challenged: fraction of those made.
        caught: fraction of the false ones that are challenged.
        right: fraction of the challenges that meet a false one.
    """

    path: tuple[Action, ...]
    challenger: str
    made: float
    false: float | None
    challenged: float | None
    caught: float | None
    right: float | None


@dataclass(frozen=True)
class Rates:
    """How often a policy does what, playing itself.

    Attributes:
        tree: the rules.
        leaves: by path, fractions of all contests, by column of ``Payoffs``:
            :func:`~shuiyu_env.exact.statistics.leaf_frequencies`, or estimates of them.
    """

    tree: ContestTree
    leaves: dict[stats.Path, Floats]

    @cached_property
    def sums(self) -> dict[stats.Path, Floats]:
        """What comes to each leaf and through each decision."""
        return stats.with_decisions(self.leaves)

    @property
    def declared(self) -> float:
        """The fraction of all contests that come to a declaration."""
        return float(self.sums[()].sum())

    def claim_rates(self) -> list[ClaimRates]:
        """Return one entry for each claim of the rules."""
        result = []
        for claim in claims(self.tree):
            said = self._at(claim.path)
            challenged = np.sum([self._at((*claim.path, a)) for a in claim.challenges], axis=0)
            made, total = float(said.sum()), float(challenged.sum())
            false, caught = float(said[claim.false].sum()), float(challenged[claim.false].sum())
            result.append(
                ClaimRates(
                    claim.path,
                    claim.challenger,
                    made / self.declared,
                    _share(false, made),
                    _share(total, made),
                    _share(caught, false),
                    _share(caught, total),
                )
            )
        return result

    def call_rates(self, node: Node) -> dict[Action, tuple[float, ...]]:
        """Return how often each call on an open hand is made if the dealer wins, pushes, loses."""
        coming = np.maximum(self._at(node.path)[: len(Outcome)], 1e-300)
        return {
            action: tuple(map(float, self._at((*node.path, action))[: len(Outcome)] / coming))
            for action in node.children
        }

    def action_rates(self) -> dict[stats.Path, float]:
        """Return how often each action is taken where it can be, by the path that ends in it."""
        result = {}
        for path, values in self.sums.items():
            if path:
                share = _share(float(values.sum()), float(self.sums[path[:-1]].sum()))
                result[path] = 0.0 if share is None else share
        return result

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain JSON values; paths as names joined by spaces."""
        return {
            "declared": self.declared,
            "claims": [asdict(rates) | {"path": _text(rates.path)} for rates in self.claim_rates()],
            "calls": {
                _text(node.path): {
                    action.name: list(rates) for action, rates in self.call_rates(node).items()
                }
                for node in opened(self.tree)
            },
            "actions": {_text(path): rate for path, rate in self.action_rates().items()},
        }

    def _at(self, path: stats.Path) -> Floats:
        """Return what comes through a decision; samples may have missed it."""
        return self.sums.get(path, np.zeros(len(Payoffs._fields)))


@dataclass(frozen=True)
class Profile(Rates):
    """The same of a tabulated policy, also by the strength of the hands.

    Attributes:
        tables: the policy.
        punter, dealer: what it does by the strength of one side's hand.
    """

    tables: PolicyTables
    punter: stats.Strength
    dealer: stats.Strength

    @property
    def game(self) -> HeadsUpGame:
        """The game it plays."""
        return self.tables.game

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain JSON values; paths as names joined by spaces."""
        by_strength = {
            side: {
                _text(path): values.sum(axis=1).tolist()
                for path, values in stats.with_decisions(strength.leaves).items()
                if path
            }
            for side, strength in (("punter", self.punter), ("dealer", self.dealer))
        }
        return super().to_dict() | {"deals_by_strength": by_strength}


def opened(tree: ContestTree) -> list[Node]:
    """Return the calls that are made on open hands."""
    return [
        node
        for node in map(tree.nodes.__getitem__, tree.root.children.values())
        if node.path[0] in tree.exposes and node.phase is Phase.CALL
    ]


def profile(tables: PolicyTables, bins: int = 20) -> Profile:
    """Return what a policy does, playing itself.

    Args:
        tables: the policy, of :func:`~shuiyu_env.exact.tabulate`.
        bins: how many bins of equally many deals, from weak hands to strong ones.
    """
    return Profile(
        tables.game.tree,
        dict(stats.leaf_frequencies(tables)),
        tables,
        stats.by_strength(tables, "punter", bins),
        stats.by_strength(tables, "dealer", bins),
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0.0 else None


def _text(path: stats.Path) -> str:
    return " ".join(action.name for action in path)
