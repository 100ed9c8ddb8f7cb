"""Where equilibria are found: shipped with the package, kept in the user's cache, or solved now."""

from __future__ import annotations

__all__ = ["cache_folder", "equilibrium_of", "find"]

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from shuiyu_env.core.errors import CheckpointError
from shuiyu_env.core.rules import RuleSet, resolve_rules
from shuiyu_env.exact.equilibrium import Equilibrium, load_equilibrium, rules_key
from shuiyu_env.exact.solving import DEFAULT_TARGET, solve

#: Equilibria of the presets, part of the package.
SHIPPED = Path(__file__).parent / "equilibria"

_log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return the folder that solved rule sets are kept in.

    The environment variable ``SHUIYU_CACHE_DIR`` moves it; otherwise it is the user's
    cache folder, as the system has it.
    """
    folder = os.environ.get("SHUIYU_CACHE_DIR")
    return Path(folder) if folder else user_cache_path("shuiyu_env", appauthor=False)


def file_name(rules: RuleSet) -> str:
    """Return the name of the file that an equilibrium of some rules is kept in."""
    return f"equilibrium-{rules_key(rules)[:16]}.npz"


def find(rules: RuleSet) -> Path | None:
    """Return the file of an equilibrium that is shipped or cached, if there is one."""
    places = (SHIPPED / file_name(rules), cache_folder() / file_name(rules))
    return next((path for path in places if path.exists()), None)


def equilibrium_of(
    rules: str | RuleSet | Mapping[str, Any],
    target: float = DEFAULT_TARGET,
    *,
    progress: bool = True,
    threads: int | None = None,
) -> Equilibrium:
    """Return an equilibrium of a rule set: a shipped or cached one, or solve it and keep it.

    Solving a full deck takes one to three minutes on two cores. It is resumed where it was
    interrupted.

    Args:
        rules: a preset's name, a mapping of fields, or a rule set.
        target: NashConv, in units per deal, that it must have at most.
        progress, threads: see :func:`~shuiyu_env.exact.solving.solve`.

    Raises:
        RulesError, ConfigError: see :func:`~shuiyu_env.exact.solving.solve`.
    """
    rules = resolve_rules(rules)
    for folder in (SHIPPED, cache_folder()):
        path = folder / file_name(rules)
        if path.exists():
            try:
                equilibrium = load_equilibrium(path, rules)
            except CheckpointError as error:
                if folder == SHIPPED:
                    raise
                _log.warning("solving again: %s", error)
                continue
            if equilibrium.info["nashconv"] <= target:
                return equilibrium
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _log.warning("the solution will not be kept: %s", error)
        return solve(rules, target, progress=progress, threads=threads)
    path = folder / file_name(rules)
    checkpoint = path.with_suffix(".checkpoint.npz")
    equilibrium = solve(rules, target, progress=progress, threads=threads, checkpoint=checkpoint)
    equilibrium.save(path)
    return equilibrium
