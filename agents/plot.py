"""The learning curve of a run as a picture."""

from __future__ import annotations

__all__ = ["draw_curve"]

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shuiyu_env.files import write_atomically

# Okabe and Ito's palette: told apart by colour-blind readers, too.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_INK, _FAINT = "#333333", "#DDDDDD"


def draw_curve(path: Path, metrics: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draw NashConv (if it was computed), match results, and what the learner reports.

    Args:
        path: PNG file to write.
        metrics: rows of a run's ``metrics.jsonl``; nothing is drawn if there are none.
        title: the picture's title.
    """
    if not metrics:
        return
    # Without pyplot, whose figures and backend are global.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    exact = [row for row in metrics if row.get("nashconv")]
    tops = 2 if exact else 1
    figure = Figure(figsize=(10, 4 + 3 * tops), dpi=120, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=14, color=_INK, fontweight="bold")
    grid = figure.add_gridspec(tops + 1, 3, height_ratios=(*[3] * tops, 2))
    if exact:
        _draw_nashconv(figure.add_subplot(grid[0, :]), exact)

    axes = figure.add_subplot(grid[tops - 1, :])
    matches = [row for row in metrics if row.get("match")]
    opponents = list(matches[-1]["match"]) if matches else []
    for opponent, colour in zip(opponents, _COLOURS, strict=False):
        rows = [row for row in matches if opponent in row["match"]]
        steps = [_millions(row) for row in rows]
        results = [row["match"][opponent] for row in rows]
        means = [result["mean"] for result in results]
        axes.plot(steps, means, color=colour, linewidth=1.8, marker="o", markersize=4)
        axes.fill_between(
            steps,
            [result["low"] for result in results],
            [result["high"] for result in results],
            color=colour,
            alpha=0.13,
            linewidth=0,
        )
    axes.axhline(0.0, color=_INK, linewidth=0.8)
    _label_ends(axes, matches, opponents)
    _style(axes, "Against the reference policies, both roles", "units per deal")
    if not matches:
        axes.text(0.5, 0.5, "no matches yet", transform=axes.transAxes, ha="center", color=_INK)

    panels = (
        ("entropy", "Entropy", "nats", _COLOURS[0]),
        ("value_loss", "Value loss", "units²", _COLOURS[1]),
        ("approx_kl", "Policy change per iteration", "KL divergence, nats", _COLOURS[2]),
        ("average_loss", "Loss of the average policy", "nats", _COLOURS[1]),
        ("advantage_loss", "Advantage loss", "units²", _COLOURS[2]),
        ("q_loss", "Action value loss", "units²", _COLOURS[2]),
        ("deals", "Deals per iteration", "deals", _COLOURS[3]),
        ("seconds", "Time per iteration", "seconds", _COLOURS[4]),
    )
    # The first three that this algorithm reports.
    reported = [panel for panel in panels if any(panel[0] in row for row in metrics)][:3]
    for column, (key, name, unit, colour) in enumerate(reported):
        axes = figure.add_subplot(grid[tops, column])
        rows = [row for row in metrics if key in row]
        steps, values = [_millions(row) for row in rows], [row[key] for row in rows]
        axes.plot(steps, values, color=colour, linewidth=1.5)
        if values:
            axes.set_ylim(0.0, max(max(values) * 1.1, 1e-6))
        _style(axes, name, unit)

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    write_atomically(path, buffer.getvalue())


def _draw_nashconv(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw NashConv of each kind of policy, both axes logarithmic."""
    steps = [_millions(row) for row in rows]
    for kind, colour in zip(rows[-1]["nashconv"], _COLOURS, strict=False):
        for name in rows[-1]["nashconv"][kind]:
            # Two numbers, a lower and an upper one, if it was sampled.
            if name.startswith("nashconv"):
                values = [row["nashconv"][kind][name] for row in rows]
                label = f"{kind}{name.removeprefix('nashconv').replace('_', ', ')}"
                axes.plot(steps, values, color=colour, linewidth=1.8, marker="o", label=label)
                axes.annotate(
                    f"  {values[-1]:.4f}", (steps[-1], values[-1]), color=colour, va="center"
                )
    axes.set_xscale("log")
    axes.set_yscale("log")
    _style(axes, "NashConv: what both roles together could gain", "units per deal")
    axes.legend(fontsize=9, frameon=False, loc="lower left")


def _millions(row: Mapping[str, Any]) -> float:
    return float(row["env_steps"]) / 1e6


def _style(axes: Any, title: str, unit: str) -> None:
    axes.set_title(title, fontsize=11, color=_INK, loc="left")
    axes.set_xlabel("decisions, millions", fontsize=9, color=_INK)
    axes.set_ylabel(unit, fontsize=9, color=_INK)
    axes.tick_params(colors=_INK, labelsize=8, length=0)
    axes.grid(color=_FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def _label_ends(axes: Any, matches: Sequence[Mapping[str, Any]], opponents: Sequence[str]) -> None:
    """Write each line's name and last value at its end, apart from each other."""
    if not matches:
        return
    last = matches[-1]
    low, high = axes.get_ylim()
    gap = (high - low) * 0.055
    order = sorted(range(len(opponents)), key=lambda i: last["match"][opponents[i]]["mean"])
    height = -float("inf")
    for i in order:
        mean = last["match"][opponents[i]]["mean"]
        height = max(mean, height + gap)
        axes.annotate(
            f"  {opponents[i]} {mean:+.2f}",
            (_millions(last), height),
            color=_COLOURS[i % len(_COLOURS)],
            fontsize=9,
            va="center",
            annotation_clip=False,
        )
