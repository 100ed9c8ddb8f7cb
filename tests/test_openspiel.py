"""The game in OpenSpiel: its own tests, its algorithms, and agreement with the core."""

from __future__ import annotations

import copy
import math
import pickle
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyspiel
import pytest
from games import deal_some, hands_rich_in_specials, plain_deal, random_rules
from open_spiel.python import policy as openspiel_policy
from open_spiel.python import rl_environment
from open_spiel.python.algorithms import best_response, exploitability
from open_spiel.python.observation import make_observation

from shuiyu_env import PRESETS, Action, Deck, Game, RuleSet
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import DealError, IllegalActionError, PolicyError, RulesError
from shuiyu_env.core.hands import special_of
from shuiyu_env.integrations import openspiel
from shuiyu_env.integrations.openspiel import (
    OpenSpielPolicy,
    ShuiyuState,
    TabulatedPolicy,
    load_game,
)
from shuiyu_env.observation import layout_of
from shuiyu_env.policies.reference import Honest, Uniform

TINY = {"deck": {"ranks": 2, "suits": 4}}

# Whatever a game can be: presets, seats, dealers, stakes, small decks, both rewards.
GAMES: dict[str, dict[str, Any]] = {
    "nanning": {},
    "dahua for three": {"rules": "dahua", "num_players": 3, "dealer": 2},
    "dahua_house for four": {"rules": "dahua_house", "num_players": 4},
    "thirteen seats": {"num_players": 13, "dealer": 5},
    "drinks": {"rules": "dahua_house", "reward": "drinks", "dealer": 1},
    "stakes": {
        "rules": {"max_stake": 3, "deck": {"ranks": 5, "suits": 2}},
        "chance": "hand",
        "dealer": 1,
    },
    "stakes for three, in turn": {
        "rules": {"max_stake": 2, "declare": "in_turn", "surrender_to_open": True},
        "num_players": 3,
        "reward": "drinks",
    },
    "a tiny deck": {"rules": TINY},
    "a tiny deck by hand": {"rules": TINY, "chance": "hand"},
    "one suit": {"rules": {"deck": {"ranks": 13, "suits": 1}}, "num_players": 3, "chance": "hand"},
}

# Games small enough to look at every state; specials decide many of their contests.
TREES: dict[str, dict[str, Any]] = {
    "nanning": {"rules": TINY, "chance": "hand"},
    "at the showdown": {
        "rules": {"preset": "dahua_house", **TINY, "declarations": ["COVER", "FORCE"]},
        "chance": "hand",
        "dealer": 1,
    },
    "stakes": {
        "rules": {**TINY, "max_stake": 2, "declarations": ["OPEN", "ATTACK"]},
        "reward": "drinks",
    },
}


def random_play(
    game: Any, rng: random.Random, hands: list[list[int]] | None = None
) -> Iterator[ShuiyuState]:
    """Yield the (same, changing) state before each action and at the end; with ``hands``, they
    are dealt."""
    state = game.new_initial_state()
    cards = in_order(game, hands or [])
    while not state.is_terminal():
        yield state
        if not state.is_chance_node():
            state.apply_action(rng.choice(state.legal_actions()))
        elif hands is None:
            outcomes, weights = zip(*state.chance_outcomes(), strict=True)
            state.apply_action(rng.choices(outcomes, weights)[0])
        else:
            state.apply_action(next(cards))
    yield state


def in_order(game: Any, hands: list[list[int]]) -> Iterator[int]:
    """The chance outcomes that deal some hands, card by card."""
    place = game.core.rules.deck.cards.index
    return (place(card) for hand in hands for card in sorted(hand, reverse=True))


def reach(game: Any, hands: list[list[int]], actions: list[int]) -> ShuiyuState:
    """The state after a deal and some actions."""
    state = game.new_initial_state()
    cards, left = in_order(game, hands), iter(actions)
    while state.is_chance_node() or len(state.deal.actions) < len(actions):
        state.apply_action(next(cards if state.is_chance_node() else left))
    return state


def random_game(rng: random.Random, reward: str | None = None) -> Any:
    """A game of any rules, small enough for quick tests."""
    preset = rng.choice([*PRESETS.values(), None])
    rules = random_rules(rng) if preset is None else preset
    seats = rng.randint(2, min(4, rules.deck.max_seats))
    reward = reward or rng.choice(["transfer", "drinks"])
    return load_game(rules, seats, reward, rng.randrange(seats))


def core_state(state: ShuiyuState) -> Any:
    """The same point in the package's own game, reached by its own means."""
    game = state.get_game()
    twin = game.core.new_state(hands=[list(hand) for hand in state.deal.hands], dealer=game.dealer)
    for action in state.deal.actions:
        twin.apply(action)
    return twin


def decisions_below(state: ShuiyuState) -> Iterator[ShuiyuState]:
    """All states of a subtree but chance nodes."""
    if not state.is_chance_node():
        yield state
    for action in state.legal_actions():
        yield from decisions_below(state.child(action))


@lru_cache
def tree(name: str) -> list[ShuiyuState]:
    return list(decisions_below(load_game(**TREES[name]).new_initial_state()))


@lru_cache
def some_trees_of_many_seats(num_players: int) -> list[ShuiyuState]:
    """All that can follow a few deals; the same cards in other hands, among others."""
    rng = random.Random(num_players)
    rules = {"preset": "dahua", "deck": {"ranks": 5, "suits": 4}, "declare": "in_turn"}
    if num_players == 3:
        rules = {"deck": {"ranks": 3, "suits": 4}, "declarations": ["OPEN", "FORCE"]}
    game = load_game(rules, num_players, dealer=1)
    states: list[ShuiyuState] = []
    hands = hands_rich_in_specials(rng, game.core.rules.deck, num_players)
    for _ in range(4):
        deal = hands[:]
        # The dealer's cards and one punter's, mixed: the others' information stays the same.
        mixed = rng.sample(deal[0] + deal[1], 8)
        deal[0], deal[1] = mixed[:4], mixed[4:]
        start = reach(game, deal, [])
        if num_players == 4:
            # Otherwise there would be 81 ways to arrange.
            for _ in range(3):
                start.apply_action(rng.choice(start.legal_actions()))
        states += decisions_below(start)
    return states


STATES: dict[str, Callable[[], list[ShuiyuState]]] = {
    **{name: lambda name=name: tree(name) for name in TREES},
    "three seats": lambda: some_trees_of_many_seats(3),
    "four seats": lambda: some_trees_of_many_seats(4),
}
each_tree = pytest.mark.parametrize("name", STATES)
each_game = pytest.mark.parametrize("name", GAMES)


# ---- OpenSpiel's own checks ----------------------------------------------------------------


@each_game
def test_openspiels_simulations(name: str) -> None:
    """Legal actions, masks, clones, serialisation, observations, sums and bounds of returns."""
    pyspiel.random_sim_test(load_game(**GAMES[name]), num_sims=2, serialize=True, verbose=False)


def own_past(state: ShuiyuState, seat: int) -> tuple[tuple[str, int], ...]:
    """What a seat saw and did at each of its turns before."""
    past = []
    replayed = state.get_game().new_initial_state()
    for action in state.history():
        if replayed.current_player() == seat:
            past.append((replayed.information_state_string(seat), action))
        replayed.apply_action(action)
    return tuple(past)


@each_tree
def test_perfect_recall(name: str) -> None:
    """An information state has one past of its own, and one set of legal actions."""
    rng = random.Random(0)
    known: dict[tuple[int, str], tuple[Any, Any]] = {}
    states = [state for state in STATES[name]() if not state.is_terminal()]
    for state in rng.sample(states, min(len(states), 4000)):
        seat = state.current_player()
        now = own_past(state, seat), state.legal_actions()
        assert known.setdefault((seat, state.information_state_string()), now) == now
    assert len(known) > 50


@each_tree
def test_the_string_says_what_the_tensor_says(name: str) -> None:
    """For every seat, two states look different to the one exactly if they do to the other; and no
    seat's information state is another's."""
    rng = random.Random(1)
    states = STATES[name]()
    tensor_of: dict[str, bytes] = {}
    string_of: dict[bytes, tuple[int, str]] = {}
    layout = layout_of(states[0].get_game().core)
    for state in rng.sample(states, min(len(states), 8000)):
        for seat in range(state.num_players()):
            string = state.information_state_string(seat)
            tensor = layout.encode(state.view(seat)).tobytes()
            assert tensor_of.setdefault(string, tensor) == tensor
            assert string_of.setdefault(tensor, (seat, string)) == (seat, string)


@each_tree
def test_only_the_seat_to_act_has_legal_actions(name: str) -> None:
    for state in random.Random(2).sample(STATES[name](), 200):
        for seat in range(state.num_players()):
            acts = seat == state.current_player()
            assert state.legal_actions(seat) == (list(state.deal.legal) if acts else [])
        assert state.get_type() == (
            pyspiel.StateType.TERMINAL if state.is_terminal() else pyspiel.StateType.DECISION
        )


@pytest.mark.parametrize("name", TREES)
def test_the_bounds_that_a_game_states_are_reached(name: str) -> None:
    game = load_game(**TREES[name])
    ends = [state for state in tree(name) if state.is_terminal()]
    returns = [value for state in ends for value in state.returns()]
    assert max(len(state.deal.actions) for state in ends) == game.max_game_length()
    assert max(len(state.history()) for state in ends) == game.max_history_length()
    assert min(returns) == game.min_utility()
    assert max(returns) == game.max_utility()
    sums = {sum(state.returns()) for state in ends}
    if game.get_type().utility == pyspiel.GameType.Utility.ZERO_SUM:
        assert sums == {0.0}
    else:
        assert len(sums) > 1
        assert game.utility_sum() is None


def test_what_has_no_information_state_says_so() -> None:
    game = load_game()
    state = game.new_initial_state()
    for ask in (state.information_state_string, state.information_state_tensor):
        with pytest.raises(RuntimeError, match="player >= 0"):
            ask()
        with pytest.raises(RuntimeError, match="player <"):
            ask(2)


# ---- Chance --------------------------------------------------------------------------------


def deals(state: ShuiyuState, probability: float = 1.0) -> Iterator[tuple[Any, float]]:
    """Every complete deal, and its probability."""
    if not state.is_chance_node():
        yield state.deal.hands, probability
        return
    outcomes = state.chance_outcomes()
    assert len(outcomes) <= state.get_game().max_chance_outcomes()
    assert math.isclose(sum(p for _, p in outcomes), 1.0, rel_tol=1e-12)
    assert all(p > 0.0 for _, p in outcomes)
    for outcome, p in outcomes:
        yield from deals(state.child(outcome), probability * p)


@pytest.mark.parametrize("chance", ["card", "hand"])
@pytest.mark.parametrize("deck", [Deck(2, 4), Deck(3, 3)])
def test_every_deal_once_and_all_alike(deck: Deck, chance: str) -> None:
    game = load_game(RuleSet(deck=deck), chance=chance)
    all_deals = list(deals(game.new_initial_state()))
    number = math.comb(deck.size, 4) * math.comb(deck.size - 4, 4)
    assert len(all_deals) == len({hands for hands, _ in all_deals}) == number
    assert all(math.isclose(p, 1 / number, rel_tol=1e-12) for _, p in all_deals)
    for hands, _ in all_deals:
        assert len({*hands[0], *hands[1]}) == 8
        assert all(list(hand) == sorted(hand, reverse=True) for hand in hands)


@each_game
def test_chance_outcomes(name: str) -> None:
    """On random paths: probabilities sum to 1, and any deal of a game is as likely as any other."""
    game = load_game(**GAMES[name])
    seats, size = game.num_players(), game.core.rules.deck.size
    rng = random.Random(3)
    for _ in range(3):
        probability, nodes, before, chances = 1.0, 0, None, {}
        for state in random_play(game, rng):
            if before is not None:
                probability *= chances[state.history()[-1]]
            before, chances = None, {}
            if state.is_chance_node():
                before, chances = state, dict(state.chance_outcomes())
                nodes += 1
                assert math.isclose(sum(chances.values()), 1.0, rel_tol=1e-9)
                assert list(chances) == state.legal_actions()
                if GAMES[name].get("chance", "card") == "card":
                    assert len(chances) <= size
        expected = math.prod(math.comb(size - 4 * seat, 4) for seat in range(seats))
        assert math.isclose(probability, 1 / expected, rel_tol=1e-9)
        assert nodes == game.max_chance_nodes_in_history()


def test_stakes_come_before_the_cards() -> None:
    game = load_game({"max_stake": 3, "deck": {"ranks": 3, "suits": 4}}, 3, dealer=1)
    state = game.new_initial_state()
    for seat, stake in ((2, Action.STAKE_3), (0, Action.STAKE_2)):
        assert state.current_player() == seat
        assert state.legal_actions() == [Action.STAKE_1, Action.STAKE_2, Action.STAKE_3]
        state.apply_action(stake)
    first = state.clone()
    for play in range(20):
        state = first.clone()
        rng = random.Random(play)
        while state.is_chance_node():
            # Nobody sees a card before the last is dealt.
            for seat in range(3):
                string = state.information_state_string(seat)
                assert string == f"{seat} ARRANGE by 1 | 0 STAKE_2 | 1* | 2 STAKE_3"
                tensor = np.array(state.information_state_tensor(seat))
                assert not layout_of(game.core).views(tensor)["hand"].any()
            state.apply_action(rng.choice(state.legal_actions()))
        assert state.current_player() == 1
        assert state.deal.stakes == [2, -1, 3]


def test_outcomes_and_actions_that_do_not_exist() -> None:
    game = load_game(TINY)
    state = game.new_initial_state()
    # Four cards lie below the fifth, but only three below the fourth.
    state.apply_action(4)
    for outcome in (-2, 1, 4, 5, 8):
        with pytest.raises(DealError, match=f"no chance outcome {outcome} here"):
            state.apply_action(outcome)
    assert state.history() == [4]
    by_hand = load_game(TINY, chance="hand").new_initial_state()
    with pytest.raises(DealError, match="no chance outcome 70"):
        by_hand.apply_action(70)
    by_hand.apply_action(0)
    by_hand.apply_action(0)
    with pytest.raises(IllegalActionError, match=r"seat 0 in phase ARRANGE; legal: SPLIT_0"):
        by_hand.apply_action(Action.KILL)


def test_actions_have_names() -> None:
    state = load_game(TINY).new_initial_state()
    # Ascending: 2d 2c 2h 2s Ad Ac Ah As.
    assert state.action_to_string(7) == "0 gets As"
    state = load_game(TINY, chance="hand").new_initial_state()
    hands = {state.action_to_string(a): a for a in state.legal_actions()}
    assert len(hands) == 70
    state.apply_action(hands["0 gets Ah 2s 2c 2d"])
    assert [state.action_to_string(a) for a in state.legal_actions()] == ["1 gets As Ac Ad 2h"]
    state.apply_action(0)
    assert [state.action_to_string(a) for a in state.legal_actions()] == [
        "SPLIT_0",
        "SPLIT_1",
        "SPLIT_2",
    ]
    assert str(state) == "dealer 0 | Ah 2s 2c 2d, As Ac Ad 2h | "


# ---- Agreement with the core, and with the second implementation of the rules ---------------


def test_random_play_against_the_plain_rules() -> None:
    rng = random.Random(4)
    over = Counter[str]()
    for _ in range(150):
        game = random_game(rng)
        hands = deal_some(rng, game.core)
        plain = plain_deal(game.core, hands, game.dealer)
        acted = 0
        for state in random_play(game, rng, hands):
            if state.is_chance_node():
                continue
            for action in state.deal.actions[acted:]:
                plain.apply(action)
            acted = len(state.deal.actions)
            assert state.is_terminal() == plain.over
            if not state.is_terminal():
                assert state.current_player() == plain.seat()
                assert state.legal_actions() == plain.legal()
                assert state.returns() == [0.0] * game.num_players()
        assert state.returns() == plain.returns()
        over[game.core.reward] += any(state.returns())
    assert min(over.values()) > 20


def test_the_tensor_is_the_packages_observation() -> None:
    rng = random.Random(5)
    for _ in range(40):
        game = random_game(rng)
        layout = layout_of(game.core)
        observation = make_observation(game)
        assert game.information_state_tensor_shape() == [layout.size]
        assert game.observation_tensor_size() == layout.size
        for state in random_play(game, rng, deal_some(rng, game.core)):
            if state.is_chance_node():
                continue
            twin = core_state(state)
            for seat in range(game.num_players()):
                expected = layout.encode(twin.view(seat))
                dealt = twin.phase != Phase.STAKE
                assert layout.views(expected)["hand"].sum() == (4 if dealt else 0)
                assert np.array_equal(state.information_state_tensor(seat), expected)
                assert np.array_equal(state.observation_tensor(seat), expected)
                observation.set_from(state, seat)
                assert np.array_equal(observation.tensor, expected)
                assert observation.string_from(state, seat) == state.observation_string(seat)
                assert state.observation_string(seat) == state.information_state_string(seat)


def test_the_pieces_of_an_observation_share_its_memory() -> None:
    game = load_game("dahua", 3)
    observation = make_observation(game)
    assert {name: piece.shape for name, piece in observation.dict.items()} == {
        "phase": (7,),
        "role": (2,),
        "hand": (52,),
        "split": (3,),
        "strengths": (3, 2),
        "seats": (3, layout_of(game.core).seat_size),
    }
    pieces = list(observation.dict.values())
    for number, piece in enumerate(pieces):
        piece[...] = number
    laid_out = np.concatenate([piece.ravel() for piece in pieces])
    assert np.array_equal(laid_out, observation.tensor)


def test_kinds_of_observation() -> None:
    game = load_game("dahua")
    kinds = pyspiel.PrivateInfoType

    def observer(public: bool, private: Any) -> Any:
        kind = pyspiel.IIGObservationType(
            public_info=public, perfect_recall=True, private_info=private
        )
        return make_observation(game, kind)

    assert observer(True, kinds.NONE) is observer(False, kinds.SINGLE_PLAYER) is None
    *_, state = random_play(game, random.Random(6))
    table = observer(True, kinds.ALL_PLAYERS)
    table.set_from(state, 1)
    assert np.array_equal(table.tensor, layout_of(game.core).encode(state.view(None)))
    assert table.string_from(state, 0).startswith("all OVER")
    with pytest.raises(ValueError, match="no observation parameters"):
        make_observation(game, params={"cards": True})


def statuses(hands: list[list[int]]) -> list[int]:
    return [special_of(sorted(hand, reverse=True)) for hand in hands]


def test_hidden_cards_do_not_show() -> None:
    """Exchanging cards that a seat cannot see, specials left as they are, changes nothing for it,
    however the deal goes on."""
    rng = random.Random(7)
    checked = Counter[bool]()
    for _ in range(150):
        game = random_game(rng)
        hands = deal_some(rng, game.core)
        for state in random_play(game, rng, hands):
            if state.is_chance_node() or rng.random() < 0.5:
                continue
            seat = rng.randrange(game.num_players())
            hidden = [s for s, hand in enumerate(state.view(seat).hands) if hand is None]
            if not hidden:
                continue
            shown = {card for s, hand in enumerate(hands) if s not in hidden for card in hand}
            pool = rng.sample(
                [c for c in game.core.rules.deck.cards if c not in shown], 4 * len(hidden)
            )
            other = hands[:]
            for i, s in enumerate(hidden):
                other[s] = sorted(pool[4 * i : 4 * i + 4], reverse=True)
            statuses = [[special_of(sorted(h, reverse=True)) for h in x] for x in (hands, other)]
            if statuses[0] != statuses[1]:
                continue
            twin = reach(game, other, state.deal.actions)
            assert twin.information_state_string(seat) == state.information_state_string(seat)
            assert twin.information_state_tensor(seat) == state.information_state_tensor(seat)
            checked[state.is_terminal()] += 1
    assert min(checked.values()) > 20


# ---- Copies, text forms, parameters ---------------------------------------------------------


@each_game
def test_games_and_states_survive_their_text_forms(name: str) -> None:
    game = load_game(**GAMES[name])
    for again in (pyspiel.load_game(str(game)), pickle.loads(pickle.dumps(game))):
        assert str(again) == str(game)
        assert again.core == game.core
        assert again.dealer == game.dealer
        assert again.max_chance_outcomes() == game.max_chance_outcomes()
    rng = random.Random(8)
    for state in random_play(game, rng):
        text = pyspiel.serialize_game_and_state(game, state)
        other_game, other = pyspiel.deserialize_game_and_state(text)
        assert str(other_game) == str(game)
        for twin in (other, pickle.loads(pickle.dumps(state)), copy.deepcopy(state)):
            assert twin.history() == state.history()
            assert str(twin) == str(state)
            assert twin.current_player() == state.current_player()
            for seat in range(game.num_players()):
                expected = state.information_state_string(seat)
                assert twin.information_state_string(seat) == expected
            # And they go on alike.
            if not state.is_terminal():
                action = rng.choice(state.legal_actions())
                assert str(twin.child(action)) == str(state.child(action))


def test_every_rule_set_has_a_text_form() -> None:
    rng = random.Random(9)
    for _ in range(60):
        rules = random_rules(rng)
        game = load_game(rules)
        assert game.core.rules == rules
        assert pyspiel.load_game(str(game)).core.rules == rules


@each_game
def test_clones_are_independent(name: str) -> None:
    game = load_game(**GAMES[name])
    rng = random.Random(10)
    for state in random_play(game, rng):
        if state.is_terminal():
            break
        text, history = str(state), state.history()
        clone = state.clone()
        clone.apply_action(rng.choice(clone.legal_actions()))
        assert str(state) == text
        assert state.history() == history
        assert str(clone) != text or clone.is_chance_node()


def test_parameters() -> None:
    assert str(pyspiel.load_game("python_shuiyu")) == (
        "python_shuiyu(chance=card,dealer=0,players=2,reward=transfer,rules=nanning)"
    )
    game = pyspiel.load_game("python_shuiyu(players=4,rules=dahua_house,dealer=3,reward=drinks)")
    assert game.core == Game(4, "dahua_house", reward="drinks")
    assert game.dealer == 3
    json_text = '{"preset": "dahua", "deck": {"ranks": 2, "suits": 4}}'
    game = pyspiel.load_game("python_shuiyu", {"rules": json_text})
    assert game.core.rules == RuleSet(declarations=("OPEN", "COVER"), deck=Deck(2, 4))
    assert load_game(RuleSet(max_stake=2), np.int64(3)).core == Game(3, RuleSet(max_stake=2))
    # A rule set that is a preset's goes by its name.
    assert str(load_game(RuleSet())) == str(load_game("nanning"))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rules": "naning"}, "did you mean 'nanning'"),
        ({"rules": "{]"}, "or the JSON of a rule set"),
        ({"rules": '{"tie_brake":"card"}'}, "did you mean 'tie_break'"),
        ({"rules": '{"max_stake":9}'}, "rules.max_stake"),
        ({"players": 14}, "from 2 to 13, got 14"),
        ({"players": 3, "rules": '{"deck":{"ranks":2;"suits":4}}'}, "seats at most 2, got 3"),
        ({"dealer": 2}, "from 0 to 1, got 2"),
        ({"dealer": -1}, "from 0 to 1, got -1"),
        ({"reward": "transfers"}, "did you mean 'transfer'"),
        ({"chance": "deal"}, "one of 'card', 'hand'"),
        ({"chance": "hand"}, "270,725 hands.*use 'card'"),
    ],
)
def test_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(RulesError, match=message):
        pyspiel.load_game("python_shuiyu", parameters)


def test_bad_arguments() -> None:
    with pytest.raises(RulesError, match="dealer: expected a whole number, got '0'"):
        load_game(dealer="0")  # type: ignore[arg-type]
    with pytest.raises(RulesError, match="reward: expected a word, got None"):
        load_game(reward=None)  # type: ignore[arg-type]
    with pytest.raises(RulesError, match="'dealr'; did you mean 'dealer'"):
        openspiel.ShuiyuGame({"dealr": 1})


def run(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_importing_registers_the_game_once() -> None:
    names = run(
        "import importlib, pyspiel\n"
        "from shuiyu_env.integrations import openspiel\n"
        "importlib.reload(openspiel)\n"
        "state = openspiel.load_game().new_initial_state().child(51)\n"
        "print(state, pyspiel.registered_names().count('python_shuiyu'))"
    )
    assert names.strip() == "dealer 0 | As |  1"


def test_a_pickle_brings_the_game_along() -> None:
    """To a process that has imported nothing, as the workers of a pool."""
    *_, state = random_play(load_game("dahua", 3), random.Random(14))
    data = pickle.dumps((state.get_game(), state))
    seen = run(
        f"import pickle\ngame, state = pickle.loads({data!r})\n"
        "print(game.core.num_players, state.get_game().core.rules == game.core.rules)\n"
        "print(state, state.history(), state.information_state_string(1))"
    )
    expected = f"{state} {state.history()} {state.information_state_string(1)}"
    assert seen.splitlines() == ["3 True", expected]


def test_without_openspiel_the_extra_is_named() -> None:
    message = run(
        "import sys\n"
        "sys.modules['pyspiel'] = None\n"
        "try:\n"
        "    import shuiyu_env.integrations.openspiel\n"
        "except ImportError as error:\n"
        "    print(error)"
    )
    assert 'pip install "shuiyu_env[openspiel]"' in message


# ---- Algorithms and policies ----------------------------------------------------------------


def test_nash_conv_and_best_responses() -> None:
    game = load_game(TINY, chance="hand")
    uniform = openspiel_policy.UniformRandomPolicy(game)
    result = exploitability.nash_conv(game, uniform, return_only_nash_conv=False)
    assert (result.player_improvements >= -1e-12).all()
    assert result.nash_conv > 0.1
    # How the cards are dealt makes no difference, nor who computes.
    assert math.isclose(exploitability.nash_conv(load_game(TINY), uniform), result.nash_conv)
    in_cpp = pyspiel.nash_conv(
        pyspiel.convert_to_cached_tree(game), pyspiel.UniformRandomPolicy(game)
    )
    assert math.isclose(in_cpp, result.nash_conv)


def test_a_policy_of_ours_in_openspiel() -> None:
    game = load_game(TINY, chance="hand")
    uniform = openspiel_policy.UniformRandomPolicy(game)
    expected = exploitability.nash_conv(game, uniform)
    assert math.isclose(exploitability.nash_conv(game, OpenSpielPolicy(game, Uniform())), expected)
    honest = OpenSpielPolicy(game, Honest())
    value = exploitability.nash_conv(game, honest)
    assert value > 0.0
    assert not math.isclose(value, expected)
    table = honest.to_tabular()
    assert math.isclose(exploitability.nash_conv(game, table), value)


def test_there_and_back() -> None:
    """Ours through OpenSpiel and back, in another seat order, answers as it did."""
    game = load_game(TINY, chance="hand", dealer=1)
    back = TabulatedPolicy(game, OpenSpielPolicy(game, Honest()).to_tabular())
    assert len(back) > 50
    core = Game(2, RuleSet(deck=Deck(2, 4)))
    layout = layout_of(core)
    rng = random.Random(11)
    for seed in range(20):
        state = core.new_state(seed)
        while not state.is_terminal:
            seen = layout.encode(state.view(state.current_player))[None]
            mask = np.zeros((1, core.num_actions), dtype=np.int8)
            mask[0, list(state.legal_actions())] = 1
            expected = Honest().probabilities(seen, mask)
            assert np.allclose(back.probabilities(seen, mask), expected)
            state.apply(rng.choice(state.legal_actions()))
    seen[0, 0] = 0.5
    with pytest.raises(PolicyError, match="row 0: no decision"):
        back.probabilities(seen, mask)


def test_an_unusable_policy_is_named() -> None:
    class Wrong:
        def probabilities(self, observation: Any, action_mask: Any) -> Any:
            return np.full(action_mask.shape, 0.5)

    game = load_game(TINY)
    policy = OpenSpielPolicy(game, Wrong(), "wrong")
    state = next(s for s in random_play(game, random.Random(12)) if not s.is_chance_node())
    with pytest.raises(PolicyError, match=r"policy 'wrong'.*seat 0, phase ARRANGE"):
        policy.action_probabilities(state)


def test_openspiels_environment() -> None:
    env = rl_environment.Environment(load_game("dahua", 3, "drinks"))
    env.seed(13)
    step = env.reset()
    while not step.last():
        seat = step.observations["current_player"]
        step = env.step([step.observations["legal_actions"][seat][0]])
    assert len(step.rewards) == 3
    assert max(step.rewards) == 0.0


def value_interval(declarations: list[str], iterations: int) -> tuple[float, float]:
    """Bounds of the game's value to the punter, from an approximate equilibrium."""
    game = load_game({**TINY, "declarations": declarations}, chance="hand")
    cached = pyspiel.convert_to_cached_tree(game)
    solver = pyspiel.CFRPlusSolver(cached)
    for _ in range(iterations):
        solver.evaluate_and_update_policy()
    average = openspiel_policy.pyspiel_policy_to_python_policy(
        game, solver.tabular_average_policy()
    )
    root = game.new_initial_state()
    dealer, punter = (
        best_response.BestResponsePolicy(game, seat, average).value(root) for seat in range(2)
    )
    return -dealer, punter


def test_attack_adds_nothing_to_cover() -> None:
    """An exact consequence of the rules, found by OpenSpiel's solver."""
    low, high = value_interval(["OPEN", "COVER"], 60)
    low_too, high_too = value_interval(["OPEN", "COVER", "ATTACK"], 60)
    assert 0.0 <= high - low < 5e-3
    assert 0.0 <= high_too - low_too < 5e-3
    assert max(low, low_too) <= min(high, high_too) + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("name", GAMES)
def test_many_of_openspiels_simulations(name: str) -> None:
    pyspiel.random_sim_test(load_game(**GAMES[name]), num_sims=40, serialize=True, verbose=False)


@pytest.mark.slow
def test_many_deals_of_three_hands() -> None:
    """All 34,650 deals of twelve cards to three seats, card by card."""
    game = load_game({"deck": {"ranks": 3, "suits": 4}}, 3)
    all_deals = list(deals(game.new_initial_state()))
    assert len(all_deals) == len({hands for hands, _ in all_deals}) == 34650
    assert all(math.isclose(p, 1 / 34650, rel_tol=1e-12) for _, p in all_deals)


@pytest.mark.slow
def test_nash_conv_on_nine_cards() -> None:
    game = load_game({"deck": {"ranks": 3, "suits": 3}}, chance="hand")
    cached = pyspiel.convert_to_cached_tree(game)
    uniform = exploitability.nash_conv(game, openspiel_policy.UniformRandomPolicy(game))
    assert math.isclose(pyspiel.nash_conv(cached, pyspiel.UniformRandomPolicy(game)), uniform)
    solver = pyspiel.CFRPlusSolver(cached)
    for _ in range(40):
        solver.evaluate_and_update_policy()
    assert 0.0 <= pyspiel.nash_conv(cached, solver.average_policy()) < 0.02
