"""Many games at once: arrays in, arrays out.

This is the reference implementation of the array contract: a plain loop over
:class:`~shuiyu_env.core.game.State`, with the vectorised encoder behind it.
"""

from __future__ import annotations

__all__ = ["BatchEnv"]

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.deals import Purpose, draw_below, random_words
from shuiyu_env.core.errors import DealError, IllegalActionError, RulesError, ShuiyuError
from shuiyu_env.core.game import Game, State
from shuiyu_env.observation import ViewBatch, layout_of
from shuiyu_env.tables import hand_table


class BatchEnv:
    """Many independent episodes of one game; finished ones restart by themselves.

    Environment ``i`` plays the deals of stream ``(seed, i)`` in order, so what
    it plays depends neither on the number of environments nor on threads.

    Args:
        game: the settings of the table.
        num_envs: N, at least 1.
        seed: seed of all streams.
        threads: how many threads may step the environments. Results never
            depend on it; this implementation uses one.

    Attributes:
        observation: ``float32[N, D]`` of the seat to act.
        action_mask: ``int8[N, A]`` of the seat to act; every row has a 1.
        seat: ``int64[N]``, the seat to act.
        reward: ``float32[N, num_players]``, units the last step paid each seat.
        done: ``bool[N]``, whether the last step ended an episode. ``observation``,
            ``action_mask`` and ``seat`` are then already of the next one.

    The arrays stay the same objects and are written in place by :meth:`reset`
    and :meth:`step`; copy what is to be kept.

    Raises:
        RulesError: no environments, no threads.
        DealError: a seed that is no integer.
    """

    def __init__(self, game: Game, num_envs: int, seed: int, threads: int = 1) -> None:
        for name, value in (("num_envs", num_envs), ("threads", threads)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise RulesError(f"{name}: expected a whole number of 1 or more, got {value!r}")
        try:
            self.seed = operator.index(seed)
        except TypeError:
            raise DealError(f"seed: expected an integer, got {seed!r}") from None
        self.game = game
        self.num_envs = int(num_envs)
        self.threads = int(threads)
        self.layout = layout_of(game)
        self._hand_table = hand_table(game.rules.deck, game.rules.tie_break)
        self.observation = np.zeros((self.num_envs, self.layout.size), dtype=np.float32)
        self.action_mask = np.zeros((self.num_envs, game.num_actions), dtype=np.int8)
        self.seat = np.zeros(self.num_envs, dtype=np.int64)
        self.reward = np.zeros((self.num_envs, game.num_players), dtype=np.float32)
        self.done = np.zeros(self.num_envs, dtype=np.bool_)
        self._rows = np.arange(self.num_envs)
        self._next_index = [0] * self.num_envs
        self._draws = [0] * self.num_envs
        self._states: list[State] = []
        self.reset()

    @property
    def states(self) -> list[State]:
        """The states behind the rows; treat them as read-only."""
        return self._states

    def reset(
        self, hands: npt.ArrayLike | None = None, dealer: npt.ArrayLike | None = None
    ) -> None:
        """Begin a new episode in every environment, with the next deals of its stream.

        Args:
            hands: card codes ``[N, num_players, 4]`` (or one table's,
                ``[num_players, 4]``) for the first deal instead.
            dealer: the first dealer, one for all or ``[N]``.

        Raises:
            DealError: hands or dealers of the wrong shape or that cannot be
                dealt; nothing has changed.
        """
        given = None if hands is None else self._per_env("hands", hands, (self.game.num_players, 4))
        dealers = None if dealer is None else self._per_env("dealer", dealer, ())
        self._states = [
            self.game.new_state(
                self.seed,
                None if given is None else given[i].tolist(),
                None if dealers is None else dealers[i],
                stream=i,
                index=self._next_index[i],
            )
            for i in range(self.num_envs)
        ]
        self._next_index = [index + self.game.rounds for index in self._next_index]
        self.reward[:] = 0.0
        self.done[:] = False
        self._observe()

    def step(self, actions: npt.ArrayLike) -> None:
        """Take one action in every environment.

        Args:
            actions: integers ``[N]``, each legal in its environment.

        Raises:
            IllegalActionError: wrong shape or type, or an illegal action (the
                message names environment, seat, phase and legal actions);
                nothing has changed.
        """
        chosen = np.asarray(actions)
        if chosen.shape != (self.num_envs,) or not np.issubdtype(chosen.dtype, np.integer):
            raise IllegalActionError(
                f"actions: expected integers of shape ({self.num_envs},), got {chosen.dtype} of"
                f" shape {chosen.shape}"
            )
        in_range = (chosen >= 0) & (chosen < self.game.num_actions)
        legal = in_range & (self.action_mask[self._rows, np.where(in_range, chosen, 0)] == 1)
        if not legal.all():
            first = int(np.argmin(legal))
            error = self._states[first].deal.illegal_action(int(chosen[first]))
            raise IllegalActionError(f"environment {first}: {error}")
        self.reward[:] = 0.0
        self.done[:] = False
        for i, action in enumerate(chosen.tolist()):
            state = self._states[i]
            state.apply(action)
            if not state.deal.actions or state.is_terminal:
                self.reward[i] = state.finished[-1].rewards
                if state.is_terminal:
                    self.done[i] = True
                    self._states[i] = self.game.new_state(
                        self.seed, stream=i, index=self._next_index[i]
                    )
                    self._next_index[i] += self.game.rounds
        self._observe()

    def sample_actions(self) -> npt.NDArray[np.int64]:
        """Return one uniformly random legal action for every environment, ``int64[N]``.

        Drawn from each environment's own stream, so they depend on nothing else.
        """
        actions = np.empty(self.num_envs, dtype=np.int64)
        for i, state in enumerate(self._states):
            legal = state.legal_actions()
            words = random_words(self.seed, i, self._draws[i], Purpose.ACTIONS)
            actions[i] = legal[draw_below(len(legal), words)]
            self._draws[i] += 1
        return actions

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on exactly, as plain JSON values."""
        return {
            "game": self.game.settings(),
            "num_envs": self.num_envs,
            "seed": self.seed,
            "next_index": self._next_index[:],
            "draws": self._draws[:],
            "envs": [
                {
                    "index": state.index,
                    "hands": state.given_hands,
                    "dealer": state.given_dealer,
                    "actions": [turn.action for turn in state.history],
                }
                for state in self._states
            ],
            "reward": self.reward.tolist(),
            "done": self.done.tolist(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken.

        Raises:
            ShuiyuError: it is of another game, seed or number of environments.
        """
        for name, mine in (
            ("game", self.game.settings()),
            ("num_envs", self.num_envs),
            ("seed", self.seed),
        ):
            if state.get(name) != mine:
                raise ShuiyuError(f"state_dict: expected {name} {mine!r}, got {state.get(name)!r}")
        states = []
        for i, env in enumerate(state["envs"]):
            restored = self.game.new_state(
                self.seed, env["hands"], env["dealer"], stream=i, index=env["index"]
            )
            for action in env["actions"]:
                restored.apply(int(action))
            states.append(restored)
        self._states = states
        self._next_index = list(state["next_index"])
        self._draws = list(state["draws"])
        self.reward[:] = state["reward"]
        self.done[:] = state["done"]
        self._observe()

    def _observe(self) -> None:
        """Write observation, mask and seat of every environment."""
        views = []
        flat: list[int] = []
        for i, state in enumerate(self._states):
            seat = state.deal.seat
            views.append(state.view(seat))
            self.seat[i] = seat
            start = i * self.game.num_actions
            flat += [start + action for action in state.deal.legal]
        self.action_mask[:] = 0
        self.action_mask.reshape(-1)[flat] = 1
        batch = ViewBatch.from_views(views, self._hand_table)
        self.layout.encode_many(batch, self._hand_table, out=self.observation)

    def _per_env(self, name: str, value: npt.ArrayLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        array = np.asarray(value)
        full = (self.num_envs, *shape)
        if array.shape not in (shape, full) or not np.issubdtype(array.dtype, np.integer):
            raise DealError(
                f"{name}: expected integers of shape {full} or {shape}, got {array.dtype} of"
                f" shape {array.shape}"
            )
        return np.broadcast_to(array, full)
