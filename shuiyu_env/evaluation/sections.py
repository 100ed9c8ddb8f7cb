"""The sections of a report, as Markdown."""

from __future__ import annotations

__all__ = [
    "bluffing",
    "bounded",
    "draw_strength",
    "exploitability",
    "head",
    "plain_name",
    "some_hands",
    "strength",
]

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shuiyu_env import __version__
from shuiyu_env.core.actions import Action
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.game import Game
from shuiyu_env.evaluation.best_response import LowerBound
from shuiyu_env.evaluation.bluffing import Profile, Rates
from shuiyu_env.evaluation.figures import png
from shuiyu_env.evaluation.hands import Decision, PlayedHand, false_claims
from shuiyu_env.evaluation.match import AgainstRow
from shuiyu_env.evaluation.text import call_tables, claims_table, markdown_table, path_text, percent
from shuiyu_env.exact import Bound, NashConv
from shuiyu_env.policy import Policy, checked_probabilities
from shuiyu_env.render.ansi import render_ansi
from shuiyu_env.render.words import seat_name, units_text

_HANDS_LOOKED_AT = 300


def plain_name(name: str) -> str:
    """Return a name that breaks no table, heading or code span."""
    text = " ".join(name.split()).replace("`", "'").replace("|", "¦")
    return text or "policy"


def head(name: str, game: Game, num_deals: int, seed: int) -> str:
    """Return the title, and what was evaluated how."""
    rules = game.rules.name or "own rules"
    table = "heads-up" if game.num_players == 2 else f"{game.num_players} seats"
    return (
        f"# `{name}` on `{rules}`, {table}\n\n"
        f"shuiyu_env {__version__}; rewards: {game.reward}; {num_deals} duplicate deals against"
        f" each opponent, seed {seed}. Units per deal; intervals are 95 %."
    )


def strength(rows: Sequence[AgainstRow], controlled: bool) -> str:
    """Return what it won from each opponent."""
    lines = [
        [
            f"`{plain_name(row.opponent)}`",
            *map(str, (row.result.dealer, row.result.punter, row.result.both)),
        ]
        for row in rows
    ]
    how = (
        " Luck is taken out by control variates from the equilibrium, which changes no expectation."
        if controlled
        else ""
    )
    many = rows[0].match.game.num_players > 2 if rows else False
    among = " It sits once, among copies of the opponent, in every seat in turn." if many else ""
    turns = among or " Every deal is played twice, with the seats exchanged."
    return (
        "## How strong is it?\n\n"
        f"{turns.strip()}{how}\n\n"
        f"{markdown_table(['Against', 'as dealer', 'as punter', 'both roles'], lines)}\n"
        "![What it wins from each opponent](strength.png)"
    )


def draw_strength(rows: Sequence[AgainstRow]) -> bytes:
    """Return a picture of that, PNG."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(9.0, 1.2 + 0.5 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(0.0, color="#999999", linewidth=0.8)
    styles = (("dealer", "#4477aa", 0.2), ("punter", "#ee7733", 0.0), ("both", "#222222", -0.2))
    for role, colour, offset in styles:
        found = [getattr(row.result, role) for row in rows]
        axes.errorbar(
            [estimate.mean for estimate in found],
            [len(rows) - 1 - i + offset for i in range(len(rows))],
            xerr=[estimate.high - estimate.mean for estimate in found],
            fmt="o",
            markersize=4,
            capsize=2,
            color=colour,
            label="both roles" if role == "both" else f"as {role}",
        )
    axes.set_yticks(range(len(rows)), [row.opponent for row in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("units per deal, 95 % intervals")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return png(figure)


def exploitability(found: NashConv, promises: bool) -> str:
    """Return what a best response gains, where that is computed."""
    exact = found.nashconv.exact
    how = (
        "Computed exactly, over all deals"
        + (", relying on the policy's promise `outcomes_only`." if promises else ".")
        if exact
        else "Its answers to open hands were sampled, so that these are intervals"
        f" ({found.nashconv.confidence:.0%})."
    )
    rows = [
        ["value to the punter, playing itself", _bound(found.value, "+")],
        ["a best response gains as dealer", _bound(found.dealer_gain)],
        ["a best response gains as punter", _bound(found.punter_gain)],
        ["NashConv, both together", _bound(found.nashconv)],
        ["exploitability, half of it", _bound(found.exploitability)],
    ]
    return (
        f"## How exploitable is it?\n\n{how} An equilibrium has NashConv 0.\n\n"
        f"{markdown_table(['Exact' if exact else 'Interval', 'units per deal'], rows)}"
    )


def _bound(bound: Bound, sign: str = "") -> str:
    if bound.exact:
        return f"{bound.low:{sign}.4f}"
    return f"{bound.low:{sign}.4f} to {bound.high:{sign}.4f}"


def bounded(bound: LowerBound, why: str) -> str:
    """Return what can at least be gained, and why no more is known."""
    rows = [
        [
            f"one {role} gains at least",
            f"{max(gain.low, 0.0):+.4f}",
            f"`{plain_name(gain.responder)}`",
            str(gain.test),
        ]
        for role, gain in (("dealer", bound.dealer_gain), ("punter", bound.punter_gain))
    ]
    rows.append(["both together at least", f"{bound.nashconv:+.4f}", "", ""])
    head = ["Lower bound (one-sided, 95 %)", "units per deal", "by", "which gained"]
    return (
        f"## How exploitable is it?\n\n{why} This is a lower bound: several ways to play against"
        " it were tried, the best was chosen on deals of its own and then tested once, on"
        f" {bound.num_deals} fresh ones. The truth may be far above, and is not to be compared with"
        f" exact values.\n\n{markdown_table(head, rows)}"
    )


def bluffing(rates: Mapping[str, Rates], name: str, sampled: int) -> str:
    """Return how claims are made and met, of several policies beside each other."""
    how = (
        f"Of `{name}`: counted in {sampled} deals that it played against itself, so that rare"
        " claims are uncertain."
        if sampled
        else "Exact, over all deals of the policy against itself."
    )
    beside = {f"`{label}`": one for label, one in rates.items()}
    parts = [
        "## How does it bluff?",
        f"{how} A claim is something said that the other side may believe, for a fixed price, or"
        " challenge. It is false, a bluff, if the challenge would have paid better.",
        claims_table(beside),
    ]
    for table in call_tables(beside):
        parts += ["What the dealer calls on an open hand, by what is true:", table]
    one = next(iter(rates.values()))
    lines = []
    for path in one.action_rates():
        if len(path) == 1:
            shares = [percent(each.action_rates().get(path, 0.0)) for each in rates.values()]
            lines.append([path_text(path), *shares])
    parts += ["What punters declare:", markdown_table(["Declaration", *beside], lines)]
    if isinstance(one, Profile):
        parts.append(
            "What it does by the strength of the hand, which is the chance that its split wins"
            " both groups:\n\n![Its play by strength](bluffing.png)"
        )
        if len(rates) > 1:
            parts.append("The equilibrium:\n\n![The equilibrium's](bluffing-equilibrium.png)")
    return "\n\n".join(part.strip() for part in parts)


def some_hands(played: list[PlayedHand], count: int, equilibrium: Policy | None) -> str:
    """Return some hands, step by step."""
    looked_at = played[:_HANDS_LOOKED_AT]
    wanted: dict[int, list[float]] = {}
    if equilibrium is not None:
        decisions = [decision for hand in looked_at for decision in hand.decisions]
        answers = checked_probabilities(
            equilibrium,
            np.stack([d.observation for d in decisions]),
            np.stack([d.mask for d in decisions]),
            "equilibrium",
        )
        at = 0
        for i, hand in enumerate(looked_at):
            rows = answers[at : at + len(hand.decisions)]
            at += len(rows)
            wanted[i] = [float(row[d.action]) for row, d in zip(rows, hand.decisions, strict=True)]
        apart = {i: _distance(looked_at[i].decisions, wanted[i]) for i in wanted}
        shown = sorted(sorted(apart, key=lambda i: -apart[i])[:count])
        how = (
            f"Of the first {len(looked_at)} deals that it played against itself, those in which it"
            " said what was most unlike the equilibrium; this is not a typical sample."
        )
    else:
        shown = list(range(min(count, len(looked_at))))
        how = "The first deals that it played against itself."
    parts = [_hand(i, looked_at[i], wanted.get(i)) for i in shown]
    return "\n\n".join(["## Some hands", how, *parts])


def _distance(decisions: Sequence[Decision], wanted: Sequence[float]) -> float:
    """Return how far a hand's most unlikely choice is from another policy's probability of it."""
    # Not in how it arranges: splits may be as good as each other.
    return max(
        (
            abs(float(decision.chances[decision.action]) - p)
            for decision, p in zip(decisions, wanted, strict=True)
            if decision.phase not in (Phase.ARRANGE, Phase.REARRANGE)
        ),
        default=0.0,
    )


def _hand(number: int, hand: PlayedHand, wanted: list[float] | None) -> str:
    deal = hand.state.deal
    bluffs = false_claims(hand)
    said: dict[int, tuple[Action, ...]] = {}
    rows = []
    for k, decision in enumerate(hand.decisions):
        remark = ""
        if decision.phase in (Phase.DECLARE, Phase.CALL, Phase.REPLY):
            path = (*said.get(decision.contest, ()), decision.action)
            said[decision.contest] = path
            remark = " (a bluff)" if path in bluffs.get(decision.contest, ()) else ""
        role = ", the dealer" if decision.seat == deal.dealer else ""
        row = [
            f"{seat_name(decision.seat)}{role}",
            decision.phase.name.lower(),
            f"`{decision.action.name}`{remark}",
            percent(float(decision.chances[decision.action])),
        ]
        rows.append(row if wanted is None else [*row, percent(wanted[k])])
    head = ["Seat", "decision", "action", "probability"]
    head += ["in the equilibrium"] if wanted is not None else []
    paid = ", ".join(units_text(reward) for reward in deal.rewards)
    return (
        f"### Deal {number}: {paid}\n\n```text\n{render_ansi(hand.state.view(None))}\n```\n\n"
        f"{markdown_table(head, rows)}"
    )
