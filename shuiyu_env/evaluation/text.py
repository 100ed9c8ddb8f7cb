"""What reports are written with: Markdown tables, shares, paths."""

from __future__ import annotations

__all__ = ["call_tables", "claims_table", "markdown_table", "path_text", "percent"]

from collections.abc import Mapping, Sequence

from shuiyu_env.core.actions import Action
from shuiyu_env.evaluation.bluffing import Rates, opened
from shuiyu_env.evaluation.bluffing_plot import OUTCOME_NAMES

_NONE = "–"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def path_text(path: Sequence[Action]) -> str:
    """Return a path as text."""
    return " → ".join(f"`{action.name}`" for action in path)


def percent(share: float | None) -> str:
    """Return a share, a dash for none; what is never done is told from what is hardly ever done."""
    if share is None:
        return _NONE
    if share == 0.0:
        return "0"
    return f"{share:.2%}" if share >= 5e-5 else "<0.01%"


def claims_table(profiles: Rates | Mapping[str, Rates]) -> str:
    """Return how often claims are made, false and challenged, of one policy or beside each other.

    Args:
        profiles: one, or by name several of the same rules.
    """
    several = profiles if isinstance(profiles, Mapping) else {"": profiles}
    rates = {name: profile.claim_rates() for name, profile in several.items()}
    rows = []
    for lines in zip(*rates.values(), strict=True):
        for name, line in zip(rates, lines, strict=True):
            challenged = percent(line.challenged)
            rows.append(
                [
                    path_text(line.path),
                    *([name] if name else []),
                    percent(line.made),
                    percent(line.false),
                    challenged if challenged == _NONE else f"{challenged} ({line.challenger})",
                    percent(line.caught),
                    percent(line.right),
                ]
            )
    head = ["Claim", *(["policy"] if "" not in several else []), "made", "false", "challenged"]
    return markdown_table([*head, "false ones that are", "challenges right"], rows)


def call_tables(profiles: Rates | Mapping[str, Rates]) -> list[str]:
    """Return what is called on open hands by what is true, a table for each way to open."""
    several = profiles if isinstance(profiles, Mapping) else {"": profiles}
    tables = []
    for node in opened(next(iter(several.values())).tree):
        rates = {name: profile.call_rates(node) for name, profile in several.items()}
        rows = [
            [f"`{action.name}`", *([name] if name else []), *map(percent, found[action])]
            for action in node.children
            for name, found in rates.items()
        ]
        head = [f"Call on {path_text(node.path)}", *(["policy"] if "" not in several else [])]
        tables.append(markdown_table([*head, *(f"if {o}" for o in OUTCOME_NAMES)], rows))
    return tables
