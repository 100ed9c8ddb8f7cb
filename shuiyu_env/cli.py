"""The ``shuiyu`` command."""

from __future__ import annotations

__all__ = ["main"]

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shuiyu_env import __version__
from shuiyu_env.core.errors import RulesError, ShuiyuError
from shuiyu_env.core.rules import PRESETS, RuleSet, resolve_rules
from shuiyu_env.files import check_writable, write_atomically


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    options = _parser().parse_args(arguments)
    if os.getcwd() not in sys.path and "" not in sys.path:
        # As for `python -m`: policies of one's own are named by module.
        sys.path.insert(0, os.getcwd())
    try:
        options.run(options)
    except BrokenPipeError:
        # Whoever read the output has seen enough; nothing is left to be flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ShuiyuError, OSError) as error:
        print(f"shuiyu {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"shuiyu {options.command}: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="shuiyu", description="Shuiyu, a card game of bluff.")
    parser.add_argument("--version", action="version", version=f"shuiyu_env {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    solve = commands.add_parser(
        "solve",
        help="solve the heads-up game of a rule set",
        description="Solve the heads-up game of a rule set by counterfactual regret minimisation."
        " Interrupted, it goes on from where it was when it is called again.",
    )
    solve.set_defaults(run=_solve)
    _add_rules(solve)
    solve.add_argument(
        "--target", type=float, default=1e-4, help="NashConv, units per deal (default 1e-4)"
    )
    solve.add_argument("--algorithm", help="by default the fastest known for the rules")
    solve.add_argument("--max-iterations", type=int, default=400, help="default 400")
    solve.add_argument("--horizon", type=int, help="iterations that a schedule is spread over")
    solve.add_argument(
        "--out",
        type=Path,
        help="file *.npz to write, or the folder for it; by default the cache, where the policy"
        " 'equilibrium' looks",
    )
    solve.add_argument("--plot", type=Path, help="picture of the convergence to write, *.png")
    _add_threads(solve)

    exploitability = commands.add_parser(
        "exploitability",
        help="how much can be gained against a policy, heads-up",
        description="Compute what a best response gains against a policy as dealer and as punter:"
        " exactly for policies that read an open hand through outcomes only (the references,"
        " equilibria, our networks) and on small decks, otherwise as an interval.",
    )
    exploitability.set_defaults(run=_exploitability)
    exploitability.add_argument("policy", help="a name, a file or module:attribute")
    _add_rules(exploitability)
    exploitability.add_argument(
        "--samples", type=int, default=16, help="dealer's hands sampled for each open hand"
    )
    exploitability.add_argument("--seed", type=int, default=0, help="of those samples")
    exploitability.add_argument("--json", type=Path, help="file to write the result to as well")
    _add_threads(exploitability)
    return parser


def _add_rules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rules",
        default="nanning",
        help=f"a preset ({', '.join(PRESETS)}), a JSON object of fields such as"
        ' \'{"preset": "dahua", "deck": {"ranks": 6, "suits": 4}}\', or a file *.json with one',
    )


def _add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, help="by default all that there are")


def _rules(text: str) -> RuleSet:
    """Return the rule set that a command line names."""
    where = "--rules"
    if text.endswith(".json"):
        where = text
        try:
            text = Path(text).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise RulesError(f"{where}: cannot be read: {error}") from None
    if not text.lstrip().startswith("{"):
        return resolve_rules(text)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RulesError(f"{where}: expected a JSON object: {error}") from None
    return resolve_rules(fields)


def _solve(options: argparse.Namespace) -> None:
    from shuiyu_env.exact.plot import check_plot, convergence_table, plot_convergence
    from shuiyu_env.exact.solving import solve
    from shuiyu_env.exact.store import cache_folder, file_name

    rules = _rules(options.rules)
    out: Path = options.out or cache_folder()
    if options.out is None or out.is_dir():
        out /= file_name(rules)
    if out.suffix != ".npz":
        raise RulesError(f"--out: expected a file ending in .npz, got {out}")
    if options.plot:
        check_plot(options.plot)
    checkpoint = out.with_suffix(".checkpoint.npz")
    try:
        equilibrium = solve(
            rules,
            options.target,
            algorithm=options.algorithm,
            max_iterations=options.max_iterations,
            horizon=options.horizon,
            threads=options.threads,
            out=out,
            checkpoint=checkpoint,
            progress=True,
        )
    except KeyboardInterrupt:
        if checkpoint.exists():
            print(f"\nkept in {checkpoint}: the same command goes on from there", file=sys.stderr)
        raise
    info = equilibrium.info
    print(convergence_table(info["convergence"]))
    print(
        f"NashConv {info['nashconv']:.3e} units per deal (target {options.target:.0e}), value to"
        f" the punter {info['value']:+.6f}\nwrote {out}"
    )
    if options.plot:
        print(f"wrote {plot_convergence({info['algorithm']: info['convergence']}, options.plot)}")
    if info["nashconv"] > options.target:
        raise RulesError(
            f"the target was not reached in {info['iterations']} iterations: call again with a"
            " larger --max-iterations to go on"
        )


def _exploitability(options: argparse.Namespace) -> None:
    from shuiyu_env.core.game import Game
    from shuiyu_env.exact import nashconv
    from shuiyu_env.policies import load

    rules = _rules(options.rules)
    if options.json:
        check_writable(options.json)
    policy = load(options.policy, Game(2, rules))
    if "torch" in sys.modules:
        import torch

        # Batches are small, and several threads wait for each other more than they help.
        torch.set_num_threads(options.threads or 1)
    result = nashconv(
        policy,
        rules,
        samples=options.samples,
        seed=options.seed,
        threads=options.threads,
        name=options.policy,
        progress=True,
    )
    print(result)
    if options.json:
        data: dict[str, Any] = {"policy": options.policy, "rules": rules.to_dict()}
        text = json.dumps(data | result.to_dict(), indent=2) + "\n"
        print(f"wrote {write_atomically(options.json, text.encode())}")


if __name__ == "__main__":
    sys.exit(main())
