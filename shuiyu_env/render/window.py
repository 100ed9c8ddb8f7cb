"""A table in a window on the screen."""

from __future__ import annotations

__all__ = ["Window"]

from typing import Any

from shuiyu_env.core.view import View
from shuiyu_env.render.canvas import load_pygame
from shuiyu_env.render.picture import PICTURE_SIZE, draw_table


class Window:
    """Shows views one after another. The window opens with the first.

    When its user closes it, nothing more is shown, and play goes on.

    Args:
        name: the window's title.
        fps: views shown in a second at most; 0 is no limit.
    """

    def __init__(self, name: str, fps: int) -> None:
        self._name = name
        self._fps = fps
        self._screen: Any = None
        self._clock: Any = None
        self._dismissed = False

    def show(self, view: View, caption: str = "") -> None:
        """Show a view, and wait as long as the frame rate asks.

        Raises:
            ShuiyuError: pygame is not installed.
        """
        if self._dismissed:
            return
        pygame = load_pygame()
        if self._screen is None or pygame.display.get_surface() is not self._screen:
            # There is one display: another window, or a pygame.quit(), may have taken it.
            pygame.display.init()
            self._screen = pygame.display.set_mode(PICTURE_SIZE)
            pygame.display.set_caption(self._name)
            self._clock = pygame.time.Clock()
        self._screen.blit(draw_table(view, caption), (0, 0))
        pygame.display.flip()
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            self.close()
            self._dismissed = True
            return
        self._clock.tick(self._fps)

    def close(self) -> None:
        """Close the window; safe to call twice."""
        if self._screen is None:
            return
        pygame = load_pygame()
        # A window that has taken the display since is not ours to close.
        if pygame.display.get_init() and pygame.display.get_surface() is self._screen:
            pygame.display.quit()
        self._screen = self._clock = None
