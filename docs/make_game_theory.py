"""Compute what docs/game_theory.md reports on the heads-up game, and draw its pictures.

``python docs/make_game_theory.py`` makes every section, which takes about half an hour on
two cores; ``--only presets --only openings`` makes some. What stands between a section's
marks is replaced, the prose around stays.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))

from benchmarks import report  # noqa: E402
from benchmarks.report import describe_machine, markdown  # noqa: E402
from shuiyu_env.core.actions import Action  # noqa: E402
from shuiyu_env.core.cards import Deck  # noqa: E402
from shuiyu_env.core.contest import Node  # noqa: E402
from shuiyu_env.core.game import Game  # noqa: E402
from shuiyu_env.core.hands import Outcome  # noqa: E402
from shuiyu_env.core.rules import PRESETS, RuleSet  # noqa: E402
from shuiyu_env.evaluation.bluffing import Profile, profile  # noqa: E402
from shuiyu_env.evaluation.bluffing_plot import OUTCOME_NAMES, draw_profile  # noqa: E402
from shuiyu_env.evaluation.text import call_tables, claims_table, percent  # noqa: E402
from shuiyu_env.exact import Equilibrium, PolicyTables, equilibrium_of, nashconv, solve  # noqa: E402
from shuiyu_env.exact import statistics as stats  # noqa: E402
from shuiyu_env.exact.heads_up import heads_up_game  # noqa: E402
from shuiyu_env.exact.plot import plot_convergence  # noqa: E402
from shuiyu_env.exact.solver import ALGORITHMS  # noqa: E402
from shuiyu_env.files import write_atomically  # noqa: E402
from shuiyu_env.policies import load  # noqa: E402

Floats = npt.NDArray[np.floating[Any]]

PAGE = Path(__file__).with_name("game_theory.md")
PICTURES = Path(__file__).with_name("game_theory")

BINS = 20
SMALL_DECK = Deck(7, 4)
POLICIES = ("uniform", "honest", "cautious", "bluffer")
CLOSE = 1e-3  # units per deal within which a declaration counts as good as the best
WITHOUT_TARGET = 1e-4  # NashConv of games with a declaration less


# ---- What is reported on ---------------------------------------------------------------------


@cache
def equilibrium(preset: str) -> Equilibrium:
    """Return what ships for a preset."""
    return equilibrium_of(preset)


@cache
def tables_of(preset: str) -> PolicyTables:
    return equilibrium(preset).policy_tables()


@cache
def frequencies_of(preset: str) -> dict[stats.Path, Floats]:
    return dict(stats.leaf_frequencies(tables_of(preset)))


@cache
def profile_of(preset: str) -> Profile:
    return profile(tables_of(preset), BINS)


# ---- Text ------------------------------------------------------------------------------------


def units(amount: float, digits: int = 6) -> str:
    """Return units with their sign; none of zero's."""
    return f"{round(amount, digits) + 0.0:+.{digits}f}"


def payoff(node: Node) -> str:
    """Return what a leaf pays."""
    if node.payoffs is None:
        return ""
    amounts = dict.fromkeys(node.payoffs[: len(Outcome)]) if not node.compares else node.payoffs
    text = " / ".join(f"{amount:+d}" if amount else "0" for amount in tuple(amounts)[:3])
    if node.payoffs.dealer_wins_by_special != node.payoffs.dealer_wins:
        text += f" ({node.payoffs.dealer_wins_by_special:+d} by a special)"
    return text


def openings() -> str:
    """The ways to open that every open hand comes down to."""
    rows = []
    for preset, rules in PRESETS.items():
        for contest in heads_up_game(rules).opened:
            order = np.lexsort(contest.gains.T[::-1])[::-1]
            for vertex in order:
                replies = []
                for node, chances in zip(contest.reply_nodes, contest.replies, strict=True):
                    if node is not None:
                        doubt = list(node.children).index(Action.DOUBT)
                        replies.append(f"{node.path[-1].name} {abs(chances[vertex, doubt]):.3f}")
                gains = [f"{gain + 0.0:+.4f}" for gain in contest.gains[vertex].round(10)]
                rows.append([f"`{preset}`", *gains, ", ".join(replies)])
    head = [
        "Preset",
        *(f"pays if {outcome}" for outcome in OUTCOME_NAMES),
        "doubts with probability",
    ]
    return markdown(head, rows)


def presets() -> str:
    """Value and NashConv of what ships, and how it converged."""
    runs = {preset: equilibrium(preset).info["convergence"] for preset in PRESETS}
    plot_convergence(runs, PICTURES / "convergence.png")
    picture = "![NashConv by iterations and by seconds](game_theory/convergence.png)"
    return f"{values_table()}\n{picture}"


def values_table() -> str:
    """Return what the presets' equilibria are worth, and how exact that is."""
    rows = []
    for preset in PRESETS:
        info = equilibrium(preset).info
        low, high = info["value"] - info["dealer_gain"], info["value"] + info["punter_gain"]
        rows.append(
            [
                f"`{preset}`",
                units(info["value"]),
                units(-info["value"]),
                f"{units(low)} … {units(high)}",
                f"{info['dealer_gain']:.2e}",
                f"{info['punter_gain']:.2e}",
                f"{info['nashconv']:.2e}",
                info["algorithm"],
                f"{info['iterations']}",
                f"{info['convergence'][-1]['seconds']:.0f}",
            ]
        )
    head = ["Preset", "punter", "dealer", "value of the game to the punter lies in"]
    head += ["dealer's gain", "punter's gain", "NashConv", "algorithm", "iterations", "seconds"]
    return markdown(head, rows)


def algorithms() -> str:
    """All algorithms on a smaller deck."""
    at = (4, 10, 25, 50, 100)  # iterations at which runs are measured
    parts = []
    for preset, rules in PRESETS.items():
        rows, runs = [], {}
        for algorithm in ALGORITHMS:
            solved = solve(
                replace(rules, deck=SMALL_DECK), 1e-12, algorithm=algorithm, max_iterations=at[-1]
            )
            runs[algorithm] = solved.info["convergence"]
            reached = {row["iteration"]: row["nashconv"] for row in runs[algorithm]}
            rows.append([algorithm, *(f"{reached[iteration]:.1e}" for iteration in at)])
            say(preset, algorithm, rows[-1])
        parts.append(f"`{preset}`:\n\n{markdown(['Algorithm', *(f'{n}' for n in at)], rows)}")
        if preset == "nanning":
            plot_convergence(runs, PICTURES / "algorithms.png")
    return "\n".join(
        [
            f"NashConv, units per deal, by iteration, {SMALL_DECK.size} cards"
            f" (`Deck({SMALL_DECK.ranks}, {SMALL_DECK.suits})`):",
            "",
            *parts,
            "![The algorithms on a small deck, nanning](game_theory/algorithms.png)",
        ]
    )


def frequencies() -> str:
    """How often each declaration, call and reply is taken."""
    return "\n".join(f"### `{preset}`\n\n{frequency_table(preset)}" for preset in PRESETS)


def frequency_table(preset: str) -> str:
    """Return how often each decision of a preset comes up, how it goes and what it pays."""
    game = tables_of(preset).game
    leaves = frequencies_of(preset)
    sums = stats.with_decisions(leaves)
    declared = float(sums[()].sum())
    rows = []
    for node in game.tree.nodes[1:]:
        if not node.is_leaf and Action.SPLIT_0 in node.children:
            continue  # a forced showdown's only leaf has the same path
        coming = sums[node.path]
        before = float(sums[node.path[:-1]].sum())
        share = float(coming.sum())
        ends = [float(coming[0] + coming[3]), float(coming[1]), float(coming[2])]
        rows.append(
            [
                f"{'&emsp;' * (2 * len(node.path) - 2)}`{node.path[-1].name}`",
                percent(share / declared),
                percent(share / before) if before else "–",
                *(percent(end / share) if share else "–" for end in ends),
                payoff(node),
            ]
        )
    head = ["Path", "of all", "of the decision before", *OUTCOME_NAMES, "pays the punter"]
    decided = percent(round(1.0 - stats.deals_declared(game), 9))
    return (
        f"{markdown(head, rows)}\n"
        f"Frequencies times payoffs: {units(stats.expected_units(game, leaves))} units per deal,"
        f" {units(game.constant)} of it from the {decided} of deals that specials decide before"
        " anybody declares (not in the table).\n"
    )


# ---- Bluffs ----------------------------------------------------------------------------------


def bluffs() -> str:
    """How often claims are false, how often they are challenged, and how often rightly."""
    parts = []
    for preset in PRESETS:
        found = profile_of(preset)
        parts.append(f"### `{preset}`\n\n{claims_table(found)}")
        parts += [
            f"What the dealer calls on an open hand, by what is true:\n\n{table}"
            for table in call_tables(found)
        ]
        write_atomically(PICTURES / f"{preset}.png", draw_profile(found))
        parts.append(f"![{preset} by strength](game_theory/{preset}.png)")
    return "\n\n".join(part.strip() for part in parts)


# ---- What is worth declaring ------------------------------------------------------------------


def declarations() -> str:
    """What each declaration would gain each hand, and what the game is worth without it."""
    parts = []
    for preset, rules in PRESETS.items():
        tables = tables_of(preset)
        game = tables.game
        worth = _by_declaration(tables)
        best = worth.max(axis=1)
        weights = game.classes.multiplicity[game.active]
        weights = weights / weights.sum()
        sums = stats.with_decisions(frequencies_of(preset))
        whole = float(sums[()].sum())
        info = equilibrium(preset).info
        rows = []
        for k, declaration in enumerate(game.declarations):
            others = np.delete(worth, k, axis=1).max(axis=1, initial=-np.inf)
            ahead = worth[:, k] - others
            without = tuple(d for d in rules.declarations if d != declaration.name)
            rows.append(
                [
                    f"`{declaration.name}`",
                    percent(float(sums[(declaration,)].sum()) / whole),
                    percent(float(weights[worth[:, k] >= best - CLOSE].sum())),
                    percent(float(weights[ahead > CLOSE].sum())),
                    units(float(ahead.max()), 4),
                    f"{float(weights @ (best - worth[:, k])):.4f}",
                    *_without(replace(rules, declarations=without), info),
                ]
            )
            say(preset, rows[-1])
        unused = [a for a in game.declarations if float(sums[(a,)].sum()) == 0.0]
        if len(unused) > 1:
            left = tuple(d for d in rules.declarations if Action[d] not in unused)
            label = " and ".join(f"`{action.name}`" for action in unused)
            cells = _without(replace(rules, declarations=left), info)
            rows.append([label, "0", *["–"] * 4, *cells])
        head = ["Declaration", "declared", "as good as the best for", "better than others for"]
        head += [
            "most ahead by",
            "costs a hand on average",
            "value without it",
            "which changes it by",
        ]
        parts.append(f"### `{preset}`\n\n{markdown(head, rows)}")
    return "\n\n".join(parts)


def _by_declaration(tables: PolicyTables) -> Floats:
    """Return units per deal of each active hand by declaration, all else played best."""
    game = tables.game
    values = game.punter_values(tables.dealer)
    declare = values.declare.copy()
    for node, position in game.reply_nodes.items():
        declare[..., position] += values.replies[node].max(axis=-1)
    best = np.where(game.legal[..., None], declare, -np.inf).max(axis=1)
    total = game.masses(game.plan(tables.dealer.split))[:, 0].sum(axis=-1)
    worth: Floats = best[game.active] / total[game.active][:, None]
    return worth


def _without(rules: RuleSet, info: Mapping[str, Any]) -> list[str]:
    solved = solve(rules, WITHOUT_TARGET).info
    change = solved["value"] - info["value"]
    # How far either value may be from the game's.
    margin = solved["nashconv"] + info["nashconv"]
    return [units(solved["value"], 4), f"{units(change, 4)} ± {margin:.0e}"]


# ---- Policies --------------------------------------------------------------------------------


def policies() -> str:
    """How exploitable the reference policies are."""
    rows = []
    for preset, rules in PRESETS.items():
        for policy in POLICIES:
            result = nashconv(load(policy, Game(2, rules)), rules, name=policy)
            rows.append([f"`{preset}`", f"`{policy}`", units(float(result.value), 4)])
            for bound in (result.dealer_gain, result.punter_gain, result.nashconv):
                rows[-1].append(f"{float(bound):.4f}")
            rows[-1].append(f"{float(result.exploitability):.4f}")
            say(rows[-1])
        info = equilibrium(preset).info
        gains = [info["dealer_gain"], info["punter_gain"], info["nashconv"], info["nashconv"] / 2]
        row = [f"`{preset}`", "`equilibrium`", units(info["value"], 4)]
        rows.append([*row, *(f"{gain:.1e}" for gain in gains)])
    head = ["Preset", "policy", "value to the punter", "dealer's gain", "punter's gain"]
    return markdown([*head, "NashConv", "exploitability"], rows)


SECTIONS: dict[str, Callable[[], str]] = {
    "openings": openings,
    "presets": presets,
    "algorithms": algorithms,
    "frequencies": frequencies,
    "bluffs": bluffs,
    "declarations": declarations,
    "policies": policies,
}


def say(*parts: Any) -> None:
    """Report progress."""
    print(*parts, flush=True)


def read_section(section: str) -> str:
    """Return what the page has between a section's marks."""
    return report.read_section(section, PAGE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=tuple(SECTIONS), help="a section; may be repeated"
    )
    for section in parser.parse_args().only or SECTIONS:
        began = time.monotonic()
        text = SECTIONS[section]()
        made = (
            f"Made by `python docs/make_game_theory.py --only {section}`, without any sampling, on"
            f" {describe_machine('numpy', 'numba')}."
        )
        report.write_section(section, f"{text.strip()}\n\n{made}", PAGE)
        say(f"{section}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
