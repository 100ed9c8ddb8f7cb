"""Exact evaluation and solving, beside OpenSpiel's exact evaluation of smaller games.

Run ``python benchmarks/exact.py`` (it needs ``pip install -e ".[bench]"``). Measured
are NashConv of a tabulated policy on the full deck, the three presets solved from scratch,
and OpenSpiel's C++ NashConv of the uniform policy in leduc and liar's dice; each in a
process of its own, bound to one or two processors, in turn, round after round. Compilation and
the tables that a rule set is compiled into are not counted for NashConv (nor is
building OpenSpiel's game); a solution counts everything but compilation.

Information sets of ours are those that a policy is tabulated in: every hand and split at every
decision, with what a dealer does on open hands by the outcome. Forced showdowns add none.

With ``--write``, docs/performance.md is written.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

from report import describe_machine, markdown, write_section

TARGETS = (1e-3, 1e-4)


def peak() -> float:
    """Return the largest memory that this process has had, GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def our_nashconv(preset: str, threads: int) -> dict[str, Any]:
    """NashConv of the shipped equilibrium's tables: any other policy's cost the same."""
    from shuiyu_env.exact import nashconv
    from shuiyu_env.exact.heads_up import heads_up_game
    from shuiyu_env.exact.store import equilibrium_of

    equilibrium = equilibrium_of(preset)
    # By single hands, as a policy is that may look at suits.
    game = heads_up_game(equilibrium.rules, by_ranks=False, threads=threads)
    tables = equilibrium.policy_tables(game)
    nashconv(tables)  # compiles
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        result = nashconv(tables)
        seconds.append(time.perf_counter() - began)
    hands, active = game.classes.size, int(game.active.sum())
    decisions = 1 + len(game.reply_nodes) + len(game.hidden) + 3 * len(game.opened)
    return {
        "seconds": statistics.median(seconds),
        "information_sets": 2 * hands + 3 * active * decisions,
        "nashconv": float(result.nashconv),
        "memory": peak(),
    }


def our_solution(preset: str, threads: int) -> dict[str, Any]:
    """A preset solved from scratch: seconds until each target was met by what is kept."""
    import dataclasses

    from shuiyu_env.core.cards import Deck
    from shuiyu_env.core.rules import PRESETS
    from shuiyu_env.exact import solve
    from shuiyu_env.exact.dominance import disjoint_sums, hand_classes
    from shuiyu_env.exact.heads_up import heads_up_game
    from shuiyu_env.tables import group_tables, hand_table

    rules = PRESETS[preset]
    solve(dataclasses.replace(rules, deck=Deck(3, 4)), 1e-2, threads=threads)  # compiles
    for cached in (heads_up_game, disjoint_sums, hand_classes, hand_table, group_tables):
        cached.cache_clear()
    began = time.perf_counter()
    seconds: dict[str, Any] = {}
    for target in TARGETS:
        start = time.perf_counter()
        equilibrium = solve(rules, target, threads=threads, max_iterations=300)
        seconds[f"{target:.0e}"] = time.perf_counter() - start
        seconds["first"] = seconds.get("first", start - began)
    info = equilibrium.info
    return {
        "seconds": seconds,
        "iterations": info["iterations"],
        "nashconv": info["nashconv"],
        "value": info["value"],
        "memory": peak(),
    }


def openspiel_nashconv(game_name: str, threads: int) -> dict[str, Any]:
    """OpenSpiel's C++ NashConv of the uniform policy."""
    import pyspiel
    from open_spiel.python.policy import TabularPolicy

    game = pyspiel.load_game(game_name)
    policy = pyspiel.UniformRandomPolicy(game)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        value = pyspiel.nash_conv(game, policy)
        seconds.append(time.perf_counter() - began)
    return {
        "seconds": statistics.median(seconds),
        "information_sets": len(TabularPolicy(game).action_probability_array),
        "nashconv": value,
        "memory": peak(),
    }


KINDS = {
    "nashconv": our_nashconv,
    "solve": our_solution,
    "openspiel": openspiel_nashconv,
}


def measure(kind: str, name: str, processors: int) -> dict[str, Any]:
    """Measure in a process of its own, on so many processors."""
    command = [sys.executable, __file__, "--one", kind, name, str(processors)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{name} failed:\n{result.stderr}\nIs everything there? pip install -e '.[bench]'")
    measured: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return measured


def run_one(kind: str, name: str, processors: int) -> None:
    """Inside that process."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:processors])
    print(json.dumps(KINDS[kind](name, processors)))


def median(runs: list[dict[str, Any]], *path: str) -> float:
    """Return the median over runs of a figure."""
    values = []
    for run in runs:
        value: Any = run
        for key in path:
            value = value[key]
        values.append(value)
    return statistics.median(values)


def runs_each(count: int) -> str:
    """Return how many runs a figure is of, as the page says it."""
    return "one run each" if count == 1 else f"medians of {count} runs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="runs of every NashConv")
    parser.add_argument("--solutions", type=int, default=1, help="runs of every solution")
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[2, 1], help="threads and processors, in turn"
    )
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    options = parser.parse_args()
    evaluated = [("nashconv", "nanning"), ("nashconv", "dahua"), ("nashconv", "dahua_house")]
    evaluated += [("openspiel", "leduc_poker"), ("openspiel", "liars_dice")]
    rows, parts = [], []
    for processors in options.threads:
        runs: dict[tuple[str, str], list[dict[str, Any]]] = {case: [] for case in evaluated}
        for _ in range(options.rounds):
            for case in evaluated:
                runs[case].append(measure(*case, processors))
        for (kind, name), measured in runs.items():
            seconds, sets = median(measured, "seconds"), measured[0]["information_sets"]
            label = f"OpenSpiel {name}" if kind == "openspiel" else f"shuiyu_env {name}"
            rows.append(
                [
                    label,
                    str(processors),
                    f"{seconds:.2f}",
                    f"{sets:,}",
                    f"{sets / seconds:,.0f}",
                    f"{median(measured, 'memory'):.2f}",
                ]
            )
            print(*rows[-1], sep="  ", flush=True)
    head = ["Game", "threads", "seconds", "information sets", "per second", "peak GiB"]
    parts.append(f"NashConv, of a tabulated policy:\n\n{markdown(head, rows)}")
    rows = []
    for preset in ("nanning", "dahua", "dahua_house"):
        for processors in options.threads:
            solved = [measure("solve", preset, processors) for _ in range(options.solutions)]
            rows.append(
                [
                    preset,
                    str(processors),
                    *(f"{median(solved, 'seconds', f'{t:.0e}'):.0f}" for t in TARGETS),
                    f"{solved[0]['iterations']}",
                    f"{solved[0]['nashconv']:.1e}",
                    f"{median(solved, 'memory'):.2f}",
                ]
            )
            print(*rows[-1], sep="  ", flush=True)
    head = ["Rules", "threads", *(f"seconds to {t:.0e}" for t in TARGETS)]
    head += ["iterations", "NashConv", "peak GiB"]
    parts.append(f"Solved from scratch, each target in a run of its own:\n\n{markdown(head, rows)}")
    if options.write:
        heading = (
            f"Measured by `python benchmarks/exact.py --write` ({runs_each(options.rounds)};"
            f" solutions: {runs_each(options.solutions)}) on"
            f" {describe_machine('numba', 'open_spiel')}."
        )
        write_section("exact", "\n\n".join([heading, *parts]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        run_one(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
