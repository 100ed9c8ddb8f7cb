"""Compute what docs/game_theory.md reports on the heads-up game, and draw its pictures.

``python docs/make_game_theory.py`` makes every section, which takes about half an hour on
two cores; ``--only presets --only openings`` makes some. What stands between a section's
marks is replaced, the prose around stays.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

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
from shuiyu_env.exact import Equilibrium, PolicyTables, equilibrium_of, nashconv, solve  # noqa: E402
from shuiyu_env.exact import statistics as stats  # noqa: E402
from shuiyu_env.exact.heads_up import HeadsUpGame, heads_up_game, payoffs_of  # noqa: E402
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
RARE = 0.005  # of deals: decisions that come up less often are not drawn

OUTCOMES = ("dealer wins", "push", "punter wins")
OUTCOME_COLOURS = ("#b2182b", "#8c8c8c", "#2166ac")
COLOURS = {
    Action.OPEN: "#4477aa",
    Action.COVER: "#ee9a3a",
    Action.FORCE: "#aa3377",
    Action.ATTACK: "#997700",
    Action.REQUEST_PUSH: "#228833",
}
#: Lines of calls and replies; those that challenge or claim more are the dark ones.
LINES = ("#222222", "#cc6677", "#44aa99", "#ddcc77", "#88ccee")


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
def strength_of(preset: str, side: Any) -> stats.Strength:
    return stats.by_strength(tables_of(preset), side, BINS)


# ---- Text ------------------------------------------------------------------------------------


def name(path: tuple[Action, ...]) -> str:
    """Return a path as text."""
    return " → ".join(f"`{action.name}`" for action in path)


def percent(share: float) -> str:
    """Return a share; what is never done is told from what is hardly ever done."""
    if share == 0.0:
        return "0"
    return f"{share:.2%}" if share >= 5e-5 else "<0.01%"


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
    head = ["Preset", *(f"pays if {outcome}" for outcome in OUTCOMES), "doubts with probability"]
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
    head = ["Path", "of all", "of the decision before", *OUTCOMES, "pays the punter"]
    decided = percent(round(1.0 - stats.deals_declared(game), 9))
    return (
        f"{markdown(head, rows)}\n"
        f"Frequencies times payoffs: {units(stats.expected_units(game, leaves))} units per deal,"
        f" {units(game.constant)} of it from the {decided} of deals that specials decide before"
        " anybody declares (not in the table).\n"
    )


# ---- Bluffs ----------------------------------------------------------------------------------


class Claim(NamedTuple):
    """Something said that the other side may challenge.

    Attributes:
        path: what was said last.
        challenges: the answers that challenge it, with those that follow from them.
        false: by outcome, whether a challenge would pay the challenger more than giving way.
        challenger: who may challenge.
    """

    path: stats.Path
    challenges: tuple[Action, ...]
    false: npt.NDArray[np.bool_]
    challenger: str


def claims(game: HeadsUpGame) -> Iterator[Claim]:
    """Give the claims of a tree: what can be believed for a fixed price, or compared."""
    for node in game.tree.nodes[1:]:
        children = {action: game.tree.nodes[child] for action, child in node.children.items()}
        agreed = [child for child in children.values() if child.is_leaf and not child.compares]
        compared = [child for child in children.values() if child.compares]
        if len(agreed) == 1 and compared:
            dealer = node.phase.by_dealer
            gains = np.array(payoffs_of(compared[0])) - np.array(payoffs_of(agreed[0]))
            yield Claim(
                node.path,
                tuple(action for action, child in children.items() if child not in agreed),
                (gains < 0) if dealer else (gains > 0),
                "dealer" if dealer else "punter",
            )


def bluffs() -> str:
    """How often claims are false, how often they are challenged, and how often rightly."""
    parts = []
    for preset in PRESETS:
        game = tables_of(preset).game
        sums = stats.with_decisions(frequencies_of(preset))
        declared = float(sums[()].sum())
        rows = []
        for claim in claims(game):
            said = sums[claim.path]
            share = float(said.sum())
            if share == 0.0:
                rows.append([name(claim.path), "0", *["–"] * 4])
                continue
            challenged = sum(sums[(*claim.path, action)] for action in claim.challenges)
            total = float(np.sum(challenged))
            false = float(said[claim.false].sum())
            caught = float(np.asarray(challenged)[claim.false].sum())
            rows.append(
                [
                    name(claim.path),
                    percent(share / declared),
                    percent(false / share),
                    f"{percent(total / share)} ({claim.challenger})",
                    percent(caught / false) if false else "–",
                    percent(caught / total) if total else "–",
                ]
            )
        head = ["Claim", "made", "false", "challenged", "false ones that are", "challenges right"]
        parts.append(f"### `{preset}`\n\n{markdown(head, rows)}")
        parts += [_calls_by_outcome(contest.node, sums) for contest in game.opened]
        draw(preset)
        parts.append(f"![{preset} by strength](game_theory/{preset}.png)")
    return "\n\n".join(part.strip() for part in parts)


def _calls_by_outcome(node: Node, sums: Mapping[stats.Path, Floats]) -> str:
    rows = []
    for action in node.children:
        shares = sums[(*node.path, action)][:3] / np.maximum(sums[node.path][:3], 1e-300)
        rows.append([f"`{action.name}`", *map(percent, map(float, shares))])
    calls = markdown([f"Call on `{node.path[-1].name}`", *(f"if {o}" for o in OUTCOMES)], rows)
    return f"What the dealer calls on an open hand, by what is true:\n\n{calls}"


# ---- Pictures --------------------------------------------------------------------------------


def draw(preset: str) -> None:
    """Draw what is played by the strength of the hand."""
    tables = tables_of(preset)
    game = tables.game
    punter = strength_of(preset, "punter")
    declared = float(sum(values.sum() for values in punter.leaves.values()))
    sums = {path: v / declared * BINS for path, v in stats.with_decisions(punter.leaves).items()}
    common = {path: float(values.sum()) / BINS >= RARE for path, values in sums.items()}
    panels: list[Callable[[Any], None]] = [lambda axes: _leaves(axes, game, sums)]
    panels.append(lambda axes: _values(axes, game, punter, declared))
    replies = [game.tree.nodes[node] for node in game.reply_nodes]
    replies = [node for node in replies if common.get(node.path)]
    if replies:
        panels.append(lambda axes: _replies(axes, replies, sums))
    opened = [contest.node for contest in game.opened if common.get(contest.node.path)]
    panels += [partial(_opened, node=node, sums=sums) for node in opened]
    hidden = [node for node in game.hidden if common.get(node.path)]
    panels += [partial(_hidden, preset=preset, node=node) for node in hidden]
    said = [claim for claim in claims(game) if common.get(claim.path)]
    panels.append(lambda axes: _false(axes, said, sums))
    if len(panels) % 3:
        panels.insert(0, lambda axes: _outcomes(axes, punter))
    figure: Any = Figure(figsize=(13.0, 4.1 * (len(panels) // 3)), layout="constrained")
    for axes, panel in zip(figure.subplots(len(panels) // 3, 3).flat, panels, strict=True):
        axes.set_xlim(0, 100)
        panel(axes)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    write_atomically(PICTURES / f"{preset}.png", buffer.getvalue())


_EDGES = np.linspace(0.0, 100.0, BINS + 1)
_CENTRES = (_EDGES[1:] + _EDGES[:-1]) / 2


def _labels(axes: Any, title: str, side: str, ylabel: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(f"strength of the {side}'s hand, percentile", fontsize=9)
    axes.set_ylabel(ylabel, fontsize=9)
    axes.tick_params(labelsize=8)


def _stack(axes: Any, rows: Sequence[Floats], labels: list[str], colours: list[Any]) -> None:
    """Stack shares, bin by bin."""
    steps = [np.append(row, row[-1]) for row in rows]
    axes.stackplot(_EDGES, *steps, labels=labels, colors=colours, step="post", linewidth=0)
    axes.set_ylim(0, 1)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13)}
    axes.legend(fontsize=7, ncols=1 if len(rows) < 2 else 2, frameon=False, **below)


def _lines(axes: Any, lines: Mapping[str, Floats], colours: Any) -> None:
    for (label, values), colour in zip(lines.items(), colours, strict=False):
        axes.plot(_CENTRES, values, marker=".", linewidth=1.4, label=label, color=colour)
    axes.set_ylim(-0.03, 1.03)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="best", framealpha=0.85)


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Return a share, nothing where a decision hardly ever comes up."""
    enough = whole > RARE / 10
    return np.where(enough, part / np.where(enough, whole, 1.0), np.nan)


def _shade(colour: str, step: int, of: int) -> tuple[float, ...]:
    """Return a colour, lighter by steps."""
    light = 0.62 * step / max(of - 1, 1)
    return tuple(channel + (1.0 - channel) * light for channel in to_rgb(colour))


def _leaves(axes: Any, game: HeadsUpGame, sums: Mapping[stats.Path, Floats]) -> None:
    rows, labels, colours = [], [], []
    for declaration in game.declarations:
        paths = [
            node.path
            for node in game.tree.nodes
            if node.is_leaf and node.path[0] == declaration and sums[node.path].sum() / BINS >= RARE
        ]
        for k, path in enumerate(paths):
            rows.append(sums[path].sum(axis=1))
            labels.append(" ".join(action.name for action in path))
            colours.append(_shade(COLOURS[declaration], k, len(paths)))
    rest = 1.0 - np.sum(rows, axis=0)
    if rest.max() > RARE:
        rows.append(np.clip(rest, 0.0, None))
        labels.append("all others")
        colours.append(to_rgb("#dddddd"))
    _stack(axes, rows, labels, colours)
    _labels(axes, "How contests go", "punter", "share of deals")


def _outcomes(axes: Any, punter: stats.Strength) -> None:
    rows = [punter.outcomes[:, outcome] for outcome in Outcome]
    _stack(axes, rows, list(OUTCOMES), [_shade(c, 1, 3) for c in OUTCOME_COLOURS])
    _labels(axes, "How the splits compare", "punter", "share of deals")


def _values(axes: Any, game: HeadsUpGame, punter: stats.Strength, declared: float) -> None:
    payoffs = {node.path: node.payoffs for node in game.tree.nodes}
    worth = sum(values @ np.array(payoffs[path]) for path, values in punter.leaves.items())
    axes.axhline(0.0, color="#999999", linewidth=0.8)
    values = np.asarray(worth) / declared * BINS
    axes.plot(_CENTRES, values, marker=".", linewidth=1.4, color="#222222")
    axes.grid(alpha=0.3)
    _labels(axes, "What a hand is worth", "punter", "units per deal to the punter")


def _replies(axes: Any, nodes: list[Node], sums: Mapping[stats.Path, Floats]) -> None:
    lines = {}
    for node in nodes:
        action = next(a for a in (Action.DOUBT, Action.CONTEST) if a in node.children)
        coming = sums[node.path].sum(axis=1)
        label = f"{action.name} after {' '.join(a.name for a in node.path)}"
        lines[label] = _ratio(sums[(*node.path, action)].sum(axis=1), coming)
    _lines(axes, lines, LINES)
    _labels(axes, "How often the punter does not believe", "punter", "probability")


def _opened(axes: Any, node: Node, sums: Mapping[stats.Path, Floats]) -> None:
    kills = sums[(*node.path, Action.KILL)]
    lines = {
        f"if {OUTCOMES[outcome]}": _ratio(kills[:, outcome], sums[node.path][:, outcome])
        for outcome in Outcome
    }
    _lines(axes, lines, OUTCOME_COLOURS)
    _labels(axes, f"How often the dealer kills an {node.path[-1].name} hand", "punter", "KILL")


def _hidden(axes: Any, preset: str, node: Node) -> None:
    game = tables_of(preset).game
    dealer = stats.with_decisions(strength_of(preset, "dealer").leaves)
    coming = dealer[node.path].sum(axis=1)
    # Of two answers the other one says it all.
    agreed = [action for action, child in node.children.items() if not _compares(game, child)]
    lines = {
        action.name: _ratio(dealer[(*node.path, action)].sum(axis=1), coming)
        for action in node.children
        if len(node.children) > 2 or action not in agreed
    }
    _lines(axes, lines, LINES)
    title = f"What the dealer answers to {node.path[-1].name}"
    _labels(axes, title, "dealer", "probability")


def _compares(game: HeadsUpGame, child: int) -> bool:
    """Whether a comparison may come of a call."""
    node = game.tree.nodes[child]
    return node.compares or not node.is_leaf


def _false(axes: Any, said: list[Claim], sums: Mapping[stats.Path, Floats]) -> None:
    lines = {}
    for claim in said:
        made = sums[claim.path]
        label = " ".join(action.name for action in claim.path)
        lines[label] = _ratio(made[:, claim.false].sum(axis=1), made.sum(axis=1))
    _lines(axes, lines, LINES)
    _labels(axes, "How often a claim is false", "punter", "share of such claims")


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
