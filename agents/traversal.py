"""External sampling: what counterfactual regret learners see of a game, for many deals at once.

In each deal one seat is the traverser. Where it acts, every legal action is
tried; where another seat acts, one action is drawn from its policy. That gives
an unbiased estimate of the counterfactual value of each of the traverser's
actions (Lanctot et al., "Monte Carlo sampling for regret minimization in
extensive games", 2009). All deals go down the tree together, level by level,
and their values are passed up the same way.

With many seats a dealer decides so often in one deal that trying everything
takes too long. Then only some of its decisions, drawn by chance, are branched,
and at the others one action is drawn from its own policy. What is seen less
often for that gets a larger weight, so that sums remain unbiased.
"""

from __future__ import annotations

__all__ = [
    "OpponentNodes",
    "PolicyFunction",
    "Traversal",
    "TraverserNodes",
    "deal_game",
    "traverse",
]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agents.learner import out_of_range
from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.game import Game
from shuiyu_env.policy import sample_actions

#: What seats see (encoded) and ``bool`` masks ``[B, A]`` in; probabilities ``float32[B, A]``
#: out, which are zero where the mask is.
PolicyFunction = Callable[[Tensor, Tensor], Tensor]


class TraverserNodes(NamedTuple):
    """Decisions of the traverser at which all actions were tried: K of them."""

    seen: Tensor  #: ``[K, ...]``, the encoded observation
    mask: Tensor  #: ``bool[K, A]``
    action_values: Tensor  #: ``float32[K, A]``, units to the traverser; 0 where illegal
    value: Tensor  #: ``float32[K]``, the policy's mean of them
    reach: Tensor  #: ``float32[K]``, probability of the traverser's own actions up to here
    #: ``float32[K]``, 1 / probability that the traverser's own decisions came to be tried
    #: up to here: 1 if all are.
    weight: Tensor

    @property
    def advantages(self) -> Tensor:
        """Sampled instantaneous regrets ``float32[K, A]``; 0 where illegal."""
        return (self.action_values - self.value[:, None]) * self.mask


class OpponentNodes(NamedTuple):
    """Decisions of other seats, met as often as the policies get there: K of them.

    Heads-up that is as often as the seat's own policy does, since the traverser tries all
    actions: averages over iterations weigh each as CFR's do. With more seats the other seats'
    play counts as well, and no average is known to come near an equilibrium anyway.
    """

    seen: Tensor  #: ``[K, ...]``, the encoded observation
    mask: Tensor  #: ``bool[K, A]``
    probabilities: Tensor  #: ``float32[K, A]``
    weight: Tensor  #: ``float32[K]``, as that of :class:`TraverserNodes`


@dataclass(frozen=True)
class Traversal:
    """What came out of some deals.

    Attributes:
        traverser: where the traversers acted; only decisions with a choice.
        opponents: where the others did; only decisions with a choice.
        root_value: ``float32[deals]``, units that the traverser of each deal gets.
        num_nodes: decisions visited.
    """

    traverser: TraverserNodes
    opponents: OpponentNodes
    root_value: Tensor
    num_nodes: int


#: However little room there is, this part of a level's decisions is branched: all are learned.
_LEAST_SHARE = 0.05


class _Level(NamedTuple):
    """The decisions that are equally many actions away from their deals' beginnings: M of them."""

    seen: Tensor  # [M, ...]
    mask: Tensor  # bool[M, A]
    probabilities: Tensor  # float32[M, A]
    branched: npt.NDArray[np.bool_]  # [M]
    others: npt.NDArray[np.bool_]  # [M], whether it is another seat's decision with a choice
    reach: npt.NDArray[np.float64]  # [M]
    visited: npt.NDArray[np.float64]  # [M], probability of the traverser's decisions tried so far
    share: float  # probability that a traverser's decision was branched
    source: npt.NDArray[np.int64]  # [C], the decision that each child follows from
    action: npt.NDArray[np.int64]  # [C], by which action
    paid: npt.NDArray[np.float64]  # [C], units to the traverser by that action
    live: npt.NDArray[np.int64]  # the children that are decisions: in this order the next level


def deal_game(game: Game) -> Game:
    """Return the game of one deal: what a session repeats, and what is traversed."""
    return Game(game.num_players, game.rules, reward=game.reward)


def traverse(
    env: BatchEnv,
    traversers: npt.ArrayLike,
    policy: PolicyFunction,
    generator: torch.Generator,
    encode: Callable[[Tensor], Tensor] | None = None,
    max_width: float = 64.0,
) -> Traversal:
    """Go through the deals that a batch is at.

    Args:
        env: the deals, N; it does not change.
        traversers: the traverser's seat of each deal, ``[N]``, or of all.
        policy: what everybody plays; it is asked about encoded observations.
        generator: what actions are drawn from, on the CPU or where the policy answers.
        encode: makes of observations ``float32[B, D]`` what the policy reads and what is
            kept; they stay what they are without it.
        max_width: how many copies of each deal there may be at once, on average; beyond,
            decisions of traversers are branched by chance.

    Raises:
        ConfigError: ``max_width`` is below 1.
    """
    if not max_width >= 1.0:
        raise out_of_range("max_width", "1 or more", max_width)
    size, device = env.num_envs, generator.device
    seats = np.broadcast_to(np.asarray(traversers, dtype=np.int64), (size,))
    deal = rows = np.arange(size)
    reach, visited = np.ones(size), np.ones(size)
    levels: list[_Level] = []
    while len(rows):
        legal = env.action_mask[rows] != 0
        mask = torch.from_numpy(legal).to(device)
        seen = torch.from_numpy(env.observation[rows]).to(device)
        if encode is not None:
            seen = encode(seen)
        with torch.no_grad():
            probabilities = policy(seen, mask)
        is_choice = legal.sum(axis=1) > 1
        is_own = env.seat[rows] == seats[deal]
        branched = is_own & is_choice
        # Every decision that is branched makes more copies: only as many as there is room for.
        copies = int((legal.sum(axis=1) - 1)[branched].sum())
        share = min(1.0, max(_LEAST_SHARE, (max_width * size - len(rows)) / max(copies, 1)))
        if share < 1.0:
            coins = torch.rand(len(rows), generator=generator, device=device)
            branched &= coins.cpu().numpy() < share
        uniforms = torch.rand(len(rows), generator=generator, dtype=torch.float64, device=device)
        chances = probabilities.cpu().numpy()
        drawn = sample_actions(chances, legal, uniforms.cpu().numpy())
        tried = np.zeros_like(legal)
        tried[np.arange(len(rows)), drawn] = True
        tried[branched] = legal[branched]

        source, action = np.nonzero(tried)
        children = env.branch(rows[source], action)
        deal = deal[source]
        paid = children.reward[np.arange(len(source)), seats[deal]].astype(np.float64)
        live = np.flatnonzero(~children.settled)
        others = ~is_own & is_choice
        levels.append(
            _Level(
                seen,
                mask,
                probabilities,
                branched,
                others,
                reach,
                visited,
                share,
                source,
                action,
                paid,
                live,
            )
        )
        chosen = np.where(is_own[source], chances[source, action].astype(np.float64), 1.0)
        # All actions if branched, otherwise one by the policy.
        reach = (reach[source] * chosen)[live]
        visited = (visited[source] * (share + (1.0 - share) * chosen))[live]
        env, rows, deal = children, live, deal[live]
    return _passed_up(levels)


def _passed_up(levels: list[_Level]) -> Traversal:
    """Return what the values at the ends of the deals make of all decisions."""
    traverser: list[tuple[Tensor, ...]] = []
    opponents: list[tuple[Tensor, ...]] = []
    value = np.empty(0)
    for level in reversed(levels):
        of_children = level.paid.copy()
        of_children[level.live] = value
        action_values = np.zeros(level.mask.shape)
        action_values[level.source, level.action] = of_children
        # A drawn action stands for all: its value alone is an unbiased estimate of their mean.
        weighted = level.probabilities.cpu().numpy() * action_values
        value = np.where(level.branched, weighted.sum(axis=1), action_values.sum(axis=1))

        weight = 1.0 / level.visited
        traverser.append(
            _part(
                level.branched,
                level.seen,
                level.mask,
                action_values,
                value,
                level.reach,
                weight / level.share,
            )
        )
        opponents.append(_part(level.others, level.seen, level.mask, level.probabilities, weight))
    return Traversal(
        TraverserNodes(*(torch.cat(parts) for parts in zip(*reversed(traverser), strict=True))),
        OpponentNodes(*(torch.cat(parts) for parts in zip(*reversed(opponents), strict=True))),
        root_value=torch.from_numpy(value.astype(np.float32)),
        num_nodes=sum(len(level.mask) for level in levels),
    )


def _part(which: npt.NDArray[np.bool_], *arrays: Any) -> tuple[Tensor, ...]:
    """Return the wanted rows of tensors and arrays, as tensors beside the first of them."""
    device = arrays[0].device
    at = torch.from_numpy(which).to(device)
    return tuple(
        (
            array
            if isinstance(array, Tensor)
            else torch.from_numpy(array.astype(np.float32)).to(device)
        )[at]
        for array in arrays
    )
