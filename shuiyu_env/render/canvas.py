"""Drawing with pygame, smoothed: everything is drawn twice as large and scaled down."""

from __future__ import annotations

__all__ = ["Canvas", "Color", "load_pygame"]

import math
from typing import Any

from shuiyu_env.core.errors import ShuiyuError

Color = tuple[int, int, int]
Point = tuple[float, float]

_OVERSAMPLING = 2

# The outline of a heart, y upwards, from -1 to about 0.8: the usual parametric curve.
_HEART = tuple(
    (
        0.95 * math.sin(t) ** 3,
        (13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)) / 17,
    )
    for t in (2 * math.pi * i / 60 for i in range(60))
)


def load_pygame() -> Any:
    """Import pygame and return it.

    Raises:
        ShuiyuError: it is not installed.
    """
    try:
        import pygame
    except ImportError:
        raise ShuiyuError(
            'pictures need pygame, which is not installed: pip install "shuiyu_env[render]"'
        ) from None
    return pygame


class Canvas:
    """A surface with its own units, or a part of one.

    Coordinates and sizes are in pixels of the finished picture; in a
    :meth:`part` they are scaled and counted from its corner.

    Args:
        size: width and height of the finished picture.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        self._pygame = load_pygame()
        self._pygame.font.init()
        self._size = size
        self._surface = self._pygame.Surface(
            (size[0] * _OVERSAMPLING, size[1] * _OVERSAMPLING), 0, 32
        )
        self._scale = float(_OVERSAMPLING)
        self._origin = (0.0, 0.0)
        # Fonts do not outlive a pygame.quit(), so they are kept for one picture only.
        self._fonts: dict[int, Any] = {}

    def part(self, x: float, y: float, scale: float) -> Canvas:
        """Return a canvas that draws into this one, from a corner and scaled."""
        part: Canvas = object.__new__(Canvas)
        part.__dict__.update(self.__dict__)
        part._origin = self._at((x, y))
        part._scale = self._scale * scale
        return part

    def finish(self) -> Any:
        """Return the finished picture, a pygame surface."""
        return self._pygame.transform.smoothscale(self._surface, self._size)

    def _at(self, point: Point) -> Point:
        return (
            self._origin[0] + point[0] * self._scale,
            self._origin[1] + point[1] * self._scale,
        )

    def fill(self, color: Color) -> None:
        """Paint everything."""
        self._surface.fill(color)

    def box(
        self,
        rect: tuple[float, float, float, float],
        color: Color,
        radius: float = 0,
        line: float = 0,
    ) -> None:
        """Draw a rectangle with round corners, filled or, with a line width, its outline."""
        x, y = self._at(rect[:2])
        scaled = self._pygame.Rect(
            round(x), round(y), round(rect[2] * self._scale), round(rect[3] * self._scale)
        )
        self._pygame.draw.rect(
            self._surface,
            color,
            scaled,
            width=round(line * self._scale),
            border_radius=round(radius * self._scale),
        )

    def disc(self, center: Point, radius: float, color: Color) -> None:
        """Draw a filled circle."""
        self._pygame.draw.circle(self._surface, color, self._at(center), radius * self._scale)

    def polygon(self, points: list[Point], color: Color) -> None:
        """Draw a filled polygon."""
        self._pygame.draw.polygon(self._surface, color, [self._at(point) for point in points])

    def diamond(self, center: Point, size: float, color: Color) -> None:
        """Draw the suit ♦, ``size`` from its middle to its tip."""
        x, y = center
        wide = 0.78 * size
        self.polygon([(x, y - size), (x + wide, y), (x, y + size), (x - wide, y)], color)

    def heart(self, center: Point, size: float, color: Color) -> None:
        """Draw the suit ♥."""
        x, y = center
        self.polygon([(x + size * px, y - size * py) for px, py in _HEART], color)

    def spade(self, center: Point, size: float, color: Color) -> None:
        """Draw the suit ♠."""
        x, y = center
        leaf = y - 0.12 * size
        self.polygon([(x + size * px, leaf + size * py) for px, py in _HEART], color)
        self._stem(center, size, color)

    def club(self, center: Point, size: float, color: Color) -> None:
        """Draw the suit ♣."""
        x, y = center
        radius = 0.44 * size
        self.disc((x, y - 0.52 * size), radius, color)
        self.disc((x - 0.5 * size, y + 0.2 * size), radius, color)
        self.disc((x + 0.5 * size, y + 0.2 * size), radius, color)
        self.disc((x, y), 0.25 * size, color)
        self._stem(center, size, color)

    def _stem(self, center: Point, size: float, color: Color) -> None:
        x, y = center
        self.polygon(
            [(x, y), (x + 0.42 * size, y + size), (x - 0.42 * size, y + size)],
            color,
        )

    def _font(self, size: float) -> Any:
        pixels = round(size * self._scale)
        if pixels not in self._fonts:
            self._fonts[pixels] = self._pygame.font.Font(None, pixels)
        return self._fonts[pixels]

    def text_width(self, text: str, size: float) -> float:
        """Return how wide a text will be."""
        width: int = self._font(size).size(text)[0]
        return width / self._scale

    def text(
        self,
        text: str,
        place: Point,
        size: float,
        color: Color,
        at: str = "left",
        room: float | None = None,
    ) -> float:
        """Write a text and return its width.

        Args:
            text: what is written.
            place: the point at the text's left, center or right, vertically its middle.
            size: size of the font.
            color: colour of the letters.
            at: ``"left"``, ``"center"`` or ``"right"``.
            room: the text is made smaller to be no wider than this.
        """
        while room is not None and size > 6 and self.text_width(text, size) > room:
            size -= 1
        letters = self._font(size).render(text, True, color)
        width, height = letters.get_size()
        x, y = self._at(place)
        x -= {"left": 0, "center": width / 2, "right": width}[at]
        self._surface.blit(letters, (round(x), round(y - height / 2)))
        return float(width / self._scale)

    def wrap(self, text: str, size: float, room: float) -> list[str]:
        """Return a text in lines no wider than a room, broken between words."""
        lines: list[str] = []
        for word in text.split():
            longer = f"{lines[-1]} {word}" if lines else word
            if lines and self.text_width(longer, size) <= room:
                lines[-1] = longer
            else:
                lines.append(word)
        return lines

    def pill_width(self, text: str, size: float) -> float:
        """Return how wide a pill will be."""
        return self.text_width(text, size) + 0.9 * size

    def pill(
        self,
        text: str,
        place: Point,
        size: float,
        color: Color,
        ink: Color,
        at: str = "left",
    ) -> float:
        """Write a text on a round label and return its width; places as for :meth:`text`."""
        width = self.pill_width(text, size)
        height = 1.5 * size
        x, y = place
        x -= {"left": 0.0, "center": width / 2}[at]
        self.box((x, y - height / 2, width, height), color, radius=height / 2)
        self.text(text, (x + width / 2, y), size, ink, at="center")
        return width
