"""Deals, played by policies in all rotations of the seats; with less luck, if wanted.

Heads-up, luck can be taken out of the result: AIVAT (Burch et al., "AIVAT: A new variance
reduction technique for agent evaluation in imperfect information games", 2018). For every
deal it is known what each of its states is worth if an equilibrium plays on in both seats,
with both hands seen. At each decision what that action was worth is compared with the
expectation over the policy's own probabilities, and what the cards were worth with what
they are worth on average, the equilibrium's value. These differences have expectation
zero whatever is played, and taken from the result they leave it unbiased; the nearer
the play is to the equilibrium's, the less is left to chance.
"""

from __future__ import annotations

__all__ = ["Control", "Table", "equilibrium_at_hand", "is_zero_sum"]

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.deals import Purpose, deal_hands, random_words
from shuiyu_env.core.errors import ConfigError
from shuiyu_env.core.game import Game
from shuiyu_env.core.rules import RuleSet
from shuiyu_env.evaluation.lookahead import look_ahead
from shuiyu_env.policy import Policy, checked_probabilities, sample_actions

if TYPE_CHECKING:
    from shuiyu_env.exact import Equilibrium


def is_zero_sum(game: Game) -> bool:
    """Whether a game is one of those that are solved: heads-up, transfers, no stakes."""
    return game.num_players == 2 and game.reward == "transfer" and game.rules.max_stake == 1


def equilibrium_at_hand(game: Game) -> bool:
    """Whether an equilibrium ships with the package.

    One in the user's cache does not count: results should not depend on what was solved before.
    """
    if not is_zero_sum(game):
        return False
    # Compiled code that plain matches do without.
    from shuiyu_env.exact.store import SHIPPED, file_name

    return (SHIPPED / file_name(game.rules)).exists()


@dataclass(frozen=True)
class Control:
    """The equilibrium that control variates come from, and what it is worth to the punter."""

    policy: Policy
    value: float

    @classmethod
    def of(cls, game: Game, wanted: bool) -> Control | None:
        """Return it, found or solved for, if control variates are wanted."""
        if not wanted:
            return None
        if not is_zero_sum(game):
            raise ConfigError(
                "control_variates: expected a heads-up game without stakes and with"
                f" reward='transfer', of which an equilibrium can be known; got"
                f" {game.num_players} seats, reward={game.reward!r},"
                f" max_stake={game.rules.max_stake}"
            )
        equilibrium = _equilibrium(game.rules)
        return cls(equilibrium, float(equilibrium.info["value"]))


@lru_cache(maxsize=1)
def _equilibrium(rules: RuleSet) -> Equilibrium:
    # Kept: one match follows another, and what it works out about all hands goes with it.
    from shuiyu_env.exact.store import equilibrium_of

    return equilibrium_of(rules)


@dataclass
class Table:
    """Who plays what, and how."""

    game: Game
    names: list[str]
    players: list[Policy]
    seed: int
    threads: int
    control: Control | None

    def play(
        self, deals: npt.NDArray[np.intp]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
        """Play some deals in all rotations; return :attr:`MatchResult.units` and ``adjusted``."""
        n = self.game.num_players
        hands = [deal_hands(self.game.rules.deck, n, self.seed, 0, int(deal)) for deal in deals]
        play = self._play_out if self.control is None else self._play_controlled
        # Games, by deal and rotation.
        numbers, rotations = np.divmod(np.arange(len(deals) * n), n)
        words = [
            random_words(self.seed, int(rotation), int(deals[number]), Purpose.ACTIONS)
            for number, rotation in zip(numbers, rotations, strict=True)
        ]
        # Whose turn it is: by game and seat the entry.
        entry_at = (np.arange(n) - rotations[:, None]) % n
        units, adjusted = play(hands, numbers, entry_at, words)
        shape = (len(deals), n, n)
        return units.reshape(shape), adjusted.reshape(shape)

    def _answers(
        self,
        owner: npt.NDArray[np.intp],
        observation: npt.NDArray[np.float32],
        mask: npt.NDArray[np.int8],
        seat: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.float64]:
        """Return every row's probabilities, each policy asked once for all its entries."""
        first = [next(i for i, p in enumerate(self.players) if p is q) for q in self.players]
        owner = np.array(first)[owner]
        result = np.zeros(mask.shape)
        for entry in np.unique(owner):
            rows = np.flatnonzero(owner == entry)
            result[rows] = checked_probabilities(
                self.players[entry], observation[rows], mask[rows], self.names[entry], seat[rows]
            )
        return result

    def _play_out(
        self,
        hands: list[list[tuple[int, ...]]],
        numbers: npt.NDArray[np.intp],
        entry_at: npt.NDArray[np.intp],
        words: list[Iterator[int]],
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
        """Play one game for each number of a deal; return units ``[games, n]`` by entry, twice."""
        env = BatchEnv(self.game, len(numbers), self.seed, self.threads)
        env.reset(hands=np.array(hands)[numbers], dealer=0)
        units = np.zeros(entry_at.shape, dtype=np.float32)
        playing = np.arange(len(numbers))
        while len(playing):
            # A game that is over has begun anew: it only has to go on until the last one is over.
            actions = env.action_mask.argmax(axis=1)
            mask, seat = env.action_mask[playing], env.seat[playing]
            owner = entry_at[playing, seat]
            chances = self._answers(owner, env.observation[playing], mask, seat)
            actions[playing] = _drawn(chances, mask, words, playing)
            env.step(actions)
            over = env.done[playing]
            ended, playing = playing[over], playing[~over]
            units[ended[:, None], entry_at[ended]] = env.reward[ended]
        return units, units.astype(np.float64)

    def _play_controlled(
        self,
        hands: list[list[tuple[int, ...]]],
        numbers: npt.NDArray[np.intp],
        entry_at: npt.NDArray[np.intp],
        words: list[Iterator[int]],
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
        """Do as :meth:`_play_out`, and take from the second result what luck was worth."""
        assert self.control is not None
        levels = look_ahead(self.game, hands, self.control.policy, "equilibrium", self.threads)
        rows, playing = numbers.copy(), np.arange(len(numbers))
        units = np.zeros(entry_at.shape, dtype=np.float32)
        # To the punter's seat: at first, what the cards are worth more than on average.
        luck = levels[0].value[numbers] - self.control.value
        for level, following in zip(levels, [*levels[1:], None], strict=True):
            over = level.over[rows]
            ended = playing[over]
            units[ended[:, None], entry_at[ended]] = level.reward[rows[over]]
            rows, playing = rows[~over], playing[~over]
            if following is None or not len(playing):
                break
            mask, seat = level.env.action_mask[rows], level.env.seat[rows]
            owner = entry_at[playing, seat]
            chances = self._answers(owner, level.env.observation[rows], mask, seat)
            actions = _drawn(chances, mask, words, playing)
            values = level.after(rows, following)
            luck[playing] += values[np.arange(len(rows)), actions] - (chances * values).sum(axis=1)
            rows = level.child[rows, actions]
        adjusted = units.astype(np.float64)
        every = np.arange(len(numbers))
        adjusted[every, entry_at[:, 1]] -= luck
        adjusted[every, entry_at[:, 0]] += luck
        return units, adjusted


def _drawn(
    chances: npt.NDArray[np.float64],
    mask: npt.NDArray[np.int8],
    words: list[Iterator[int]],
    games: npt.NDArray[np.intp],
) -> npt.NDArray[np.int64]:
    """Return the actions of some games, each drawn by its game's next word."""
    return sample_actions(chances, mask, np.array([next(words[game]) for game in games]) / 2.0**32)
