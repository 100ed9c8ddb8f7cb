"""Monte-Carlo counterfactual regret minimisation (MCCFR) in tables, by external sampling.

For small decks: every information set that was met has a row of regrets and one
of the average policy. Each seat is the traverser in turn, of many new deals at
once, and plays what regret matching makes of the regrets so far. Lanctot et al.,
"Monte Carlo sampling for regret minimization in extensive games" (2009). Later
iterations count more, in regrets and average alike: Brown & Sandholm, "Solving
imperfect-information games via discounted regret minimization" (2019), linear
CFR.
"""

from __future__ import annotations

__all__ = ["MCCFR", "MCCFRConfig"]

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agents.learner import LearnedPolicy, Learner, check_at_least, check_flags, check_from
from agents.traversal import Traversal, deal_game, traverse
from agents.workers import Workers
from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.errors import ConfigError
from shuiyu_env.core.game import Game
from shuiyu_env.observation import layout_of
from shuiyu_env.policies.network import NetworkConfig
from shuiyu_env.policies.tabular import KeyIndex, Reader, TablePolicy

#: Larger ones have too many information sets for a table.
MAX_CARDS = 20

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class MCCFRConfig:
    """Every hyperparameter of the learner.

    Which fields of an observation tell information sets apart is said by the
    network's settings ``cards`` and ``outcomes_only``.

    Args:
        iterations: in all.
        deals: deals in one iteration, for each traverser.
        weighting: iteration t counts t to this power: 0 for all alike, 1 for linear CFR.
        regret_matching_plus: whether regrets below zero are set to zero after every iteration.
        max_width: copies of each deal that are followed at once, on average; beyond,
            decisions are branched by chance. Matters only with many seats.

    Raises:
        ConfigError: a value out of range.
    """

    iterations: int = 2000
    deals: int = 1024
    weighting: float = 1.0
    regret_matching_plus: bool = False
    max_width: float = 64.0

    #: The name of these settings in configuration files.
    section: ClassVar[str] = "mccfr"

    def __post_init__(self) -> None:
        check_at_least(1, self.section, self, ("iterations", "deals"))
        check_from(0.0, 10.0, self.section, self, ("weighting",))
        check_from(1.0, math.inf, self.section, self, ("max_width",))
        check_flags(self.section, self, ("regret_matching_plus",))


class MCCFR(Learner):
    """The learner: tables of regrets and of the average policy.

    Raises:
        ConfigError: the deck has more than :data:`MAX_CARDS` cards, or several
            processes are to learn together.
    """

    name: ClassVar[str] = "mccfr"
    rates: ClassVar[tuple[str, ...]] = ()
    sizes: ClassVar[tuple[str, ...]] = ("deals",)

    def __init__(
        self,
        game: Game,
        config: MCCFRConfig | None = None,
        network: NetworkConfig | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        workers: Workers | None = None,
    ) -> None:
        # Tables are of no use to other devices.
        super().__init__(game, seed, "cpu", workers)
        if game.rules.deck.size > MAX_CARDS:
            raise ConfigError(
                f"mccfr: expected a deck of at most {MAX_CARDS} cards, since it keeps a table of"
                f" all information sets, got {game.rules.deck.size}; choose a smaller one, such as"
                " rules: {preset: nanning, deck: {ranks: 4, suits: 4}}, or algorithm: deep_cfr"
            )
        if self.workers.size > 1:
            raise ConfigError(
                f"mccfr: learns in one process, got {self.workers.size}; start it without torchrun"
            )
        self.config = MCCFRConfig() if config is None else config
        self.reader = Reader(layout_of(game), network)
        self.env = BatchEnv(deal_game(game), self.config.deals, self.env_seed)
        self._index = KeyIndex()
        self._regrets = np.zeros((0, game.num_actions))
        self._average = np.zeros((0, game.num_actions))

    @property
    def iterations(self) -> int:
        """Iterations in all."""
        return self.config.iterations

    @property
    def num_information_sets(self) -> int:
        """Information sets met so far."""
        return len(self._index)

    @property
    def regrets(self) -> FloatArray:
        """Weighted regrets, ``float64[K, A]``; a view."""
        return self._regrets[: len(self._index)]

    @property
    def average(self) -> FloatArray:
        """Weighted sums of the policies so far, ``float64[K, A]``; a view."""
        return self._average[: len(self._index)]

    def policies(self) -> Mapping[str, LearnedPolicy]:
        """Return the average policy: the one that comes near an equilibrium."""
        total = self.average.sum(axis=1, keepdims=True)
        table = np.divide(self.average, total, out=np.zeros_like(self.average), where=total > 0.0)
        return {"average": TablePolicy(self.reader, self._index.keys.copy(), table.astype("f4"))}

    def current(self, keys: Tensor, mask: Tensor) -> Tensor:
        """Return what regret matching makes of the regrets, ``float32[B, A]``.

        Args:
            keys: ``int64[B, 2]``.
            mask: ``bool[B, A]``.
        """
        rows, legal = self._index.find(keys.numpy()), mask.numpy()
        known = rows >= 0
        positive = np.zeros(legal.shape)
        positive[known] = np.maximum(self._regrets[rows[known]], 0.0)
        total = positive.sum(axis=1, keepdims=True)
        uniform = legal / legal.sum(axis=1, keepdims=True)
        matched = np.divide(positive, total, out=uniform, where=total > 0.0)
        return torch.from_numpy(matched.astype(np.float32))

    def iterate(self) -> dict[str, float]:
        """Traverse new deals for every seat in turn, and add up regrets and policies."""
        began = time.perf_counter()
        nodes, value = 0, 0.0
        weight = float(self.iteration + 1) ** self.config.weighting
        for seat in range(self.game.num_players):
            self.env.reset()
            found = traverse(
                self.env, seat, self.current, self.generator, self.reader, self.config.max_width
            )
            self._learn(found, weight)
            nodes += found.num_nodes
            if seat == 1:
                value = float(found.root_value.mean())
        seconds = time.perf_counter() - began
        self.iteration += 1
        self.env_steps += nodes
        self.deals += self.config.deals * self.game.num_players
        return {
            "information_sets": float(len(self._index)),
            "value": value,
            "env_steps_per_second": nodes / seconds,
            "seconds": seconds,
        }

    def _learn(self, found: Traversal, weight: float) -> None:
        own, others = found.traverser, found.opponents
        at = self._rows(own.seen)
        gains = own.advantages.double() * (weight * own.weight.double())[:, None]
        np.add.at(self._regrets, at, gains.numpy())
        if self.config.regret_matching_plus:
            self._regrets[at] = np.maximum(self._regrets[at], 0.0)
        at = self._rows(others.seen)
        played = others.probabilities.double() * (weight * others.weight.double())[:, None]
        np.add.at(self._average, at, played.numpy())

    def _rows(self, keys: Tensor) -> npt.NDArray[np.int64]:
        """Return the rows of keys, ``int64[B]``, and make room for new ones."""
        at = self._index.add(keys.numpy())
        if len(self._index) > len(self._regrets):
            room = max(len(self._index), 2 * len(self._regrets))
            for name in ("_regrets", "_average"):
                old = getattr(self, name)
                new = np.zeros((room, old.shape[1]))
                new[: len(old)] = old
                setattr(self, name, new)
        return at

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on exactly, between two iterations."""
        return super().state_dict() | {
            "env": self.env.state_dict(),
            "keys": self._index.keys.copy(),
            "regrets": self.regrets.copy(),
            "average": self.average.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.env.load_state_dict(state["env"])
        self._index = KeyIndex(state["keys"])
        self._regrets, self._average = state["regrets"].copy(), state["average"].copy()
        super().load_state_dict(state)
