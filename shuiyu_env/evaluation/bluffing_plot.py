"""Pictures of how a policy bluffs: :class:`~shuiyu_env.evaluation.bluffing.Profile`."""

from __future__ import annotations

__all__ = ["OUTCOME_NAMES", "draw_profile"]

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.actions import Action
from shuiyu_env.core.contest import Node
from shuiyu_env.core.hands import Outcome
from shuiyu_env.evaluation.bluffing import Claim, Profile, claims
from shuiyu_env.evaluation.figures import png
from shuiyu_env.exact import statistics as stats
from shuiyu_env.exact.heads_up import HeadsUpGame

Floats = npt.NDArray[np.floating[Any]]

RARE = 0.005  # of deals: decisions that come up less often are not drawn

OUTCOME_NAMES = ("dealer wins", "push", "punter wins")
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


def draw_profile(profile: Profile) -> bytes:
    """Draw what is played by the strength of the hand; return the picture, PNG."""
    from matplotlib.figure import Figure

    game, punter, bins = profile.game, profile.punter, len(profile.punter.outcomes)
    declared = float(sum(values.sum() for values in punter.leaves.values()))
    sums = {path: v / declared * bins for path, v in stats.with_decisions(punter.leaves).items()}
    common = {path: float(values.sum()) / bins >= RARE for path, values in sums.items()}
    panels: list[Callable[[Any], None]] = [lambda axes: _leaves(axes, game, sums)]
    panels.append(lambda axes: _values(axes, game, punter, declared))
    replies = [game.tree.nodes[node] for node in game.reply_nodes]
    replies = [node for node in replies if common.get(node.path)]
    if replies:
        panels.append(lambda axes: _replies(axes, replies, sums))
    opened = [contest.node for contest in game.opened if common.get(contest.node.path)]
    panels += [partial(_opened, node=node, sums=sums) for node in opened]
    hidden = [node for node in game.hidden if common.get(node.path)]
    panels += [partial(_hidden, profile=profile, node=node) for node in hidden]
    said = [claim for claim in claims(game.tree) if common.get(claim.path)]
    panels.append(lambda axes: _false(axes, said, sums))
    if len(panels) % 3:
        panels.insert(0, lambda axes: _outcomes(axes, punter))
    lines = -(-len(panels) // 3)
    figure: Any = Figure(figsize=(13.0, 4.1 * lines), layout="constrained")
    places = list(figure.subplots(lines, 3).flat)
    for axes, panel in zip(places, panels, strict=False):
        axes.set_xlim(0, 100)
        panel(axes)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    return png(figure)


def _edges(bins: int) -> Floats:
    return np.linspace(0.0, 100.0, bins + 1)


def _centres(bins: int) -> Floats:
    edges = _edges(bins)
    return (edges[1:] + edges[:-1]) / 2


def _labels(axes: Any, title: str, side: str, ylabel: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(f"strength of the {side}'s hand, percentile", fontsize=9)
    axes.set_ylabel(ylabel, fontsize=9)
    axes.tick_params(labelsize=8)


def _stack(axes: Any, rows: Sequence[Floats], labels: list[str], colours: list[Any]) -> None:
    """Stack shares, bin by bin."""
    steps = [np.append(row, row[-1]) for row in rows]
    axes.stackplot(
        _edges(len(rows[0])), *steps, labels=labels, colors=colours, step="post", linewidth=0
    )
    axes.set_ylim(0, 1)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13)}
    axes.legend(fontsize=7, ncols=1 if len(rows) < 2 else 2, frameon=False, **below)


def _lines(axes: Any, lines: Mapping[str, Floats], colours: Any) -> None:
    for (label, values), colour in zip(lines.items(), colours, strict=False):
        axes.plot(
            _centres(len(values)), values, marker=".", linewidth=1.4, label=label, color=colour
        )
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
    return tuple(channel + (1.0 - channel) * light for channel in _rgb(colour))


def _leaves(axes: Any, game: HeadsUpGame, sums: Mapping[stats.Path, Floats]) -> None:
    rows, labels, colours = [], [], []
    bins = len(sums[()])
    for declaration in game.declarations:
        paths = [
            node.path
            for node in game.tree.nodes
            if node.is_leaf and node.path[0] == declaration and sums[node.path].sum() / bins >= RARE
        ]
        for k, path in enumerate(paths):
            rows.append(sums[path].sum(axis=1))
            labels.append(" ".join(action.name for action in path))
            colours.append(_shade(COLOURS[declaration], k, len(paths)))
    rest = 1.0 - np.sum(rows, axis=0)
    if rest.max() > RARE:
        rows.append(np.clip(rest, 0.0, None))
        labels.append("all others")
        colours.append(_rgb("#dddddd"))
    _stack(axes, rows, labels, colours)
    _labels(axes, "How contests go", "punter", "share of deals")


def _outcomes(axes: Any, punter: stats.Strength) -> None:
    rows = [punter.outcomes[:, outcome] for outcome in Outcome]
    _stack(axes, rows, list(OUTCOME_NAMES), [_shade(c, 1, 3) for c in OUTCOME_COLOURS])
    _labels(axes, "How the splits compare", "punter", "share of deals")


def _values(axes: Any, game: HeadsUpGame, punter: stats.Strength, declared: float) -> None:
    payoffs = {node.path: node.payoffs for node in game.tree.nodes}
    worth = sum(values @ np.array(payoffs[path]) for path, values in punter.leaves.items())
    axes.axhline(0.0, color="#999999", linewidth=0.8)
    values = np.asarray(worth) / declared * len(punter.outcomes)
    axes.plot(_centres(len(values)), values, marker=".", linewidth=1.4, color="#222222")
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
        f"if {OUTCOME_NAMES[outcome]}": _ratio(kills[:, outcome], sums[node.path][:, outcome])
        for outcome in Outcome
    }
    _lines(axes, lines, OUTCOME_COLOURS)
    _labels(axes, f"How often the dealer kills an {node.path[-1].name} hand", "punter", "KILL")


def _hidden(axes: Any, profile: Profile, node: Node) -> None:
    game = profile.game
    dealer = stats.with_decisions(profile.dealer.leaves)
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


def _rgb(colour: str) -> tuple[float, ...]:
    """Return a colour such as ``"#4477aa"`` as three numbers from 0 to 1."""
    return tuple(int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
