"""Rule sets and presets (rules, section "RuleSet and presets")."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import numpy as np
import pytest
from games import CHOICES, examples, rule_sets
from hypothesis import given

from shuiyu_env.core.actions import NUM_BASE_ACTIONS, Action, num_actions, parse_action
from shuiyu_env.core.cards import Deck
from shuiyu_env.core.errors import IllegalActionError, RulesError
from shuiyu_env.core.game import Game
from shuiyu_env.core.rules import DECLARATIONS, PRESETS, RuleSet, resolve_rules

ALL_FIVE = ["OPEN", "COVER", "FORCE", "ATTACK", "REQUEST_PUSH"]

# The table of section 6, column by column.
TABLE: dict[str, dict[str, Any]] = {
    "nanning": {
        "declarations": ALL_FIVE,
        "tie_break": "card",
        "surrender_to_open": False,
        "attack_accept": True,
        "attack_on_push": -2,
        "force_on_push": -3,
        "doubted_push_when_dealer_wins": -2,
        "specials": "declared",
        "cover_lost_to_special": 1,
        "declare": "simultaneous",
        "max_stake": 1,
        "deck": {"ranks": 13, "suits": 4},
    }
}
TABLE["dahua"] = {**TABLE["nanning"], "declarations": ["OPEN", "COVER"]}
TABLE["dahua_house"] = {
    **TABLE["dahua"],
    "tie_break": "next_group",
    "surrender_to_open": True,
    "specials": "at_showdown",
    "cover_lost_to_special": 2,
}

ACTIONS = (
    "SPLIT_0 SPLIT_1 SPLIT_2 OPEN COVER FORCE ATTACK REQUEST_PUSH KILL PUSH SURRENDER LOOK FOLD"
    " DECLINE ACCEPT DEMAND GRANT REFUSE BELIEVE DOUBT PAY CONTEST CONCEDE"
    " STAKE_1 STAKE_2 STAKE_3 STAKE_4 STAKE_5"
)


def test_presets_are_those_of_the_table() -> None:
    assert list(PRESETS) == ["nanning", "dahua", "dahua_house"]
    for name, fields in TABLE.items():
        assert PRESETS[name].to_dict() == fields
        assert PRESETS[name].name == name
        assert resolve_rules(name) is PRESETS[name]
    assert RuleSet() == PRESETS["nanning"]
    assert RuleSet(max_stake=2).name is None


def test_actions_are_those_of_the_table() -> None:
    assert [action.name for action in Action] == ACTIONS.split()
    assert [action.value for action in Action] == list(range(28))
    assert [num_actions(stake) for stake in range(1, 6)] == [23, 25, 26, 27, 28]
    assert NUM_BASE_ACTIONS == 23
    assert Game(2).num_actions == 23
    assert Game(2, RuleSet(max_stake=3)).num_actions == 26
    assert [parse_action(name) for name in ACTIONS.split()] == list(Action)


@pytest.mark.parametrize("name", ["KIL", "kill", "", 8, None, ["KILL"]])
def test_wrong_action_names(name: object) -> None:
    with pytest.raises(IllegalActionError, match="expected the name of an action such as 'KILL'"):
        parse_action(name)  # type: ignore[arg-type]


def test_the_nearest_action_name_is_given() -> None:
    with pytest.raises(IllegalActionError, match="did you mean 'REQUEST_PUSH'"):
        parse_action("REQUESTPUSH")


@given(rule_sets())
@examples(100)
def test_a_rule_set_survives_its_dict_json_and_pickle(rules: RuleSet) -> None:
    plain = json.loads(json.dumps(rules.to_dict()))
    for copy in (RuleSet.from_dict(plain), resolve_rules(plain), pickle.loads(pickle.dumps(rules))):
        assert copy == rules
        assert hash(copy) == hash(rules)
    assert set(plain) == {field.name for field in dataclasses.fields(RuleSet)}


def test_declarations_keep_one_order() -> None:
    assert list(DECLARATIONS) == ALL_FIVE
    shuffled = RuleSet(declarations=["REQUEST_PUSH", "OPEN", "REQUEST_PUSH", Action.COVER])  # type: ignore[arg-type,list-item]
    assert shuffled.declarations == ("OPEN", "COVER", "REQUEST_PUSH")
    assert shuffled == RuleSet(declarations=("OPEN", "COVER", "REQUEST_PUSH"))


def test_a_preset_can_be_changed_by_fields() -> None:
    rules = RuleSet.from_dict({"preset": "dahua_house", "max_stake": 3, "deck": {"ranks": 5}})
    assert rules == dataclasses.replace(PRESETS["dahua_house"], max_stake=3, deck=Deck(5, 4))
    assert Game(2, {"preset": "dahua", "declare": "in_turn"}).rules.declare == "in_turn"


def test_rule_sets_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        RuleSet().max_stake = 2  # type: ignore[misc]


WRONG_VALUES: dict[str, list[Any]] = {
    "tie_break": ["cards", None, 0, ["card"]],
    "surrender_to_open": [1, 0, "yes", None],
    "attack_accept": [1, 0, "no", None],
    "attack_on_push": [2, -3, -2.0, "0", False, None],
    "force_on_push": [3, -2, 0.0, False, None],
    "doubted_push_when_dealer_wins": [0, 2.0, True, None],
    "specials": ["declare", True, None],
    "cover_lost_to_special": [0, 3, True, 1.0, None],
    "declare": ["in turn", "", None, {}],
    "max_stake": [0, 6, -1, True, 1.0, "1", None],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG_VALUES.items() for value in values]
)
def test_wrong_values_name_field_choices_and_value(name: str, value: object) -> None:
    with pytest.raises(RulesError) as caught:
        RuleSet.from_dict({name: value})
    message = str(caught.value)
    assert f"rules.{name}: expected one of " in message
    assert message.endswith(f"got {value!r}")
    for choice in CHOICES.get(name, [1, 5]):
        assert repr(choice) in message
    with pytest.raises(RulesError):
        RuleSet(**{name: value})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "at least one declaration"),
        ("OPEN", "expected a list of names"),
        (None, "expected a list of names"),
        (3, "expected a list of names"),
        (["OPENS"], "did you mean 'OPEN'"),
        (["OPEN", "KILL"], "got 'KILL'"),
        ([3], "got 3"),
        ([None], "got None"),
        ([["OPEN"]], r"got \['OPEN'\]"),
        ([Action.KILL], "got 'KILL'"),
    ],
)
def test_wrong_declarations(value: object, message: str) -> None:
    with pytest.raises(RulesError, match=f"rules.declarations: .*{message}"):
        RuleSet(declarations=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([13, 4], "expected a Deck"),
        ("full", "expected a Deck"),
        (None, "expected a Deck"),
        ({"rank": 13}, "unknown field 'rank'; fields are ranks, suits"),
        ({1: 13}, "unknown field 1"),
    ],
)
def test_wrong_decks(value: object, message: str) -> None:
    with pytest.raises(RulesError, match=message):
        RuleSet.from_dict({"deck": value})


def test_a_wrong_size_of_a_deck_in_a_mapping() -> None:
    with pytest.raises(
        RulesError, match=r"deck.ranks: expected a whole number from 1 to 13, got 14"
    ):
        RuleSet.from_dict({"deck": {"ranks": 14}})


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("nannin", r"\(nanning, dahua, dahua_house\), got 'nannin'; did you mean 'nanning'"),
        ("Dahua", "did you mean 'dahua'"),
        ("", "expected a preset"),
        (None, "expected a preset"),
        (7, "expected a preset"),
        (["OPEN"], "expected a preset"),
        ({"tiebreak": "card"}, "unknown field 'tiebreak'; did you mean 'tie_break'"),
        ({"preset": "dahau"}, "did you mean 'dahua'"),
        ({"preset": None}, "expected a preset"),
        ({3: 4}, "unknown field 3"),
        ({"reward": "drinks"}, "unknown field 'reward'"),
    ],
)
def test_wrong_rules(rules: object, message: str) -> None:
    with pytest.raises(RulesError, match=message):
        resolve_rules(rules)  # type: ignore[arg-type]
    with pytest.raises(RulesError, match=message):
        Game(2, rules)  # type: ignore[arg-type]


def test_from_dict_wants_a_mapping() -> None:
    with pytest.raises(RulesError, match="expected a mapping of fields"):
        RuleSet.from_dict(["OPEN"])  # type: ignore[arg-type]


def test_integers_of_any_kind_are_taken() -> None:
    deck = Deck(np.int64(4), np.int8(4))  # type: ignore[arg-type]
    rules = RuleSet(max_stake=np.int32(2), deck=deck)  # type: ignore[arg-type]
    assert rules == RuleSet(max_stake=2, deck=Deck(4, 4))
    assert type(rules.max_stake) is int
    assert type(rules.deck.ranks) is int
