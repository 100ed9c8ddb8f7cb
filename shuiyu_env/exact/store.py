"""Where equilibria are found: shipped with the package, kept in the user's cache, or solved now."""

from __future__ import annotations

__all__ = ["cache_folder", "equilibrium_of", "find"]

import logging
import math
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from shuiyu_env.core.errors import CheckpointError
from shuiyu_env.core.rules import RuleSet, resolve_rules
from shuiyu_env.exact.equilibrium import Equilibrium, load_equilibrium
from shuiyu_env.exact.heads_up import rules_key
from shuiyu_env.exact.solving import DEFAULT_TARGET, check_target, solve

#: Equilibria of the presets, part of the package.
SHIPPED = Path(__file__).parent / "equilibria"

_log = logging.getLogger(__name__)


@lru_cache
def _warn_once(text: str) -> None:
    _log.warning("%s", text)


def cache_folder() -> Path:
    """Return the folder that solved rule sets are kept in.

    The environment variable ``SHUIYU_CACHE_DIR`` moves it; otherwise it is the user's
    cache folder, as the system has it.
    """
    folder = os.environ.get("SHUIYU_CACHE_DIR")
    return Path(folder).expanduser() if folder else user_cache_path("shuiyu_env", appauthor=False)


def file_name(rules: RuleSet) -> str:
    """Return the name of the file that an equilibrium of some rules is kept in."""
    return f"equilibrium-{rules_key(rules)[:16]}.npz"


def find(rules: RuleSet) -> list[Path]:
    """Return the files of equilibria of some rules: shipped, then cached."""
    places = (SHIPPED / file_name(rules), cache_folder() / file_name(rules))
    return [path for path in places if path.exists()]


def equilibrium_of(
    rules: str | RuleSet | Mapping[str, Any],
    target: float = DEFAULT_TARGET,
    *,
    progress: bool = True,
    threads: int | None = None,
) -> Equilibrium:
    """Return an equilibrium of a rule set: a shipped or cached one, or solve it and keep it.

    Solving a full deck takes one to three minutes on two cores. It is resumed where it was
    interrupted. Of several solutions the least exploitable is taken.

    Args:
        rules: a preset's name, a mapping of fields, or a rule set.
        target: NashConv, in units per deal, that it should have at most; if that could
            not be reached, a warning is logged.
        progress, threads: see :func:`~shuiyu_env.exact.solving.solve`.

    Raises:
        RulesError, ConfigError: see :func:`~shuiyu_env.exact.solving.solve`.
        CheckpointError: a file of the package is damaged.
    """
    rules, goal = resolve_rules(rules), check_target(target)
    found = []
    for path in find(rules):
        try:
            found.append(load_equilibrium(path, rules))
        except CheckpointError as error:
            if path.parent == SHIPPED:
                raise
            _log.warning("solving again: %s", error)
    best = min(found, key=lambda equilibrium: equilibrium.info["nashconv"], default=None)
    if best is not None and best.info["nashconv"] <= goal:
        return best
    if best is not None and best.info.get("missed", math.inf) <= goal:
        _warn_once(
            f"the equilibrium of {rules.name or 'these rules'} ({rules.deck.size} cards) has"
            f" NashConv {best.info['nashconv']:.2e}: no better one was found"
        )
        return best
    out: Path | None = cache_folder() / file_name(rules)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)  # type: ignore[union-attr]
    except OSError as error:
        _log.warning("the solution will not be kept: %s", error)
        out = None
    checkpoint = None if out is None else out.with_suffix(".checkpoint.npz")

    def run() -> Equilibrium:
        return solve(
            rules, goal, out=out, checkpoint=checkpoint, progress=progress, threads=threads
        )

    try:
        return run()
    except CheckpointError as error:
        # A run of other settings, or a damaged one, whose file nobody here can name.
        if checkpoint is None:
            raise
        _log.warning("beginning again: %s", error)
        checkpoint.unlink(missing_ok=True)
        return run()
