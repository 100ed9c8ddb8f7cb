"""Rule sets and presets (rules, section "RuleSet and presets")."""

from __future__ import annotations

__all__ = ["DECLARATIONS", "PRESETS", "RuleSet", "resolve_rules"]

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal

from shuiyu_env.core.actions import MAX_STAKE, Action
from shuiyu_env.core.cards import Deck
from shuiyu_env.core.checks import as_integer
from shuiyu_env.core.errors import RulesError, closest
from shuiyu_env.core.hands import TieBreak

#: The five declarations, in the order of their action ids.
DECLARATIONS: tuple[str, ...] = tuple(
    action.name
    for action in (
        Action.OPEN,
        Action.COVER,
        Action.FORCE,
        Action.ATTACK,
        Action.REQUEST_PUSH,
    )
)


@dataclass(frozen=True)
class RuleSet:
    """One variant of the game. Hashable; equal when all fields are equal.

    Args:
        declarations: names of the declarations a punter may make; any
            non-empty subset of :data:`DECLARATIONS`, kept in that order.
        tie_break: ``"card"``: equal groups are ordered by their top card, then
            its suit; ``"next_group"``: suits and top cards do not count, a tied
            group is void.
        surrender_to_open: whether the dealer may surrender to an opened hand.
        attack_accept: whether the dealer may accept an attack outright.
        attack_on_push: units to an attacker whose comparison is a push: -2 or 0.
        force_on_push: the same for a forced showdown: -3 or 0.
        doubted_push_when_dealer_wins: units to a punter who doubts a push when
            in fact the dealer wins: -2 or 2.
        specials: ``"declared"``: a Shuiyu or Supreme settles its contests
            before anybody declares; ``"at_showdown"``: it only decides comparisons.
        cover_lost_to_special: factor, 1 or 2, on a look that a dealer with a
            special wins.
        declare: ``"simultaneous"``: nobody sees a declaration before the last
            is made; ``"in_turn"``: each is seen at once.
        max_stake: largest stake, 1 to 5; with 1 there is no stake phase.
        deck: the deck.

    Raises:
        RulesError: a value out of range; the message names field and value.
    """

    declarations: tuple[str, ...] = DECLARATIONS
    tie_break: TieBreak = "card"
    surrender_to_open: bool = False
    attack_accept: bool = True
    attack_on_push: Literal[-2, 0] = -2
    force_on_push: Literal[-3, 0] = -3
    doubted_push_when_dealer_wins: Literal[-2, 2] = -2
    specials: Literal["declared", "at_showdown"] = "declared"
    cover_lost_to_special: Literal[1, 2] = 1
    declare: Literal["simultaneous", "in_turn"] = "simultaneous"
    max_stake: int = 1
    deck: Deck = field(default_factory=Deck)

    def __post_init__(self) -> None:
        object.__setattr__(self, "declarations", _parse_declarations(self.declarations))
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            number = as_integer(value)
            value = value if number is None else number
            object.__setattr__(self, name, value)
            # True == 1, so types are compared too.
            if not any(type(value) is type(choice) and value == choice for choice in choices):
                raise RulesError(
                    f"rules.{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}"
                )
        if not isinstance(self.deck, Deck):
            raise RulesError(f"rules.deck: expected a Deck, got {self.deck!r}")

    @property
    def name(self) -> str | None:
        """The name of the preset that this is, if it is one."""
        return next((name for name, preset in PRESETS.items() if preset == self), None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values only, fit for YAML and JSON; :meth:`from_dict` reverses it."""
        result: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        result["declarations"] = list(self.declarations)
        result["deck"] = {"ranks": self.deck.ranks, "suits": self.deck.suits}
        return result

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RuleSet:
        """Build a rule set from plain values; missing fields take their defaults.

        A key ``"preset"`` names the preset that the other fields change.

        Raises:
            RulesError: an unknown key (the nearest valid one is named) or a bad value.
        """
        if not isinstance(data, Mapping):
            raise RulesError(f"rules: expected a mapping of fields, got {data!r}")
        values = dict(data)
        base: dict[str, Any] = {}
        if "preset" in values:
            base = _preset(values.pop("preset")).to_dict()
        valid = [f.name for f in fields(cls)]
        for key in values:
            if key not in valid:
                raise RulesError(
                    f"rules: unknown field {key!r}{closest(key, valid)}; fields are"
                    f" {', '.join(valid)}"
                )
        merged = base | values
        deck = merged.get("deck", Deck())
        if isinstance(deck, Mapping):
            unknown = sorted(set(deck) - {"ranks", "suits"}, key=str)
            if unknown:
                raise RulesError(
                    f"rules.deck: unknown field {unknown[0]!r}; fields are ranks, suits"
                )
            merged["deck"] = Deck(**deck)
        return cls(**merged)


_CHOICES: dict[str, tuple[Any, ...]] = {
    "tie_break": ("card", "next_group"),
    "surrender_to_open": (False, True),
    "attack_accept": (False, True),
    "attack_on_push": (-2, 0),
    "force_on_push": (-3, 0),
    "doubted_push_when_dealer_wins": (-2, 2),
    "specials": ("declared", "at_showdown"),
    "cover_lost_to_special": (1, 2),
    "declare": ("simultaneous", "in_turn"),
    "max_stake": tuple(range(1, MAX_STAKE + 1)),
}


def _parse_declarations(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise RulesError(
            f"rules.declarations: expected a list of names such as ['OPEN', 'COVER'], got {value!r}"
        )
    names = [item.name if isinstance(item, Action) else item for item in value]
    for name in names:
        if not isinstance(name, str) or name not in DECLARATIONS:
            raise RulesError(
                f"rules.declarations: expected some of {', '.join(DECLARATIONS)}, got"
                f" {name!r}{closest(name, DECLARATIONS)}"
            )
    if not names:
        raise RulesError("rules.declarations: expected at least one declaration, got none")
    return tuple(name for name in DECLARATIONS if name in names)


#: The named rule sets.
PRESETS: Mapping[str, RuleSet] = MappingProxyType(
    {
        "nanning": RuleSet(),
        "dahua": RuleSet(declarations=("OPEN", "COVER")),
        "dahua_house": RuleSet(
            declarations=("OPEN", "COVER"),
            tie_break="next_group",
            surrender_to_open=True,
            specials="at_showdown",
            cover_lost_to_special=2,
        ),
    }
)


def _preset(name: object) -> RuleSet:
    if not isinstance(name, str) or name not in PRESETS:
        raise RulesError(
            f"expected a preset ({', '.join(PRESETS)}), got {name!r}{closest(name, PRESETS)}"
        )
    return PRESETS[name]


def resolve_rules(rules: str | RuleSet | Mapping[str, Any]) -> RuleSet:
    """Return the rule set of a preset's name, a mapping of fields, or a rule set itself.

    Raises:
        RulesError: there is no such preset, or a field is wrong.
    """
    if isinstance(rules, RuleSet):
        return rules
    if isinstance(rules, Mapping):
        return RuleSet.from_dict(rules)
    return _preset(rules)
