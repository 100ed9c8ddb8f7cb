"""The ``shuiyu`` command."""

from __future__ import annotations

__all__ = ["main"]

import argparse
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    except KeyboardInterrupt as interrupt:
        what = "".join(["interrupted", *map(str, interrupt.args)])
        print(f"shuiyu {options.command}: {what}", file=sys.stderr)
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

    evaluate = commands.add_parser(
        "evaluate",
        help="a report on a policy: strength, exploitability, bluffs, some hands",
        description="Write a report on a policy: how strong it is against the reference policies"
        " and the equilibrium, how exploitable it is, how it bluffs, and a dozen hands in detail."
        " The folder holds report.html (one self-contained file), report.md with its pictures, and"
        " report.json.",
    )
    evaluate.set_defaults(run=_evaluate)
    evaluate.add_argument("policy", help=_POLICY)
    _add_game(evaluate)
    evaluate.add_argument(
        "--out", type=Path, default=Path("report"), help="folder (default report)"
    )
    evaluate.add_argument(
        "--against", action="append", metavar="POLICY", help="an opponent; may be repeated"
    )
    _add_deals(evaluate, 4000)
    evaluate.add_argument(
        "--exact",
        default="auto",
        help="compute exploitability: yes, no, or auto (if that takes no longer than --patience)",
    )
    evaluate.add_argument(
        "--patience", type=float, default=600.0, help="seconds for --exact auto (default 600)"
    )
    _add_threads(evaluate)

    match = commands.add_parser(
        "match",
        help="policies against each other on duplicate deals",
        description="Play policies against each other, one in each seat, on duplicate deals.",
    )
    match.set_defaults(run=_match)
    match.add_argument("policies", nargs="+", metavar="POLICY", help=_POLICY)
    _add_rules(match)
    _add_deals(match, 10_000)
    match.add_argument(
        "--precision", type=float, help="end once every interval is at most so many units +-"
    )
    match.add_argument("--plain", action="store_true", help="heads-up too without control variates")
    match.add_argument("--state", type=Path, help="file *.npz to keep what was played and go on")
    match.add_argument("--json", type=Path, help="file to write the result to as well")
    match.add_argument("--threads", type=int, default=1, help="that step the games (default 1)")

    tournament = commands.add_parser(
        "tournament",
        help="every policy against every other",
        description="Play every policy against every other: payoffs, ratings, alpha-rank. The"
        " folder holds tournament.json, payoffs.csv, payoffs.png and what is needed to go on.",
    )
    tournament.set_defaults(run=_tournament)
    tournament.add_argument("policies", nargs="+", metavar="POLICY", help=_POLICY)
    _add_game(tournament)
    tournament.add_argument(
        "--out", type=Path, default=Path("tournament"), help="folder (default tournament)"
    )
    _add_deals(tournament, 500)
    tournament.add_argument(
        "--precision", type=float, help="play on until every interval is at most so many units +-"
    )
    tournament.add_argument(
        "--sampled", action="store_true", help="compute nothing exactly, only play"
    )
    tournament.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)"
    )

    replay = commands.add_parser(
        "replay",
        help="a recorded game, step by step",
        description="Show a recorded game (State.to_record, as JSON) step by step.",
    )
    replay.set_defaults(run=_replay)
    replay.add_argument("record", type=Path, help="file *.json")
    replay.add_argument("--seat", type=int, help="as this seat saw it; by default all cards open")
    replay.add_argument("--step", action="store_true", help="wait for Enter after every step")

    export = commands.add_parser(
        "export",
        help="a network as an ONNX file",
        description="Write a trained network as an ONNX file, a policy wherever onnxruntime is.",
    )
    export.set_defaults(run=_export)
    export.add_argument(
        "policy", help="a checkpoint *.safetensors, or the name of a trained policy"
    )
    export.add_argument("out", type=Path, help="file *.onnx to write")
    return parser


_POLICY = "a name, a file (*.safetensors, *.onnx, *.npz) or module:attribute"


def _add_game(parser: argparse.ArgumentParser) -> None:
    _add_rules(parser)
    parser.add_argument("--seats", type=int, default=2, help="players, 2 to 13 (default 2)")


def _add_deals(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument("--deals", type=int, default=default, help=f"default {default}")
    parser.add_argument("--seed", type=int, default=0, help="of the deals (default 0)")


def _add_rules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rules",
        help="by default those a checkpoint was made for, else nanning;"
        f" a preset ({', '.join(PRESETS)}), a JSON object of fields such as"
        ' \'{"preset": "dahua", "deck": {"ranks": 6, "suits": 4}}\', or a file *.json with one',
    )


def _add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, help="by default all that there are")


def _rules(text: str | None, policies: Sequence[str] = ()) -> RuleSet:
    """Return the rule set that a command line names, or else the first of the policies' own."""
    if text is None:
        from shuiyu_env.policies.loading import rules_of

        own = (rules_of(spec) for spec in policies)
        return next((rules for rules in own if rules is not None), resolve_rules("nanning"))
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

    rules = _rules(options.rules, [options.policy])
    if options.json:
        check_writable(options.json)
    policy = load(options.policy, Game(2, rules))
    _one_thread()
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


@contextmanager
def _hint(text: str) -> Iterator[None]:
    """Say something more if what follows is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(text) from None


def _one_thread() -> None:
    """Batches are small, and several threads wait for each other more than they help."""
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)


def _evaluate(options: argparse.Namespace) -> None:
    from shuiyu_env.core.game import Game
    from shuiyu_env.evaluation.report import check_folder, evaluate
    from shuiyu_env.exact.plot import check_plot
    from shuiyu_env.policies import load

    game = Game(options.seats, _rules(options.rules, [options.policy]))
    check_plot(check_folder(options.out) / "strength.png")
    policy = load(options.policy, game)
    _one_thread()
    report = evaluate(
        policy,
        game,
        name=options.policy,
        opponents=options.against,
        num_deals=options.deals,
        seed=options.seed,
        exact=options.exact,
        patience=options.patience,
        threads=options.threads,
        progress=True,
    )
    print(report.summary())
    print(f"wrote {report.save(options.out)}")


def _match(options: argparse.Namespace) -> None:
    from shuiyu_env.core.game import Game
    from shuiyu_env.evaluation.match import numbered, play_match
    from shuiyu_env.evaluation.table import equilibrium_at_hand
    from shuiyu_env.policies import load

    game = Game(max(len(options.policies), 2), _rules(options.rules, options.policies))
    if options.json:
        check_writable(options.json)
    # Equal names stay one policy, which is then asked once for all its seats.
    loaded = {spec: load(spec, game) for spec in options.policies}
    _one_thread()
    with _hint("; what was played is kept: call it again to go on" if options.state else ""):
        result = play_match(
            [loaded[spec] for spec in options.policies],
            game,
            options.deals,
            options.seed,
            names=numbered(options.policies),
            control_variates=not options.plain and equilibrium_at_hand(game),
            precision=options.precision,
            state=options.state,
            threads=options.threads,
            progress=True,
        )
    print(result.table())
    if options.json:
        text = json.dumps(result.to_dict(), indent=1) + "\n"
        print(f"wrote {write_atomically(options.json, text.encode())}")


def _tournament(options: argparse.Namespace) -> None:
    from shuiyu_env.core.game import Game
    from shuiyu_env.evaluation import play_tournament
    from shuiyu_env.evaluation.heat_map import draw_payoffs
    from shuiyu_env.exact.plot import check_plot

    game = Game(options.seats, _rules(options.rules, options.policies))
    check_plot(options.out / "payoffs.png")
    with _hint("; what was played is kept: call it again to go on"):
        result = play_tournament(
            options.policies,
            game,
            options.deals,
            options.seed,
            exact=not options.sampled,
            precision=options.precision,
            folder=options.out / "matches",
            jobs=options.jobs,
            progress=True,
        )
    print(result.table())
    text = json.dumps(result.to_dict(), indent=1) + "\n"
    write_atomically(options.out / "tournament.json", text.encode())
    write_atomically(options.out / "payoffs.csv", result.to_csv().encode())
    print(f"wrote {write_atomically(options.out / 'payoffs.png', draw_payoffs(result))}")


def _replay(options: argparse.Namespace) -> None:
    from shuiyu_env.core.game import Game
    from shuiyu_env.render.steps import steps

    try:
        record = json.loads(options.record.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise RulesError(f"{options.record}: expected a JSON file with a record: {error}") from None
    for text in steps(Game.replay(record), options.seat):
        print(text)
        if options.step and sys.stdin.isatty():
            input("(Enter) ")
        print()


def _export(options: argparse.Namespace) -> None:
    from shuiyu_env.core.errors import CheckpointError
    from shuiyu_env.core.game import Game
    from shuiyu_env.core.rules import RuleSet
    from shuiyu_env.policies import load

    try:
        from shuiyu_env.policies.export import export_onnx
    except ModuleNotFoundError as error:
        raise CheckpointError(
            f"exporting needs {error.name}, which is not installed: install shuiyu_env[onnx,train]"
        ) from error
    policy: Any = load(options.policy)
    header = getattr(policy, "info", None) or {}
    if "rules" not in header or "num_players" not in header:
        raise CheckpointError(f"{options.policy}: only trained networks can be exported")
    game = Game(header["num_players"], RuleSet.from_dict(header["rules"]))
    print(f"wrote {export_onnx(policy, game, check_writable(options.out))}")


if __name__ == "__main__":
    sys.exit(main())
