"""Make the tables of docs/leaderboard.md from the reports in docs/leaderboard/*.json.

python docs/make_leaderboard.py          # writes the page
python docs/make_leaderboard.py --run    # first makes the reports of what ships
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))

from benchmarks.report import markdown, write_section  # noqa: E402
from shuiyu_env import PRESETS, Game  # noqa: E402
from shuiyu_env.core.errors import ConfigError  # noqa: E402
from shuiyu_env.core.rules import resolve_rules  # noqa: E402
from shuiyu_env.evaluation.report import REFERENCES, evaluate  # noqa: E402
from shuiyu_env.files import write_atomically  # noqa: E402
from shuiyu_env.policies import available  # noqa: E402

PAGE = ROOT / "docs" / "leaderboard.md"
FOLDER = ROOT / "docs" / "leaderboard"
DEALS, SEED = 5000, 2026


def check(path: Path, data: Any) -> None:
    """Refuse a report that was not made as the protocol says."""

    def refuse(what: str) -> None:
        raise ConfigError(f"{path.name}: {what}; make the report as docs/leaderboard.md says")

    if not isinstance(data, dict) or not isinstance(data.get("submission"), dict):
        refuse("expected a report with a key 'submission'")
    for key, wanted in (("num_players", 2), ("reward", "transfer"), ("seed", SEED)):
        if data.get(key) != wanted:
            refuse(f"expected {key} {wanted!r}, got {data.get(key)!r}")
    if data.get("num_deals") != DEALS:
        refuse(f"expected num_deals {DEALS}, got {data.get('num_deals')!r}")
    if resolve_rules(data.get("rules", {})) not in PRESETS.values():
        refuse("expected the rules of a preset")
    if not isinstance(data["submission"].get("name"), str):
        refuse("submission: expected a name")
    for key, text in data["submission"].items():
        if not isinstance(text, str) or re.search(r"[|\n<>]", text):
            refuse(f"submission: {key}: expected a text without |, <, > and line breaks")
    try:
        met = {row["opponent"] for row in data["matches"] if row["both"]["mean"] is not None}
        missing = sorted({*REFERENCES, "equilibrium"} - met)
        if missing:
            refuse(f"there is no match against {', '.join(missing)}")
        if "nashconv" in data:
            float(data["nashconv"]["nashconv"]["low"])
        elif "lower_bound" in data:
            float(data["lower_bound"]["nashconv"])
        else:
            refuse("expected nashconv or lower_bound")
    except (TypeError, KeyError, ValueError) as error:
        refuse(f"not as the command writes it ({type(error).__name__}: {error})")


def reports(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Return all reports, checked."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError(f"{path.name}: expected JSON: {error}") from None
        check(path, data)
        found.append(data)
    return found


def table(data: Sequence[dict[str, Any]]) -> str:
    """Return the table of one preset, the least exploitable first, lower bounds last."""
    lines = []
    for report in data:
        known = report.get("nashconv", {}).get("nashconv")
        bound = report.get("lower_bound", {}).get("nashconv")
        matches = {row["opponent"]: row["both"] for row in report["matches"]}
        mean = sum(matches[name]["mean"] for name in REFERENCES) / len(REFERENCES)
        against = matches["equilibrium"]
        submission = report["submission"]
        name = submission["name"]
        source = submission.get("source")
        cells = [
            f"[{name}]({source})" if source else name,
            _exact(known),
            "" if bound is None else f"at least {bound:.4f}",
            f"{against['mean']:+.3f} ± {against['high'] - against['mean']:.3f}",
            f"{mean:+.3f}",
            submission.get("learned_from", ""),
            submission.get("chosen", ""),
        ]
        lines.append(((known is None, known["low"] if known else -bound), cells))
    head = ["Policy", "NashConv", "lower bound", "against the equilibrium", "references, mean"]
    return markdown(
        [*head, "learned from", "chosen"], [cells for _, cells in sorted(lines, key=lambda x: x[0])]
    )


def _exact(known: dict[str, Any] | None) -> str:
    if known is None:
        return ""
    low, high = known["low"], known["high"]
    if low < high:
        return f"{low:.4f} to {high:.4f}"
    return f"{low:.4f}" if low >= 0.001 else f"{low:.1e}"


def page(data: Sequence[dict[str, Any]]) -> str:
    """Return the section: a table for every preset that has results."""
    parts = []
    for preset, rules in PRESETS.items():
        fitting = [report for report in data if resolve_rules(report["rules"]) == rules]
        if fitting:
            parts.append(f"### `{preset}`\n\n{table(fitting)}")
    return "\n\n".join(part.strip() for part in parts)


def learned_from(name: str) -> str:
    """Return what a policy that ships learned from, as the table of those in benchmark.md says."""
    text = (PAGE.with_name("benchmark.md")).read_text(encoding="utf-8")
    found = re.search(rf"^\| `{re.escape(name)}` \| ([^|]+) \| ([^|]+) \|", text, re.MULTILINE)
    if found is None:
        raise ConfigError(f"docs/benchmark.md: expected a row of {name} among what ships")
    return f"{found[1]} decisions, {found[2]} of one core"


def run() -> None:
    """Make the reports of the references, the equilibria and the trained policies that ship."""
    for preset in PRESETS:
        game = Game(2, preset)
        trained = [name for name in available() if name.endswith(f"-{preset}-2")]
        for name in (*REFERENCES, "equilibrium", *trained):
            label = name if name in trained else f"{name}-{preset}"
            path = FOLDER / f"{label}.json"
            if path.exists():
                continue
            report = evaluate(
                name, game, num_deals=DEALS, seed=SEED, exact="yes", hands=0, progress=True
            )
            submission = {"name": f"`{name}`", "learned_from": "nothing", "chosen": "–"}
            if name in trained:
                submission |= {"learned_from": learned_from(name), "chosen": "end of the first run"}
            # What others need of it: the figures by strength fill a screen each.
            slim = {k: v for k, v in report.data.items() if k != "bluffing"}
            text = json.dumps(slim | {"submission": submission}, indent=1)
            write_atomically(path, f"{text}\n".encode())
            print(path.name, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--run", action="store_true", help="make what is missing of what ships")
    if parser.parse_args().run:
        run()
    try:
        write_section("leaderboard", page(reports()), PAGE)
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
