"""Decisions per second of the batched engine beside other libraries' card games.

Run ``python benchmarks/throughput.py`` (it needs ``pip install -e ".[bench]"``).
Every system plays uniformly random legal actions, with the full observation
and mask made at every decision and finished games restarted: Pgx leduc hold'em
(JAX on the CPU, batch 4096), OpenSpiel leduc from Python, RLCard leduc, and
ours, heads-up and with four seats. Each run is a process of its own, bound to
one or two processors; the systems take turns, round after round, so that a
machine whose speed drifts slows all alike. Medians are reported.

With ``--write``, docs/performance.md is written.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from report import describe_machine, markdown, write_section

SECONDS = 2.0


def timed(run: Callable[[], int]) -> float:
    """Return decisions per second of repeated calls, each of which says how many it made."""
    run()
    made, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < SECONDS:
        made += run()
    return made / elapsed


def ours(num_players: int, num_envs: int, threads: int) -> float:
    """Our batched engine."""
    from shuiyu_env import Game
    from shuiyu_env.batch import BatchEnv

    env = BatchEnv(Game(num_players, "nanning"), num_envs, seed=0, threads=threads)
    steps = max(1, 200_000 // num_envs)

    def run() -> int:
        for _ in range(steps):
            env.step(env.sample_actions())
        return steps * num_envs

    return timed(run)


def pgx_leduc(_threads: int) -> float:
    """Pgx, by whichever is faster: a loop of steps in Python, or one compiled loop."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    import pgx
    from pgx.experimental.wrappers import auto_reset

    env, batch, steps = pgx.make("leduc_holdem"), 4096, 100
    one_step = auto_reset(env.step, env.init)

    def act_and_step(state: pgx.State, key: jax.Array) -> pgx.State:
        act_key, step_key = jax.random.split(key)
        logits = jnp.where(state.legal_action_mask, 0.0, -jnp.inf)
        actions = jax.random.categorical(act_key, logits, axis=-1)
        return jax.vmap(one_step)(state, actions, jax.random.split(step_key, batch))

    def body(state: pgx.State, key: jax.Array) -> tuple[pgx.State, jax.Array]:
        state = act_and_step(state, key)
        # What a learner reads; without a reader the compiler would leave it out.
        return state, state.observation.sum() + state.rewards.sum()

    step = jax.jit(act_and_step)
    loop = jax.jit(lambda state, keys: jax.lax.scan(body, state, keys))
    keys = jax.random.split(jax.random.PRNGKey(0), steps)
    each_key = list(keys)
    state = jax.jit(jax.vmap(env.init))(jax.random.split(jax.random.PRNGKey(1), batch))

    def python_loop() -> int:
        nonlocal state
        for key in each_key:
            state = step(state, key)
        jax.block_until_ready(state)
        return steps * batch

    def compiled_loop() -> int:
        nonlocal state
        state, read = loop(state, keys)
        jax.block_until_ready((state, read))
        return steps * batch

    return max(timed(python_loop), timed(compiled_loop))


def openspiel_leduc(_threads: int) -> float:
    """OpenSpiel's C++ game from Python, with the information-state tensor and the mask."""
    import random

    import pyspiel

    game = pyspiel.load_game("leduc_poker")
    rng = random.Random(0)
    choice = rng.choice

    def run() -> int:
        made = 0
        while made < 5_000:
            state = game.new_initial_state()
            while not state.is_terminal():
                if state.is_chance_node():
                    state.apply_action(choice(state.legal_actions()))
                    continue
                state.information_state_tensor()
                state.legal_actions_mask()
                state.apply_action(choice(state.legal_actions()))
                made += 1
            state.returns()
        return made

    return timed(run)


def rlcard_leduc(_threads: int) -> float:
    """RLCard's game, stepped directly."""
    import random

    import rlcard

    env = rlcard.make("leduc-holdem", config={"seed": 0})
    choice = random.Random(0).choice

    def run() -> int:
        made = 0
        while made < 2_000:
            state, _ = env.reset()
            while not env.is_over():
                state, _ = env.step(choice(list(state["legal_actions"])))
                made += 1
            env.get_payoffs()
        return made

    return timed(run)


PEERS: dict[str, Callable[[int], float]] = {
    "Pgx leduc (batch 4096)": pgx_leduc,
    "OpenSpiel leduc": openspiel_leduc,
    "RLCard leduc": rlcard_leduc,
}
BATCHES = (256, 1024, 4096, 16384, 65536, 262144)


def measure(name: str, processors: int, *arguments: int) -> float:
    """Measure one system in a process of its own, on so many processors."""
    command = [sys.executable, __file__, "--one", name, str(processors), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{name} failed:\n{result.stderr}\nIs everything there? pip install -e '.[bench]'")
    return float(result.stdout.split()[-1])


def run_one(name: str, processors: int, *arguments: int) -> None:
    """Inside that process."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:processors])
    if name == "ours":
        print(ours(*arguments, threads=processors))
    else:
        print(PEERS[name](processors))


def best_batch(num_players: int, processors: int, rounds: int) -> tuple[int, list[list[str]]]:
    """Find our fastest batch size; return it and the table of all."""
    rates: dict[int, list[float]] = {batch: [] for batch in BATCHES}
    for _ in range(rounds):
        for batch in BATCHES:
            rates[batch].append(measure("ours", processors, num_players, batch))
    medians = {batch: statistics.median(rate) for batch, rate in rates.items()}
    best = max(medians, key=lambda batch: medians[batch])
    return best, [
        [f"{batch:,}", f"{rate / 1e6:.2f} M", f"{medians[best] / rate:.2f}"]
        for batch, rate in medians.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of every system")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    parser.add_argument("--json", type=Path, help="write the raw figures there")
    options = parser.parse_args()
    parts = []
    raw: dict[str, list[float]] = {}
    for processors in (1, 2):
        label = "one thread" if processors == 1 else "two threads"
        print(f"== {label}, on so many processors", flush=True)
        batches = {n: best_batch(n, processors, max(1, options.rounds // 2)) for n in (2, 4)}
        systems: dict[str, tuple[str, tuple[int, ...]]] = {name: (name, ()) for name in PEERS}
        for n, seats in ((2, "heads-up"), (4, "four seats")):
            systems[f"shuiyu_env {seats} (batch {batches[n][0]:,})"] = (
                "ours",
                (n, batches[n][0]),
            )
        rates: dict[str, list[float]] = {label: [] for label in systems}
        for turn in range(options.rounds):
            for name, (system, arguments) in systems.items():
                rates[name].append(measure(system, processors, *arguments))
            print(f"round {turn + 1} of {options.rounds} done", flush=True)
        pgx = next(iter(PEERS))
        rows = []
        for name, values in rates.items():
            # Round by round, so that a drifting machine cancels out.
            ratio = statistics.median(
                value / peer for value, peer in zip(values, rates[pgx], strict=True)
            )
            median = statistics.median(values)
            rows.append([name, f"{median:,.0f}", f"{ratio:.2f}"])
            print(f"{name}: {median:,.0f} decisions per second, ratio: {ratio:.2f}", flush=True)
            raw[f"{name}, {label}"] = values
        parts.append(f"### {label.capitalize()}\n\n")
        parts.append(markdown(["System", "decisions per second", "ratio to Pgx"], rows) + "\n")
        parts.append("Heads-up by batch size, with the cost of a decision against the best:\n\n")
        parts.append(markdown(["Batch", "decisions per second", "cost"], batches[2][1]) + "\n")
        if processors == 1:
            seats = []
            for n in (2, 4, 7, 13):
                cost = statistics.median(
                    1e9 / measure("ours", 1, n, 1024) for _ in range(max(1, options.rounds // 2))
                )
                seats.append([str(n), f"{cost:.0f}", f"{cost / n:.0f}"])
            parts.append("By seats, at batch 1,024:\n\n")
            parts.append(markdown(["Seats", "ns per decision", "ns per decision and seat"], seats))
            parts.append("\n")
            print("seats, ns per decision, per seat:", seats, flush=True)
    if options.json:
        options.json.write_text(json.dumps(raw, indent=1), encoding="utf-8")
    if options.write:
        heading = (
            f"Measured by `python benchmarks/throughput.py --write` (seed 0, medians of"
            f" {options.rounds}) on {describe_machine('numba', 'pgx', 'jax', 'open_spiel')}."
        )
        write_section("throughput", heading + "\n\n" + "".join(parts))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        run_one(sys.argv[2], int(sys.argv[3]), *map(int, sys.argv[4:]))
    else:
        main()
