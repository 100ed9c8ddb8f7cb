"""Solving a rule set: from the first iteration to an equilibrium, with progress and resume."""

from __future__ import annotations

__all__ = ["DEFAULT_TARGET", "check_target", "default_algorithm", "solve"]

import io
import json
import logging
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from math import comb
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from shuiyu_env import __version__
from shuiyu_env.core.cards import HAND_SIZE
from shuiyu_env.core.checks import as_integer, check_choice
from shuiyu_env.core.errors import CheckpointError, ConfigError
from shuiyu_env.core.rules import RuleSet, resolve_rules
from shuiyu_env.exact.equilibrium import Equilibrium
from shuiyu_env.exact.heads_up import HeadsUpGame, heads_up_game, rules_key
from shuiyu_env.exact.solver import ALGORITHMS, Average, Decision, Solver
from shuiyu_env.files import check_writable, write_atomically
from shuiyu_env.progress import Interrupt, progress_bar

_log = logging.getLogger(__name__)

#: NashConv that is solved to unless asked otherwise, units per deal.
DEFAULT_TARGET = 1e-4

_DEFAULT_ITERATIONS = 400
# Iterations that the schedule of HS-DCFR is spread over; it stays at its end beyond.
_HORIZON = 100


# Games of so few hands have little to average over: there HS-DCFR, fastest everywhere else, may
# stop getting better (9 cards: 2e-3 after 400 iterations, predictive CFR+ 5e-8).
_FEW_HANDS = 600


def default_algorithm(rules: RuleSet) -> str:
    """Return the algorithm that was measured to be the fastest (docs/game_theory.md)."""
    return "pcfr+5" if comb(rules.deck.size, HAND_SIZE) <= _FEW_HANDS else "hs-dcfr"


def solve(
    rules: str | RuleSet | Mapping[str, Any],
    target: float = DEFAULT_TARGET,
    *,
    algorithm: str | None = None,
    max_iterations: int = _DEFAULT_ITERATIONS,
    horizon: int | None = None,
    threads: int | None = None,
    out: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Equilibrium:
    """Solve the heads-up game of a rule set.

    Args:
        rules: a preset's name, a mapping of fields, or a rule set.
        target: stop when NashConv, in units per deal, is at most this. It is that of
            the equilibrium returned, after its probabilities were rounded to multiples
            of 1/240, which on a small deck keeps it above some 1e-4.
        algorithm: a name of :data:`~shuiyu_env.exact.solver.ALGORITHMS`; ``None``: the
            fastest that is known for these rules.
        max_iterations: stop then at the latest.
        horizon: iterations that a schedule is spread over; by default 100.
        threads: threads to share the sums; ``None``: all that there are.
        out: a file ``*.npz`` to save the equilibrium to.
        checkpoint: a file to go on from if it is there, to which the state is
            written every few minutes and when interrupted (Ctrl-C finishes the
            iteration first), and which is removed when the target was met and the
            equilibrium is saved.
        progress: show a progress bar (needs tqdm).

    Returns:
        The equilibrium; ``info`` says how it was made, with ``nashconv``, ``value`` (to
        the punter) and ``convergence``: iteration, seconds, NashConv, and what the
        dealer, and the punter, at best leave and get.

    Raises:
        RulesError: no such rules, stakes, or no such algorithm.
        ConfigError: a setting out of range, or a file that cannot be written.
        CheckpointError: a checkpoint that is damaged, or of another run.
    """
    rules = resolve_rules(rules)
    name = default_algorithm(rules) if algorithm is None else algorithm
    check_choice("algorithm", name, tuple(ALGORITHMS))
    goal = check_target(target)
    limit = _whole("max_iterations", max_iterations)
    span = _whole("horizon", _HORIZON if horizon is None else horizon)
    game = heads_up_game(rules, threads=None if threads is None else _whole("threads", threads))
    solver = Solver(game, name, span)
    files = [None if path is None else check_writable(path) for path in (out, checkpoint)]
    run = _Run(solver, *files)
    run.resume()
    return run.until(goal, limit, progress)


def check_target(target: object) -> float:
    """Return a target, checked.

    Raises:
        ConfigError: not a number of units above 0.
    """
    # bool is a number to Python, but no target.
    if not isinstance(target, bool) and isinstance(target, Real):
        with suppress(OverflowError):
            units = float(target)
            if 0.0 < units < math.inf:
                return units
    raise ConfigError(f"target: expected a number of units above 0, got {target!r}")


def _whole(name: str, value: object) -> int:
    number = as_integer(value)
    if number is None or number < 1:
        raise ConfigError(f"{name}: expected a whole number of 1 or more, got {value!r}")
    return number


class _Run:
    """A solver at work: when it is measured, saved and done."""

    SAVE_EVERY = 120.0  # seconds

    def __init__(self, solver: Solver, out: Path | None, checkpoint: Path | None) -> None:
        self.solver = solver
        self.out = out
        self.checkpoint = checkpoint
        self.convergence: list[dict[str, float]] = []
        self.seconds = 0.0

    def until(self, target: float, limit: int, progress: bool) -> Equilibrium:
        """Iterate until NashConv is at most the target, or the limit is reached."""
        solver = self.solver
        saved = time.monotonic()
        with self._bar(limit, progress) as bar, Interrupt() as interrupt:
            while True:
                started = time.monotonic()
                if solver.iteration < limit:
                    solver.step()
                    bar.update()
                last = solver.iteration >= limit
                average = solver.average() if last or _measured(solver.iteration) else None
                self.seconds += time.monotonic() - started
                if average is not None:
                    self._record(average)
                    bar.set_postfix_str(f"NashConv {average.nashconv:.2e}, target {target:.0e}")
                    if average.nashconv <= target or last:
                        result = self._finished(average)
                        if result.info["nashconv"] <= target or last:
                            break
                if interrupt.requested:
                    self._try_to_save()
                    raise KeyboardInterrupt
                if time.monotonic() - saved > self.SAVE_EVERY:
                    self._try_to_save()
                    saved = time.monotonic()
        return self._deliver(result, target)

    def _deliver(self, result: Equilibrium, target: float) -> Equilibrium:
        """Save the result, and what would be needed to go on if it is not good enough."""
        met = result.info["nashconv"] <= target
        if not met:
            result.info["missed"] = target
            _log.warning(
                "the target of %.0e was not met in %d iterations: NashConv is %.2e",
                target,
                result.info["iterations"],
                result.info["nashconv"],
            )
            self._try_to_save()
        if self.out is not None:
            try:
                result.save(self.out)
            except OSError as error:
                self._try_to_save()
                raise ConfigError(f"{self.out}: could not be written: {error}") from error
        if self.checkpoint is not None and met:
            self.checkpoint.unlink(missing_ok=True)
        return result

    def _try_to_save(self) -> None:
        if self.checkpoint is not None:
            try:
                self.save()
            except OSError as error:
                _log.warning("%s: could not be written: %s", self.checkpoint, error)

    def _bar(self, limit: int, wanted: bool) -> Any:
        done = self.solver.iteration
        return progress_bar(limit, wanted, initial=done, unit="iteration", desc="solving")

    def _record(self, average: Average) -> None:
        self.convergence.append(
            {
                "iteration": average.iteration,
                "seconds": round(self.seconds, 3),
                "nashconv": average.nashconv,
                "low": average.low,
                "high": average.high,
            }
        )

    def _finished(self, average: Average) -> Equilibrium:
        """Make the equilibrium that is kept, and measure that."""
        game: HeadsUpGame = self.solver.game
        equilibrium = Equilibrium.from_strategies(
            game, average.dealer_split, average.dealer_calls, average.punter
        )
        result = equilibrium.nashconv()
        equilibrium.info = {
            "nashconv": float(result.nashconv),
            "value": float(result.value),
            "dealer_gain": float(result.dealer_gain),
            "punter_gain": float(result.punter_gain),
            "algorithm": self.solver.name,
            "horizon": self.solver.horizon,
            "iterations": average.iteration,
            "version": __version__,
            "convergence": self.convergence,
        }
        return equilibrium

    def save(self) -> None:
        """Write the state to the checkpoint."""
        assert self.checkpoint is not None
        arrays = {
            f"{name}.{part}": getattr(decision, part)
            for name, decision in self.solver.decisions().items()
            for part in Decision.STATE
        }
        header = {**self._identity(), "iteration": self.solver.iteration, "seconds": self.seconds}
        header["convergence"] = self.convergence
        buffer = io.BytesIO()
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        np.savez(buffer, header=text, **arrays)
        write_atomically(self.checkpoint, buffer.getvalue())

    def resume(self) -> None:
        """Go on from the checkpoint, if there is one."""
        if self.checkpoint is None or not self.checkpoint.exists():
            return
        try:
            with np.load(self.checkpoint, allow_pickle=False) as archive:
                header = json.loads(bytes(archive["header"]))
                identity = {name: header[name] for name in self._identity()}
                for name, expected in self._identity().items():
                    if identity[name] != expected:
                        raise CheckpointError(
                            f"{self.checkpoint}: the state of another run ({name}: expected"
                            f" {expected}, got {identity[name]}): remove it, or name another file"
                        )
                for name, decision in self.solver.decisions().items():
                    for part in Decision.STATE:
                        array = archive[f"{name}.{part}"]
                        if array.shape != decision.regret.shape or not np.isfinite(array).all():
                            raise ValueError(f"{name}.{part} is of another shape, or not finite")
                        setattr(decision, part, array.astype(self.solver.dtype))
                if int(header["iteration"]) < 1:
                    raise ValueError(f"iteration {header['iteration']}")
                self.solver.iteration = int(header["iteration"])
                self.seconds = float(header["seconds"])
                self.convergence = list(header["convergence"])
        except CheckpointError:
            raise
        except Exception as error:  # whatever a damaged archive makes NumPy and zipfile raise
            raise CheckpointError(
                f"{self.checkpoint}: damaged, remove it to begin again: {error}"
            ) from error

    def _identity(self) -> dict[str, Any]:
        return {
            "key": rules_key(self.solver.game.rules),
            "algorithm": self.solver.name,
            "horizon": self.solver.horizon,
        }


def _measured(iteration: int) -> bool:
    """Whether the average is measured then: each time costs as much as an iteration."""
    every = 1 if iteration < 4 else 2 if iteration < 10 else 5 if iteration < 50 else 10
    return iteration % every == 0
