"""Matches: policies against each other on duplicate deals, with confidence intervals.

Every deal is played once for every rotation of the entries over the seats,
seat 0 dealing. So each entry holds every hand of every deal, and deals once;
much of the luck of the cards cancels. The games of one deal are not
independent, so the deal is the unit of all statistics.

Deal ``i`` is deal ``i`` of stream 0 of the seed. In rotation ``r``, entry ``e``
sits at seat ``(e + r) mod n``, and decision ``t`` of the game (counted from 0)
uses the ``t``-th 32-bit word of :func:`~shuiyu_env.core.deals.random_words`
for ``(seed, stream r, deal i, Purpose.ACTIONS)``. So a match is a function of
its arguments; the size of the batches matters only to policies whose answers
depend on it, as those of networks may by rounding.

With control variates luck is taken out of the result: :mod:`shuiyu_env.evaluation.table`.
"""

from __future__ import annotations

__all__ = [
    "AgainstRow",
    "EntryResult",
    "MatchResult",
    "PolicySpec",
    "against_table",
    "as_list",
    "at_least",
    "by_role",
    "check_precision",
    "distinct_names",
    "match_against",
    "numbered",
    "play_match",
]

import io
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.checks import as_integer
from shuiyu_env.core.errors import CheckpointError, ConfigError, DealError, PolicyError, RulesError
from shuiyu_env.core.game import Game
from shuiyu_env.core.rules import RuleSet
from shuiyu_env.evaluation.estimate import CONFIDENCE, Estimate, text_table
from shuiyu_env.evaluation.table import Control, Table
from shuiyu_env.files import check_writable, write_atomically
from shuiyu_env.policies.loading import load
from shuiyu_env.policy import Policy, is_policy
from shuiyu_env.progress import progress_bar

PolicySpec = str | os.PathLike[str] | Policy

#: How often, at most, the state of a match is written.
_SAVE_SECONDS = 20.0
_STATE_VERSION = 1
#: More than any deal pays.
_MOST_UNITS = 1e4


@dataclass(frozen=True)
class EntryResult:
    """What one entry of a match won, in units per deal.

    Attributes:
        name: its name.
        dealer: as the dealer.
        punter: as a punter, the mean over the punters' seats.
        both: the mean of these two; heads-up, what it wins per deal.
    """

    name: str
    dealer: Estimate
    punter: Estimate
    both: Estimate


@dataclass(frozen=True)
class MatchResult:
    """The result of a match.

    Attributes:
        entries: one result per entry, in the order given.
        game: the game that was played.
        num_deals: N, number of independent deals, each played in all rotations.
        seed: seed of the deals and of the actions.
        units: ``float32[N, n, n]``: what each entry won in each deal and
            rotation (``[deal, rotation, entry]``).
        adjusted: ``float64[N, n, n]``, the same without the luck that control variates
            account for, or ``None``; if there, the results are made of it.
    """

    entries: tuple[EntryResult, ...]
    game: Game
    num_deals: int
    seed: int
    units: npt.NDArray[np.float32] = field(repr=False, compare=False)
    adjusted: npt.NDArray[np.float64] | None = field(default=None, repr=False, compare=False)

    @property
    def precision(self) -> float:
        """Half the width of the widest interval of the result, in units per deal."""
        estimates = [e for entry in self.entries for e in (entry.dealer, entry.punter, entry.both)]
        return max(estimate.high - estimate.mean for estimate in estimates)

    def to_dict(self) -> dict[str, Any]:
        """Return settings and results as plain JSON values, without the single deals."""
        return {
            "rules": self.game.rules.to_dict(),
            "num_players": self.game.num_players,
            "reward": self.game.reward,
            "num_deals": self.num_deals,
            "seed": self.seed,
            "confidence": CONFIDENCE,
            "control_variates": self.adjusted is not None,
            "entries": [asdict(entry) for entry in self.entries],
        }

    def table(self) -> str:
        """Return the results as text, one line per entry."""
        rows = [
            (entry.name, str(entry.dealer), str(entry.punter), str(entry.both))
            for entry in self.entries
        ]
        return text_table(self._title(), ("policy", "dealer", "punter", "both"), rows)

    def _title(self) -> str:
        game = self.game
        rotations = f"{game.num_players} rotations"
        return (
            f"{game.rules.name or 'own rules'}, {game.num_players} seats, {self.num_deals} deals in"
            f" {rotations}, seed {self.seed}; units per deal ({game.reward}), 95 % intervals"
            + (", by control variates" if self.adjusted is not None else "")
        )


@dataclass(frozen=True)
class AgainstRow:
    """How a policy did against one opponent.

    Attributes:
        opponent: the opponent's name.
        result: the policy's own result.
        match: the whole match.
    """

    opponent: str
    result: EntryResult
    match: MatchResult

    def to_dict(self) -> dict[str, Any]:
        """Return opponent, policy's name and estimates as plain JSON values."""
        return {"opponent": self.opponent, **asdict(self.result)}


def play_match(
    policies: Sequence[PolicySpec],
    game: Game | str | RuleSet | Mapping[str, Any] = "nanning",
    num_deals: int = 1000,
    seed: int = 0,
    *,
    names: Sequence[str] | None = None,
    control_variates: bool = False,
    precision: float | None = None,
    fewest_deals: int = 200,
    state: str | os.PathLike[str] | None = None,
    batch_size: int = 1024,
    threads: int = 1,
    progress: bool = False,
) -> MatchResult:
    """Play a match on duplicate deals.

    Args:
        policies: one entry per seat, each a policy or what
            :func:`~shuiyu_env.policies.load` takes.
        game: the game (of one round), or the rules of one with as many seats as
            entries: a preset's name, a :class:`RuleSet` or a mapping.
        num_deals: how many deals, at least 2, and at most, if a precision is given;
            ``num_deals * n`` games are played.
        seed: an integer; decides deals and actions.
        names: how results and errors name the entries; by default as they were
            specified, numbered where they are the same.
        control_variates: heads-up, whether to take luck out of the result, see above; an
            equilibrium is found, or solved, for the rules.
        precision: end, looking after every batch of deals, once no interval of the result
            reaches further than so many units from its mean. Intervals that one waits for in
            this way are right a little less often than they say.
        fewest_deals: before so many deals no interval is narrow enough.
        state: a file, ``*.npz``, in which what has been played is kept. If it is there, the match
            goes on from it: after an interruption, or to play more deals. The names have to be
            the same; that the policies are, nobody checks.
        batch_size: how many games are played side by side.
        threads: how many threads step them.
        progress: whether to show a progress bar (if tqdm is installed).

    Raises:
        PolicyError: wrong number of policies or names, a policy that cannot be
            loaded, or that answered with something unusable.
        RulesError: a game that is none, or has several rounds.
        DealError: number of deals, batch size or seed out of range.
        ConfigError: a precision out of range, control variates for a game without a known
            equilibrium, or a state that cannot be written.
        CheckpointError: a state that is damaged, or of another match.
    """
    entries = as_list("policies", policies)
    if not isinstance(game, Game):
        game = Game(max(len(entries), 2), game)
    n = game.num_players
    if len(entries) != n:
        raise PolicyError(
            f"policies: expected {n} entries, one per seat of the game, got {len(entries)}"
        )
    if game.rounds != 1:
        raise RulesError(
            f"a match plays single deals: expected a game with rounds=1, got rounds={game.rounds}"
        )
    num_deals = at_least(2, "num_deals", num_deals)
    fewest_deals = at_least(2, "fewest_deals", fewest_deals)
    batch_size = at_least(1, "batch_size", batch_size)
    seed = at_least(None, "seed", seed)
    names = distinct_names(entries, names)
    check_precision(precision)
    # Entries of one specification share one policy, so that it is asked once for all of them.
    texts = {_default_name(spec): load(spec, game) for spec in entries if not is_policy(spec)}
    players = [spec if is_policy(spec) else texts[_default_name(spec)] for spec in entries]

    table = Table(game, names, players, seed, threads, Control.of(game, control_variates))
    played = _Played.begin(table, state)
    size = max(1, batch_size // n)
    saved = time.monotonic()
    done = min(len(played), num_deals) * n
    with progress_bar(num_deals * n, progress, unit="game", initial=done) as bar:
        try:
            while len(played) < num_deals and not played.is_precise(precision, fewest_deals):
                deals = np.arange(len(played), min(len(played) + size, num_deals))
                played.add(*table.play(deals))
                bar.update(len(deals) * n)
                if time.monotonic() - saved > _SAVE_SECONDS:
                    played.save()
                    saved = time.monotonic()
        finally:
            played.save()
    return played.result(num_deals)


class _Played:
    """The deals that have been played, and where they are kept."""

    def __init__(self, table: Table, path: Path | None) -> None:
        n = table.game.num_players
        self.table, self.path = table, path
        self.units = np.zeros((0, n, n), dtype=np.float32)
        self.adjusted = np.zeros((0, n, n))
        self._saved = -1

    @classmethod
    def begin(cls, table: Table, path: str | os.PathLike[str] | None) -> _Played:
        """Return nothing yet, or what a file holds."""
        if path is None:
            return cls(table, None)
        if not isinstance(path, (str, os.PathLike)):
            raise ConfigError(f"state: expected a file ending in .npz, got {path!r}")
        played = cls(table, check_writable(path))
        if Path(path).suffix != ".npz":
            raise ConfigError(f"state: expected a file ending in .npz, got {path}")
        if Path(path).exists():
            played._load(Path(path))
        return played

    def __len__(self) -> int:
        return len(self.units)

    @property
    def _match(self) -> dict[str, Any]:
        """What tells a match from others, as JSON has it."""
        table = self.table
        return {
            "version": _STATE_VERSION,
            "rules": table.game.rules.to_dict(),
            "num_players": table.game.num_players,
            "reward": table.game.reward,
            "seed": table.seed,
            "names": table.names,
            "control_variates": table.control is not None,
        }

    def add(self, units: npt.NDArray[np.float32], adjusted: npt.NDArray[np.float64]) -> None:
        """Add further deals."""
        self.units = np.concatenate([self.units, units])
        self.adjusted = np.concatenate([self.adjusted, adjusted])

    def is_precise(self, precision: float | None, fewest_deals: int) -> bool:
        """Return whether the result is known as precisely as is wanted."""
        if precision is None or len(self) < fewest_deals:
            return False
        return self.result(len(self)).precision <= precision

    def result(self, num_deals: int) -> MatchResult:
        """Return the result of the first deals."""
        table = self.table
        units, adjusted = self.units[:num_deals], self.adjusted[:num_deals]
        results = [
            EntryResult(name, *map(Estimate.of, by_role(adjusted, entry)))
            for entry, name in enumerate(table.names)
        ]
        return MatchResult(
            tuple(results),
            table.game,
            len(units),
            table.seed,
            units,
            None if table.control is None else adjusted,
        )

    def save(self) -> None:
        """Write the file, if there is one."""
        if self.path is None or len(self) == self._saved:
            return
        buffer = io.BytesIO()
        match = np.array(json.dumps(self._match))
        np.savez_compressed(buffer, match=match, units=self.units, adjusted=self.adjusted)
        write_atomically(self.path, buffer.getvalue())
        self._saved = len(self)

    def _load(self, path: Path) -> None:
        n = self.table.game.num_players
        try:
            with np.load(path, allow_pickle=False) as file:
                match = json.loads(str(file["match"]))
                arrays = [np.asarray(file[name]) for name in ("units", "adjusted")]
        # Of a damaged file anything may be raised.
        except Exception as error:
            raise CheckpointError(
                f"{path}: cannot be read as the state of a match ({type(error).__name__}: {error}):"
                " remove the file, or name another"
            ) from None
        for key, value in self._match.items():
            found = match.get(key) if isinstance(match, dict) else None
            if found != value:
                raise CheckpointError(
                    f"{path}: expected the state of this match, with {key} {value!r}, got"
                    f" {found!r}: name another file, or remove this one"
                )
        units, adjusted = arrays
        for name, array in (("units", units), ("adjusted", adjusted)):
            shaped = array.ndim == 3 and array.shape == (len(units), n, n)
            if not shaped or array.dtype.kind != "f" or not (np.abs(array) < _MOST_UNITS).all():
                raise CheckpointError(
                    f"{path}: {name} is damaged: remove the file, or name another"
                )
        self.units, self.adjusted = units, adjusted
        self._saved = len(self)


def by_role(units: npt.NDArray[Any], entry: int) -> tuple[npt.NDArray[np.float64], ...]:
    """Return what an entry won in each deal, ``float64[N]``, as dealer, as punter and in both.

    Args:
        units: ``[N, n, n]``, by deal, rotation and entry, of a :class:`MatchResult`.
        entry: which.
    """
    wide = np.asarray(units, dtype=np.float64)
    deals_at = -entry % wide.shape[1]  # the rotation that takes it to seat 0
    dealer = wide[:, deals_at, entry]
    punter = np.delete(wide[:, :, entry], deals_at, axis=1).mean(axis=1)
    return dealer, punter, (dealer + punter) / 2


def match_against(
    policy: PolicySpec,
    opponents: Sequence[PolicySpec],
    game: Game | str | RuleSet | Mapping[str, Any] = "nanning",
    num_deals: int = 1000,
    seed: int = 0,
    *,
    name: str | None = None,
    control_variates: bool = False,
    precision: float | None = None,
    batch_size: int = 1024,
    progress: bool = False,
) -> list[AgainstRow]:
    """Play a policy against each of several opponents, on the same deals.

    Heads-up it meets the opponent; at larger tables it sits, once, among
    copies of it, in every seat in turn.

    Args:
        policy: the policy, or its specification.
        opponents: the opponents.
        game: the game, or the rules of a heads-up one.
        num_deals, seed, control_variates, precision, batch_size, progress: see :func:`play_match`.
        name: the policy's name in the results.

    Returns:
        One row per opponent; :func:`against_table` makes a text of them.

    Raises:
        PolicyError, RulesError, DealError, ConfigError: see :func:`play_match`.
    """
    if not isinstance(game, Game):
        game = Game(2, game)
    name = _default_name(policy) if name is None else name
    policy = load(policy, game)
    # All are loaded first: a wrong name should not come to light after an hour's play.
    loaded = [(_default_name(spec), load(spec, game)) for spec in as_list("opponents", opponents)]
    rows = []
    for opponent_name, opponent in loaded:
        copies = [opponent] * (game.num_players - 1)
        result = play_match(
            [policy, *copies],
            game,
            num_deals,
            seed,
            names=numbered([name, *[opponent_name] * len(copies)]),
            control_variates=control_variates,
            precision=precision,
            batch_size=batch_size,
            progress=progress,
        )
        rows.append(AgainstRow(opponent_name, result.entries[0], result))
    return rows


def against_table(rows: Sequence[AgainstRow]) -> str:
    """Return the rows of :func:`match_against` as text, one line per opponent."""
    if not rows:
        return "no opponents"
    lines = [
        (row.opponent, str(row.result.dealer), str(row.result.punter), str(row.result.both))
        for row in rows
    ]
    title = f"{rows[0].result.name}: {rows[0].match._title()}"
    return text_table(title, ("against", "dealer", "punter", "both"), lines)


def check_precision(precision: float | None) -> None:
    """Refuse what is no width of an interval."""
    number = isinstance(precision, (int, float)) and not isinstance(precision, bool)
    if precision is not None and not (number and 0.0 < precision < math.inf):
        raise ConfigError(f"precision: expected a number of units above 0, got {precision!r}")


def as_list(name: str, values: Any) -> list[Any]:
    """Return a list of policies."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise PolicyError(f"{name}: expected a list of policies, got {values!r}")
    return list(values)


def _default_name(spec: PolicySpec) -> str:
    return os.fspath(spec) if isinstance(spec, (str, os.PathLike)) else type(spec).__name__


def distinct_names(entries: Sequence[PolicySpec], names: Sequence[str] | None) -> list[str]:
    """Return what results call the policies; by default as they were specified, numbered."""
    if names is None:
        return numbered([_default_name(entry) for entry in entries])
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise PolicyError(f"names: expected {len(entries)} texts, one per policy, got {names!r}")
    result = list(names)
    if len(result) != len(entries) or not all(isinstance(name, str) for name in result):
        raise PolicyError(f"names: expected {len(entries)} texts, one per policy, got {names!r}")
    if len(set(result)) < len(result):
        raise PolicyError(f"names: expected different ones, got {names!r}")
    return result


def numbered(names: Sequence[str]) -> list[str]:
    """Return the names, numbered where they occur more than once."""
    return [
        f"{name} ({list(names[:i]).count(name) + 1})" if list(names).count(name) > 1 else name
        for i, name in enumerate(names)
    ]


def at_least(low: int | None, name: str, value: object) -> int:
    """Return a whole number, of ``low`` or more."""
    number = as_integer(value)
    if number is None or (low is not None and number < low):
        bound = "" if low is None else f" of {low} or more"
        raise DealError(f"{name}: expected an integer{bound}, got {value!r}")
    return number
