"""Reference policies: always legal, and doing what their docstrings say."""

from __future__ import annotations

import random

import numpy as np
import pytest
from games import examples, games, random_states
from hypothesis import given
from hypothesis import strategies as st

from shuiyu_env import PRESETS, Action, Deck, Game, RuleSet
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import PolicyError
from shuiyu_env.core.game import State
from shuiyu_env.core.hands import Outcome, compare, ranking
from shuiyu_env.observation import layout_of
from shuiyu_env.policies import available, checked_probabilities, load
from shuiyu_env.policies.reference import Bluffer, Cautious, Honest, Uniform, chances
from shuiyu_env.policy import Policy
from shuiyu_env.tables import hand_table

REFERENCE = (Uniform(), Honest(), Cautious(), Bluffer(), Honest(1.0), Bluffer(1.0), Bluffer(0.0))


def rows_of(states: list[State]) -> tuple[np.ndarray, np.ndarray]:
    """Return observations and masks of the seats to act."""
    game = states[0].game
    layout = layout_of(game)
    mask = np.zeros((len(states), game.num_actions), dtype=np.int8)
    for row, state in enumerate(states):
        mask[row, list(state.legal_actions())] = 1
    return np.stack([layout.encode(s.view(s.current_player)) for s in states]), mask


def answer(policy: Policy, state: State) -> dict[Action, float]:
    """Return the probabilities that are not zero."""
    probabilities = checked_probabilities(policy, *rows_of([state]), "policy")[0]
    return {Action(a): float(p) for a, p in enumerate(probabilities) if p > 0.0}


def choice(policy: Policy, state: State) -> Action:
    """Return the action of a policy that must be sure of it."""
    (action,) = answer(policy, state)
    return action


def play(game: Game, hands: list[str], *actions: str) -> State:
    """Return a state after some actions."""
    state = game.new_state(hands=hands)
    for action in actions:
        state.apply(Action[action])
    return state


def some_states(game: Game, seed: int) -> list[State]:
    rng = random.Random(seed)
    return [
        state.clone()
        for special in (False, True)
        for state in random_states(game, rng, special=special)
        if not state.is_terminal
    ]


@examples(60)
@given(game=games(max_rounds=2), seed=st.integers(0, 2**32))
def test_answers_are_legal_distributions_in_every_game(game: Game, seed: int) -> None:
    observation, mask = rows_of(some_states(game, seed))
    for policy in REFERENCE:
        before = observation.copy(), mask.copy()
        checked_probabilities(policy, observation, mask, type(policy).__name__)
        np.testing.assert_array_equal(observation, before[0])
        np.testing.assert_array_equal(mask, before[1])


@examples(15)
@given(game=games(), seed=st.integers(0, 2**32))
def test_a_row_is_answered_alike_alone_and_among_others(game: Game, seed: int) -> None:
    observation, mask = rows_of(some_states(game, seed))
    for policy in REFERENCE:
        together = policy.probabilities(observation, mask.astype(bool))
        for row in range(len(mask)):
            alone = policy.probabilities(observation[row : row + 1], mask[row : row + 1])
            np.testing.assert_array_equal(alone[0], together[row])


def test_one_legal_action_and_no_rows() -> None:
    game = Game(2, RuleSet(declarations=("OPEN",)))
    state = play(game, ["As Kd 7c 2h", "Ad Ks 8c 3h"], "SPLIT_0", "SPLIT_0")
    observation, mask = rows_of([state])
    for policy in REFERENCE:
        assert choice(policy, state) is Action.OPEN
        assert policy.probabilities(observation[:0], mask[:0]).shape == (0, game.num_actions)


def test_chances_are_what_comparing_with_every_hand_gives() -> None:
    table = hand_table(Deck(), "card")
    order = ranking(Deck(), "card")
    rng = np.random.default_rng(0)
    specials = np.flatnonzero(table.special[:-1])
    rows = np.append(rng.integers(0, table.num_hands, 2), rng.choice(specials))
    profiles = table.strengths[:-1].tolist()
    strongest_tails = [max(map(tuple, profile)) for profile in profiles]
    for row in rows:
        hand = tuple(map(int, table.cards[row]))
        for split in np.flatnonzero(table.legal_splits[row]):
            mine = order.strengths(hand, int(split))
            # A split cannot be beaten by a hand that ties a group: that hand holds its card.
            wins = sum(mine[0] > t and mine[1] > h for t, h in strongest_tails)
            loses = sum(mine[0] < t and mine[1] < h for t, h in strongest_tails)
            forced = sum(
                all(mine[0] > t and mine[1] > h for t, h in profile) for profile in profiles
            )
            assert chances().win[row, split] == pytest.approx(wins / table.num_hands, abs=1e-6)
            assert chances().lose[row, split] == pytest.approx(loses / table.num_hands, abs=1e-6)
            assert chances().win_forced[row, split] == pytest.approx(
                forced / table.num_hands, abs=1e-6
            )
    assert not chances().win[-1].any()


def test_uniform_is_uniform() -> None:
    state = play(Game(2), ["As Kd 7c 2h", "Ad Ks 8c 3h"], "SPLIT_0", "SPLIT_0")
    assert answer(Uniform(), state) == pytest.approx(dict.fromkeys(map(Action, range(3, 8)), 0.2))


# Hands of a clear kind, with the chances to win and to lose both groups of their best split.
STRONG = "Ah Ad Ks 9s"  # split 0, a pair and 9 points: wins 0.97 (0.96 if forced)
FAIR = "Ac 8c Kc 9c"  # split 2, twice 9 points: wins 0.77 (0.64 if forced), loses 0.02
MIDDLING = "Qs Qc 4d 7d"  # split 0, a pair and 1 point: wins 0.04, loses 0.04
WEAK = "8d 7d 6d 4d"  # split 0, 5 and 0 points: wins 0.02, loses 0.89


def test_honest_declares_what_its_cards_say() -> None:
    def declared(hand: str, game: Game) -> Action:
        state = game.new_state(hands=["Qd 6c 5s 2c", hand])
        state.apply(choice(Honest(), state))
        state.apply(choice(Honest(), state))
        assert state.phase is Phase.DECLARE
        return choice(Honest(), state)

    assert declared(STRONG, Game(2)) is Action.FORCE
    assert declared(FAIR, Game(2)) is Action.ATTACK
    # Wins 0.86, but only 0.81 if the dealer may rearrange: no FORCE.
    assert declared("Jd 9c 8h 8c", Game(2)) is Action.ATTACK
    assert declared(MIDDLING, Game(2)) is Action.REQUEST_PUSH
    assert declared(WEAK, Game(2)) is Action.OPEN
    assert declared(STRONG, Game(2, "dahua")) is Action.COVER
    assert declared(MIDDLING, Game(2, "dahua")) is Action.OPEN
    assert declared(WEAK, Game(2, "dahua")) is Action.OPEN
    claims = Game(2, RuleSet(declarations=("FORCE", "COVER")))
    assert declared(WEAK, claims) is Action.COVER


def test_honest_arranges_for_the_best_margin_and_cautious_against_defeat() -> None:
    table = hand_table(Deck(), "card")
    differ = 0
    for index in range(100):
        state = Game(2).new_state(11, index=index)
        row = table.index(state.deal.hands[0])
        win, lose = chances().win[row], chances().lose[row]
        splits = list(state.legal_actions())
        honest, cautious = choice(Honest(), state), choice(Cautious(), state)
        assert win[honest] - lose[honest] == (win - lose)[splits].max()
        assert lose[cautious] == lose[splits].min()
        differ += honest != cautious
    assert 5 <= differ <= 50


@pytest.mark.parametrize(
    ("rules", "calls"),
    [
        ("nanning", {0: Action.KILL, 1: Action.PUSH, 2: Action.PUSH}),
        ("dahua_house", {0: Action.KILL, 1: Action.PUSH, 2: Action.SURRENDER}),
    ],
)
@pytest.mark.parametrize("policy", [Honest(), Cautious()])
def test_an_opened_hand_is_called_by_the_known_result(
    rules: str, calls: dict[int, Action], policy: Policy
) -> None:
    game = Game(2, rules)
    strengths = game.table.ranking.strengths
    seen = set()
    for index in range(60):
        state = game.new_state(3, index=index)
        for action in (index % 3, index // 3 % 3, Action.OPEN):
            if action in state.legal_actions():
                state.apply(action)
        if state.phase is not Phase.CALL:
            continue  # a special ended the deal, or has only one split
        dealer, punter = (
            strengths(hand, split)
            for hand, split in zip(state.deal.hands, state.deal.splits, strict=True)
        )
        outcome = compare(dealer, punter)
        seen.add(outcome)
        assert choice(policy, state) is calls[outcome]
    assert seen == set(Outcome)


@pytest.mark.parametrize(
    ("path", "strong", "weak"),
    [
        (("COVER",), "LOOK", "FOLD"),
        (("ATTACK",), "ACCEPT", "DECLINE"),
        (("REQUEST_PUSH",), "REFUSE", "GRANT"),
    ],
)
def test_honest_dealer_answers_hidden_hands_by_its_own(
    path: tuple[str, ...], strong: str, weak: str
) -> None:
    for hand, expected in ((FAIR, strong), (WEAK, weak)):
        split = "SPLIT_2" if hand == FAIR else "SPLIT_0"
        state = play(Game(2), [hand, "Kd 6h 5s 2c"], split, "SPLIT_0", *path)
        assert choice(Honest(), state) is Action[expected]
    no_accept = Game(2, RuleSet(attack_accept=False))
    state = play(no_accept, [FAIR, "Kd 6h 5s 2c"], "SPLIT_2", "SPLIT_0", "ATTACK")
    assert choice(Honest(), state) is Action.DEMAND


@pytest.mark.parametrize(
    ("path", "strong", "middling", "weak"),
    [
        (("OPEN", "KILL"), "DOUBT", "DOUBT", "BELIEVE"),
        (("OPEN", "PUSH"), "DOUBT", "BELIEVE", "BELIEVE"),
        (("ATTACK", "DEMAND"), "CONTEST", "PAY", "PAY"),
        (("REQUEST_PUSH", "REFUSE"), "CONTEST", "CONTEST", "CONCEDE"),
    ],
)
def test_honest_replies_by_its_own_cards(
    path: tuple[str, ...], strong: str, middling: str, weak: str
) -> None:
    hands = {FAIR: ("SPLIT_2", strong), MIDDLING: ("SPLIT_0", middling), WEAK: ("SPLIT_0", weak)}
    for hand, (split, expected) in hands.items():
        state = play(Game(2), ["Kd 6h 5s 2c", hand], "SPLIT_0", split, *path)
        assert choice(Honest(), state) is Action[expected]


def test_a_reply_reads_the_call_in_its_own_contest() -> None:
    """At a larger table: seat 2 is killed, seat 1 was granted a push before."""
    hands = ["Kd 6h 5s 2c", "Ks 6s 5h 2h", MIDDLING]
    for call, expected in (("KILL", "DOUBT"), ("PUSH", "BELIEVE")):
        state = play(Game(3), hands, "SPLIT_0", "SPLIT_0", "SPLIT_0", "OPEN", "OPEN")
        for action in ("PUSH" if call == "KILL" else "KILL", "BELIEVE", call):
            state.apply(Action[action])
        assert state.current_player == 2
        assert choice(Honest(), state) is Action[expected]


@pytest.mark.parametrize("policy", [Honest(), Cautious(), Bluffer()])
def test_a_forced_showdown_is_arranged_with_the_best_result(policy: Policy) -> None:
    game = Game(3)
    strengths = game.table.ranking.strengths
    improved = 0
    for index in range(40):
        state = game.new_state(5, index=index)
        for action in (0, 0, 0, Action.FORCE, Action.FORCE):
            if action in state.legal_actions():
                state.apply(action)
        while not state.is_terminal and state.phase is Phase.REARRANGE:
            punter = state.deal.contest
            theirs = strengths(state.deal.hands[punter], state.deal.splits[punter])
            results = {
                split: compare(strengths(state.deal.hands[0], split), theirs)
                for split in state.legal_actions()
            }
            chosen = choice(policy, state)
            assert results[chosen] == min(results.values())
            improved += results[chosen] < results[0]
            state.apply(chosen)
    assert improved >= 5


@examples(30)
@given(game=games(), seed=st.integers(0, 2**32))
def test_stakes_are_small_and_honest_is_deterministic(game: Game, seed: int) -> None:
    for state in some_states(game, seed):
        for policy in (Honest(), Cautious()):
            action = choice(policy, state)
            if state.phase is Phase.STAKE:
                assert action is Action.STAKE_1


def test_cautious_claims_and_contradicts_less_than_honest() -> None:
    """Over many situations it never claims or contradicts where honest does not."""
    game = Game(2)
    claims = [Action.COVER, Action.ATTACK, Action.FORCE]
    contradictions = [Action.LOOK, Action.ACCEPT, Action.DEMAND, Action.REFUSE]
    bold = [*claims, *contradictions, Action.DOUBT, Action.CONTEST]
    states = [state for seed in range(150) for state in some_states(game, seed)]
    states = [state for state in states if state.phase not in (Phase.ARRANGE, Phase.REARRANGE)]
    rows = rows_of(states)
    honest, cautious = (
        np.isin(policy.probabilities(*rows).argmax(axis=1), bold)
        for policy in (Honest(), Cautious())
    )
    assert not (cautious & ~honest).any()
    assert cautious.sum() < 0.5 * honest.sum()


def false_claims(game: Game, state: State) -> set[Action]:
    """The claims that the bluffer's docstring calls false, from what honest does."""
    honest = choice(Honest(), state)
    legal = set(map(Action, state.legal_actions()))
    if state.phase is Phase.DECLARE and honest not in (Action.COVER, Action.ATTACK, Action.FORCE):
        claims = legal & {Action.COVER, Action.ATTACK}
        if not claims and honest is Action.OPEN:
            claims = legal & {Action.REQUEST_PUSH}
        return claims
    if state.phase is Phase.CALL and honest in (Action.PUSH, Action.SURRENDER):
        return {Action.KILL}
    if honest is Action.DECLINE:
        return {Action.DEMAND}
    if honest is Action.GRANT:
        return {Action.REFUSE}
    return set()


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.6, 1.0])
def test_bluffer_bluffs_at_its_rate_and_is_honest_otherwise(rate: float) -> None:
    policy = Bluffer(rate)
    bluffs = dict.fromkeys(("DECLARE", "KILL", "DEMAND", "REFUSE"), 0)
    for rules in ("nanning", "dahua_house", RuleSet(declarations=("OPEN", "REQUEST_PUSH"))):
        game = Game(3, rules)
        for seed in range(24):
            for state in some_states(game, seed):
                claims = false_claims(game, state)
                expected = {choice(Honest(), state): 1.0}
                if claims:
                    expected = {action: (1.0 - rate) * p for action, p in expected.items()}
                    for claim in claims:
                        expected[claim] = expected.get(claim, 0.0) + rate / len(claims)
                    kind = state.phase.name if state.phase is Phase.DECLARE else claims.pop().name
                    bluffs[kind] += 1
                expected = {action: p for action, p in expected.items() if p > 0.0}
                assert answer(policy, state) == pytest.approx(expected)
    assert min(bluffs.values()) >= 3


def test_default_bluffing_rate_is_the_documented_quarter() -> None:
    assert Bluffer().rate == 0.25
    assert "1/4" in (Bluffer.__doc__ or "")


@pytest.mark.parametrize("bad", [-0.1, 1.5, float("nan"), "x", None, True])
def test_a_fraction_out_of_range_is_refused(bad: object) -> None:
    with pytest.raises(PolicyError, match="rate: expected a number from 0 to 1"):
        Bluffer(bad)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="confidence: expected a number from 0 to 1"):
        Honest(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("seats", [2, 4, 13])
@pytest.mark.parametrize("rules", PRESETS)
def test_every_registered_name_is_a_policy_for_the_presets(rules: str, seats: int) -> None:
    game = Game(seats, rules)
    rows = rows_of(some_states(game, 1))
    for name in (name for name in available() if "-" not in name):  # not trained for one game
        if name != "equilibrium" or seats == 2:
            checked_probabilities(load(name, game), *rows, name)


@pytest.mark.parametrize("name", ["uniform", "honest", "cautious", "bluffer"])
def test_bad_questions_get_named_errors(name: str) -> None:
    policy = load(name)
    view = Game(2).new_state(1).view(0)
    seen = layout_of(Game(2)).encode(view)[None]
    legal = np.zeros((1, 23), dtype=np.int8)
    legal[0, :3] = 1
    assert policy.probabilities(seen.tolist(), legal.tolist()).shape == (1, 23)  # type: ignore[arg-type]
    for observation, mask, message in (
        (seen[0], legal[0], "one observation is a batch of one"),
        (np.repeat(seen, 2, axis=0), legal, "expected observations"),
        (seen * np.nan, legal, "row 0 is not finite"),
        (seen, legal * 0, "row 0 is all zero"),
        ("text", legal, "expected arrays"),
    ):
        with pytest.raises(PolicyError, match=message):
            policy.probabilities(observation, mask)  # type: ignore[arg-type]
