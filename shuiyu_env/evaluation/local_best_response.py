"""A local best response: each decision as good as it can be if the policy plays on after it.

After Lisy and Bowling, "Equilibrium approximation quality of current no-limit poker bots" (2017).
"""

from __future__ import annotations

__all__ = ["LocalBestResponse"]

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.actions import NUM_BASE_ACTIONS, Action
from shuiyu_env.core.cards import HAND_SIZE
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.game import Game
from shuiyu_env.core.rules import DECLARATIONS
from shuiyu_env.evaluation.match import at_least
from shuiyu_env.observation import CALLS, REPLIES, layout_of
from shuiyu_env.policy import Policy, checked_probabilities, sample_actions

Integers = npt.NDArray[np.integer[Any]]


class LocalBestResponse:
    """Answers each decision as well as it can, and plays on as the policy does.

    It deals hands that are possible to the other seats, plays what was seen to happen, weighs
    each hand by how likely the policy was to do that, and then plays every action out.

    Args:
        policy: what all seats play, this one's own later decisions too.
        game: the game.
        particles: hands dealt for each decision.
        seed: of these hands; the same for the same observation.
    """

    def __init__(self, policy: Policy, game: Game, particles: int = 128, seed: int = 0) -> None:
        self.policy, self.particles = policy, at_least(1, "particles", particles)
        # As for deals, any integer, modulo 2**64.
        self.seed = at_least(None, "seed", seed) % 2**64
        self.game = Game(game.num_players, game.rules, reward=game.reward)
        self.layout = layout_of(self.game)

    def probabilities(
        self, observation: npt.NDArray[np.float32], action_mask: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64]:
        """Return 1 for what seems best; as :class:`~shuiyu_env.policy.Policy` says."""
        mask = np.asarray(action_mask)
        result = np.zeros(mask.shape)
        size = max(1, 32768 // self.particles)
        for start in range(0, len(mask), size):
            part = slice(start, start + size)
            best = self._best(np.asarray(observation[part]), mask[part])
            result[np.arange(start, start + len(best)), best] = 1.0
        return result

    def _best(self, observation: npt.NDArray[np.float32], mask: npt.NDArray[Any]) -> Integers:
        """Return the best action of each row."""
        n, count = self.game.num_players, self.particles
        seen = {k: np.asarray(v) for k, v in self.layout.views(observation).items()}
        # The dealer sits in seat 0: where this seat is, and every other seen from it.
        me = (-seen["seats.dealer"][..., 0].argmax(axis=1)) % n
        hands, uniforms = self._deal(observation, seen, me)
        row = np.repeat(np.arange(len(mask)), count)
        env = BatchEnv(self.game, len(row), self.seed)
        env.reset(hands=hands, dealer=0)
        weight = np.ones(len(row))
        value, total = np.zeros(mask.shape), np.zeros(len(mask))
        step = 0
        while True:
            # What these see is what was seen: here is the decision.
            there = (env.seat == me[row]) & (env.observation == observation[row]).all(axis=1)
            if there.any():
                at = np.flatnonzero(there & (weight > 0.0))
                self._play_out(env, at, row[at], me, weight[at], mask, value, total)
            going = ~there & (weight > 0.0)
            chances = self._answers(env, going)
            drawn = sample_actions(chances, env.action_mask, uniforms[:, step])
            told = self._told(env, seen, row, me)
            # Another deal than the one that was seen: an own decision that was not made, an
            # action that is not legal.
            possible = (told >= 0) | (env.seat != me[row])
            action = np.where(told >= 0, told, drawn)
            legal = env.action_mask[np.arange(len(row)), action] != 0
            going &= possible & legal
            likely = chances[np.arange(len(row)), action]
            others = (told >= 0) & (env.seat != me[row])
            weight *= np.where(others, likely, 1.0)
            going &= weight > 0.0
            if not going.any():
                break
            rows = np.flatnonzero(going)
            env = env.branch(rows, action[rows])
            row, weight, uniforms = row[rows], weight[rows], uniforms[rows]
            weight = np.where(env.settled, 0.0, weight)
            step += 1
        # Where nothing fits, as the policy would.
        lost = np.flatnonzero(total == 0.0)
        if len(lost):
            value[lost] = checked_probabilities(
                self.policy, observation[lost], mask[lost], "the policy"
            )
        best: Integers = np.where(mask != 0, value, -np.inf).argmax(axis=1)
        return best

    def _deal(
        self,
        observation: npt.NDArray[np.float32],
        seen: Mapping[str, npt.NDArray[Any]],
        me: Integers,
    ) -> tuple[Integers, npt.NDArray[np.float64]]:
        """Return hands ``[rows * particles, n, 4]`` by seat, and numbers to draw actions by."""
        n, count = self.game.num_players, self.particles
        deck = np.array(self.game.rules.deck.cards)
        hands = np.empty((len(me), count, n, HAND_SIZE), dtype=np.int64)
        uniforms = np.empty((len(me), count, 1 + n * len(Phase)))
        for i, own in enumerate(me):
            rng = np.random.default_rng([self.seed, zlib.crc32(observation[i].tobytes())])
            shown = seen["seats.shown_hand"][i].astype(bool)
            shown[0] = seen["hand"][i] != 0
            free = np.setdiff1d(deck, np.flatnonzero(shown.any(axis=0)))
            shuffled = rng.permuted(np.broadcast_to(free, (count, len(free))), axis=1)
            for other in range(n):
                seat = (own + other) % n
                if shown[other].any():
                    hands[i, :, seat] = np.flatnonzero(shown[other])[::-1]
                else:
                    taken, shuffled = shuffled[:, :HAND_SIZE], shuffled[:, HAND_SIZE:]
                    hands[i, :, seat] = -np.sort(-taken, axis=1)
            uniforms[i] = rng.random(uniforms[i].shape)
        return hands.reshape(-1, n, HAND_SIZE), uniforms.reshape(-1, uniforms.shape[-1])

    def _answers(self, env: BatchEnv, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        chances = np.where(env.action_mask != 0, 1.0, 0.0)
        rows = np.flatnonzero(wanted)
        if len(rows):
            chances[rows] = checked_probabilities(
                self.policy, env.observation[rows], env.action_mask[rows], "the policy"
            )
        return chances

    def _told(
        self,
        env: BatchEnv,
        seen: Mapping[str, npt.NDArray[Any]],
        row: Integers,
        me: Integers,
    ) -> Integers:
        """Return the action that the observation says was taken here, -1 where it is hidden."""
        n = self.game.num_players
        there = {k: np.asarray(v) for k, v in self.layout.views(env.observation).items()}
        phase = there["phase"].argmax(axis=1)
        acting = (env.seat - me[row]) % n
        contested = (env.seat + there["seats.contested"][..., 0].argmax(axis=1) - me[row]) % n

        def of(field: str, seat: Integers) -> npt.NDArray[Any]:
            return seen[field][row, seat]

        split = np.where(
            (acting == 0)[:, None], seen["split"][row], of("seats.shown_split", acting)
        )
        stakes = seen["seats.stake"].shape[-1]
        sources: list[tuple[Phase, npt.NDArray[Any], Sequence[int]]] = [
            (Phase.ARRANGE, split, range(split.shape[1])),
            (Phase.DECLARE, of("seats.declaration", acting), [Action[d] for d in DECLARATIONS]),
            (Phase.CALL, of("seats.call", contested), CALLS),
            (Phase.REPLY, of("seats.reply", acting), REPLIES),
            (Phase.REARRANGE, of("seats.force_split", contested), range(split.shape[1])),
        ]
        if stakes:
            levels = range(NUM_BASE_ACTIONS, NUM_BASE_ACTIONS + stakes)
            sources.append((Phase.STAKE, of("seats.stake", acting), levels))
        told = np.full(len(row), -1, dtype=np.int64)
        for kind, flags, actions in sources:
            known = (phase == kind) & (flags != 0).any(axis=1)
            told[known] = np.asarray([int(a) for a in actions])[flags.argmax(axis=1)][known]
        return told

    def _play_out(
        self,
        env: BatchEnv,
        at: Integers,
        row: Integers,
        me: Integers,
        weight: npt.NDArray[np.float64],
        mask: npt.NDArray[Any],
        value: npt.NDArray[np.float64],
        total: npt.NDArray[np.float64],
    ) -> None:
        """Take every legal action in these environments, and add what came of it to ``value``."""
        if not len(at):
            return
        np.add.at(total, row, weight)
        which, actions = np.nonzero(mask[row] != 0)
        now = env.branch(at[which], actions)
        paid = np.zeros(len(which))
        playing = np.arange(len(which))
        rng = np.random.default_rng([self.seed, len(at)])
        # The same numbers for all actions of a particle.
        draws = rng.random((len(at), 1 + self.game.num_players * len(Phase)))
        for step in range(draws.shape[1]):
            paid[playing] += now.reward[np.arange(len(playing)), me[row[which[playing]]]]
            keep = np.flatnonzero(~now.settled)
            playing = playing[keep]
            if not len(playing):
                break
            chances = checked_probabilities(
                self.policy, now.observation[keep], now.action_mask[keep], "the policy"
            )
            chosen = sample_actions(chances, now.action_mask[keep], draws[which[playing], step])
            now = now.branch(keep, chosen)
        np.add.at(value, (row[which], actions), weight[which] * paid)
