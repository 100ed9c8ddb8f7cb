"""Write docs/environment.md from the code: fields, actions, contest trees, deal generator.

Run ``python docs/make_environment.py`` after changing any of them; with
``--check`` it only says whether the page is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from shuiyu_env.core import deals
from shuiyu_env.core.actions import MAX_STAKE, NUM_BASE_ACTIONS, Action
from shuiyu_env.core.cards import Deck, pretty_card
from shuiyu_env.core.contest import Node, Phase, compile_tree
from shuiyu_env.core.game import Game
from shuiyu_env.core.rules import PRESETS, RuleSet
from shuiyu_env.files import write_atomically
from shuiyu_env.observation import LAYOUT_VERSION, layout_of

PAGE = Path(__file__).with_name("environment.md")

MEANINGS = {
    Action.SPLIT_0: "lay the highest card with the second",
    Action.SPLIT_1: "lay the highest card with the third",
    Action.SPLIT_2: "lay the highest card with the lowest",
    Action.OPEN: "lay hand and split face up and let the dealer judge",
    Action.COVER: "stay face down and claim to win both groups",
    Action.FORCE: "forced showdown: lay the hand face up and let the dealer rearrange his",
    Action.ATTACK: "stay face down and attack",
    Action.REQUEST_PUSH: "ask for a draw",
    Action.KILL: "claim to win both groups against an opened hand",
    Action.PUSH: "claim one group each against an opened hand",
    Action.SURRENDER: "give an opened hand its unit",
    Action.LOOK: "doubt a covered hand: compare",
    Action.FOLD: "pay a covered hand its unit",
    Action.DECLINE: "pay the attacker his unit",
    Action.ACCEPT: "take up the attack: compare",
    Action.DEMAND: "take up the attack and demand a unit",
    Action.GRANT: "grant the draw",
    Action.REFUSE: "refuse the draw",
    Action.BELIEVE: "believe the call",
    Action.DOUBT: "doubt the call: compare",
    Action.PAY: "pay the unit demanded",
    Action.CONTEST: "do not give in: compare",
    Action.CONCEDE: "concede a unit after a refused draw",
}


def table(head: list[str], rows: list[list[object]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
    yield ""


def observation() -> Iterator[str]:
    two, four = layout_of(Game(2)), layout_of(Game(4))
    yield "## Observation"
    yield ""
    yield (
        f"`float32[D]`, layout version {LAYOUT_VERSION}. D is {two.seats_start} +"
        f" {two.seat_size} · seats without stakes ({two.size} heads-up, {four.size} for four);"
        " with stakes, each seat's part is `max_stake` longer. First comes what concerns oneself,"
        " then one block for every seat, in table order counted from oneself (oneself first)."
        " `layout_of(game).views(vector)` gives these fields by name, without a copy."
    )
    yield ""
    rows: list[list[object]] = []
    for field in two.fields:
        start = two.offsets[field.name]
        place = f"{start}"
        if field.per_seat:
            place = f"{two.seats_start} + {two.seat_size} j + {start}"
        size = "max_stake" if field.name == "seats.stake" else f"{field.shape}".replace(",)", ")")
        rows.append([f"`{field.name}`", size, place, field.meaning])
    yield "Indices are of a game without stakes; j counts the seats from oneself, from 0."
    yield ""
    yield from table(["Field", "Shape", "First index", "Meaning"], rows)
    yield (
        "No card is visible before the last stake. A hand that is shown lies as it was split."
        " `state()` is the same vector seen from seat 0 with every hand exposed and every"
        " declaration and split known."
    )
    yield ""


def actions() -> Iterator[str]:
    yield "## Actions"
    yield ""
    yield (
        f"`Discrete({NUM_BASE_ACTIONS})`, the same numbers for every seat and preset, or"
        f" `Discrete({NUM_BASE_ACTIONS} + max_stake)` with stakes."
    )
    yield ""
    in_phase: dict[Action, set[str]] = {}
    for node in compile_tree(RuleSet(surrender_to_open=True)).nodes:
        for action in node.children:
            in_phase.setdefault(action, set()).add(node.phase.name)
    rows: list[list[object]] = []
    for action, meaning in MEANINGS.items():
        phases = in_phase[action] | ({Phase.ARRANGE.name} if action <= Action.SPLIT_2 else set())
        rows.append([int(action), f"`{action.name}`", ", ".join(sorted(phases)), meaning])
    rows.append(
        [
            f"{int(Action.STAKE_1)} …",
            f"`STAKE_1` … `STAKE_{MAX_STAKE}`",
            Phase.STAKE.name,
            "play for so many units; only if `max_stake` > 1, and up to it",
        ]
    )
    yield from table(["Id", "Name", "Phase", "Meaning"], rows)


def payoff(node: Node) -> str:
    """Return a leaf's payoffs as text."""
    assert node.payoffs is not None
    if not node.compares:
        return f"{node.payoffs.push:+d}" if node.payoffs.push else "0"
    text = f"{node.payoffs.dealer_wins:+d} / {node.payoffs.push:+d} / {node.payoffs.punter_wins:+d}"
    if node.payoffs.dealer_wins_by_special != node.payoffs.dealer_wins:
        text += f" ({node.payoffs.dealer_wins_by_special:+d} if the dealer wins by a special)"
    return text


def contests() -> Iterator[str]:
    yield "## Contest trees of the presets"
    yield ""
    yield (
        "Units to the punter per unit of stake; the dealer gets the negative. Three numbers: the"
        " dealer wins the comparison / a push / the punter wins it. Contests are decided in the"
        " order of the table, in seat order within a declaration."
    )
    yield ""
    for name, rules in PRESETS.items():
        tree = compile_tree(rules)
        yield f"### `{name}`"
        yield ""
        changed = {
            key: value
            for key, value in rules.to_dict().items()
            if value != RuleSet().to_dict()[key]
        }
        if changed:
            yield "Differs from the defaults in: " + ", ".join(
                f"`{key}={value!r}`" for key, value in changed.items()
            )
            yield ""
        leaves = [node for node in tree.nodes if node.is_leaf]
        leaves.sort(key=lambda node: (tree.order[node.path[0]], node.id))
        rows: list[list[object]] = []
        for leaf in leaves:
            declaration, *rest = [action.name for action in leaf.path]
            call, reply = [*rest, "–", "–"][:2]
            if declaration == Action.FORCE.name:
                call = "(rearranges)"
            rows.append([f"`{declaration}`", call, reply, payoff(leaf)])
        yield from table(["Declaration", "Dealer", "Punter", "Units"], rows)
        special = {payoffs for row in tree.special_payoffs for payoffs in row if payoffs}
        if not special:
            yield "Specials only decide comparisons."
        else:
            units = sorted(payoffs.punter_wins for payoffs in special)
            yield (
                "A contest in which either side holds a special is decided before declarations: the"
                f" winner gets {units[0]} units if the higher special is a Shuiyu, {units[1]} if it"
                " is a Supreme, 0 on a push."
            )
        yield ""


def generator() -> Iterator[str]:
    yield "## Deal generator"
    yield ""
    assert deals.__doc__ is not None
    yield f"Version {deals.VERSION}. {deals.__doc__.replace('``', '`').rstrip()}"
    yield ""
    yield "Test vectors, full deck, hands as (seed, stream, index) gives them:"
    yield ""
    rows: list[list[object]] = []
    for seed, stream, index, seats in ((0, 0, 0, 2), (7, 0, 3, 2), (2**64 - 1, 5, 10**6, 3)):
        hands = deals.deal_hands(Deck(), seats, seed, stream, index)
        text = "; ".join(" ".join(map(pretty_card, hand)) for hand in hands)
        rows.append([seed, stream, index, text])
    yield from table(["Seed", "Stream", "Index", "Hands by seat"], rows)


def page() -> str:
    """Return the whole page."""
    lines = [
        "# Environment reference",
        "",
        "<!-- Made by docs/make_environment.py from the code; do not edit. -->",
        "",
        *observation(),
        *actions(),
        *contests(),
        *generator(),
    ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print(f"{PAGE.name}: {'up to date' if fresh else 'stale, run docs/make_environment.py'}")
        return 0 if fresh else 1
    write_atomically(PAGE, text.encode())
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
