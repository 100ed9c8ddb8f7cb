"""What thresholds are worth: trained policies with and without their unlikely actions.

    python benchmarks/thresholds.py            # prints the table
    python benchmarks/thresholds.py --write    # and puts it into docs/benchmark.md

The shipped policies of every preset, played as their networks say and with the thresholds of
``configs/nash_pg.yaml``; NashPG's on ``dahua`` also with each threshold alone, and with one for
calls as well. Some twenty seconds a row.

Needs ``pip install -e ".[train]"``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from itertools import product

import yaml
from report import ROOT, describe_machine, markdown, write_section

from shuiyu_env import PRESETS, Game
from shuiyu_env.exact import nashconv
from shuiyu_env.policies import load
from shuiyu_env.policies.network import NetworkPolicy

PAGE = ROOT / "docs" / "benchmark.md"
ALGORITHMS = ("nash_pg", "ppo", "mmd", "nfsp", "deep_cfr")
CLOSER = "nash_pg-dahua-2"  # looked at more closely
CALL = {"call": 0.15}


def thresholds_of(name: str, chosen: Mapping[str, float]) -> Iterator[dict[str, float]]:
    """Yield the thresholds to try on a policy."""
    yield {}
    if name == CLOSER:
        yield from ({phase: value} for phase, value in (*chosen.items(), *CALL.items()))
    yield dict(chosen)
    if name == CLOSER:
        yield {**chosen, **CALL}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    settings = yaml.safe_load((ROOT / "configs" / "nash_pg.yaml").read_text("utf-8"))
    chosen = settings["network"]["thresholds"]
    rows = []
    for preset, algorithm in product(PRESETS, ALGORITHMS):
        name = f"{algorithm}-{preset}-2"
        policy = load(name, Game(2, preset))
        assert isinstance(policy, NetworkPolicy)
        for thresholds in thresholds_of(name, chosen):
            found = nashconv(policy.with_thresholds(thresholds), preset)
            numbers = (found.nashconv, found.dealer_gain, found.punter_gain)
            text = ", ".join(f"{phase} {value}" for phase, value in thresholds.items())
            rows.append(
                [f"`{name}`", text or "none", *(f"{float(number):.4f}" for number in numbers)]
            )
            print(*rows[-1], flush=True)
    table = markdown(["Policy", "thresholds", "NashConv", "dealer's gain", "punter's gain"], rows)
    if options.write:
        text = (
            f"{table}\n\nMade by `python benchmarks/thresholds.py --write` on"
            f" {describe_machine('torch', 'numba')}."
        )
        write_section("thresholds", text, PAGE)


if __name__ == "__main__":
    main()
