"""Figures as files."""

from __future__ import annotations

__all__ = ["png"]

import io
import warnings
from typing import Any


def png(figure: Any) -> bytes:
    """Return a figure of matplotlib as a PNG."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # A name in letters that no font here has is drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
