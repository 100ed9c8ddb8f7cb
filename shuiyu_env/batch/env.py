"""Many games at once: arrays in, arrays out."""

from __future__ import annotations

__all__ = ["BatchEnv"]

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from shuiyu_env.batch import kernel
from shuiyu_env.core.checks import as_integer
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import DealError, IllegalActionError, RulesError, ShuiyuError
from shuiyu_env.core.game import Game
from shuiyu_env.core.play import illegal_action
from shuiyu_env.observation import layout_of

_MASK64 = (1 << 64) - 1
# The rest of a batch is written anew from these.
_SAVED = ("head", "seats", "counters", "words", "reward", "settled", "done")


class BatchEnv:
    """Many independent episodes of one game; finished ones restart by themselves.

    Environment ``i`` plays the deals of stream ``(seed, i)`` in order, so what
    it plays depends neither on the number of environments nor on threads.

    Args:
        game: the settings of the table.
        num_envs: N, at least 1.
        seed: seed of all streams.
        threads: how many threads may step the environments; results never depend on
            it. None gets fewer than ``min_envs_per_thread``, below which handing the
            work over takes longer than doing it.

    Attributes:
        observation: ``float32[N, D]`` of the seat to act.
        action_mask: ``int8[N, A]`` of the seat to act; every row has a 1.
        seat: ``int64[N]``, the seat to act.
        reward: ``float32[N, num_players]``, units the last step paid each seat.
        settled: ``bool[N]``, whether the last step settled a deal, and so paid ``reward``.
        done: ``bool[N]``, whether it ended an episode. ``observation``, ``action_mask``
            and ``seat`` are then already of the next one.

    The arrays stay the same objects and are written in place by :meth:`reset`
    and :meth:`step`; copy what is to be kept.

    A copy or a pickle goes on by itself. The first use in a new installation compiles
    the engine, which takes some
    seconds; after that it is loaded from Numba's cache.

    Raises:
        RulesError: no environments, no threads.
        DealError: a seed that is no integer.
    """

    min_envs_per_thread = 4096

    def __init__(self, game: Game, num_envs: int, seed: int, threads: int = 1) -> None:
        if not isinstance(game, Game):
            raise RulesError(f"game: expected a Game, such as Game(2, 'nanning'), got {game!r}")
        for name, value in (("num_envs", num_envs), ("threads", threads)):
            if (as_integer(value) or 0) < 1:
                raise RulesError(f"{name}: expected a whole number of 1 or more, got {value!r}")
        number = as_integer(seed)
        if number is None:
            raise DealError(f"seed: expected an integer, got {seed!r}")
        self.seed = number
        self.game = game
        size = int(num_envs)
        self._tables = kernel.Tables.of(game)
        self._own(
            int(threads),
            head=np.zeros((size, kernel.NUM_HEAD), dtype=np.int32),
            seats=np.zeros((size, game.num_players, kernel.NUM_SEAT), dtype=np.int16),
            counters=np.zeros((size, 2), dtype=np.int64),
            words=np.zeros((size, 4), dtype=np.int64),
        )
        self.reset()

    def _own(
        self,
        threads: int,
        head: npt.NDArray[np.int32],
        seats: npt.NDArray[np.int16],
        counters: npt.NDArray[np.int64],
        words: npt.NDArray[np.int64],
    ) -> None:
        """Take over the arrays that all others are written from, and make those."""
        game, size = self.game, len(head)
        self.num_envs = size
        self.threads = min(threads, max(1, size // self.min_envs_per_thread))
        self.layout = layout_of(game)
        self.observation = np.zeros((size, self.layout.size), dtype=np.float32)
        self.action_mask = np.zeros((size, game.num_actions), dtype=np.int8)
        self.seat = np.zeros(size, dtype=np.int64)
        self.reward = np.zeros((size, game.num_players), dtype=np.float32)
        self.settled = np.zeros(size, dtype=np.bool_)
        self.done = np.zeros(size, dtype=np.bool_)
        self._batch = kernel.Batch(
            head=head,
            seats=seats,
            counters=counters,
            words=words,
            legal=np.zeros(size, dtype=np.uint32),
            observation=self.observation,
            action_mask=self.action_mask,
            seat=self.seat,
            reward=self.reward,
            settled=self.settled,
            done=self.done,
        )
        self._key = np.uint64(self.seed & _MASK64)
        edges = [size * k // self.threads for k in range(self.threads + 1)]
        self._parts = [(first, last, kernel.Scratch.new()) for first, last in pairwise(edges)]
        self._pool: ThreadPoolExecutor | None = None
        self._pool_owner = 0

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
        n = self.game.num_players
        given = np.empty((0, n, 4), dtype=np.int64)
        dealers = np.empty(0, dtype=np.int64)
        if hands is not None:
            given = self._per_env("hands", hands, (n, 4))
            self._check_hands(given)
        if dealer is not None:
            dealers = self._per_env("dealer", dealer, ())
            wrong = np.flatnonzero((dealers < 0) | (dealers >= n))
            if len(wrong):
                raise DealError(
                    f"dealer[{wrong[0]}]: expected a seat from 0 to {n - 1}, got"
                    f" {dealers[wrong[0]]}"
                )
        self._run(kernel.begin, self._tables, self._batch, self._key, given, dealers)

    def step(self, actions: npt.ArrayLike) -> None:
        """Take one action in every environment.

        Args:
            actions: integers ``[N]``, each legal in its environment.

        Raises:
            IllegalActionError: wrong shape or type, or an illegal action (the
                message names environment, seat, phase and legal actions);
                nothing has changed.
        """
        chosen = _as_integers(actions, "actions", (self.num_envs,))
        wrong = kernel.first_illegal(self._batch.legal, chosen)
        if wrong >= 0:
            raise self._illegal(int(wrong), int(chosen[wrong]))
        self._run(kernel.step, self._tables, self._batch, self._key, chosen)

    def observe(self, seats: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return what some seat sees in every environment, ``float32[N, D]``, a new array.

        The seats to act see ``observation``; this is for what others see at the same
        time, such as a critic that knows more than a player may.

        Args:
            seats: integers ``[N]`` from 0 to num_players - 1.

        Raises:
            IllegalActionError: wrong shape or type, or no such seat.
        """
        chosen = _as_integers(seats, "seats", (self.num_envs,))
        outside = np.flatnonzero((chosen < 0) | (chosen >= self.game.num_players))
        if len(outside):
            raise IllegalActionError(
                f"seats[{outside[0]}]: expected a seat from 0 to {self.game.num_players - 1}, got"
                f" {chosen[outside[0]]}"
            )
        out = np.empty_like(self.observation)
        self._run(kernel.see, self._tables, self._batch, chosen, out)
        return out

    def branch(self, rows: npt.ArrayLike, actions: npt.ArrayLike) -> BatchEnv:
        """Return what becomes of some environments after some actions, as a new batch.

        To look ahead within a deal: environment ``i`` of the new batch is a copy of
        environment ``rows[i]`` of this one, which does not change, in which
        ``actions[i]`` was taken. Several copies of one environment may take different
        actions. ``reward``, ``settled`` and ``done`` are those of that step, as if
        the environment itself had taken it. A copy whose deal is settled goes on, but
        with other deals than its original would: those of stream ``(seed, i)``.

        Args:
            rows: integers ``[M]`` from 0 to N - 1, in any order; at least one.
            actions: integers ``[M]``, each legal in its row.

        Raises:
            IllegalActionError: wrong shape or type, no such row, or an illegal action.
        """
        sources = _as_integers(rows, "rows", (max(1, _as_array(rows, "rows").size),))
        chosen = _as_integers(actions, "actions", sources.shape)
        outside = np.flatnonzero((sources < 0) | (sources >= self.num_envs))
        if len(outside):
            raise IllegalActionError(
                f"rows[{outside[0]}]: expected an environment from 0 to {self.num_envs - 1}, got"
                f" {sources[outside[0]]}"
            )
        wrong = kernel.first_illegal(self._batch.legal[sources], chosen)
        if wrong >= 0:
            raise self._illegal(int(sources[wrong]), int(chosen[wrong]))
        # The constructor would deal.
        copies = object.__new__(type(self))
        copies.seed, copies.game, copies._tables = self.seed, self.game, self._tables
        old = self._batch
        copies._own(
            self.threads,
            head=old.head[sources],
            seats=old.seats[sources],
            counters=old.counters[sources],
            words=old.words[sources],
        )
        copies._run(kernel.step, copies._tables, copies._batch, copies._key, chosen)
        return copies

    def sample_actions(self) -> npt.NDArray[np.int64]:
        """Return one uniformly random legal action for every environment, ``int64[N]``.

        Drawn from each environment's own stream, so they depend on nothing else.
        """
        actions = np.empty(self.num_envs, dtype=np.int64)
        self._run(kernel.sample, self._batch, self._key, actions)
        return actions

    @property
    def nbytes(self) -> int:
        """Memory of all environments in bytes; the shared tables come to some 50 KiB more."""
        return sum(array.nbytes for array in self._batch)

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on exactly: plain values and (copied) NumPy arrays."""
        return {
            "game": self.game.settings(),
            "num_envs": self.num_envs,
            "seed": self.seed,
            **{name: getattr(self._batch, name).copy() for name in _SAVED},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken. Lists are as good as arrays.

        Raises:
            ShuiyuError: it is of another game, seed or number of environments,
                or not a state at all; nothing has changed.
        """
        if not isinstance(state, Mapping):
            raise ShuiyuError(f"state_dict: expected a mapping, got {type(state).__name__}")
        for name, mine in (
            ("game", self.game.settings()),
            ("num_envs", self.num_envs),
            ("seed", self.seed),
        ):
            if state.get(name) != mine:
                raise ShuiyuError(f"state_dict: expected {name} {mine!r}, got {state.get(name)!r}")
        arrays = {}
        for name in _SAVED:
            target = getattr(self._batch, name)
            array = _as_array(state.get(name), "state_dict: " + name)
            kinds = "biuf" if name == "reward" else "biu"
            if array.shape != target.shape or array.dtype.kind not in kinds:
                raise ShuiyuError(
                    f"state_dict: expected {name} of shape {target.shape}, got {array.dtype} of"
                    f" shape {array.shape}"
                )
            arrays[name] = array
        fault = kernel.check_ranges(arrays, self._tables)
        if fault is not None:
            raise ShuiyuError(f"state_dict: {fault}")
        for name, array in arrays.items():
            getattr(self._batch, name)[...] = array
        self._run(kernel.observe, self._tables, self._batch)

    def __reduce__(self) -> tuple[Any, ...]:
        # Threads cannot be copied, and the arrays of a copy must be its own.
        arguments = (self.game, self.num_envs, self.seed, self.threads)
        return BatchEnv, arguments, self.state_dict()

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.load_state_dict(state)

    def _run(self, function: Callable[..., None], *args: Any) -> None:
        """Run a kernel over all environments, one part a thread."""
        if self.threads == 1:
            function(*self._parts[0], *args)
            return
        if self._pool is None or self._pool_owner != os.getpid():
            # A forked child has its parent's pool, but none of its threads.
            self._pool, self._pool_owner = ThreadPoolExecutor(self.threads - 1), os.getpid()
        others = [self._pool.submit(function, *part, *args) for part in self._parts[1:]]
        function(*self._parts[0], *args)
        for other in others:
            other.result()

    def _check_hands(self, hands: npt.NDArray[np.int64]) -> None:
        in_deck = np.isin(hands, self.game.rules.deck.cards).all(axis=(1, 2))
        dealt = np.sort(hands.reshape(self.num_envs, -1), axis=1)
        wrong = np.flatnonzero(~in_deck | (np.diff(dealt, axis=1) == 0).any(axis=1))
        if len(wrong):
            try:
                self.game.new_state(0, hands[wrong[0]].tolist())
            except ShuiyuError as error:
                raise DealError(f"environment {wrong[0]}: {error}") from None

    def _per_env(
        self, name: str, value: npt.ArrayLike, shape: tuple[int, ...]
    ) -> npt.NDArray[np.int64]:
        array = _as_array(value, name)
        full = (self.num_envs, *shape)
        if array.shape not in (shape, full) or not np.issubdtype(array.dtype, np.integer):
            raise DealError(
                f"{name}: expected integers of shape {full} or {shape}, got {array.dtype} of"
                f" shape {array.shape}"
            )
        return np.ascontiguousarray(np.broadcast_to(array, full), dtype=np.int64)

    def _illegal(self, i: int, action: int) -> IllegalActionError:
        phase = Phase(self._batch.head[i, kernel.PHASE])
        legal = [a for a in range(self.game.num_actions) if self._batch.legal[i] >> a & 1]
        error = illegal_action(action, int(self._batch.head[i, kernel.SEAT]), phase, legal)
        return IllegalActionError(f"environment {i}: {error}")


def _as_integers(value: npt.ArrayLike, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    array = _as_array(value, name)
    if array.shape != shape or not np.issubdtype(array.dtype, np.integer):
        raise IllegalActionError(
            f"{name}: expected integers of shape {shape}, got {array.dtype} of shape {array.shape}"
        )
    # One type for one compiled kernel; no copy where it is int64 already.
    return np.ascontiguousarray(array, dtype=np.int64)


def _as_array(value: npt.ArrayLike | None, name: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(value)
    except (ValueError, TypeError):
        # Rows of different lengths, say.
        raise DealError(f"{name}: expected an array of integers, got {value!r}") from None
