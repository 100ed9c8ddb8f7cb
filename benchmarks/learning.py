"""The learners against each other: NashConv by steps and by time, over several seeds.

    python benchmarks/learning.py            # trains what is missing, then writes the page
    python benchmarks/learning.py --only 'half-hour-*-nanning'  # those whose names begin so
    python benchmarks/learning.py --page     # only writes docs/benchmark.md and its pictures
    python benchmarks/learning.py --ship     # puts trained policies into the package, and
                                             # what they are into the page

Which runs there are stands in ``benchmarks/learning.yaml``: groups of (algorithm, preset,
seed), each a call of ``train.py`` with one thread, two at a time. A run that was interrupted
is resumed; one whose settings have changed since is trained again. Of each algorithm, preset
and number of seats the policy of the longest run's first seed ships with the package, whatever
came out. Every point of every run is kept in ``docs/benchmark/runs.jsonl``, a line a run, from
which the page is made; nothing is chosen among checkpoints.

Needs ``pip install -e ".[train,bench]"``.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from report import ROOT, describe_machine, markdown, write_section
from scipy import stats

sys.path.insert(0, str(ROOT))

from agents.config import parse, to_dict
from shuiyu_env.core.errors import ConfigError, ShuiyuError
from shuiyu_env.files import write_atomically
from shuiyu_env.policies import available, load
from shuiyu_env.policies.checkpoint import read_header

LIST = ROOT / "benchmarks" / "learning.yaml"
PAGE = ROOT / "docs" / "benchmark.md"
KEPT = ROOT / "docs" / "benchmark" / "runs.jsonl"
RUNS = ROOT / "runs" / "benchmark"
NAMES = {
    "ppo": "PPO",
    "mmd": "MMD",
    "nash_pg": "NashPG",
    "nfsp": "NFSP",
    "deep_cfr": "Deep CFR",
    "mccfr": "MCCFR",
}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
REFERENCES = ("uniform", "honest", "cautious", "bluffer", "equilibrium")
TRAINED = ROOT / "shuiyu_env" / "policies" / "trained"
SHIPPED = ("half-hour", "half-hour-dahua", "four-minutes", "house", "four-seats")
DEALS = 4000  # of each match at larger tables
RESAMPLES = 10_000


@dataclass(frozen=True)
class Planned:
    """A run of the list. The algorithm may have a variant: ``nash_pg-no bins``."""

    group: str
    algorithm: str
    preset: str
    seed: int
    settings: tuple[tuple[str, Any], ...]

    @property
    def name(self) -> str:
        """Its folder's name."""
        return f"{self.group}-{self.algorithm}-{self.preset}-{self.seed}".replace(" ", "_")

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What tells it from others."""
        return self.group, self.algorithm, self.preset, self.seed

    @property
    def seats(self) -> int:
        """How many play."""
        return int(dict(self.settings).get("game.num_players", 2))

    @property
    def command(self) -> list[str]:
        """What trains it, after ``python``."""
        settings = {
            "game.rules": self.preset,
            "seed": self.seed,
            "threads": 1,
            "evaluation.interval": 0,
            "evaluation.final_deals": 0,
            **dict(self.settings),
        }
        return [
            "train.py",
            "--config",
            f"configs/{self.algorithm.partition('-')[0]}.yaml",
            *(f"--{name}={as_yaml(value)}" for name, value in settings.items()),
        ]


def as_yaml(value: Any) -> str:
    """Return a setting as the command line has it, in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {as_yaml(item)}" for key, item in value.items()) + "}"
    return str(value)


def planned(path: Path = LIST) -> Iterator[Planned]:
    """Yield the runs of the list, seed after seed, so that it can be cut short anywhere."""
    groups = yaml.safe_load(path.read_text(encoding="utf-8"))
    for name, group in groups.items():
        for seed in group["seeds"]:
            for preset in group["presets"]:
                for algorithm, settings in group["algorithms"].items():
                    if preset not in settings.get("presets", group["presets"]):
                        continue
                    chosen = {**group.get("settings", {}), **settings.get("all", {})}
                    chosen |= settings.get(preset, {})
                    yield Planned(name, algorithm, preset, seed, tuple(chosen.items()))


def kept() -> dict[tuple[str, str, str, int], dict[str, Any]]:
    """Return what is known of finished runs."""
    if not KEPT.exists():
        return {}
    rows = [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()]
    return {(r["group"], r["algorithm"], r["preset"], r["seed"]): r for r in rows}


#: Settings that do not change what is learned.
MEASURING = ("name", "runs_dir", "threads", "evaluation", "checkpoint_interval")


def decisive(words: Sequence[str]) -> dict[str, Any]:
    """Return the settings that decide what is learned, as a command line of train.py has them."""
    found = to_dict(parse([str(ROOT / w) if w.startswith("configs/") else w for w in words])[0])
    return {key: value for key, value in found.items() if key not in MEASURING}


def is_current(run: Planned, row: dict[str, Any] | None) -> bool:
    """Return whether a run that is kept was trained with the settings that the list has now.

    Both are read with today's files in ``configs/``: take rows out if one of these changes.
    """
    if row is None:
        return False
    _, *words = run.command
    _, _, *others = shlex.split(row["command"])
    try:
        return words == others or decisive(words) == decisive(others)
    except ConfigError:
        return False  # with a setting that there is no more


_keeping = threading.Lock()


def keep(row: dict[str, Any]) -> None:
    """Add a finished run to what is known."""
    with _keeping:
        rows = kept() | {(row["group"], row["algorithm"], row["preset"], row["seed"]): row}
        text = "".join(json.dumps(rows[key]) + "\n" for key in sorted(rows))
        write_atomically(KEPT, text.encode())


def train(run: Planned) -> str:
    """Train a run, or go on with it; return what became of it.

    Raises:
        ShuiyuError: it failed, or its folder is of a run with other settings.
    """
    folder = RUNS / run.name
    command = [*run.command, f"--runs_dir={RUNS}", f"--name={run.name}"]
    saved = folder / "config.yaml"
    if saved.exists() and decisive(["--config", str(saved)]) != decisive(run.command[1:]):
        raise ShuiyuError(
            f"{run.name}: {folder} is of a run with other settings than the list has now; take it"
            " away to train it again"
        )
    if (folder / "state.pt").exists():
        command = ["train.py", "--resume", str(folder)]
    machine = describe_machine("torch", "numba")  # with the commit that trains, not a later one
    log = RUNS / f"{run.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        code = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            check=False,
        ).returncode
    if code:
        raise ShuiyuError(f"{run.name}: failed with code {code}, see {log}")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    points = [
        {
            "env_steps": row["env_steps"],
            "cpu_seconds": round(row["cpu_seconds"], 1),
            **{kind: found["nashconv"] for kind, found in row["nashconv"].items()},
        }
        for row in rows
        if "nashconv" in row
    ]
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    keep(
        {
            "group": run.group,
            "algorithm": run.algorithm,
            "preset": run.preset,
            "seed": run.seed,
            "command": shlex.join(["python", *run.command]),
            "seats": run.seats,
            "hidden": config["network"]["hidden"],
            "env_steps": rows[-1]["env_steps"],
            "cpu_seconds": round(rows[-1]["cpu_seconds"], 1),
            "points": points,
            "machine": machine,
        }
    )
    return f"{run.name}: {points[-1] if points else 'finished'}"


def train_missing(jobs: int, only: str) -> int:
    """Train every run of the list that is not known yet and whose name fits the pattern.

    Returns:
        how many failed.
    """
    known = kept()
    wanted = [run for run in planned() if fnmatch(run.name, f"{only}*")]
    missing = [run for run in wanted if not is_current(run, known.get(run.key))]
    print(f"{len(missing)} of {len(wanted)} runs are missing", flush=True)
    pool, failed = ThreadPoolExecutor(jobs), 0
    try:
        running = [pool.submit(train, run) for run in missing]
        for number, one in enumerate(running, 1):
            try:
                print(f"{number}/{len(missing)} {one.result()}", flush=True)
            except ShuiyuError as error:
                failed += 1
                print(f"{number}/{len(missing)} {error}", file=sys.stderr, flush=True)
    finally:
        # After Ctrl-C only the runs that were begun end, at once, by the same Ctrl-C.
        pool.shutdown(cancel_futures=True)
    return failed


def shipped() -> dict[str, Planned]:
    """Return the first run of each algorithm, preset and number of seats, by policies' names."""
    found: dict[str, Planned] = {}
    known = kept()
    for run in planned():
        if run.group in SHIPPED and run.key in known:
            found.setdefault(f"{run.algorithm}-{run.preset}-{run.seats}", run)
    return found


def ship() -> None:
    """Copy their policies into the package; those that it has already may be missing here.

    Raises:
        ShuiyuError: a policy is neither here nor there, or is not that of the run which is kept.
    """
    known = kept()
    for name, run in shipped().items():
        target = TRAINED / f"{name}.safetensors"
        trained = RUNS / run.name / "policy.safetensors"
        policy = trained if trained.exists() else target
        check_policy(policy, known[run.key])
        if policy == trained:
            write_atomically(target, policy.read_bytes())
            print(f"{name}: {policy.stat().st_size / 1024:.0f} KiB", flush=True)


def check_policy(path: Path, row: dict[str, Any]) -> None:
    """Check that a policy is the one that a run ended with.

    Raises:
        ShuiyuError: it is not, or there is none.
    """
    info = read_header(path)
    for key in ("algorithm", "seed", "env_steps"):
        wanted = row[key].partition("-")[0] if key == "algorithm" else row[key]
        if info.get(key) != wanted:
            raise ShuiyuError(
                f"{path}: expected the policy of a run with {key} {wanted}, as"
                f" {KEPT.name} has it, got {info.get(key)}; train it again"
            )


def write_shipped() -> None:
    """Write which policies ship, how exploitable they are and what made them."""
    known, lines, commands = kept(), [], []
    for name, run in sorted(shipped().items()):
        row = known[run.key]
        points = row["points"]
        # The policy is the average, where there is one.
        end = f"{points[-1].get('average', points[-1].get('last')):.4f}" if points else ""
        steps, seconds = row["env_steps"] / 1e6, row["cpu_seconds"]
        lines.append([f"`{name}`", f"{steps:.1f} M", f"{seconds:.0f} s", end])
        commands.append(f"{row['command']}  # {name}")
    table = markdown(["Policy", "decisions", "of one core", "NashConv"], lines)
    write_section("shipped", f"{table}\n```bash\n" + "\n".join(commands) + "\n```", PAGE)


def write_tables() -> None:
    """Write how the shipped policies do at larger tables: against the references and each other."""
    from shuiyu_env import Game
    from shuiyu_env.evaluation import match_against

    parts, widest = [], [0.0, 0.0]
    for preset in ("nanning", "dahua", "dahua_house"):
        names = [name for name in available() if name.endswith(f"-{preset}-4")]
        panel = [*REFERENCES[:4], *names]
        lines = []
        for name in names:
            cells = []
            for row in match_against(name, panel, Game(4, preset), DEALS, seed=77):
                roles = row.result.dealer, row.result.punter
                own = row.opponent == name
                cells.append("" if own else " / ".join(f"{role.mean:+.2f}" for role in roles))
                widest = [
                    max(most, role.high - role.mean)
                    for most, role in zip(widest, roles, strict=True)
                ]
            lines.append([f"`{name}`", *cells])
        if lines:
            heads = [f"`{name.removesuffix(f'-{preset}-4')}`" for name in panel]
            parts.append(markdown([f"`{preset}`, against three", *heads], lines).strip())
    if parts:
        text = (
            f"Units per deal, as dealer / as punter, over {DEALS} deals, each played in all four"
            " rotations of the seats: a policy sits once, its opponent three times. 95 %"
            f" intervals are within ±{widest[0]:.2f} / ±{widest[1]:.2f}. A dealer plays three"
            " opponents at once, so his numbers are larger.\n\n"
        )
        write_section("four-seats", text + "\n\n".join(parts), PAGE)


def at(points: Sequence[dict[str, Any]], axis: str, where: float, kind: str) -> float:
    """Return a run's NashConv at some steps or seconds, log-log between measured points.

    It is NaN before the first of them and after the last: nothing is known there.
    """
    x = np.log([point[axis] for point in points])
    y = np.log([point[kind] for point in points])
    return float(np.exp(np.interp(np.log(where), x, y, left=np.nan, right=np.nan)))


def common(rows: Sequence[dict[str, Any]], axis: str) -> float:
    """Return the earliest end of a run by which all that went on had been measured."""
    spans = [(row["points"][0][axis], row["points"][-1][axis]) for row in rows]
    ends = sorted(end for _, end in spans)
    return next(x for x in ends if all(first <= x for first, end in spans if end >= x))


def interquartile_mean(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of the middle half of some runs, and its 95 % bootstrap interval."""
    data = np.asarray(values)
    middle: Callable[..., Any] = lambda x, axis=-1: stats.trim_mean(x, 0.25, axis=axis)  # noqa: E731
    if len(data) < 2:
        return float(data[0]), float("nan"), float("nan")
    found = stats.bootstrap(
        (data,), middle, n_resamples=RESAMPLES, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return float(middle(data)), float(found.low), float(found.high)


def cell(values: Sequence[float]) -> str:
    """Return an interquartile mean as text; none if a value is not known."""
    if np.isnan(values).any():
        return ""
    mean, low, high = interquartile_mean(values)
    return f"{mean:.4f}" if np.isnan(low) else f"{mean:.4f} ({low:.4f} to {high:.4f})"


def table(rows: list[dict[str, Any]], preset: str) -> str:
    """Return the table of a group's runs on a preset."""
    ends = {}
    if any(len(row["points"]) > 1 for row in rows):
        ends = {axis: common(rows, axis) for axis in ("env_steps", "cpu_seconds")}
    lines = []
    for algorithm in ordered(rows):
        runs = [row for row in rows if row["algorithm"] == algorithm]
        kinds = [kind for kind in ("last", "average") if kind in runs[0]["points"][-1]]
        for kind in kinds:
            ended = [run["points"][-1] for run in runs]
            lines.append(
                [
                    f"{title(algorithm)}, {'last iterate' if kind == 'last' else 'average'}",
                    str(len(runs)),
                    "-".join(map(str, runs[0]["hidden"])) if algorithm != "mccfr" else "table",
                    *(
                        cell([at(r["points"], axis, ends[axis], kind) for r in runs])
                        for axis in ends
                    ),
                    cell([point[kind] for point in ended]),
                    f"{np.median([point['env_steps'] for point in ended]) / 1e6:.1f} M",
                    f"{np.median([point['cpu_seconds'] for point in ended]):.0f} s",
                ]
            )
    lines += [
        [f"`{name}`", "", "", *("" for _ in ends), f"{reference(name, preset):.4f}", "", ""]
        for name in REFERENCES
    ]
    head = [
        f"NashConv on `{preset}`",
        "Seeds",
        "Network",
        *([f"after {ends['env_steps'] / 1e6:.1f} M decisions"] if ends else []),
        *([f"after {ends['cpu_seconds']:.0f} s"] if ends else []),
        "at the end",
        "Decisions",
        "Seconds",
    ]
    return markdown(head, lines)


def title(algorithm: str) -> str:
    """Return an algorithm's name, with its variant, as the page has it."""
    name, _, variant = algorithm.partition("-")
    return f"{NAMES[name]}, {variant}" if variant else NAMES[name]


def ordered(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the algorithms of some runs, in the order of the list."""
    present = {row["algorithm"] for row in rows}
    listed = dict.fromkeys(run.algorithm for run in planned())
    return [algorithm for algorithm in listed if algorithm in present]


def reference(name: str, preset: str) -> float:
    """Return the NashConv of a policy that needs no learning, kept beside the runs."""
    path = KEPT.with_name("references.json")
    found = json.loads(path.read_text()) if path.exists() else {}
    key = f"{name}-{preset}"
    if key not in found:
        from shuiyu_env import Game
        from shuiyu_env.exact import nashconv

        found[key] = float(nashconv(load(name, Game(2, preset)), preset).nashconv)
        write_atomically(path, json.dumps(found, indent=1, sort_keys=True).encode())
    return float(found[key])


def draw(rows: list[dict[str, Any]], group: str, presets: Sequence[str]) -> Path:
    """Draw the learning curves of a group."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure = Figure(figsize=(12.5, 4.2 * len(presets)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(presets), 2, squeeze=False, sharey="row")
    # Of each algorithm the same in all pictures; where there are variants, each has its own.
    variants = any("-" in name for name in ordered(rows))
    names = ordered(rows) if variants else list(NAMES)
    colours = dict(zip(names, COLOURS, strict=False))
    axis_names = {"env_steps": "decisions", "cpu_seconds": "seconds of one core"}
    for line, preset in zip(axes, presets, strict=True):
        for panel, (axis, label) in zip(line, axis_names.items(), strict=True):
            for algorithm in ordered(rows):
                runs = [r for r in rows if r["algorithm"] == algorithm and r["preset"] == preset]
                if not runs:
                    continue
                for kind, style in (("last", "-"), ("average", "--")):
                    if kind not in runs[0]["points"][-1]:
                        continue
                    # Runs are measured at their ends, at a half, at a quarter and so on.
                    fewest = min(len(run["points"]) for run in runs)
                    points = [run["points"][-fewest:] for run in runs]
                    x = np.median([[p[axis] for p in row] for row in points], axis=0)
                    y = np.array([[p[kind] for p in row] for row in points])
                    found = np.array([interquartile_mean(column) for column in y.T])
                    panel.plot(
                        x,
                        found[:, 0],
                        style,
                        color=colours[algorithm],
                        marker="o",
                        markersize=3,
                        label=f"{title(algorithm)}, {kind}",
                    )
                    panel.fill_between(
                        x, found[:, 1], found[:, 2], color=colours[algorithm], alpha=0.15, lw=0
                    )
            panel.set(xscale="log", yscale="log", xlabel=label)
            for side, scale, unit in (
                (panel.xaxis, 1e6 if axis == "env_steps" else 1.0, " M" * (axis == "env_steps")),
                (panel.yaxis, 1.0, ""),
            ):
                side.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
                side.set_minor_locator(LogLocator(subs="all"))
                side.set_minor_formatter(NullFormatter())
                side.set_major_formatter(
                    FuncFormatter(lambda x, _, scale=scale, unit=unit: f"{x / scale:g}{unit}")
                )
            panel.set_title(f"{preset}, by {label}", loc="left", fontsize=11)
            panel.grid(color="#DDDDDD", linewidth=0.6, which="both")
            panel.set_axisbelow(True)
            for side in ("top", "right"):
                panel.spines[side].set_visible(False)
        line[0].set_ylabel("NashConv, units per deal")
    shown: dict[str, Any] = {}
    for panel in axes.flat:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    figure.legend(
        shown.values(), shown.keys(), fontsize=9, frameon=False, loc="outside right upper"
    )
    path = KEPT.with_name(f"{group}.png")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return write_atomically(path, buffer.getvalue())


def write_page() -> None:
    """Write the generated sections of the page."""
    everything = list(kept().values())
    for group in yaml.safe_load(LIST.read_text(encoding="utf-8")):
        rows = [row for row in everything if row["group"] == group and row["points"]]
        if not rows:
            continue
        presets = sorted({row["preset"] for row in rows}, reverse=True)
        parts = []
        if any(len(row["points"]) > 1 for row in rows):
            picture = draw(rows, group, presets)
            parts.append(f"![Learning curves](benchmark/{picture.name})")
        parts += [table([r for r in rows if r["preset"] == preset], preset) for preset in presets]
        commits: dict[str, set[str]] = {}
        for row in rows:
            machine, _, commit = row["machine"].rpartition(" ")
            commits.setdefault(machine, set()).add(commit)
        machines = [f"{name} {', '.join(sorted(found))}" for name, found in sorted(commits.items())]
        seeds = sorted({row["seed"] for row in rows})
        # One seed's are enough, but a preset may have settings of its own.
        commands = {(row["algorithm"], row["preset"]): row["command"] for row in rows}
        parts.append(
            f"Seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}. Measured on "
            + "; and ".join(machines)
            + ". Trained by, for example:\n\n```bash\n"
            + "\n".join(
                commands[name, preset]
                for preset in presets
                for name in ordered(rows)
                if (name, preset) in commands
            )
            + "\n```"
        )
        write_section(group, "\n\n".join(parts), PAGE)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (default 2)")
    parser.add_argument("--page", action="store_true", help="train nothing, only write the page")
    parser.add_argument("--ship", action="store_true", help="train nothing, only ship policies")
    parser.add_argument("--only", default="", help="train only runs named so; * fits anything")
    options = parser.parse_args()
    if options.ship:
        try:
            ship()
        except ShuiyuError as error:
            sys.exit(str(error))
        write_shipped()
        write_tables()
        return
    failed = 0 if options.page else train_missing(options.jobs, options.only)
    write_page()
    if failed:
        sys.exit(f"{failed} runs failed; the same command goes on with them")


if __name__ == "__main__":
    main()
