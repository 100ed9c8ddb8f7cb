"""All about one policy: how strong it is, how exploitable, how it bluffs, and a dozen hands.

:func:`evaluate` does the work and returns a :class:`Report`; :meth:`Report.save` leaves
``report.md`` with its pictures, ``report.html``, which is one self-contained file, and
``report.json``.
"""

from __future__ import annotations

__all__ = ["EXACT", "REFERENCES", "Report", "check_folder", "evaluate"]

import base64
import html
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shuiyu_env import __version__
from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.checks import check_choice
from shuiyu_env.core.errors import ConfigError, PolicyError
from shuiyu_env.core.game import Game
from shuiyu_env.core.rules import RuleSet
from shuiyu_env.evaluation.best_response import lower_bound
from shuiyu_env.evaluation.bluffing import Rates, profile
from shuiyu_env.evaluation.bluffing_plot import draw_profile
from shuiyu_env.evaluation.hands import (
    play_hands,
    sampled_rates,
)
from shuiyu_env.evaluation.match import PolicySpec, as_list, at_least, match_against
from shuiyu_env.evaluation.sections import (
    bluffing,
    bounded,
    draw_strength,
    exploitability,
    head,
    plain_name,
    some_hands,
    strength,
)
from shuiyu_env.evaluation.table import equilibrium_at_hand, is_zero_sum
from shuiyu_env.exact import (
    Equilibrium,
    PolicyTables,
    equilibrium_of,
    nashconv,
    tabulate,
)
from shuiyu_env.exact.tabulation import count_questions
from shuiyu_env.files import check_writable, write_atomically
from shuiyu_env.policies.loading import load
from shuiyu_env.policy import SUM_TOLERANCE, Policy, checked_probabilities

#: Whether exploitability is computed: where that is not too slow, in any case, or never.
EXACT = ("auto", "yes", "no")

REFERENCES = ("uniform", "honest", "cautious", "bluffer")
_SAMPLES = 16
_PROBES = (8, 64, 512, 4096)  # rows that a policy's speed is measured with,
_PROBE_SECONDS = 2.0  # up to those that take so long
_SAMPLED_HANDS = 2000
_PICTURES = ("strength.png", "bluffing.png", "bluffing-equilibrium.png")
#: Questions, roughly, that a lower bound asks for each deal and each further seat.
_QUESTIONS_A_DEAL = 4500
_FEWEST_DEALS = 50


@dataclass
class Report:
    """What was found out about a policy.

    Attributes:
        markdown: the text; pictures are named by their files.
        pictures: by file name, PNG.
        data: the figures, as plain JSON values.
    """

    markdown: str
    pictures: dict[str, bytes] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)

    def summary(self) -> str:
        """Return the strength and the exploitability as text."""
        wanted = ("## How strong", "## How exploitable")
        sections = [f"## {part}" for part in self.markdown.split("\n## ")[1:]]
        lines = [
            line
            for section in sections
            if section.startswith(wanted)
            for line in section.splitlines()
            if line.startswith(("##", "|")) and not line.startswith("| ---")
        ]
        return "\n".join(lines)

    def html(self) -> str:
        """Return the text as one HTML page that holds its pictures.

        Raises:
            ConfigError: the package ``markdown`` is not installed.
        """
        try:
            import markdown
        except ModuleNotFoundError as error:
            raise ConfigError(
                'a page needs the package markdown: pip install "shuiyu_env[evaluate]"'
            ) from error
        body = markdown.markdown(self.markdown, extensions=["tables", "fenced_code", "toc"])
        for name, picture in self.pictures.items():
            data = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
            body = body.replace(f'src="{name}"', f'src="{data}"')
        # Wide tables scroll by themselves instead of the page.
        body = body.replace("<table>", '<div class="wide"><table>').replace(
            "</table>", "</table></div>"
        )
        title = html.escape(re.sub(r"[`#]", "", self.markdown.partition("\n")[0]).strip())
        return _PAGE.format(title=title, body=body)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write everything into a folder, and return the page's path."""
        folder = Path(folder)
        page = self.html()
        for name, picture in self.pictures.items():
            write_atomically(folder / name, picture)
        for name in _PICTURES:
            if name not in self.pictures:  # an older report's
                (folder / name).unlink(missing_ok=True)
        write_atomically(folder / "report.md", self.markdown.encode())
        text = json.dumps(self.data, indent=1, allow_nan=False)
        write_atomically(folder / "report.json", f"{text}\n".encode())
        return write_atomically(folder / "report.html", page.encode())


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto;
       padding: 0 1rem; color: #222; background: #fff; }}
h1, h2, h3 {{ line-height: 1.2; }}
h2 {{ margin-top: 2.5rem; border-bottom: 1px solid #ddd; padding-bottom: .2rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25rem .7rem; border-bottom: 1px solid #e3e3e3; text-align: left;
          white-space: nowrap; }}
th {{ border-bottom: 2px solid #999; }}
code {{ background: #f3f3f3; padding: .05rem .25rem; border-radius: 3px; }}
pre {{ background: #f6f6f6; padding: .8rem; overflow-x: auto; line-height: 1.35; }}
pre code {{ background: none; padding: 0; }}
img {{ max-width: 100%; height: auto; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def evaluate(
    policy: PolicySpec,
    game: Game | str | RuleSet | Mapping[str, Any] = "nanning",
    *,
    name: str | None = None,
    opponents: Sequence[PolicySpec] | None = None,
    num_deals: int = 4000,
    seed: int = 0,
    exact: str = "auto",
    patience: float = 600.0,
    hands: int = 12,
    threads: int | None = None,
    progress: bool = False,
) -> Report:
    """Return all about a policy.

    Args:
        policy: the policy, or what :func:`~shuiyu_env.policies.load` takes.
        game: the game, or the rules of a heads-up one.
        name: what the report calls it; by default as it was specified.
        opponents: whom it meets; by default the reference policies, heads-up also the
            equilibrium, if it is at hand.
        num_deals: duplicate deals against each of them, and for a lower bound.
        seed: of all deals.
        exact: whether exploitability and bluffing are computed from tables of the policy,
            heads-up: ``"yes"``, ``"no"`` or, with ``"auto"``, if asking the policy everything
            takes no longer than ``patience``. Otherwise there is a lower bound, and
            what is counted in hands that were played.
        patience: seconds.
        hands: how many hands are shown.
        threads: threads of exact computations; ``None``: all that there are.
        progress: whether to show progress bars (if tqdm is installed).

    Raises:
        PolicyError: a policy that cannot be loaded, or that answers with something unusable.
        RulesError, DealError, ConfigError: an argument out of range.
    """
    if not isinstance(game, Game):
        game = Game(2, game)
    check_choice("exact", exact, EXACT)
    if exact == "yes" and not is_zero_sum(game):
        raise ConfigError(
            "exact: exploitability is computed heads-up only, with reward='transfer' and without"
            " stakes: leave it at 'auto'"
        )
    num_deals, seed = at_least(2, "num_deals", num_deals), at_least(None, "seed", seed)
    hands = at_least(0, "hands", hands)
    if not isinstance(patience, (int, float)) or not patience > 0.0:
        raise ConfigError(f"patience: expected seconds, more than 0, got {patience!r}")
    called = str(policy) if isinstance(policy, (str, os.PathLike)) else "policy"
    called = plain_name(called if name is None else str(name))
    player = load(policy, game)
    known = equilibrium_at_hand(game)
    opponents = None if opponents is None else as_list("opponents", opponents)
    if opponents == []:
        raise PolicyError("opponents: expected at least one")
    if opponents is None:
        opponents = [*REFERENCES, *(["equilibrium"] if known else [])]
    speed = _probe(player, game, called)

    parts = [head(called, game, num_deals, seed)]
    report = Report("")
    report.data = {
        "shuiyu_env": __version__,
        "policy": called,
        "rules": game.rules.to_dict(),
        "num_players": game.num_players,
        "reward": game.reward,
        "num_deals": num_deals,
        "seed": seed,
    }
    rows = match_against(
        player,
        opponents,
        game,
        num_deals,
        seed,
        name=called,
        control_variates=known,
        progress=progress,
    )
    report.data["matches"] = [row.to_dict() for row in rows]
    report.pictures["strength.png"] = draw_strength(rows)
    parts.append(strength(rows, known))

    tables, why = _tables(player, game, called, exact, patience, speed, threads, progress)
    if tables is None:
        cost = _QUESTIONS_A_DEAL * (game.num_players - 1) * max(speed, 1e-9)
        deals = min(num_deals, max(_FEWEST_DEALS, int(patience / cost)))
        bound = lower_bound(
            player, game, deals, seed, name=called, validation_deals=max(2, deals // 4),
            progress=progress,
        )  # fmt: skip
        report.data["lower_bound"] = bound.to_dict()
        parts.append(bounded(bound, why))
    else:
        found = nashconv(tables)
        report.data["nashconv"] = found.to_dict()
        promises = bool(getattr(player, "outcomes_only", False))
        parts.append(exploitability(found, promises))

    played = play_hands(player, game, max(_SAMPLED_HANDS, hands), seed, called)
    beside: dict[str, Rates] = {}
    other = "the equilibrium" if called == "equilibrium" else "equilibrium"
    if tables is None:
        beside[called] = sampled_rates(played)
    else:
        mine = profile(tables)
        beside[called] = mine
        report.pictures["bluffing.png"] = draw_profile(mine)
    if known and not isinstance(player, Equilibrium):
        theirs = profile(equilibrium_of(game.rules).policy_tables())
        beside[other] = theirs
        if tables is not None:
            report.pictures["bluffing-equilibrium.png"] = draw_profile(theirs)
    report.data["bluffing"] = {label: rates.to_dict() for label, rates in beside.items()}
    parts.append(bluffing(beside, called, len(played) if tables is None else 0))
    if hands:
        parts.append(some_hands(played, hands, equilibrium_of(game.rules) if known else None))
    report.markdown = "\n\n".join(part.strip() for part in parts) + "\n"
    return report


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """Return a folder that a report can be written into; better known before the work."""
    return check_writable(Path(folder) / "report.html").parent


def _is_function(policy: Policy, game: Game, name: str) -> bool:
    """Return whether a policy answers the same question the same way, also in another order."""
    env = BatchEnv(game, _PROBES[1], seed=1)
    order = np.arange(_PROBES[1])
    answers = [
        checked_probabilities(
            policy, env.observation[rows].copy(), env.action_mask[rows].copy(), name
        )[rows]
        for rows in (order, order[::-1])
    ]
    return bool(np.abs(answers[0] - answers[1]).max() <= SUM_TOLERANCE)


def _probe(policy: Policy, game: Game, name: str) -> float:
    """Return seconds per row that a policy takes; what is unusable comes to light at once."""
    env = BatchEnv(game, max(_PROBES), seed=0)
    seconds = 0.0
    # The first more than once, for what only starts slowly.
    for size in (_PROBES[0], *_PROBES):
        began = time.perf_counter()
        checked_probabilities(
            policy, env.observation[:size].copy(), env.action_mask[:size].copy(), name
        )
        taken = time.perf_counter() - began
        seconds = taken / size
        if size > _PROBES[0] and taken > _PROBE_SECONDS:
            break
    return seconds


def _time(seconds: float) -> str:
    """Return a time as people say it."""
    if seconds < 90:
        return f"{seconds:.3g} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _tables(
    policy: Policy,
    game: Game,
    name: str,
    exact: str,
    patience: float,
    speed: float,
    threads: int | None,
    progress: bool,
) -> tuple[PolicyTables | None, str]:
    """Return the policy's tables, or why there are none."""
    made = getattr(policy, "policy_tables", None)
    if not is_zero_sum(game):
        return None, (
            "What a best response gains is computed heads-up only, for rewards that are transfers"
            " and without stakes."
        )
    if exact == "no":
        return None, "What a best response gains was not to be computed."
    if callable(made) and isinstance(tables := made(), PolicyTables):
        return tables, ""
    if exact == "auto" and not _is_function(policy, game, name):
        return None, (
            "Asked twice about the same it answers differently, so that nothing is exact."
        )
    seconds = count_questions(policy, game.rules, _SAMPLES) * speed
    if exact == "auto" and seconds > patience:
        return None, (
            f"Asking the policy everything would take about {_time(seconds)}"
            f" ({speed * 1e6:.0f} microseconds a row), more than the {_time(patience)} that were"
            " allowed."
        )
    tables = tabulate(
        policy,
        game.rules,
        samples=_SAMPLES,
        seed=0,
        name=name,
        threads=threads,
        progress=progress,
    )
    return tables, ""
