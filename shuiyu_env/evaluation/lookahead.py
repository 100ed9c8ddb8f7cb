"""Everything that can come of a deal, and what it is worth if a known policy plays on.

Once the cards are known a heads-up deal has some two hundred states. They are reached
by branching the batched environment, so that no rule stands here. A match reads in them
what luck was worth (:mod:`shuiyu_env.evaluation.match`).
"""

from __future__ import annotations

__all__ = ["Level", "look_ahead"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.game import Game
from shuiyu_env.policy import Policy, checked_probabilities


@dataclass
class Level:
    """The states after so many decisions.

    Attributes:
        env: them, M environments; those that are over have begun another deal.
        over: ``bool[M]``, whether the deal is over.
        reward: ``float32[M, 2]``, what it then paid each seat, in units.
        child: ``int64[M, A]``, the row in the next level after each action; -1: none.
        value: ``float64[M]``, what the state is worth to the punter in seat 1, in units,
            if the policy plays on in both seats.
    """

    env: BatchEnv
    over: npt.NDArray[np.bool_]
    reward: npt.NDArray[np.float32]
    child: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]

    def after(self, rows: npt.NDArray[np.intp], following: Level) -> npt.NDArray[np.float64]:
        """Return what the states after each action are worth, ``[len(rows), A]``; 0: illegal."""
        child = self.child[rows]
        return np.where(child >= 0, following.value[child], 0.0)


def look_ahead(
    game: Game, hands: Sequence[npt.ArrayLike], policy: Policy, name: str, threads: int = 1
) -> list[Level]:
    """Return the states of some deals, level by level, with seat 0 dealing.

    Args:
        game: a heads-up game of one round.
        hands: the cards of each of N deals, each ``[2, 4]``. Rows 0 to N - 1 of the first
            level are these deals.
        policy: values are what play of this policy against itself comes to.
        name: how errors name the policy.
        threads: threads that step the environments.
    """
    env = BatchEnv(game, len(hands), seed=0, threads=threads)
    env.reset(hands=np.array(hands), dealer=0)
    none = np.zeros(len(hands), dtype=np.bool_)
    levels = [_level(env, none, np.zeros((len(hands), game.num_players), dtype=np.float32))]
    while not levels[-1].over.all():
        last = levels[-1]
        legal = (last.env.action_mask != 0) & ~last.over[:, None]
        rows, actions = np.nonzero(legal)
        last.child[rows, actions] = np.arange(len(rows))
        env = last.env.branch(rows, actions)
        levels.append(_level(env, env.done.copy(), env.reward.copy()))
    levels[-1].value[:] = levels[-1].reward[:, 1]
    for level, following in zip(levels[-2::-1], levels[:0:-1], strict=True):
        level.value[:] = level.reward[:, 1]
        going = np.flatnonzero(~level.over)
        mask = level.env.action_mask[going]
        chances = checked_probabilities(
            policy, level.env.observation[going], mask, name, level.env.seat[going]
        )
        level.value[going] = (chances * level.after(going, following)).sum(axis=1)
    return levels


def _level(env: BatchEnv, over: npt.NDArray[np.bool_], reward: npt.NDArray[np.float32]) -> Level:
    child = np.full(env.action_mask.shape, -1, dtype=np.int64)
    return Level(env, over, reward, child, np.zeros(env.num_envs))
