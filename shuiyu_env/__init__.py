"""Shuiyu (水鱼): a card game of bluff as a benchmark for imperfect-information learning.

Importing the package is light: names are loaded on first use, and neither
torch nor anything compiled is imported until it is needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import shuiyu_env.shuiyu_v0 as shuiyu_v0
    from shuiyu_env.core.actions import Action
    from shuiyu_env.core.cards import Deck
    from shuiyu_env.core.errors import ShuiyuError
    from shuiyu_env.core.game import Game, State
    from shuiyu_env.core.rules import PRESETS, RuleSet

__version__ = "0.1.0"

__all__ = [
    "PRESETS",
    "Action",
    "Deck",
    "Game",
    "RuleSet",
    "ShuiyuError",
    "State",
    "__version__",
    "shuiyu_v0",
]

_HOMES = {
    "PRESETS": "core.rules",
    "Action": "core.actions",
    "Deck": "core.cards",
    "Game": "core.game",
    "RuleSet": "core.rules",
    "ShuiyuError": "core.errors",
    "State": "core.game",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name in __all__:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
