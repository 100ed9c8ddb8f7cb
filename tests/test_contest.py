"""The compiled contest tree against the table of the rules, section "The contest tree"."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from games import examples, rule_sets
from hypothesis import given

from shuiyu_env.core.actions import Action
from shuiyu_env.core.contest import ContestTree, Phase, compile_tree
from shuiyu_env.core.hands import Outcome, Special
from shuiyu_env.core.rules import RuleSet

# The printed table: a number where nothing is compared, else what the punter is paid when the
# dealer wins, pushes, loses. A forced showdown's rearrangement adds no action to the path.
TABLE: dict[str, int | tuple[int, int, int]] = {
    "OPEN KILL BELIEVE": -1,
    "OPEN KILL DOUBT": (-2, 2, 2),
    "OPEN PUSH BELIEVE": 0,
    "OPEN PUSH DOUBT": (-2, -2, 2),
    "REQUEST_PUSH GRANT": 0,
    "REQUEST_PUSH REFUSE CONCEDE": -1,
    "REQUEST_PUSH REFUSE CONTEST": (-2, 2, 2),
    "COVER FOLD": 1,
    "COVER LOOK": (-2, -2, 2),
    "ATTACK DECLINE": 1,
    "ATTACK ACCEPT": (-2, -2, 2),
    "ATTACK DEMAND PAY": -1,
    "ATTACK DEMAND CONTEST": (-2, -2, 2),
    "FORCE": (-3, -3, 3),
}


def leaves(tree: ContestTree) -> dict[str, int | tuple[int, int, int]]:
    found: dict[str, int | tuple[int, int, int]] = {}
    for node in tree.nodes:
        if node.payoffs is not None:
            path = " ".join(action.name for action in node.path)
            assert path not in found
            if node.compares:
                found[path] = tuple(node.payoffs[:3])
            else:
                assert len(set(node.payoffs)) == 1
                found[path] = node.payoffs[0]
    return found


def test_default_tree_is_the_printed_table() -> None:
    assert leaves(compile_tree(RuleSet())) == TABLE


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({"surrender_to_open": True}, {"OPEN SURRENDER": 1}),
        ({"attack_accept": False}, {"ATTACK ACCEPT": None}),
        (
            {"attack_on_push": 0},
            {"ATTACK ACCEPT": (-2, 0, 2), "ATTACK DEMAND CONTEST": (-2, 0, 2)},
        ),
        ({"force_on_push": 0}, {"FORCE": (-3, 0, 3)}),
        ({"doubted_push_when_dealer_wins": 2}, {"OPEN PUSH DOUBT": (2, -2, 2)}),
        ({"cover_lost_to_special": 2}, {}),
        ({"tie_break": "next_group", "declare": "in_turn", "max_stake": 5}, {}),
        ({"specials": "at_showdown"}, {}),
    ],
)
def test_each_field_changes_its_leaves_only(
    fields: dict[str, Any], changes: dict[str, Any]
) -> None:
    expected = {path: pay for path, pay in {**TABLE, **changes}.items() if pay is not None}
    assert leaves(compile_tree(RuleSet(**fields))) == expected


@given(rule_sets())
@examples(100)
def test_a_rule_set_keeps_the_contests_of_its_declarations(rules: RuleSet) -> None:
    whole = dataclasses.replace(
        rules, declarations=("OPEN", "COVER", "FORCE", "ATTACK", "REQUEST_PUSH")
    )
    kept = {
        path: pay
        for path, pay in leaves(compile_tree(whole)).items()
        if path.split()[0] in rules.declarations
    }
    assert leaves(compile_tree(rules)) == kept


@pytest.mark.parametrize("factor", [1, 2])
def test_only_a_look_lost_to_a_special_pays_otherwise(factor: Any) -> None:
    for node in compile_tree(RuleSet(cover_lost_to_special=factor)).nodes:
        if node.payoffs is None:
            continue
        look = node.path == (Action.COVER, Action.LOOK)
        lost = node.payoffs.of(Outcome.DEALER_WINS, Special.NONE)
        for special in (Special.SHUIYU, Special.SUPREME):
            assert node.payoffs.of(Outcome.DEALER_WINS, special) == (
                lost * factor if look else lost
            )
            for outcome in (Outcome.PUSH, Outcome.PUNTER_WINS):
                assert node.payoffs.of(outcome, special) == node.payoffs[outcome]


def test_order_exposure_and_special_units() -> None:
    tree = compile_tree(RuleSet())
    assert sorted(tree.order, key=tree.order.__getitem__) == [
        Action.OPEN,
        Action.REQUEST_PUSH,
        Action.COVER,
        Action.ATTACK,
        Action.FORCE,
    ]
    assert tree.exposes == {Action.OPEN, Action.FORCE}
    for dealer, row in enumerate(((None, 2, 4), (2, 2, 4), (4, 4, 4))):
        for punter, units in enumerate(row):
            payoffs = tree.special_payoffs[dealer][punter]
            assert payoffs == (units and (-units, 0, units, -units))
    at_showdown = compile_tree(RuleSet(specials="at_showdown"))
    assert at_showdown.special_payoffs == ((None,) * 3,) * 3


@given(rule_sets())
@examples(100)
def test_the_tree_is_well_formed(rules: RuleSet) -> None:
    tree = compile_tree(rules)
    assert compile_tree(RuleSet.from_dict(rules.to_dict())) is tree
    assert tree.root.phase is Phase.DECLARE
    assert [action.name for action in tree.root.children] == list(rules.declarations)
    parents = {0: None}
    for node in tree.nodes:
        assert node is tree.nodes[node.id]
        assert list(node.children) == sorted(node.children)
        assert node.is_leaf == (node.phase is Phase.OVER) == (not node.children)
        if node.phase is Phase.REARRANGE:
            assert list(node.children) == [Action.SPLIT_0, Action.SPLIT_1, Action.SPLIT_2]
            assert len(set(node.children.values())) == 1
        for action, child in node.children.items():
            assert child > node.id
            parents[child] = node.id
            added = () if node.phase is Phase.REARRANGE else (action,)
            assert tree.nodes[child].path == node.path + added
            if not tree.nodes[child].is_leaf:
                expected = {
                    Phase.DECLARE: {Phase.CALL, Phase.REARRANGE},
                    Phase.CALL: {Phase.REPLY},
                }[node.phase]
                assert tree.nodes[child].phase in expected
    assert set(parents) == set(range(len(tree.nodes)))


def test_who_acts_in_a_phase() -> None:
    assert {phase for phase in Phase if phase.by_dealer} == {Phase.CALL, Phase.REARRANGE}
