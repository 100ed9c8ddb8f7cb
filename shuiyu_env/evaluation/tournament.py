"""Round robins: every policy against every other, the payoffs, and who is how strong.

Heads-up, two policies that can be tabulated are played out exactly (over all deals and all
their choices, :func:`shuiyu_env.exact.expected_values`); for all others duplicate deals are
played (:mod:`shuiyu_env.evaluation.match`). At larger tables a policy sits, once, among
copies of the other, in every seat in turn.

The payoff matrix is the result. Three numbers for each policy make it shorter, each in its
own way: the mean payoff over all opponents, which depends on who takes part; the rating of
openskill's Plackett-Luce model after short matches of some duplicate deals, which looks at
who won them and not at how much; heads-up, the mass of the policy in alpha-rank (Omidshafiei et
al., "alpha-Rank: Multi-agent evaluation by evolution", 2019), which knows of cycles.
"""

from __future__ import annotations

__all__ = ["RATED_DEALS", "Cell", "Standing", "TournamentResult", "play_tournament"]

import csv
import hashlib
import importlib.util
import io
import json
import os
import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations, permutations
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shuiyu_env import __version__
from shuiyu_env.core.errors import PolicyError
from shuiyu_env.core.game import Game
from shuiyu_env.core.rules import RuleSet
from shuiyu_env.evaluation.estimate import CONFIDENCE, Estimate, text_table
from shuiyu_env.evaluation.match import (
    MatchResult,
    PolicySpec,
    as_list,
    at_least,
    check_precision,
    distinct_names,
    numbered,
    play_match,
)
from shuiyu_env.evaluation.table import equilibrium_at_hand, is_zero_sum
from shuiyu_env.files import check_writable
from shuiyu_env.policies.loading import load
from shuiyu_env.policy import is_policy
from shuiyu_env.progress import progress_bar

#: Duplicate deals that make up a match of which only the winner is looked at.
RATED_DEALS = 20

#: What an infinite pressure of selection is short of, so that every policy keeps some mass.
_MUTATION = 0.01


@dataclass(frozen=True)
class Cell:
    """What a policy wins from an opponent, in units per deal.

    Attributes:
        dealer: as the dealer.
        punter: as a punter, the mean over the punters' seats.
        both: the mean of these two.
        exact: whether these are no estimates; then the intervals have no width.
        num_deals: how many deals were played; for an exact cell only ratings are made of them.
    """

    dealer: Estimate
    punter: Estimate
    both: Estimate
    exact: bool
    num_deals: int


@dataclass(frozen=True)
class Standing:
    """How strong one policy is among all.

    Attributes:
        name: its name.
        mean: its mean payoff over all opponents, in both roles, units per deal, with an
            interval that is wide enough however the matches depend on each other.
        rating, rating_error: mean and standard deviation of openskill's rating, which
            begins at 25 and 25/3; ``None`` without openskill.
        alpha_rank: mass in alpha-rank's stationary distribution; ``None`` without
            OpenSpiel, and at larger tables.
    """

    name: str
    mean: Estimate
    rating: float | None
    rating_error: float | None
    alpha_rank: float | None


@dataclass(frozen=True)
class TournamentResult:
    """The result of a tournament of N policies.

    Attributes:
        game: the game that was played.
        names: the policies.
        cells: by policy and opponent; ``None`` against itself.
        standings: one for each policy, the best mean first.
        seed: seed of deals and actions.
    """

    game: Game
    names: tuple[str, ...]
    cells: tuple[tuple[Cell | None, ...], ...]
    standings: tuple[Standing, ...]
    seed: int

    @property
    def payoffs(self) -> npt.NDArray[np.float64]:
        """What each policy wins from each opponent in both roles, ``float64[N, N]``."""
        return _matrix(self.cells)

    @property
    def precision(self) -> float:
        """Half the width of the widest interval of the matrix, in units per deal."""
        cells = [cell for row in self.cells for cell in row if cell is not None]
        return max(e.high - e.mean for c in cells for e in (c.dealer, c.punter, c.both))

    def to_dict(self) -> dict[str, Any]:
        """Return settings and results as plain JSON values."""
        return {
            "rules": self.game.rules.to_dict(),
            "num_players": self.game.num_players,
            "reward": self.game.reward,
            "seed": self.seed,
            "confidence": CONFIDENCE,
            "standings": [asdict(standing) for standing in self.standings],
            "cells": [
                {"policy": name, "opponent": opponent, **asdict(cell)}
                for name, row in zip(self.names, self.cells, strict=True)
                for opponent, cell in zip(self.names, row, strict=True)
                if cell is not None
            ],
        }

    def to_csv(self) -> str:
        """Return the cells as CSV, one line each."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        roles = ("dealer", "punter", "both")
        columns = [f"{role}{end}" for role in roles for end in ("", "_low", "_high")]
        writer.writerow(["policy", "opponent", *columns, "exact", "num_deals"])
        for cell in self.to_dict()["cells"]:
            values = [cell[role][end] for role in roles for end in ("mean", "low", "high")]
            writer.writerow(
                [cell["policy"], cell["opponent"], *values, cell["exact"], cell["num_deals"]]
            )
        return buffer.getvalue()

    def table(self) -> str:
        """Return the standings as text, one line per policy."""
        game = self.game
        rows = [
            (
                s.name,
                str(s.mean),
                _maybe(s.rating, 1),
                _maybe(s.rating_error, 1),
                _maybe(s.alpha_rank, 3),
            )
            for s in self.standings
        ]
        title = (
            f"{game.rules.name or 'own rules'}, {game.num_players} seats, {len(rows)} policies,"
            f" seed {self.seed}; units per deal ({game.reward}), 95 % intervals"
        )
        return text_table(title, ("policy", "mean", "rating", "±", "alpha-rank"), rows)


@dataclass(frozen=True)
class _Plan:
    """What every part of a tournament needs to know; travels to other processes."""

    game: Game
    seed: int
    num_deals: int
    most_deals: int
    precision: float | None
    control_variates: bool


def play_tournament(
    policies: Sequence[PolicySpec],
    game: Game | str | RuleSet | Mapping[str, Any] = "nanning",
    num_deals: int = 500,
    seed: int = 0,
    *,
    names: Sequence[str] | None = None,
    exact: bool = True,
    precision: float | None = None,
    most_deals: int = 20_000,
    control_variates: bool | None = None,
    folder: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    progress: bool = False,
) -> TournamentResult:
    """Play every policy against every other.

    Args:
        policies: at least two, each a policy or what :func:`~shuiyu_env.policies.load` takes.
        game: the game (of one round), or the rules of a heads-up one.
        num_deals: duplicate deals that every two policies play, at least 2; ratings are made
            of these, :data:`RATED_DEALS` at a time.
        seed: an integer; decides deals and actions.
        names: how results and errors name the policies.
        exact: whether heads-up, of policies that promise ``outcomes_only`` (see
            :class:`~shuiyu_env.policy.Policy`) the payoffs are computed instead of estimated.
            On the full deck that takes up to half a minute for each of them.
        precision: estimated payoffs are played for further, until no interval of the two
            reaches further than so many units from its mean; see
            :func:`~shuiyu_env.evaluation.match.play_match`.
        most_deals: where that ends in any case.
        control_variates: see :func:`~shuiyu_env.evaluation.match.play_match`; by default
            wherever an equilibrium is at hand without solving for it.
        folder: keeps what has been played, so that the same call goes on from there. Not of
            policies that are given as objects, which nobody could tell from others.
        jobs: how many processes share the work. A policy that is given as an object stays in
            this one. (As for all that starts processes: a script that asks for more than one
            needs ``if __name__ == "__main__":``.)
        progress: whether to show a progress bar (if tqdm is installed).

    Raises:
        PolicyError: fewer than two policies, one that cannot be loaded or that answers with
            something unusable.
        RulesError, DealError, ConfigError, CheckpointError: see
            :func:`~shuiyu_env.evaluation.match.play_match`.
    """
    entries = as_list("policies", policies)
    if len(entries) < 2:
        raise PolicyError(f"policies: a tournament has two or more, got {len(entries)}")
    if not isinstance(game, Game):
        game = Game(2, game)
    num_deals, seed = at_least(2, "num_deals", num_deals), at_least(None, "seed", seed)
    most_deals = at_least(2, "most_deals", most_deals)
    jobs = at_least(1, "jobs", jobs)
    check_precision(precision)
    called = distinct_names(entries, names)
    # All are loaded first: a wrong name should not come to light after an hour's play.
    loaded = [load(entry, game) for entry in entries]
    heads_up = game.num_players == 2
    if control_variates is None:
        control_variates = equilibrium_at_hand(game)
    where = None if folder is None else check_writable(Path(folder) / "match.npz").parent
    plan = _Plan(game, seed, num_deals, most_deals, precision, control_variates)

    promising = [
        exact and is_zero_sum(game) and bool(getattr(policy, "outcomes_only", False))
        for policy in loaded
    ]
    # One alone has nobody to be computed against.
    exactly = [i for i, promises in enumerate(promising) if promises]
    exactly = exactly if len(exactly) > 1 else []
    pairs = list((combinations if heads_up else permutations)(range(len(entries)), 2))
    # What another process can load for itself goes there by its name.
    portable = [entry if not is_policy(entry) else None for entry in entries]
    with (
        tempfile.TemporaryDirectory(prefix="shuiyu-") as scratch,
        progress_bar(len(exactly) + len(pairs), progress, unit="task") as bar,
        _Pool(jobs, bar.update) as pool,
    ):
        for i in exactly:
            path = Path(scratch) / f"{i}.pickle"
            pool.add(("table", i), _tabulate, portable[i], loaded[i], game, called[i], path)
        for a, b in pairs:
            sampled = not (a in exactly and b in exactly)
            one, other = portable[a], portable[b]
            texts = None if one is None or other is None else [one, other]
            state = None
            if texts is not None and where is not None:
                digest = _digest(texts, [called[a], called[b]], plan)
                state = where / f"match-{digest}.npz"
            both, labels = [loaded[a], loaded[b]], [called[a], called[b]]
            pool.add((a, b), _play, texts, both, plan, labels, sampled, state)
        done = pool.run()
        values = (
            _exact_values(game.rules, [done["table", i] for i in exactly])
            if exactly
            else np.zeros((0, 0))
        )
    place = {i: k for k, i in enumerate(exactly)}
    cells: list[list[Cell | None]] = [[None] * len(entries) for _ in entries]
    for a, b in pairs:
        match: MatchResult = done[a, b]
        for me, other, entry in [(a, b, 0)] + ([(b, a, 1)] if heads_up else []):
            if me in place and other in place:
                x, y = place[me], place[other]
                cells[me][other] = _exact_cell(-values[x, y], values[y, x], match.num_deals)
            else:
                result = match.entries[entry]
                cells[me][other] = Cell(
                    result.dealer, result.punter, result.both, False, match.num_deals
                )
    frozen = tuple(map(tuple, cells))
    # By pair and short match: what the first won more than the others did on the average.
    won = {}
    starts = np.arange(0, num_deals, RATED_DEALS)
    for pair in pairs:
        match = done[pair]
        units = match.units if match.adjusted is None else match.adjusted
        totals = units[:num_deals].astype(np.float64).sum(axis=1)
        more = totals[:, 0] - totals[:, 1:].mean(axis=1)
        won[pair] = np.add.reduceat(more, starts).round(9)
    ratings = _ratings(len(entries), won)
    masses = _alpha_rank(_matrix(frozen)) if heads_up else None
    standings = [
        Standing(
            name,
            _mean([cell.both for cell in frozen[i] if cell is not None]),
            ratings[i][0] if ratings else None,
            ratings[i][1] if ratings else None,
            None if masses is None else float(masses[i]),
        )
        for i, name in enumerate(called)
    ]
    standings.sort(key=lambda standing: -standing.mean.mean)
    return TournamentResult(game, tuple(called), frozen, tuple(standings), seed)


class _Pool:
    """Work that processes share; with one job, or for policies that cannot travel, done here."""

    def __init__(self, jobs: int, tick: Callable[[], Any]) -> None:
        self.jobs, self.tick = jobs, tick
        self.here: dict[Any, Callable[[], Any]] = {}
        self.there: dict[Any, Callable[[], Any]] = {}
        self.pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *error: object) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)

    def add(
        self, key: Any, work: Callable[..., Any], texts: Any, loaded: Any, *others: Any
    ) -> None:
        """Add ``work(policies, *others)``: with what names them, or here with themselves."""
        if texts is None or self.jobs == 1:
            self.here[key] = partial(work, loaded, *others)
        else:
            self.there[key] = partial(work, texts, *others)

    def run(self) -> dict[Any, Any]:
        """Do all of it and return the results by key."""
        results: dict[Any, Any] = {}
        futures = {}
        if self.there:
            # Spawned: forking a process with threads, as compiled code has, may hang.
            self.pool = ProcessPoolExecutor(
                min(self.jobs, len(self.there)), get_context("spawn"), _one_thread
            )
            futures = {self.pool.submit(work): key for key, work in self.there.items()}
        for key, work in self.here.items():
            results[key] = work()
            self.tick()
        for future in as_completed(futures):
            results[futures[future]] = future.result()
            self.tick()
        return results


def _one_thread() -> None:
    # Before torch is imported: processes share the machine, and batches are small.
    os.environ["OMP_NUM_THREADS"] = "1"


def _play(
    policies: list[PolicySpec], plan: _Plan, names: list[str], sampled: bool, state: Path | None
) -> MatchResult:
    """Play one pairing, and keep it in a file."""
    players = [policies[0], *[policies[1]] * (plan.game.num_players - 1)]
    precision = plan.precision if sampled else None
    return play_match(
        players,
        plan.game,
        max(plan.num_deals, plan.most_deals) if precision else plan.num_deals,
        plan.seed,
        names=numbered([names[0], *[names[1]] * (len(players) - 1)]),
        control_variates=plan.control_variates,
        precision=precision,
        fewest_deals=plan.num_deals,
        state=state,
    )


def _digest(policies: Sequence[PolicySpec], names: Sequence[str], plan: _Plan) -> str:
    """Return what tells a match from others: names, settings, the content of files and modules."""
    game = plan.game
    settings = [plan.seed, plan.control_variates, game.settings(), __version__]
    total = hashlib.sha256(json.dumps([list(names), settings], sort_keys=True).encode())
    for spec in policies:
        path = Path(str(spec))
        if not path.is_file():
            module = str(spec).rpartition(":")[0]
            found = importlib.util.find_spec(module) if module else None
            path = Path(found.origin) if found is not None and found.origin else Path()
        if path.is_file():
            total.update(path.read_bytes())
    return total.hexdigest()[:16]


def _tabulate(policy: PolicySpec, game: Game, name: str, path: Path) -> Path:
    """Tabulate a policy and leave the tables in a file."""
    from shuiyu_env.exact import tabulate
    from shuiyu_env.exact.heads_up import heads_up_game

    player = load(policy, game)
    made = getattr(player, "policy_tables", None)
    if callable(made):
        tables = made(heads_up_game(game.rules, False))
    else:
        tables = tabulate(player, game.rules, name=name, threads=1)
    with path.open("wb") as file:
        pickle.dump((tables.dealer, tables.punter, tables.halves), file, protocol=5)
    return path


def _exact_values(rules: RuleSet, paths: Sequence[Path]) -> npt.NDArray[np.float64]:
    """Return what each policy as dealer (rows) pays each as punter (columns)."""
    from shuiyu_env.exact import PolicyTables, expected_values
    from shuiyu_env.exact.heads_up import heads_up_game

    every = []
    for path in paths:
        with path.open("rb") as file:
            every.append(PolicyTables(heads_up_game(rules, False), *pickle.load(file)))
    return np.array([[float(bound) for bound in expected_values(one, every)] for one in every])


def _exact_cell(dealer: float, punter: float, num_deals: int) -> Cell:
    def known(value: float) -> Estimate:
        return Estimate(value, 0.0, value, value)

    return Cell(known(dealer), known(punter), known((dealer + punter) / 2), True, num_deals)


def _maybe(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _matrix(cells: Sequence[Sequence[Cell | None]]) -> npt.NDArray[np.float64]:
    return np.array([[0.0 if cell is None else cell.both.mean for cell in row] for row in cells])


def _mean(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of estimates that may depend on each other in any way."""
    mean = sum(e.mean for e in estimates) / len(estimates)
    error = sum(e.standard_error for e in estimates) / len(estimates)
    half = sum(e.high - e.mean for e in estimates) / len(estimates)
    return Estimate(mean, error, mean - half, mean + half)


def _ratings(
    size: int, won: Mapping[tuple[int, int], npt.NDArray[np.floating[Any]]]
) -> list[tuple[float, float]] | None:
    """Return openskill's ratings after all short matches, one of every pair after the other."""
    try:
        from openskill.models import PlackettLuce
    except ModuleNotFoundError:
        return None
    model = PlackettLuce()
    ratings = [model.rating() for _ in range(size)]
    for results in zip(*won.values(), strict=True):
        for (a, b), more in zip(won, results, strict=True):
            # Places, from the best; equal ones are a draw.
            places = [float(more < 0), float(more > 0)]
            [[ratings[a]], [ratings[b]]] = model.rate([[ratings[a]], [ratings[b]]], ranks=places)
    return [(rating.mu, rating.sigma) for rating in ratings]


def _alpha_rank(payoffs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
    """Return every policy's mass in alpha-rank, as the pressure of selection grows infinite."""
    try:
        from open_spiel.python.egt import alpharank
    except ModuleNotFoundError:
        return None
    *_, masses, _, _ = alpharank.compute([payoffs], use_inf_alpha=True, inf_alpha_eps=_MUTATION)
    return np.asarray(masses, dtype=np.float64)
