"""Pictures of how a solution converged."""

from __future__ import annotations

__all__ = ["check_plot", "convergence_table", "plot_convergence"]

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shuiyu_env.core.errors import ConfigError
from shuiyu_env.files import check_writable, write_atomically

Convergence = Sequence[Mapping[str, float]]


def convergence_table(convergence: Convergence) -> str:
    """Return a solver's convergence as text, one line for each time it was measured."""
    lines = [f"{'iteration':>9}  {'seconds':>9}  {'NashConv':>10}  value to the punter between"]
    lines += [
        f"{row['iteration']:>9.0f}  {row['seconds']:>9.1f}  {row['nashconv']:>10.2e}  "
        f"{row['low']:+.6f} and {row['high']:+.6f}"
        for row in convergence
    ]
    return "\n".join(lines)


def check_plot(path: str | os.PathLike[str]) -> Path:
    """Return the path of a picture that can be drawn; better known before an hour's work.

    Raises:
        ConfigError: matplotlib is not installed, or it cannot write such a file.
    """
    path = Path(path)
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ModuleNotFoundError as error:
        raise ConfigError(
            'a plot needs matplotlib: pip install "shuiyu_env[train]", or go without --plot'
        ) from error
    if path.suffix.lstrip(".") not in FigureCanvasBase.get_supported_filetypes():
        raise ConfigError(f"{path}: expected a picture such as convergence.png or .svg")
    return check_writable(path)


def plot_convergence(runs: Mapping[str, Convergence], path: str | os.PathLike[str]) -> Path:
    """Draw NashConv against iterations and against seconds, both axes logarithmic.

    Args:
        runs: convergence by name, as :func:`~shuiyu_env.exact.solve` leaves it in ``info``.
        path: the picture to write, ``*.png`` or ``*.svg``.

    Raises:
        ConfigError: matplotlib is not installed, or it cannot write such a file.
    """
    path = check_plot(path)
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(9.0, 3.8), layout="constrained")
    for axes, column in zip(figure.subplots(1, 2), ("iteration", "seconds"), strict=True):
        for name, rows in runs.items():
            axes.loglog(
                [row[column] for row in rows],
                [row["nashconv"] for row in rows],
                marker=".",
                label=name,
            )
        axes.set_xlabel("iterations" if column == "iteration" else "seconds")
        axes.set_ylabel("NashConv, units per deal")
        axes.grid(alpha=0.3, which="both")
    if len(runs) > 1:
        figure.axes[0].legend(fontsize="small")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.lstrip("."), dpi=130)
    return write_atomically(path, buffer.getvalue())
