"""Train a policy by self-play: ``python train.py``.

Without options, heads-up Nanning rules by ``configs/ppo.yaml``. Any setting
can be changed: ``python train.py --game.num_players 4 --game.rules dahua``;
``python train.py --help`` lists all. A run that was interrupted goes on with
``python train.py --resume runs/<name>``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from agents.config import parse
from agents.ppo import PPO, DivergenceError
from agents.run import Learner, Run
from shuiyu_env.core.errors import ConfigError, PolicyError, ShuiyuError
from shuiyu_env.evaluation import AgainstRow, against_table, match_against
from shuiyu_env.policies.network import NetworkPolicy
from shuiyu_env.progress import Interrupt

DEFAULT_CONFIG = Path(__file__).parent / "configs" / "ppo.yaml"
REFERENCES = ("uniform", "honest", "cautious", "bluffer")

#: Exit codes: a mistake in the settings, and (by custom) an interrupt.
USAGE_ERROR, INTERRUPTED = 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Train, or go on training; return the exit code."""
    try:
        config, resumed = parse(sys.argv[1:] if argv is None else argv, DEFAULT_CONFIG)
        torch.set_num_threads(config.threads)
        try:
            learner = PPO(
                config.game.make(), config.ppo, config.network, config.seed, config.device
            )
        except (MemoryError, RuntimeError) as error:
            # The arrays of all environments and of a window of experience are made here.
            raise ConfigError(
                f"ppo.num_envs {config.ppo.num_envs} times ppo.window {config.ppo.window} is too"
                f" much for this machine's memory ({str(error).splitlines()[0]})"
            ) from None
        if resumed is None:
            run = Run.create(config)
            run.save(learner)
        else:
            run = Run.open(resumed, config, learner)
    except ShuiyuError as error:
        print(f"train.py: error: {error}", file=sys.stderr)
        return USAGE_ERROR
    print(f"{run.path}: {learner.game!r}", flush=True)
    how_to_resume = f"go on with: python train.py --resume {run.path}"
    try:
        finished = train(run, learner)
        if not finished:
            print(f"stopped at iteration {learner.iteration}; {how_to_resume}")
            return INTERRUPTED
        print_shares(run)
        if config.evaluation.final_deals:
            final_match(run, learner)
    except (DivergenceError, PolicyError) as error:
        # The policy meant is the one just learned: its answers are no longer finite.
        print(
            f"train.py: stopped: {error}\nthe last good policy is {run.policy_path}; try a lower"
            " ppo.learning_rate",
            file=sys.stderr,
        )
        return 1
    except OSError as error:
        print(f"train.py: stopped: {error}\n{how_to_resume}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ninterrupted; {how_to_resume}")
        return INTERRUPTED
    finally:
        run.close()
    print(f"policy: {run.policy_path}")
    return 0


def train(run: Run, learner: Learner) -> bool:
    """Learn until the end, or until Ctrl-C; return whether it was the end."""
    config = run.config
    total = config.ppo.iterations * config.ppo.steps_per_iteration
    bar = tqdm(
        total=total,
        initial=learner.env_steps,
        unit=" steps",
        unit_scale=True,
        # Not drawn where nobody looks: into files and pipes go plain lines instead.
        disable=None,
        dynamic_ncols=True,
    )
    with bar, Interrupt() as interrupt:
        while not learner.is_finished and not interrupt.requested:
            before = learner.env_steps
            learned = learner.iterate()
            metrics: dict[str, Any] = {
                "iteration": learner.iteration,
                "env_steps": learner.env_steps,
                **learned,
            }
            if _is_due(config.evaluation.interval, learner):
                began = time.perf_counter()
                metrics["match"] = _match_metrics(_match(run, learner, config.evaluation.deals))
                metrics["match_seconds"] = time.perf_counter() - began
                tqdm.write(_line(metrics, total))
                sys.stdout.flush()
            run.log(metrics)
            bar.update(learner.env_steps - before)
            if "entropy" in metrics:
                bar.set_postfix(
                    entropy=f"{metrics['entropy']:.2f}", value_loss=f"{metrics['value_loss']:.2f}"
                )
            if learner.is_finished or learner.iteration % config.checkpoint_interval == 0:
                run.save(learner)
        if interrupt.requested:
            run.save(learner)
        return learner.is_finished


def _is_due(interval: int, learner: Learner) -> bool:
    if interval == 0:
        return False
    # The first, too: a curve should show where it begins.
    return learner.iteration == 1 or learner.is_finished or learner.iteration % interval == 0


def _match(run: Run, learner: Learner, deals: int, progress: bool = False) -> list[AgainstRow]:
    """Match the policy against every reference policy; single deals, whatever the rounds."""
    policy = NetworkPolicy(learner.network)
    # A seed of its own: these deals are never trained on.
    seed = run.config.seed ^ (1 << 62)
    game = run.config.game.make(rounds=1)
    return match_against(
        policy, REFERENCES, game, deals, seed, name=run.path.name, progress=progress
    )


def _match_metrics(rows: Sequence[AgainstRow]) -> dict[str, dict[str, float]]:
    return {
        row.opponent: {
            "mean": row.result.both.mean,
            "low": row.result.both.low,
            "high": row.result.both.high,
            "dealer": row.result.dealer.mean,
            "punter": row.result.punter.mean,
        }
        for row in rows
    }


def _line(metrics: dict[str, Any], total: int) -> str:
    against = ", ".join(
        f"{name} {result['mean']:+.2f}" for name, result in metrics["match"].items()
    )
    return (
        f"iteration {metrics['iteration']}, {metrics['env_steps'] / total:.0%},"
        f" {metrics['env_steps_per_second']:,.0f} steps/s; units per deal against {against}"
    )


def print_shares(run: Run) -> None:
    """Print how fast the run was and where its time went."""
    seconds = sum(row.get("seconds", 0.0) for row in run.metrics)
    if not seconds:
        return
    shares = {
        name: sum(row.get(f"share_{name}", 0.0) * row.get("seconds", 0.0) for row in run.metrics)
        / seconds
        for name in ("environment", "network", "update")
    }
    matches = sum(row.get("match_seconds", 0.0) for row in run.metrics)
    steps = run.metrics[-1]["env_steps"]
    print(
        f"{steps:,} decisions in {seconds:.0f} s: {steps / seconds:,.0f} a second; "
        + ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
        + f"; matches {matches:.0f} s more"
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
    raise SystemExit(main())
