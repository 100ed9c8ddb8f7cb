"""Train a policy by self-play: ``python train.py``.

Without options, heads-up Nanning rules by ``configs/nash_pg.yaml``; other algorithms are
in ``configs/``, too. Any setting can be changed:
``python train.py --game.num_players 4 --game.rules dahua``; ``python train.py --help``
lists all. A run that was interrupted goes on with ``python train.py --resume runs/<name>``.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from agents.algorithms import learner_class, make_learner
from agents.config import parse
from agents.learner import DivergenceError, Learner
from agents.measuring import REFERENCES, can_compute, is_due, match_metrics, nashconv_metrics
from agents.run import Run
from agents.workers import Workers
from shuiyu_env.core.errors import ConfigError, PolicyError, ShuiyuError
from shuiyu_env.evaluation import AgainstRow, against_table, match_against
from shuiyu_env.progress import Interrupt

DEFAULT_CONFIG = Path(__file__).parent / "configs" / "nash_pg.yaml"

#: Exit codes: a mistake in the settings, and (by custom) an interrupt.
USAGE_ERROR, INTERRUPTED = 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Train, or go on training; return the exit code."""
    workers = Workers()
    try:
        config, resumed = parse(sys.argv[1:] if argv is None else argv, DEFAULT_CONFIG)
        torch.set_num_threads(config.threads)
        workers = Workers.join(config.device)
        try:
            learner = make_learner(config, workers)
        except (MemoryError, RuntimeError) as error:
            if not is_memory(error):
                raise ConfigError(
                    f"{config.algorithm}: cannot be set up on {config.device}: {reason_of(error)}"
                ) from error
            # The arrays of all environments and of a window of experience are made here.
            raise ConfigError(
                f"{config.algorithm}: its environments, the experience of an iteration and the"
                f" networks are too much for this machine's memory ({reason_of(error)});"
                f" make {settings_of(config.algorithm, learner_class(config.algorithm).sizes)}"
                " smaller, or network.hidden if that is very wide"
            ) from None
        # One process makes the folder; it is nobody else's to write in.
        run, failed = None, None
        if workers.is_first or resumed is not None:
            try:
                run = Run.create(config) if resumed is None else Run.open(resumed, config, learner)
            except ShuiyuError as error:
                failed = error
            except OSError as error:
                failed = ConfigError(f"{resumed or config.runs_dir}: {error.strerror or error}")
        first_failed = workers.any(workers.is_first and failed is not None)
        if workers.any(failed is not None):
            if failed is None or (first_failed and not workers.is_first):
                # Said once is enough.
                workers.leave()
                return USAGE_ERROR
            raise failed
        if run is None:
            run = Run(Path(workers.share(None)), config)
        else:
            workers.share(str(run.path))
        if resumed is None:
            try:
                run.save(learner)
            except OSError as error:
                # Nothing has been learned: the name is free again.
                shutil.rmtree(run.path, ignore_errors=True)
                raise ConfigError(
                    f"{run.path}: cannot be written: {error.strerror or error}"
                ) from None
    except ShuiyuError as error:
        workers.leave()
        print(f"train.py: error: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        workers.leave()
        return INTERRUPTED
    first = workers.is_first
    if first:
        print(f"{run.path}: {learner.game!r}", flush=True)
    how_to_resume = f"go on with: {_command(workers)} --resume {run.path}"
    try:
        finished = train(run, learner)
        if not first:
            return 0
        if not finished:
            print(f"stopped at iteration {learner.iteration}; {how_to_resume}")
            return INTERRUPTED
        print_shares(run)
        if config.evaluation.final_deals:
            final_match(run, learner)
    except (DivergenceError, PolicyError) as error:
        # The policy meant is the one just learned: its answers are no longer finite.
        rates = settings_of(config.algorithm, learner.rates)
        # From every process: it may be the only one that has met it.
        print(
            f"train.py: stopped: {error}\nthe last good policy, of iteration"
            f" {run.saved}, is {run.policy_path}"
            + (f"; try a lower {rates}, and others nearer to the defaults" if rates else ""),
            file=sys.stderr,
        )
        return 1
    except (MemoryError, ShuiyuError) as error:
        print(f"train.py: stopped: {error}\n{how_to_resume}", file=sys.stderr)
        return 1
    except RuntimeError as error:
        if workers.size == 1 and not is_memory(error):
            raise
        # Memory that torch did not get, or another process that is gone.
        smaller = "; if batches are too large for memory, begin a new run with smaller ones"
        print(f"train.py: stopped: {reason_of(error)}\n{how_to_resume}{smaller}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"train.py: stopped: {error}\n{how_to_resume}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ninterrupted; {how_to_resume}")
        return INTERRUPTED
    finally:
        run.close()
        workers.leave()
    print(f"policy: {run.policy_path}")
    return 0


def is_memory(error: Exception) -> bool:
    """Return whether there was too little memory; torch says so in words alone on the CPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "alloc" in str(error)


def reason_of(error: Exception) -> str:
    """Return an error's first line, or its name if it has none."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def settings_of(algorithm: str, names: Sequence[str]) -> str:
    """Return some of an algorithm's settings as the command line has them."""
    return " or ".join(f"{algorithm}.{name}" for name in names)


def train(run: Run, learner: Learner) -> bool:
    """Learn until the end, or until Ctrl-C; return whether it was the end."""
    config, workers = run.config, learner.workers
    if workers.any(workers.is_first and not run.has_policies_of(learner)):
        # Of a run that goes on: taken away, or the last checkpoint was cut short.
        run.save(learner)
    # What resuming finds: the time that was spent before.
    before = run.metrics[-1] if run.metrics else {"train_seconds": 0.0, "cpu_seconds": 0.0}
    seconds, cpu_seconds = before["train_seconds"], before["cpu_seconds"]
    bar = tqdm(
        total=learner.iterations,
        initial=learner.iteration,
        unit=" iterations",
        # Not drawn where nobody looks: into files and pipes go plain lines instead.
        disable=None if workers.is_first else True,
        dynamic_ncols=True,
    )
    with bar, Interrupt() as interrupt:
        stop = False
        while not learner.is_finished and not stop:
            began, cpu_began = time.perf_counter(), time.process_time()
            learned = learner.iterate()
            seconds += time.perf_counter() - began
            cpu_seconds += time.process_time() - cpu_began
            metrics: dict[str, Any] = {
                "iteration": learner.iteration,
                "env_steps": learner.env_steps,
                "train_seconds": seconds,
                "cpu_seconds": cpu_seconds,
                **learned,
            }
            if workers.is_first:
                measure(run, learner, metrics)
                run.log(metrics)
            bar.update()
            shown = {"entropy": "entropy", "env_steps_per_second": "steps_per_second"}
            bar.set_postfix({to: f"{metrics[of]:.3g}" for of, to in shown.items() if of in metrics})
            if learner.is_finished or learner.iteration % config.checkpoint_interval == 0:
                run.save(learner)
            stop = workers.any(interrupt.requested)
        if stop and not learner.is_finished:
            run.save(learner)
        return learner.is_finished


def measure(run: Run, learner: Learner, metrics: dict[str, Any]) -> None:
    """Add to the metrics of an iteration what is due: a match, NashConv."""
    config = run.config.evaluation
    began = time.perf_counter()
    match = _is_due(config.interval, learner)
    exact = can_compute(learner.game) and is_due(
        config.nashconv_points, learner.iteration, learner.iterations
    )
    if match:
        metrics["match"] = match_metrics(_match(run, learner, config.deals))
    if exact:
        metrics["nashconv"] = nashconv_metrics(learner)
    if match or exact:
        metrics["evaluation_seconds"] = time.perf_counter() - began
        tqdm.write(_line(metrics, learner))
        sys.stdout.flush()


def _is_due(interval: int, learner: Learner) -> bool:
    if interval == 0:
        return False
    # The first, too: a curve should show where it begins.
    return learner.iteration == 1 or learner.is_finished or learner.iteration % interval == 0


def _match(run: Run, learner: Learner, deals: int, progress: bool = False) -> list[AgainstRow]:
    """Match the policy against every reference policy; single deals, whatever the rounds."""
    policy = next(iter(learner.policies().values()))
    # A seed of its own: these deals are never trained on.
    seed = run.config.seed ^ (1 << 62)
    game = run.config.game.make(rounds=1)
    return match_against(
        policy, REFERENCES, game, deals, seed, name=run.path.name, progress=progress
    )


def _line(metrics: dict[str, Any], learner: Learner) -> str:
    parts = [
        f"iteration {metrics['iteration']}, {learner.progress:.0%},"
        f" {metrics['env_steps_per_second']:,.0f} steps/s"
    ]
    if "match" in metrics:
        results = [f"{name} {found['mean']:+.2f}" for name, found in metrics["match"].items()]
        parts.append("units per deal against " + ", ".join(results))
    for kind, found in metrics.get("nashconv", {}).items():
        names = [name for name in found if name.startswith("nashconv")]
        parts.append(f"NashConv ({kind}) " + " to ".join(f"{found[name]:.4f}" for name in names))
    return "; ".join(parts)


def _command(workers: Workers) -> str:
    if workers.size == 1:
        return "python train.py"
    return f"torchrun --nproc-per-node {workers.size} train.py"


def print_shares(run: Run) -> None:
    """Print how fast the run was and where its time went."""
    seconds = sum(row.get("seconds", 0.0) for row in run.metrics)
    if not seconds:
        return
    names = dict.fromkeys(key for row in run.metrics for key in row if key.startswith("share_"))
    shares = {
        name.removeprefix("share_"): sum(
            row.get(name, 0.0) * row.get("seconds", 0.0) for row in run.metrics
        )
        / seconds
        for name in names
    }
    measured = sum(row.get("evaluation_seconds", 0.0) for row in run.metrics)
    steps = run.metrics[-1]["env_steps"]
    print(
        f"{steps:,} decisions in {seconds:.0f} s: {steps / seconds:,.0f} a second; "
        + ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
        + f"; measuring {measured:.0f} s more"
    )


def final_match(run: Run, learner: Learner) -> None:
    """Match the finished policy against every reference policy; print and save the result."""
    rows = _match(run, learner, run.config.evaluation.final_deals, progress=sys.stderr.isatty())
    table = against_table(rows)
    print(table)
    run.save_match(
        {
            "policy": str(run.policy_path),
            "num_deals": run.config.evaluation.final_deals,
            "rows": [row.to_dict() for row in rows],
            "table": table,
        }
    )


if __name__ == "__main__":
    Workers.exit(main())
