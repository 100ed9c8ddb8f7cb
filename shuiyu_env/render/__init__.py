"""Pictures of a table in text and pixels, from what one seat may see.

Everything is drawn from a :class:`~shuiyu_env.core.view.View`, never from a
state or a deal, so a rendering made for one seat cannot show what it may not
see. pygame is imported when the first picture is drawn.
"""

from __future__ import annotations

__all__ = [
    "PICTURE_SIZE",
    "Window",
    "check_pygame",
    "render_ansi",
    "render_rgb",
    "save_picture",
    "seat_name",
    "units_text",
]

from shuiyu_env.render.ansi import render_ansi
from shuiyu_env.render.picture import PICTURE_SIZE, check_pygame, render_rgb, save_picture
from shuiyu_env.render.window import Window
from shuiyu_env.render.words import seat_name, units_text
