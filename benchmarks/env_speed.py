"""Decisions per second of the PettingZoo environment, next to PettingZoo's Leduc hold'em.

    python benchmarks/env_speed.py [--repeats 7] [--decisions 20000] [--write]

Every system plays random legal actions in this process, all drawn from the
action mask by the same sampler, and takes its turn in every repeat, so that a
busy machine slows them alike. A decision is a legal action; resets and the
steps of terminated seats count as time. ``core`` is the same game without the
environment: states, legal actions, no observations.

Leduc hold'em needs ``pip install "pettingzoo[classic]"``; without it only our
own figures are printed.
"""

from __future__ import annotations

import argparse
import operator
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from report import describe_machine, markdown, write_section

from shuiyu_env import Game, shuiyu_v0

LEDUC = "leduc hold'em (PettingZoo)"
OURS = {2: "shuiyu_v0, 2 seats", 4: "shuiyu_v0, 4 seats"}
CORE = {2: "core, 2 seats", 4: "core, 4 seats"}
PACKAGES = ("numpy", "gymnasium", "pettingzoo", "rlcard")


def play_aec(env: Any, decisions: int, rng: random.Random) -> float:
    """Play an AEC environment and return decisions per second."""
    uniform, flatnonzero = rng.random, np.flatnonzero
    left = decisions
    start = time.perf_counter()
    env.reset()
    while left:
        observation, _, termination, truncation, _ = env.last()
        if termination or truncation:
            env.step(None)
            if not env.agents:
                env.reset()
        else:
            legal = flatnonzero(observation["action_mask"])
            env.step(int(legal[int(uniform() * len(legal))]))
            left -= 1
    return decisions / (time.perf_counter() - start)


def play_core(game: Game, decisions: int, rng: random.Random) -> float:
    """Play states of a game and return decisions per second."""
    uniform = rng.random
    left, index = decisions, 0
    start = time.perf_counter()
    state = game.new_state(0)
    while left:
        if state.is_terminal:
            index += 1
            state = game.new_state(0, index=index)
        legal = state.legal_actions()
        state.apply(legal[int(uniform() * len(legal))])
        left -= 1
    return decisions / (time.perf_counter() - start)


def make_leduc() -> Any | None:
    """Return PettingZoo's Leduc hold'em, or ``None`` where its dependencies are missing."""
    try:
        try:
            from pettingzoo import make
        except ImportError:  # before 1.27
            from pettingzoo.classic import leduc_holdem_v4

            return leduc_holdem_v4.env()
        return make("aec", "classic/leduc_holdem-v4")
    except ImportError as error:
        print(f'no Leduc hold\'em ({error}): pip install "pettingzoo[classic]"\n')
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=7, help="turns of each system (default 7)")
    parser.add_argument(
        "--decisions", type=int, default=20_000, help="decisions in a turn (default 20000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of play and deals (default 0)")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    args = parser.parse_args()
    if args.repeats < 1 or args.decisions < 1:
        parser.error("--repeats and --decisions must be 1 or more")

    rng = random.Random(args.seed)
    systems: dict[str, Callable[[int], float]] = {}
    leduc = make_leduc()
    if leduc is not None:
        leduc.reset(seed=args.seed)
        systems[LEDUC] = lambda decisions: play_aec(leduc, decisions, rng)
    for seats in OURS:
        env = shuiyu_v0.env(num_players=seats, rules="nanning")
        env.reset(seed=args.seed)
        game = Game(seats, "nanning")
        systems[OURS[seats]] = lambda decisions, env=env: play_aec(env, decisions, rng)
        systems[CORE[seats]] = lambda decisions, game=game: play_core(game, decisions, rng)

    machine = describe_machine(*PACKAGES)
    print(machine)
    print(f"median of {args.repeats} turns of {args.decisions} decisions, interleaved\n")
    speeds: dict[str, list[float]] = {name: [] for name in systems}
    for play in systems.values():
        play(max(1, args.decisions // 10))  # warm
    for _ in range(args.repeats):
        for name, play in systems.items():
            speeds[name].append(play(args.decisions))
    for name, values in speeds.items():
        spread = f"{min(values):,.0f} to {max(values):,.0f}"
        print(f"{name:28} {statistics.median(values):>10,.0f} decisions/s  ({spread})")
    rows = []
    for name, values in speeds.items():
        # Ratios within a repeat, so that what slows both does not count.
        ratio = "–"
        if leduc is not None:
            ratio = f"{statistics.median(map(operator.truediv, values, speeds[LEDUC])):.1f}"
            print(f"ratio: {ratio} ({name} to {LEDUC})")
        rows.append([name, f"{statistics.median(values):,.0f}", ratio])
    if args.write:
        heading = (
            f"Measured by `python benchmarks/env_speed.py --write` (seed {args.seed}, medians of"
            f" {args.repeats}) on {machine}.\n\n"
        )
        table = markdown(["System", "decisions per second", "ratio to leduc hold'em"], rows)
        write_section("env_speed", heading + table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
