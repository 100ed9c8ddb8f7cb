"""An equilibrium of the heads-up game: a policy made of tables, and its file.

Probabilities are kept as multiples of 1/240, so that a file is small and what is
measured is what is shipped: NashConv is computed from these very numbers, in double
precision. Files are NumPy archives without pickles; they name the game they solve by
a hash of its compiled rules.
"""

from __future__ import annotations

__all__ = ["Equilibrium", "load_equilibrium"]

import io
import json
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.actions import Action
from shuiyu_env.core.cards import HAND_SIZE
from shuiyu_env.core.contest import Node, Phase
from shuiyu_env.core.errors import CheckpointError, PolicyError
from shuiyu_env.core.game import Game
from shuiyu_env.core.hands import NUM_SPLITS
from shuiyu_env.core.rules import RuleSet, resolve_rules
from shuiyu_env.exact.best_response import NashConv, nashconv
from shuiyu_env.exact.heads_up import (
    DealerTables,
    HeadsUpGame,
    PolicyTables,
    PunterTables,
    heads_up_game,
    rules_key,
)
from shuiyu_env.exact.opened import NUM_OUTCOMES, OpenedContest
from shuiyu_env.files import write_atomically
from shuiyu_env.observation import CALLS, LAYOUT_VERSION, layout_of
from shuiyu_env.policy import check_inputs

FloatArray = npt.NDArray[np.floating[Any]]

FORMAT = 1
_KIND = "shuiyu equilibrium"

# Probabilities are multiples of its inverse: halves, thirds, quarters … are exact, which replies
# that leave the other side indifferent often are.
_STEPS = 240
_HEADER = "header"


@dataclass(eq=False)
class Equilibrium:
    """A pair of strategies that are nearly best against each other, as a policy.

    Made by :func:`~shuiyu_env.exact.solve.solve` or read from a file; plays heads-up, in both
    roles, under its rules.

    Attributes:
        rules: what it plays.
        tables: ``uint8[K, 3, actions - 1]`` by name: probabilities of all actions of a
            decision but the first, in 1/240; K classes of hands. Calls on an open hand
            are not among them: they follow from the dealer's splits, and any rounding
            of them would be exploited by every hand.
        info: how it was made: algorithm, iterations, convergence, and ``nashconv``,
            which was computed from ``tables``.
    """

    rules: RuleSet
    tables: dict[str, npt.NDArray[np.uint8]]
    info: dict[str, Any] = field(default_factory=dict)

    #: A policy's promise; see :class:`shuiyu_env.policy.Policy`.
    outcomes_only = True

    def __post_init__(self) -> None:
        self.game: HeadsUpGame = heads_up_game(self.rules)
        expected = _shapes(self.game)
        for name in sorted(expected.keys() | self.tables.keys()):
            table = self.tables.get(name)
            if table is None or table.dtype != np.uint8 or table.shape != expected.get(name):
                found = None if table is None else f"{table.dtype}{list(table.shape)}"
                raise CheckpointError(
                    f"tables of other rules, or damaged: {name}, expected"
                    f" uint8{list(expected.get(name, ()))}, got {found}"
                )
            if (table.sum(axis=-1, dtype=np.int64) > _STEPS).any():
                raise CheckpointError(f"damaged: {name} has probabilities that sum to more than 1")
        self._layout = layout_of(Game(2, self.rules))

    def __repr__(self) -> str:
        name = self.rules.name or rules_key(self.rules)[:12]
        return f"<Equilibrium of {name}, NashConv {self.info.get('nashconv', float('nan')):.2e}>"

    def table(self, name: str) -> npt.NDArray[np.float64]:
        """Return probabilities ``float64[..., actions]`` of a decision."""
        return _unpacked(self.tables[name])

    @cached_property
    def _masses(self) -> npt.NDArray[np.float64]:
        """The dealer's hands by outcome against each hand and split, ``float64[K, 3, 3]``."""
        return self.game.masses(self.game.plan(self.table("dealer.split")))

    def policy_tables(self, game: HeadsUpGame | None = None) -> PolicyTables:
        """Return its tables as the exact evaluation takes them.

        Args:
            game: its game by single hands, where its own is by rank multisets; by default
                its own.
        """
        own, game = self.game, self.game if game is None else game
        # From classes of its own to those of the game asked for.
        of = own.classes.class_of[game.classes.representative]

        def table(node: Node) -> FloatArray:
            return self.table(_name(node))[of]

        masses = self._masses[of]
        opened = {}
        for contest in game.opened:
            _, calls = contest.solve(masses.reshape(-1, NUM_OUTCOMES))
            by_outcome = calls.reshape(*masses.shape, -1)
            opened[contest.node.id] = (masses[..., None] * by_outcome).swapaxes(-1, -2)
        return PolicyTables(
            game=game,
            dealer=DealerTables(
                split=self.table("dealer.split")[of],
                calls={node.id: table(node) for node in game.hidden},
                opened=opened,
                forced={node.id: game.best_forced(node) for node in game.forced},
            ),
            punter=PunterTables(
                split=self.table("punter.split")[of],
                declare=self.table("punter.declare")[of],
                replies={node: table(game.tree.nodes[node]) for node in game.reply_nodes},
            ),
        )

    def nashconv(self) -> NashConv:
        """Return how exploitable it is, computed now, in double precision."""
        return nashconv(self.policy_tables())

    def probabilities(
        self, observation: npt.ArrayLike, action_mask: npt.ArrayLike
    ) -> npt.NDArray[np.float64]:
        """Return the probability of every action; see :class:`shuiyu_env.policy.Policy`.

        Raises:
            PolicyError: observations of another game.
        """
        seen, legal = check_inputs(observation, action_mask)
        layout = self._layout
        if seen.shape[1] != layout.size or legal.shape[1] != layout.num_actions:
            raise PolicyError(
                f"{self!r} plays heads-up without stakes: expected observations [B, {layout.size}]"
                f" and masks [B, {layout.num_actions}], got {list(seen.shape)} and"
                f" {list(legal.shape)}"
            )
        result = np.zeros(legal.shape)
        fields = layout.views(seen)
        phase = fields["phase"].argmax(axis=1)
        dealing = fields["role"][:, 0] > 0
        rows = np.arange(len(seen))
        # Declaration and call stand in the punter's block: one's own, or the other's.
        block = np.where(dealing, 1, 0)
        declared = fields["seats.declaration"][rows, block].argmax(axis=1) + Action.OPEN
        called = fields["seats.call"][rows, block].argmax(axis=1) + CALLS[0]
        own = _hands(fields["hand"], self.game)
        shown = _hands(fields["seats.shown_hand"][:, 1], self.game)
        split = fields["split"].argmax(axis=1)
        shown_split = fields["seats.shown_split"][:, 1].argmax(axis=1)
        outcomes = fields["seats.outcomes"][:, 1].argmax(axis=-1)  # [B, 3], win, push, lose

        def put(
            at: npt.NDArray[np.bool_],
            actions: Iterable[int],
            hands: Any,
            choose: Callable[..., Any],
        ) -> None:
            """Write what a decision's rows choose to its actions' columns."""
            place = np.flatnonzero(at)
            if not len(place):
                return
            if (hands[place] < 0).any():
                row = place[int(np.argmin(hands[place]))]
                raise PolicyError(f"{self!r}: row {row} shows no hand of its deck")
            result[place[:, None], list(actions)] = choose(place)

        def own_rows(name: str) -> Callable[[npt.NDArray[np.intp]], FloatArray]:
            table = self.tables[name]
            return lambda place: _unpacked(table[own[place], split[place]])

        splits = range(Action.SPLIT_0, Action.SPLIT_0 + NUM_SPLITS)
        for role, at in (("dealer", dealing), ("punter", ~dealing)):
            table = self.tables[f"{role}.split"]
            put(
                at & (phase == Phase.ARRANGE),
                splits,
                own,
                lambda place, table=table: _unpacked(table[own[place]]),
            )
        game = self.game
        put(phase == Phase.DECLARE, game.declarations, own, own_rows("punter.declare"))
        for node in game.hidden:
            at = (phase == node.phase) & (declared == node.path[0])
            put(at, node.children, own, own_rows(_name(node)))
        for node_id in game.reply_nodes:
            node = game.tree.nodes[node_id]
            at = (phase == node.phase) & (declared == node.path[0]) & (called == node.path[1])
            put(at, node.children, own, own_rows(_name(node)))
        for contest in game.opened:
            at = (phase == contest.node.phase) & (declared == contest.node.path[0])

            def call(place: npt.NDArray[np.intp], contest: OpenedContest = contest) -> FloatArray:
                masses = self._masses[shown[place], shown_split[place]]
                _, calls = contest.solve(masses)
                picked: FloatArray = calls[np.arange(len(place)), outcomes[place, split[place]]]
                return picked

            put(at, contest.node.children, shown, call)
        for node in game.forced:
            # The best outcome: won rather than pushed, pushed rather than lost.
            units = np.array(game.forced_payoffs(node))

            def arrange(
                place: npt.NDArray[np.intp], units: npt.NDArray[np.intp] = units
            ) -> FloatArray:
                scores = np.where(legal[place][:, list(splits)], units[outcomes[place]], np.inf)
                best: FloatArray = np.eye(NUM_SPLITS)[scores.argmin(axis=1)]
                return best

            put((phase == node.phase) & (declared == node.path[0]), splits, shown, arrange)
        result[~legal] = 0.0
        total = result.sum(axis=1, keepdims=True)
        if not (total > 0.0).all():
            raise PolicyError(
                f"{self!r}: row {int(np.argmin(total[:, 0]))} asks for a decision that its rules do"
                " not have"
            )
        result /= total
        return result

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a file ``*.npz``; :func:`load_equilibrium` reads it."""
        header = {
            "format": FORMAT,
            "kind": _KIND,
            "layout": LAYOUT_VERSION,
            "key": rules_key(self.rules),
            "rules": self.rules.to_dict(),
            "info": self.info,
        }
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        # By column, in the order of hands: alike next to alike, which packs best.
        planes = {
            name: np.ascontiguousarray(table.reshape(len(table), -1).T)
            for name, table in self.tables.items()
        }
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_LZMA) as archive:
            for name, array in {_HEADER: text, **planes}.items():
                data = io.BytesIO()
                np.lib.format.write_array(data, array, allow_pickle=False)
                # A fixed date, so that the same equilibrium is the same file.
                archive.writestr(zipfile.ZipInfo(f"{name}.npy"), data.getvalue(), zipfile.ZIP_LZMA)
        return write_atomically(path, buffer.getvalue())

    @classmethod
    def from_strategies(
        cls,
        game: HeadsUpGame,
        dealer_split: FloatArray,
        dealer_calls: Mapping[int, FloatArray],
        punter: PunterTables,
    ) -> Equilibrium:
        """Make one of strategies, rounded."""
        first = np.eye(NUM_SPLITS)[0]  # for hands that never come to declare
        tables = {}
        tables["dealer.split"] = _packed(np.where(game.active[:, None], dealer_split, first))
        tables["punter.split"] = _packed(np.where(game.active[:, None], punter.split, first))
        comes = {  # whether a hand and split is ever played, in the numbers kept
            role: _unpacked(tables[f"{role}.split"]) * game.active[:, None] > 0
            for role in ("dealer", "punter")
        }
        tables["punter.declare"] = _packed(punter.declare, comes["punter"])
        declares = _unpacked(tables["punter.declare"]) > 0
        for node_id, position in game.reply_nodes.items():
            node = game.tree.nodes[node_id]
            reached = comes["punter"] & declares[..., position]
            tables[_name(node)] = _packed(punter.replies[node_id], reached)
        for node in game.hidden:
            tables[_name(node)] = _packed(dealer_calls[node.id], comes["dealer"])
        return cls(game.rules, {name: tables[name] for name in _shapes(game)})


def load_equilibrium(
    path: str | os.PathLike[str], rules: str | RuleSet | Mapping[str, Any] | None = None
) -> Equilibrium:
    """Read an equilibrium from its file.

    Args:
        path: the file.
        rules: what it is to play; one that solves another game is refused.

    Raises:
        CheckpointError: a file that is missing, damaged, no equilibrium, or of another game.
    """
    path = Path(path)
    rules = None if rules is None else resolve_rules(rules)
    try:
        with np.load(path, allow_pickle=False) as archive:
            header = json.loads(bytes(archive[_HEADER]))
            made = (header["kind"], header["format"], header["layout"])
            if made != (_KIND, FORMAT, LAYOUT_VERSION):
                raise CheckpointError(
                    f"{path}: expected a {_KIND} of format {FORMAT} for observations of layout"
                    f" {LAYOUT_VERSION}, got {made[0]!r} of format {made[1]!r}, layout {made[2]!r}"
                )
            stored = RuleSet.from_dict(header["rules"])
            planes = {name: archive[name] for name in archive.files if name != _HEADER}
            key, info = header["key"], dict(header["info"])
            info["nashconv"] = float(info["nashconv"])
    except CheckpointError:
        raise
    except FileNotFoundError:
        raise CheckpointError(f"there is no file {path}") from None
    except (OSError, KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path}: damaged, or no equilibrium: {error}") from error
    except Exception as error:  # lzma's own errors derive from Exception only
        raise CheckpointError(f"{path}: damaged: {error}") from error
    if key != rules_key(stored):
        raise CheckpointError(f"{path}: made for another version of its rules: solve them again")
    if rules is not None and rules_key(rules) != key:
        raise CheckpointError(
            f"{path}: solves {stored.name or 'other rules'}, not {rules.name or 'these rules'}"
        )
    shapes = _shapes(heads_up_game(stored))
    tables = {
        name: plane.T.reshape(shapes.get(name, plane.T.shape))
        if plane.size == np.prod(shapes.get(name, (0,)))
        else plane
        for name, plane in planes.items()
    }
    return Equilibrium(rules or stored, tables, info)


def _name(node: Node) -> str:
    """Return the name of a node's table."""
    role = "dealer" if node.phase.by_dealer else "punter"
    return ".".join([role, *(action.name for action in node.path)])


def _shapes(game: HeadsUpGame) -> dict[str, tuple[int, ...]]:
    """Return the shapes of an equilibrium's tables by name."""
    size = (game.classes.size, NUM_SPLITS)
    shapes: dict[str, tuple[int, ...]] = {
        "dealer.split": (size[0], NUM_SPLITS - 1),
        "punter.split": (size[0], NUM_SPLITS - 1),
        "punter.declare": (*size, len(game.declarations) - 1),
    }
    for node_id in game.reply_nodes:
        node = game.tree.nodes[node_id]
        shapes[_name(node)] = (*size, len(node.children) - 1)
    for node in game.hidden:
        shapes[_name(node)] = (*size, len(node.children) - 1)
    return shapes


def _packed(
    probabilities: FloatArray, reached: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.uint8]:
    """Return multiples of 1/240 that sum to 1, of all actions but the first.

    Where a decision is never reached, its likeliest action is taken for sure: it
    makes no difference to either side, and packs better.
    """
    values = np.asarray(probabilities, dtype=np.float64)
    if reached is not None:
        sure = np.eye(values.shape[-1])[values.argmax(axis=-1)]
        reached = reached.reshape(*reached.shape, *(1,) * (values.ndim - reached.ndim))
        values = np.where(reached, values, sure)
    scaled = values * _STEPS
    steps = np.floor(scaled + 1e-9).astype(np.int64)
    missing = _STEPS - steps.sum(axis=-1, keepdims=True)
    # The largest remainders are rounded up.
    order = (steps - scaled).argsort(axis=-1, kind="stable").argsort(axis=-1, kind="stable")
    steps += order < missing
    return steps[..., 1:].astype(np.uint8)


def _unpacked(table: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    steps = table.astype(np.int64)
    first = _STEPS - steps.sum(axis=-1, keepdims=True)
    return np.concatenate([first, steps], axis=-1) / _STEPS


def _hands(flags: FloatArray, game: HeadsUpGame) -> npt.NDArray[np.intp]:
    """Return the class of the hand that each row of card flags shows, -1 where there is none."""
    table = game.classes.table
    result = np.full(len(flags), -1, dtype=np.intp)
    shows = (flags > 0).sum(axis=1) == HAND_SIZE
    outside = np.ones(flags.shape[1], dtype=np.bool_)
    outside[list(table.deck.cards)] = False
    shows &= ~(flags[:, outside] > 0).any(axis=1)
    cards = np.nonzero(flags[shows] > 0)[1].reshape(-1, HAND_SIZE)[:, ::-1]
    result[shows] = game.classes.class_of[table.index(cards)]
    return result
