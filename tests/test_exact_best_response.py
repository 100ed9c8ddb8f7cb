from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from exact_oracles import GameTree, RandomStrategy, Values, evaluate
from games import random_rules

from shuiyu_env.core.cards import Deck
from shuiyu_env.core.errors import PolicyError, RulesError, ShuiyuError
from shuiyu_env.core.game import Game
from shuiyu_env.core.rules import DECLARATIONS, PRESETS, RuleSet
from shuiyu_env.exact import Bound, NashConv, nashconv, solve, tabulate
from shuiyu_env.observation import layout_of
from shuiyu_env.policies.network import ActorCritic, MaskedCategorical, NetworkConfig
from shuiyu_env.policies.reference import Bluffer, Cautious, Honest, Uniform

EIGHT, NINE = Deck(2, 4), Deck(3, 3)

# Every preset, every declaration by itself, every option where it matters.
RULES: dict[str, RuleSet] = {
    **PRESETS,
    **{name.lower(): RuleSet(declarations=(name,)) for name in DECLARATIONS},
    "open and force": RuleSet(declarations=("OPEN", "FORCE")),
    "attack and request": RuleSet(declarations=("ATTACK", "REQUEST_PUSH")),
    "surrender": RuleSet(surrender_to_open=True),
    "surrender, open only": RuleSet(declarations=("OPEN",), surrender_to_open=True),
    "no accept": RuleSet(attack_accept=False),
    "attack pushes": RuleSet(attack_on_push=0),
    "attack pushes, no accept": RuleSet(
        declarations=("ATTACK", "OPEN"), attack_on_push=0, attack_accept=False
    ),
    "force pushes": RuleSet(force_on_push=0),
    "force pushes, by ranks": RuleSet(
        declarations=("FORCE", "OPEN"), force_on_push=0, tie_break="next_group"
    ),
    "doubted push": RuleSet(doubted_push_when_dealer_wins=2),
    "doubted push, surrender": RuleSet(doubted_push_when_dealer_wins=2, surrender_to_open=True),
    "showdown": RuleSet(specials="at_showdown"),
    "showdown, dear": RuleSet(specials="at_showdown", cover_lost_to_special=2),
    "next group": RuleSet(tie_break="next_group"),
    "next group, showdown": RuleSet(tie_break="next_group", specials="at_showdown"),
    "in turn": RuleSet(declare="in_turn"),
    "all changed": RuleSet(
        tie_break="next_group",
        surrender_to_open=True,
        attack_accept=False,
        attack_on_push=0,
        force_on_push=0,
        doubted_push_when_dealer_wins=2,
        specials="at_showdown",
        cover_lost_to_special=2,
        declare="in_turn",
    ),
}


def of_deck(name: str, deck: Deck) -> RuleSet:
    return replace(RULES[name], deck=deck)


# ---- Policies --------------------------------------------------------------------------------


class Plain:
    """A policy and nothing else: no promise, no tables."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def probabilities(self, observation: Any, action_mask: Any) -> Any:
        return self._policy.probabilities(observation, action_mask)


class Promising(Plain):
    outcomes_only = True


class Waves:
    """Reads every number of the observation."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def probabilities(self, observation: Any, action_mask: Any) -> Any:
        rng = np.random.default_rng(self._seed)
        weights = rng.normal(size=(observation.shape[1], action_mask.shape[1]))
        likely = np.exp(2.0 * np.cos(observation.astype(np.float64) @ weights)) * action_mask
        return likely / likely.sum(axis=1, keepdims=True)


class Network:
    """A network with weights large enough to be sure of itself here and there, in double precision
    so that it does not matter how many rows it is asked at once."""

    def __init__(self, rules: RuleSet, seed: int, **config: Any) -> None:
        layout = layout_of(Game(2, rules))
        generator = torch.Generator().manual_seed(seed)
        self._network = ActorCritic(layout, NetworkConfig((32,), **config), generator).double()
        with torch.no_grad():
            self._network.policy_head.weight *= 300.0
        self.outcomes_only = self._network.config.outcomes_only

    def probabilities(self, observation: Any, action_mask: Any) -> Any:
        with torch.inference_mode():
            logits, _ = self._network(torch.tensor(observation).double())
            return MaskedCategorical(logits, torch.tensor(action_mask)).probs.numpy()


POLICIES: dict[str, Callable[[RuleSet], Any]] = {
    "uniform": lambda rules: Uniform(),
    "honest": lambda rules: Honest(),
    "cautious": lambda rules: Cautious(),
    "bluffer": lambda rules: Bluffer(),
    "bluffer, asked by pairs": lambda rules: Plain(Bluffer()),
    "random": lambda rules: RandomStrategy(rules, 1),
    "random, outcomes only": lambda rules: RandomStrategy(rules, 2, outcomes_only=True),
    "waves": lambda rules: Waves(3),
    "network": lambda rules: Network(rules, 4),
    "network of cards": lambda rules: Network(rules, 5, cards=True, outcomes_only=False),
}


def assert_agrees(result: NashConv, expected: Values, tolerance: float = 1e-9) -> None:
    dealer_gain, punter_gain = expected.gains
    assert float(result.value) == pytest.approx(expected.value, abs=tolerance)
    assert float(result.dealer_gain) == pytest.approx(dealer_gain, abs=tolerance)
    assert float(result.punter_gain) == pytest.approx(punter_gain, abs=tolerance)
    assert float(result.nashconv) == pytest.approx(dealer_gain + punter_gain, abs=tolerance)
    assert float(result.exploitability) == float(result.nashconv) / 2
    for bound in vars(result).values():
        assert bound.exact
        assert bound.confidence == 1.0
    assert float(result.dealer_gain) >= 0.0
    assert float(result.punter_gain) >= 0.0


# ---- Against the whole game tree -------------------------------------------------------------


def check_on_tree(rules: RuleSet, policies: Iterable[str] = POLICIES) -> None:
    tree = GameTree(rules)
    for name in policies:
        policy = POLICIES[name](rules)
        assert_agrees(nashconv(policy, rules), tree.values(policy))


def some_policies(name: str) -> list[str]:
    """Both that are random everywhere, and one other: each has its turn with some rules."""
    always = ["random", "random, outcomes only"]
    others = [policy for policy in POLICIES if policy not in always]
    return [*always, others[list(RULES).index(name) % len(others)]]


@pytest.mark.parametrize("name", RULES)
def test_all_lines_of_play_on_eight_cards(name: str) -> None:
    check_on_tree(of_deck(name, EIGHT), some_policies(name))


@pytest.mark.parametrize("name", PRESETS)
def test_all_lines_of_play_on_nine_cards(name: str) -> None:
    check_on_tree(of_deck(name, NINE), some_policies(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RULES if name not in PRESETS])
def test_all_lines_of_play_on_nine_cards_by_option(name: str) -> None:
    check_on_tree(of_deck(name, NINE), some_policies(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_all_lines_of_play_with_all_policies(name: str) -> None:
    check_on_tree(of_deck(name, NINE))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_all_lines_of_play_of_rules_drawn_at_random(seed: int) -> None:
    rules = random_rules(random.Random(seed), [EIGHT, NINE, Deck(9, 1)])
    check_on_tree(replace(rules, max_stake=1), ["random", "random, outcomes only"])


# ---- Against OpenSpiel -----------------------------------------------------------------------


def check_in_openspiel(rules: RuleSet, policy: Any) -> None:
    pytest.importorskip("pyspiel")
    from open_spiel.python.algorithms import best_response, expected_game_score, exploitability

    from shuiyu_env.integrations.openspiel import OpenSpielPolicy, load_game

    game = load_game(rules, chance="hand")
    theirs = OpenSpielPolicy(game, policy)
    root = game.new_initial_state()
    value = expected_game_score.policy_value(root, [theirs, theirs])
    best = [best_response.BestResponsePolicy(game, seat, theirs).value(root) for seat in (0, 1)]
    ours = nashconv(policy, rules)
    # There seat 0 deals, and values are each player's own.
    assert_agrees(ours, Values(value[1], -best[0], best[1]))
    whole = exploitability.nash_conv(game, theirs)
    assert float(ours.nashconv) == pytest.approx(whole, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("nanning", "waves"),
        ("dahua", "network of cards"),
        ("dahua_house", "random"),
    ],
)
def test_openspiel(name: str, policy: str) -> None:
    rules = of_deck(name, EIGHT)
    check_in_openspiel(rules, POLICIES[policy](rules))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "policy"),
    zip([name for name in RULES if name not in PRESETS], itertools.cycle(POLICIES), strict=False),
)
def test_openspiel_by_option(name: str, policy: str) -> None:
    rules = of_deck(name, EIGHT)
    check_in_openspiel(rules, POLICIES[policy](rules))


@pytest.mark.slow
def test_openspiel_on_nine_cards() -> None:
    rules = of_deck("dahua", NINE)
    check_in_openspiel(rules, Waves(6))


# ---- Against all deals at once ---------------------------------------------------------------


def check_all_deals(rules: RuleSet, outcomes_only: bool) -> None:
    strategy = RandomStrategy(rules, 7, outcomes_only)
    assert_agrees(nashconv(strategy, rules), evaluate(rules, strategy))


def test_brute_force_is_the_tree() -> None:
    # The two oracles share only the rules.
    for name in ("nanning", "all changed", "showdown, dear"):
        rules = of_deck(name, NINE if name == "nanning" else EIGHT)
        strategy = RandomStrategy(rules, 8)
        expected = GameTree(rules).values(strategy)
        assert evaluate(rules, strategy) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "deck", "outcomes_only"),
    [
        ("nanning", Deck(5, 2), False),
        ("dahua_house", Deck(5, 2), True),
        ("all changed", Deck(4, 3), True),
    ],
)
def test_all_deals(name: str, deck: Deck, outcomes_only: bool) -> None:
    check_all_deals(of_deck(name, deck), outcomes_only)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deck", "outcomes_only"), [(Deck(5, 2), False), (Deck(3, 4), False), (Deck(13, 1), True)]
)
@pytest.mark.parametrize("name", ["nanning", "dahua_house", "all changed", "force pushes"])
def test_all_deals_by_option(name: str, deck: Deck, outcomes_only: bool) -> None:
    check_all_deals(of_deck(name, deck), outcomes_only)


@pytest.mark.slow
def test_all_deals_of_sixteen_cards() -> None:
    check_all_deals(of_deck("all changed", Deck(4, 4)), True)


# ---- Against linear programmes ---------------------------------------------------------------


def check_solution(rules: RuleSet, value: float, target: float, algorithm: str | None) -> None:
    equilibrium = solve(rules, target, algorithm=algorithm, max_iterations=200)
    result = equilibrium.nashconv()
    at = float(result.value)
    # What both sides could make of it encloses the value of the game.
    assert at - float(result.dealer_gain) <= value + 1e-9
    assert at + float(result.punter_gain) >= value - 1e-9
    assert abs(at - value) <= float(result.nashconv) + 1e-9
    # Probabilities are kept as multiples of 1/240, which on a small deck is felt.
    assert float(result.nashconv) < target + 0.01
    last = equilibrium.info["convergence"][-1]
    assert last["low"] - 1e-6 <= value <= last["high"] + 1e-6
    assert last["nashconv"] <= target


@pytest.mark.parametrize("name", RULES)
def test_solutions_on_eight_cards(name: str) -> None:
    rules = of_deck(name, EIGHT)
    check_solution(rules, GameTree(rules).game_value(), 1e-3, "pcfr+5")


@pytest.mark.parametrize("name", PRESETS)
def test_solutions_on_nine_cards(name: str) -> None:
    rules = of_deck(name, NINE)
    check_solution(rules, GameTree(rules).game_value(), 0.02, None)


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_solutions_on_nine_cards_by_option(name: str) -> None:
    rules = of_deck(name, NINE)
    check_solution(rules, GameTree(rules).game_value(), 0.01, "pcfr+5")


def with_and_without_attack(others: tuple[str, ...], deck: Deck) -> tuple[RuleSet, RuleSet]:
    without = RuleSet(declarations=("COVER", *others), deck=deck)
    return without, replace(without, declarations=("COVER", "ATTACK", *others))


SUBSETS = [
    some
    for size in range(4)
    for some in itertools.combinations(("OPEN", "FORCE", "REQUEST_PUSH"), size)
]


@pytest.mark.parametrize("others", SUBSETS, ids=" ".join)
def test_an_attack_is_worth_a_cover_on_eight_cards(others: tuple[str, ...]) -> None:
    values = [GameTree(rules).game_value() for rules in with_and_without_attack(others, EIGHT)]
    assert values[0] == pytest.approx(values[1], abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("others", SUBSETS, ids=" ".join)
def test_an_attack_is_worth_a_cover_on_nine_cards(others: tuple[str, ...]) -> None:
    values = [GameTree(rules).game_value() for rules in with_and_without_attack(others, NINE)]
    assert values[0] == pytest.approx(values[1], abs=1e-9)


def test_an_attack_can_be_worth_more_than_a_cover() -> None:
    # Where a push costs an attacker nothing; so the tests above are about something.
    without, attack = with_and_without_attack((), EIGHT)
    values = [GameTree(r).game_value() for r in (without, replace(attack, attack_on_push=0))]
    assert values[1] > values[0] + 0.1


@pytest.mark.slow
def test_an_attack_is_worth_a_cover_on_sixteen_cards() -> None:
    ranges = []
    for rules in with_and_without_attack(("OPEN", "REQUEST_PUSH"), Deck(4, 4)):
        result = solve(rules, 1e-3, max_iterations=100).nashconv()
        assert float(result.nashconv) < 0.01
        value = float(result.value)
        ranges.append((value - float(result.dealer_gain), value + float(result.punter_gain)))
    (low, high), (other_low, other_high) = ranges
    assert max(low, other_low) <= min(high, other_high) + 1e-9


# ---- Equilibria: tables or questions ---------------------------------------------------------


def check_both_ways(rules: RuleSet) -> None:
    equilibrium = solve(rules, 1e-2, max_iterations=20)
    expected = nashconv(equilibrium, rules)
    for asked in (
        nashconv(equilibrium.policy_tables()),
        nashconv(Promising(equilibrium), rules),
        nashconv(Plain(equilibrium), rules),
    ):
        for name, bound in vars(expected).items():
            assert float(getattr(asked, name)) == pytest.approx(float(bound), abs=1e-9), name


@pytest.mark.parametrize("name", RULES)
def test_an_equilibrium_by_its_tables_or_asked(name: str) -> None:
    check_both_ways(of_deck(name, EIGHT))


@pytest.mark.parametrize("name", ["dahua_house", "open and force"])
def test_an_equilibrium_by_its_tables_or_asked_on_twelve_cards(name: str) -> None:
    check_both_ways(of_deck(name, Deck(4, 3)))


def test_an_equilibrium_is_evaluated_as_it_plays() -> None:
    for name in PRESETS:
        rules = of_deck(name, NINE)
        equilibrium = solve(rules, 1e-2, max_iterations=20)
        assert_agrees(nashconv(equilibrium), GameTree(rules).values(equilibrium))


# ---- Samples ---------------------------------------------------------------------------------


def sampled(
    rules: RuleSet, policy: Any, seeds: int, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[NashConv, list[NashConv]]:
    """Evaluate a policy exactly, and with many seeds."""
    exact = nashconv(policy, rules)
    monkeypatch.setattr(sys.modules[tabulate.__module__], "MOST_PAIRS", 0)
    return exact, [nashconv(policy, rules, seed=seed, **options) for seed in range(seeds)]


@pytest.mark.parametrize(
    ("name", "samples"), [("nanning", 16), ("dahua_house", 4), ("open and force", 8)]
)
def test_intervals_hold_what_they_say(
    name: str, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = 50
    rules = of_deck(name, NINE)
    policy = Plain(RandomStrategy(rules, 9))
    exact, results = sampled(rules, policy, seeds, monkeypatch, samples=samples)
    for field in ("value", "dealer_gain", "punter_gain", "nashconv", "exploitability"):
        expected = float(getattr(exact, field))
        bounds = [getattr(result, field) for result in results]
        assert all(bound.low <= bound.high for bound in bounds)
        assert all(bound.confidence == pytest.approx(0.95) for bound in bounds)
        covered = sum(bound.low <= expected <= bound.high for bound in bounds)
        # With a chance of 0.95 each, fewer come once in five thousand.
        assert covered >= 42, (field, covered)
    # What is estimated without bias is right on average, and its interval no wider than it says.
    for field in ("value", "dealer_gain"):
        bounds = [getattr(result, field) for result in results]
        errors = np.array([bound.middle - float(getattr(exact, field)) for bound in bounds])
        stated = np.array([bound.high - bound.low for bound in bounds]) / 2
        stated /= NormalDist().inv_cdf(0.975)
        spread = float(errors.std(ddof=1))
        assert abs(errors.mean()) < 4.0 * spread / math.sqrt(seeds)
        assert 0.7 * spread < stated.mean() < 1.4 * spread
    # The lower end is that of an answer that can be given, the upper of one that cannot.
    gains = [result.punter_gain for result in results]
    assert np.mean([bound.low for bound in gains]) < float(exact.punter_gain)
    assert np.mean([bound.high for bound in gains]) > float(exact.punter_gain)


def test_more_samples_say_more(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = of_deck("nanning", NINE)
    policy = Plain(RandomStrategy(rules, 9))
    exact, few = sampled(rules, policy, 1, monkeypatch, samples=4)
    _, many = sampled(rules, policy, 1, monkeypatch, samples=1024)
    widths = [result.nashconv.high - result.nashconv.low for result in (few[0], many[0])]
    assert widths[1] < widths[0] / 8
    assert many[0].nashconv.middle == pytest.approx(float(exact.nashconv), abs=widths[1])


def test_no_interval_where_nothing_lies_open(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = RuleSet(declarations=("COVER", "ATTACK", "REQUEST_PUSH"), deck=NINE)
    policy = RandomStrategy(rules, 9)
    exact, results = sampled(rules, policy, 1, monkeypatch)
    assert results[0] == exact
    assert exact.nashconv.exact


def test_an_interval_is_never_taken_for_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = of_deck("dahua", NINE)
    _, (result,) = sampled(rules, Plain(Honest()), 1, monkeypatch)
    with pytest.raises(ShuiyuError, match=r"interval.*low.*high"):
        float(result.nashconv)
    assert result.exploitability.low == result.nashconv.low / 2
    assert result.exploitability.high == result.nashconv.high / 2
    assert "95%" in str(result)
    assert result.to_dict()["value"]["confidence"] == 0.95


# ---- What is refused -------------------------------------------------------------------------


def test_refusals() -> None:
    rules = of_deck("dahua", EIGHT)
    tables = tabulate(Uniform(), rules)
    assert nashconv(tables) == nashconv(tables, rules) == nashconv(Uniform(), rules)
    with pytest.raises(RulesError, match="stake"):
        nashconv(Uniform(), replace(rules, max_stake=2))
    with pytest.raises(RulesError, match="expected the rules"):
        nashconv(Uniform())
    with pytest.raises(RulesError, match="other rules"):
        nashconv(tables, of_deck("nanning", EIGHT))
    with pytest.raises(RulesError, match="other rules"):
        nashconv(solve(rules, 1.0, max_iterations=1), of_deck("nanning", EIGHT))
    with pytest.raises(PolicyError, match="expected a policy"):
        nashconv("uniform", rules)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="expected a policy"):
        nashconv(Uniform, rules)  # type: ignore[arg-type]
    with pytest.raises(RulesError, match="dahua"):
        nashconv(Uniform(), "dahu")


# ---- Bounds ----------------------------------------------------------------------------------


def test_an_exact_bound_is_a_number() -> None:
    half, two = Bound(0.5, 0.5), Bound(2.0, 2.0)
    assert half.exact
    assert half.confidence == 1.0
    assert float(half) == half.middle == 0.5
    assert half + two == 2.5
    assert half + 1 == 1 + half == 1.5
    assert half - two == -1.5
    assert 1 - half == 0.5
    assert half - 1 == -0.5
    assert half * two == half * 2 == 2 * half == 1.0
    assert half / two == 0.25
    assert -half == -0.5
    assert abs(Bound(-3.0, -3.0)) == 3.0
    assert half == 0.5
    assert half == Bound(0.5, 0.5)
    assert half != 0.25
    assert hash(half) == hash(0.5)
    assert (1 / half, half**2, round(half), +half) == (2.0, 0.25, 0, 0.5)
    assert not Bound(0.0, 0.0)
    assert half < two
    assert half < 1
    assert half <= 0.5
    assert two > half
    assert two >= 2.0
    assert not half > 0.5
    assert not half < 0.5
    assert sum([half, two]) == 2.5
    assert max(half, two) is two
    assert f"{half:.3f}" == "0.500"
    assert math.isclose(half, 0.5)
    assert str(half) == "+0.500000"


@pytest.mark.parametrize(
    "use",
    [
        float,
        lambda bound: bound + 1,
        lambda bound: 1 + bound,
        lambda bound: bound - 1,
        lambda bound: 1 - bound,
        lambda bound: bound * 2,
        lambda bound: 2 * bound,
        lambda bound: bound / 2,
        lambda bound: -bound,
        abs,
        lambda bound: bound < 5,
        lambda bound: bound <= 5,
        lambda bound: bound > 5,
        lambda bound: bound >= 5,
        lambda bound: f"{bound:.2f}",
    ],
)
def test_an_interval_is_not(use: Callable[[Any], Any]) -> None:
    bound = Bound(0.25, 0.75, 0.95)
    assert not bound.exact
    assert bound.middle == 0.5
    assert str(bound) == f"{bound}" == "+0.250000 to +0.750000 (95%)"
    with pytest.raises(ShuiyuError, match="interval"):
        use(bound)
