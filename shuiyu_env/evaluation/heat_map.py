"""The payoff matrix of a tournament as a picture."""

from __future__ import annotations

__all__ = ["draw_payoffs"]

from typing import Any

import numpy as np

from shuiyu_env.evaluation.figures import png
from shuiyu_env.evaluation.tournament import TournamentResult


def draw_payoffs(result: TournamentResult) -> bytes:
    """Return a heat map, PNG: what each policy (row) wins from each other (column), both roles.

    Policies stand in the order of the standings. A number with an interval was estimated.
    """
    from matplotlib.figure import Figure

    order = [result.names.index(standing.name) for standing in result.standings]
    payoffs = result.payoffs[np.ix_(order, order)]
    size = len(order)
    figure: Any = Figure(figsize=(3.0 + 0.95 * size, 2.0 + 0.62 * size), layout="constrained")
    axes = figure.subplots()
    limit = max(float(np.abs(payoffs).max()), 1e-9)
    shown = np.where(np.eye(size, dtype=bool), np.nan, payoffs)
    image = axes.imshow(shown, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    for i, me in enumerate(order):
        for j, other in enumerate(order):
            cell = result.cells[me][other]
            if cell is None:
                continue
            half = cell.both.high - cell.both.mean
            text = f"{cell.both.mean:+.3f}" + ("" if cell.exact else f"\n± {half:.3f}")
            dark = abs(cell.both.mean) > 0.6 * limit
            axes.text(
                j, i, text, ha="center", va="center", fontsize=8, color="w" if dark else "#222222"
            )
    names = [result.names[k] for k in order]
    axes.set_xticks(range(size), names, rotation=35, ha="right", fontsize=9)
    axes.set_yticks(range(size), names, fontsize=9)
    axes.set_xlabel("against")
    rules = result.game.rules.name or "own rules"
    axes.set_title(f"{rules}, {result.game.num_players} seats", loc="left", fontsize=10)
    figure.colorbar(image, ax=axes, label="units per deal, both roles")
    return png(figure)
