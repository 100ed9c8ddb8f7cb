"""What evaluation is worth: intervals that are right, luck that is taken out, a tournament's time.

    python benchmarks/evaluation.py --write               # all sections into docs/evaluation.md
    python benchmarks/evaluation.py --only tournament --policies runs/*/policy.safetensors

Run it alone on the machine. Needs ``pip install -e ".[train,evaluate]"``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from report import ROOT, describe_machine, markdown, write_section

from shuiyu_env import Game
from shuiyu_env.evaluation import MatchResult, play_match, play_tournament
from shuiyu_env.evaluation.heat_map import draw_payoffs
from shuiyu_env.exact import equilibrium_of, expected_values, tabulate
from shuiyu_env.exact.heads_up import heads_up_game
from shuiyu_env.files import write_atomically
from shuiyu_env.policies import available, load
from shuiyu_env.policies.reference import Bluffer, Honest

PAGE = ROOT / "docs" / "evaluation.md"
PICTURES = ROOT / "docs" / "evaluation"
PRESETS = ("nanning", "dahua", "dahua_house")
ROLES = ("dealer", "punter", "both")
REFERENCES = ("uniform", "honest", "cautious", "bluffer", "equilibrium")
DEALS = 4000  # that variances are measured with
MATCHES, SHORT = 100, 300  # repeated matches, and deals of each
WIDTH = 0.02  # of a tournament's intervals, units to either side


def timid() -> Bluffer:
    """Bluffs one time in ten."""
    return Bluffer(rate=0.1)


def bold() -> Bluffer:
    """Bluffs every other time."""
    return Bluffer(rate=0.5)


def sceptic() -> Honest:
    """Believes little."""
    return Honest(confidence=0.3)


def trusting() -> Honest:
    """Believes much."""
    return Honest(confidence=0.7)


#: What a tournament of ten is filled up with.
OTHERS = tuple(f"{Path(__file__).stem}:{name}" for name in ("timid", "bold", "sceptic", "trusting"))


def exact_results(names: Sequence[str], preset: str) -> dict[str, float]:
    """Return what the first of two policies wins from the second, by role."""
    rules = Game(2, preset).rules
    game = heads_up_game(rules, False)
    tables = []
    for name in names:
        policy = load(name, Game(2, preset))
        made = getattr(policy, "policy_tables", None)
        tables.append(made(game) if callable(made) else tabulate(policy, rules))
    dealer = -float(expected_values(tables[0], [tables[1]])[0])
    punter = float(expected_values(tables[1], [tables[0]])[0])
    return {"dealer": dealer, "punter": punter, "both": (dealer + punter) / 2}


def itself(networks: Sequence[str]) -> str:
    """The equilibrium against itself: whether its value lies in the intervals."""
    del networks
    rows = []
    for preset in PRESETS:
        value = float(equilibrium_of(preset).info["value"])
        wanted = {"dealer": -value, "punter": value, "both": 0.0}
        for controlled in (False, True):
            result = play_match(
                ["equilibrium"] * 2, preset, DEALS, seed=31, control_variates=controlled
            )
            for entry in result.entries[:1]:
                cells = [f"`{preset}`", "control variates" if controlled else "plain"]
                for role in ROLES:
                    estimate = getattr(entry, role)
                    # Without luck the interval is as narrow as the numbers' last digits.
                    inside = estimate.low - 1e-9 <= wanted[role] <= estimate.high + 1e-9
                    cells.append(
                        f"{wanted[role]:+.4f} {'in' if inside else 'NOT in'}"
                        f" {estimate.low:+.4f} … {estimate.high:+.4f}"
                    )
                rows.append(cells)
            say(rows[-1])
    head = ["Preset", f"{DEALS} duplicate deals", *(f"as {role}" for role in ROLES[:2]), "both"]
    return markdown(head, rows)


def coverage(networks: Sequence[str]) -> str:
    """How often intervals cover a known value."""
    del networks
    rows = []
    for preset, pair in (("nanning", ("honest", "bluffer")), ("dahua", ("honest", "bluffer"))):
        truth = exact_results(pair, preset)
        for controlled in (False, True):
            counts = dict.fromkeys(ROLES, 0)
            for match in range(MATCHES):
                seed = 5000 + match
                played = play_match(pair, preset, SHORT, seed, control_variates=controlled)
                for role in ROLES:
                    estimate = getattr(played.entries[0], role)
                    counts[role] += estimate.low <= truth[role] <= estimate.high
            how = "control variates" if controlled else "plain"
            values = [f"{counts[role]} (of {truth[role]:+.4f})" for role in ROLES]
            rows.append([f"`{preset}`", f"`{pair[0]}` against `{pair[1]}`", how, *values])
            say(rows[-1])
    head = ["Preset", "match", f"{SHORT} duplicate deals", *ROLES]
    text = f"Of {MATCHES} matches, each with a seed of its own, so many intervals cover the truth:"
    return f"{text}\n\n{markdown(head, rows)}"


def single_variance(result: MatchResult) -> float:
    """Return the variance of what two games of different deals would have, by roles, on average."""
    units = result.units.astype(float)
    # One game as dealer and one as punter, independent: half their sum.
    return float(units[:, 0, 0].var() + units[:, 1, 0].var()) / 4


def variance(networks: Sequence[str]) -> str:
    """How much duplicate deals and control variates take out."""
    rows = []
    for preset in PRESETS:
        fitting = [name for name in networks if f"-{preset}-" in name]
        opponents = ["equilibrium", "bluffer", *fitting[:1]]
        pairs = [("equilibrium", other) for other in opponents] + [("honest", "bluffer")]
        for pair in pairs:
            result = play_match(pair, preset, DEALS, seed=32, control_variates=True)
            assert result.adjusted is not None
            single = single_variance(result)
            units, adjusted = (
                (array[:, 0, 0].astype(float) + array[:, 1, 0]) / 2
                for array in (result.units, result.adjusted)
            )
            duplicate, controlled = float(units.var()), float(adjusted.var())
            none = controlled < 1e-12
            rows.append(
                [
                    f"`{preset}`",
                    f"`{pair[0]}` – `{pair[1]}`",
                    f"{single:.4f}",
                    f"{duplicate:.4f}",
                    "0" if none else f"{controlled:.4f}",
                    f"{single / duplicate:.1f}",
                    "all" if none else f"{duplicate / controlled:.1f}",
                    "all" if none else f"{single / controlled:.1f}",
                ]
            )
            say(rows[-1])
    head = ["Preset", "match", "two games apart", "duplicate deals", "and control variates"]
    head += ["taken out by duplicate deals, times", "by control variates", "by both"]
    text = (
        f"Variance of what the first wins in both roles together, per pair of games, over {DEALS}"
        " deals:"
    )
    return f"{text}\n\n{markdown(head, rows)}"


def tournament(networks: Sequence[str]) -> str:
    """A tournament of ten policies, timed."""
    preset = "nanning"
    trained = [name for name in networks if "/" in name or name.endswith(f"-{preset}-2")]
    policies = [*REFERENCES, *trained, *OTHERS][:10]
    began = time.perf_counter()
    result = play_tournament(policies, preset, 500, precision=WIDTH, jobs=2, progress=True)
    seconds = time.perf_counter() - began
    write_atomically(PICTURES / "payoffs.png", draw_payoffs(result))
    rows = [
        [
            f"`{Path(s.name).name}`",
            str(s.mean),
            f"{s.rating:.1f} ± {s.rating_error:.1f}",
            f"{s.alpha_rank:.3f}",
        ]
        for s in result.standings
    ]
    exact = sum(cell.exact for row in result.cells for cell in row if cell is not None)
    cells = len(policies) * (len(policies) - 1)
    text = (
        f"{len(policies)} policies on `{preset}`, heads-up, two processes: {seconds:.0f} seconds"
        f"; widest interval ± {result.precision:.4f} units;"
        f" {exact} of {cells} payoffs are exact."
    )
    say(text)
    table = markdown(["Policy", "mean payoff", "rating", "alpha-rank"], rows)
    return f"{text}\n\n{table}\n![Payoffs](evaluation/payoffs.png)"


SECTIONS: dict[str, Callable[[Sequence[str]], str]] = {
    "itself": itself,
    "coverage": coverage,
    "variance": variance,
    "tournament": tournament,
}


def say(*parts: object) -> None:
    print(*parts, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=tuple(SECTIONS))
    parser.add_argument("--policies", nargs="*", help="trained ones; by default NashPG's")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    networks = options.policies
    if networks is None:
        networks = [name for name in available() if name.startswith("nash_pg-")]
    for section in options.only or SECTIONS:
        began = time.perf_counter()
        text = SECTIONS[section](networks)
        if options.write:
            made = (
                f"Made by `python benchmarks/evaluation.py --only {section} --write` on"
                f" {describe_machine('numpy', 'torch')}."
            )
            write_section(section, f"{text.strip()}\n\n{made}", PAGE)
        else:
            say(text)
        say(f"{section}: {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
