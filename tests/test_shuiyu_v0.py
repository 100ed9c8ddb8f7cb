"""The PettingZoo environment: its contract, and what PettingZoo's own suites do not check."""

from __future__ import annotations

import copy
import inspect
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from games import play, random_rules
from gymnasium import spaces
from pettingzoo import AECEnv
from pettingzoo.test import api_test, render_test, seed_test
from pettingzoo.utils import OrderEnforcingWrapper

from shuiyu_env import PRESETS, Action, Deck, RuleSet, shuiyu_v0
from shuiyu_env.core import deals
from shuiyu_env.core.errors import (
    CardError,
    DealError,
    IllegalActionError,
    RulesError,
    ShuiyuError,
)
from shuiyu_env.core.game import Game
from shuiyu_env.core.hands import special_of
from shuiyu_env.core.view import view_of
from shuiyu_env.observation import layout_of
from shuiyu_env.render import PICTURE_SIZE

DECLARE_MODES = ("simultaneous", "in_turn")
ALL_TABLES = list(product((2, 4, 13), PRESETS, DECLARE_MODES))
# Each number of seats, preset and mode at least once; all of them in the slow tier.
SOME_TABLES = [
    (2, "nanning", "simultaneous"),
    (4, "dahua", "in_turn"),
    (4, "dahua_house", "simultaneous"),
    (13, "nanning", "in_turn"),
]

HANDS_2 = ["As Kd 7c 2h", "Qs 9h 8d 4c"]
HANDS_4 = ["As Kd 7c 2h", "Qs 9h 8d 4c", "Js Ts 6d 5c", "Ah Kc 3d 3s"]


def rules_of(preset: str, declare: str) -> dict[str, Any]:
    return {"preset": preset, "declare": declare}


def legal_of(env: AECEnv) -> list[int]:
    """The legal actions by the mask of the seat to act."""
    mask = env.observe(env.agent_selection)["action_mask"]
    return [int(action) for action in np.flatnonzero(mask)]


def walk(env: AECEnv, rng: random.Random) -> Iterator[int]:
    """Play the episode at random until all seats have terminated: yields, before each action and
    at the end, how many there have been."""
    number = 0
    while not any(env.terminations.values()):
        yield number
        env.step(rng.choice(legal_of(env)))
        number += 1
    yield number


def finish(env: AECEnv, seed: int = 0) -> None:
    """Play the episode at random until all seats have terminated."""
    for _ in walk(env, random.Random(seed)):
        pass


def take(env: AECEnv, actions: str) -> AECEnv:
    """Take actions by name."""
    for name in actions.split():
        env.step(Action[name])
    return env


def snapshot(env: AECEnv) -> Any:
    """Everything an environment shows, to compare."""
    return {
        "agents": env.agents[:],
        "selection": env.agent_selection,
        "rewards": dict(env.rewards),
        "cumulative": dict(env.unwrapped._cumulative_rewards),
        "terminations": dict(env.terminations),
        "truncations": dict(env.truncations),
        "infos": copy.deepcopy(env.infos),
        "state": env.state().tolist(),
        "observations": {
            agent: {key: value.tolist() for key, value in env.observe(agent).items()}
            for agent in env.possible_agents
        },
    }


# PettingZoo's suites


def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let windows wait for nothing."""
    monkeypatch.setitem(shuiyu_v0.raw_env.metadata, "render_fps", 0)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("seats", "preset", "declare"), ALL_TABLES)
def test_pettingzoo_api_test(seats: int, preset: str, declare: str) -> None:
    for rounds in (1, 3):
        env = shuiyu_v0.env(num_players=seats, rules=rules_of(preset, declare), rounds=rounds)
        api_test(env, num_cycles=50)


@pytest.mark.parametrize(("seats", "preset", "declare"), ALL_TABLES)
def test_pettingzoo_seed_test(seats: int, preset: str, declare: str) -> None:
    rules = rules_of(preset, declare)
    seed_test(lambda: shuiyu_v0.env(num_players=seats, rules=rules, rounds=3), num_cycles=50)


@pytest.mark.parametrize(
    ("seats", "preset", "declare"),
    [
        pytest.param(*table, marks=() if table in SOME_TABLES else pytest.mark.slow)
        for table in ALL_TABLES
    ],
)
def test_pettingzoo_render_test(
    seats: int, preset: str, declare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet(monkeypatch)
    rules = rules_of(preset, declare)
    render_test(lambda **kwargs: shuiyu_v0.env(num_players=seats, rules=rules, **kwargs))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_pettingzoo_suites_with_stakes_drinks_and_termination() -> None:
    settings: dict[str, Any] = {
        "num_players": 3,
        "rules": RuleSet(max_stake=4),
        "rounds": 2,
        "dealer_rotation": "random",
        "reward": "drinks",
        "illegal_action": "terminate",
    }
    api_test(shuiyu_v0.env(**settings), num_cycles=50)
    seed_test(lambda: shuiyu_v0.env(**settings), num_cycles=50)


# Construction and spaces


def test_env_is_the_raw_environment_under_order_enforcing() -> None:
    env = shuiyu_v0.env()
    assert isinstance(env, OrderEnforcingWrapper)
    assert type(env.unwrapped) is shuiyu_v0.raw_env
    assert isinstance(env.unwrapped, AECEnv)
    assert str(env) == str(env.unwrapped) == "shuiyu_v0"
    assert env.metadata["name"] == "shuiyu_v0"
    assert env.metadata["is_parallelizable"] is False
    assert set(env.metadata["render_modes"]) == {"human", "rgb_array", "ansi"}
    assert env.metadata["render_fps"] > 0
    assert env.possible_agents == ["player_0", "player_1", "player_2", "player_3"]
    assert env.unwrapped.game.settings()["rules"] == RuleSet().to_dict()


def test_order_enforcing_still_guards_what_it_proxies_fast() -> None:
    env = shuiyu_v0.env()
    for name in ("agents", "agent_selection", "rewards", "terminations", "infos", "num_agents"):
        with pytest.raises(AttributeError, match="before reset"):
            getattr(env, name)
    for call in (env.last, lambda: env.step(0), lambda: env.observe("player_0"), env.state):
        with pytest.raises((AttributeError, AssertionError), match=r"before|reset"):
            call()
    env.reset()
    for _ in env.agent_iter(3):
        env.step(legal_of(env)[0])
    with pytest.raises(AssertionError, match="step"):
        for _ in env.agent_iter():
            pass


@pytest.mark.parametrize("max_stake", [1, 3])
def test_spaces_are_what_the_layout_says_and_never_change(max_stake: int) -> None:
    env = shuiyu_v0.env(num_players=3, rules=RuleSet(max_stake=max_stake), rounds=2)
    layout = layout_of(env.unwrapped.game)
    agents = list(env.possible_agents)
    before = {agent: (env.observation_space(agent), env.action_space(agent)) for agent in agents}
    for agent in agents:
        space = env.observation_space(agent)
        assert list(space.spaces) == ["observation", "action_mask"]
        assert space["observation"] == spaces.Box(0.0, 1.0, (layout.size,), np.float32)
        assert space["action_mask"] == spaces.Box(0, 1, (layout.num_actions,), np.int8)
        assert env.action_space(agent) == spaces.Discrete(23 if max_stake == 1 else 26)
    assert env.state_space == spaces.Box(0.0, 1.0, (layout.size,), np.float32)
    state_space = env.state_space
    for seed in range(3):
        env.reset(seed=seed)
        for _ in walk(env, random.Random(seed)):
            assert env.state_space.contains(env.state())
            for agent in agents:
                assert env.observation_space(agent).contains(env.observe(agent))
        while env.agents:
            env.step(None)
    assert env.possible_agents == agents
    assert env.state_space is state_space
    for agent in agents:
        assert env.observation_space(agent) is before[agent][0]
        assert env.action_space(agent) is before[agent][1]
    # Each seat's space has a generator of its own.
    assert len({id(env.action_space(agent)) for agent in agents}) == len(agents)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"num_players": 1}, "num_players"),
        ({"num_players": 14}, "num_players"),
        ({"num_players": 5, "rules": RuleSet(deck=Deck(4, 4))}, "at most 4"),
        ({"num_players": "4"}, "num_players"),
        ({"rules": "naning"}, "did you mean 'nanning'"),
        ({"rules": {"tie_brake": "card"}}, "did you mean 'tie_break'"),
        ({"rounds": 0}, "rounds"),
        ({"dealer_rotation": "rotated"}, "did you mean 'rotate'"),
        ({"reward": "transfers"}, "did you mean 'transfer'"),
        ({"illegal_action": "terminated"}, "did you mean 'terminate'"),
        ({"illegal_action": None}, "illegal_action"),
        ({"render_mode": "rgb_aray"}, "did you mean 'rgb_array'"),
        ({"render_mode": ["human"]}, "render_mode"),
        ({"render_view": 4}, "render_view"),
        ({"render_view": -1}, "render_view"),
        ({"render_view": True}, "render_view"),
        ({"render_view": "player_0"}, "render_view"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(RulesError, match=match):
        shuiyu_v0.env(**settings)


def test_numbers_of_numpy_are_fine_as_settings() -> None:
    env = shuiyu_v0.env(num_players=np.int64(3), rounds=np.int32(2), render_view=np.int8(1))
    env.reset()
    assert len(env.agents) == 3


# Observations, masks, state


@pytest.mark.parametrize("seats", [2, 3, 5])
def test_masks_are_the_cores_legal_actions_and_only_the_actors(seats: int) -> None:
    rng = random.Random(seats)
    for seed in range(15):
        rules = random_rules(rng, [Deck(), Deck(13, 2)])
        env = shuiyu_v0.env(num_players=seats, rules=rules, rounds=2)
        env.reset(seed=seed)
        for _ in walk(env, rng):
            state = env.unwrapped.game_state
            for seat, agent in enumerate(env.possible_agents):
                mask = env.observe(agent)["action_mask"]
                assert mask.dtype == np.int8
                assert mask.shape == (env.action_space(agent).n,)
                expected = state.legal_actions() if seat == state.current_player else ()
                assert tuple(np.flatnonzero(mask)) == expected
                assert set(mask.tolist()) <= {0, 1}
        while env.agents:
            assert not env.observe(env.agent_selection)["action_mask"].any()
            env.step(None)


def test_observations_are_the_layouts_encoding_of_each_seats_view() -> None:
    env = shuiyu_v0.env(num_players=4, rounds=2)
    layout = env.unwrapped.layout
    env.reset(seed=3)
    for _ in walk(env, random.Random(3)):
        state = env.unwrapped.game_state
        np.testing.assert_array_equal(env.state(), layout.encode(state.view(None)))
        for seat, agent in enumerate(env.possible_agents):
            vector = env.observe(agent)["observation"]
            assert vector.dtype == np.float32
            np.testing.assert_array_equal(vector, layout.encode(state.view(seat)))
        np.testing.assert_array_equal(
            env.last()[0]["observation"], env.observe(env.agent_selection)["observation"]
        )


def test_arrays_are_fresh() -> None:
    env = shuiyu_v0.env()
    env.reset(seed=1)
    kept = env.observe("player_0")
    copies = {key: value.copy() for key, value in kept.items()}
    again = env.observe("player_0")
    again["observation"][:] = 7
    again["action_mask"][:] = 7
    vector = env.state()
    vector[:] = 7
    assert env.observe("player_0")["observation"].max() <= 1
    assert env.observe("player_0")["action_mask"].max() == 1
    assert env.state().max() <= 1
    finish(env)
    for key, value in kept.items():
        np.testing.assert_array_equal(value, copies[key])


def test_every_seat_can_be_observed_after_the_end_too() -> None:
    env = shuiyu_v0.env(num_players=3)
    env.reset(seed=1)
    finish(env)
    while env.agents:
        env.step(None)
    for agent in env.possible_agents:
        assert env.observation_space(agent).contains(env.observe(agent))
    assert env.state_space.contains(env.state())


def test_an_unknown_agent_is_named() -> None:
    env = shuiyu_v0.env()
    env.reset()
    for call in (env.observe, env.observation_space, env.action_space):
        with pytest.raises(ShuiyuError, match="'player_9'; did you mean"):
            call("player_9")
        with pytest.raises(ShuiyuError, match="expected an agent"):
            call(["player_0"])


# Turns, rewards, ends


def test_the_dealer_may_act_many_times_running() -> None:
    env = shuiyu_v0.env(num_players=4)
    env.reset(options={"hands": HANDS_4})
    take(env, "SPLIT_0 SPLIT_0 SPLIT_0 SPLIT_0 COVER COVER COVER")
    for _ in range(3):
        assert env.agent_selection == "player_0"
        assert legal_of(env) == [Action.LOOK, Action.FOLD]
        env.step(Action.FOLD)
    assert env.rewards == {"player_0": -3.0, "player_1": 1.0, "player_2": 1.0, "player_3": 1.0}


@pytest.mark.parametrize("reward", ["transfer", "drinks"])
@pytest.mark.parametrize("wrapped", [True, False])
def test_rewards_are_paid_once_and_reach_every_seat(reward: str, wrapped: bool) -> None:
    """At each step: zero sum under transfer; what ``last()`` reports adds up to the returns."""
    make = shuiyu_v0.env if wrapped else shuiyu_v0.raw_env
    for seed in range(20):
        env = make(num_players=4, rounds=3, dealer_rotation="rotate", reward=reward)
        env.reset(seed=seed)
        rng = random.Random(seed)
        reported = dict.fromkeys(env.possible_agents, 0.0)
        paid = dict.fromkeys(env.possible_agents, 0.0)
        steps = settled = 0
        for agent in env.agent_iter():
            observation, units, termination, _, _ = env.last()
            reported[agent] += units
            if termination:
                env.step(None)
                continue
            env.step(rng.choice(np.flatnonzero(observation["action_mask"])))
            steps += 1
            assert all(type(value) is float for value in env.rewards.values())
            assert list(env.rewards.values()) == env.unwrapped.game_state.rewards()
            for name in paid:
                paid[name] += env.rewards[name]
            if reward == "transfer":
                assert sum(env.rewards.values()) == 0
            if len(env.unwrapped.game_state.finished) > settled:
                settled += 1
            else:
                assert not any(env.rewards.values())
        returns = env.unwrapped.game_state.returns()
        assert settled == 3
        assert list(reported.values()) == list(paid.values()) == returns


def test_rewards_handed_out_keep_what_they_said() -> None:
    env = shuiyu_v0.env(num_players=2, rounds=2)
    env.reset(seed=0, options={"hands": HANDS_2})
    take(env, "SPLIT_0 SPLIT_0 COVER FOLD")
    paid = env.rewards
    assert paid == {"player_0": -1.0, "player_1": 1.0}
    env.step(legal_of(env)[0])
    assert paid == {"player_0": -1.0, "player_1": 1.0}
    assert env.rewards == {"player_0": 0.0, "player_1": 0.0}


def test_all_seats_end_at_the_same_step() -> None:
    rng = random.Random(0)
    for seats, rounds in ((2, 1), (5, 1), (3, 2)):
        env = shuiyu_v0.env(num_players=seats, rounds=rounds)
        for seed in range(10):
            env.reset(seed=seed)
            assert env.terminations == dict.fromkeys(env.possible_agents, False)
            for _ in walk(env, rng):
                assert all(type(end) is bool for end in env.terminations.values())
                assert env.truncations == dict.fromkeys(env.possible_agents, False)
                over = env.unwrapped.game_state.is_terminal
                assert env.terminations == dict.fromkeys(env.possible_agents, over)
            assert env.agents == env.possible_agents
            left = seats
            while env.agents:
                assert env.last()[2] is True
                env.step(None)
                left -= 1
                assert len(env.agents) == left
            assert left == 0


def test_a_terminated_seat_may_only_do_nothing() -> None:
    env = shuiyu_v0.env(num_players=2)
    env.reset(seed=1)
    finish(env)
    with pytest.raises(ValueError, match="None"):
        env.step(0)


def test_stepping_a_finished_or_unbegun_environment_says_so() -> None:
    raw = shuiyu_v0.raw_env(num_players=2)
    with pytest.raises(ShuiyuError, match=r"call reset\(\)"):
        raw.step(0)
    with pytest.raises(ShuiyuError, match=r"call reset\(\)"):
        raw.observe("player_0")
    with pytest.raises(ShuiyuError, match=r"call reset\(\)"):
        raw.state()
    raw.reset(seed=1)
    finish(raw)
    raw.step(None)
    raw.step(None)
    with pytest.raises(ShuiyuError, match=r"call reset\(\)"):
        raw.step(None)
    raw.reset()
    assert raw.agents == ["player_0", "player_1"]


def test_a_reset_in_the_middle_of_the_end_begins_afresh() -> None:
    env = shuiyu_v0.env(num_players=3)
    env.reset(seed=1)
    finish(env)
    env.step(None)
    env.reset(seed=1, options={"dealer": 2})
    assert env.agents == env.possible_agents
    assert env.agent_selection == "player_2"
    assert not any(env.rewards.values())
    assert not any(env.unwrapped._cumulative_rewards.values())
    finish(env)
    assert env.agent_selection == "player_0"


def test_raw_and_wrapped_play_the_same() -> None:
    settings: dict[str, Any] = {"num_players": 3, "rounds": 2, "rules": RuleSet(max_stake=2)}
    wrapped, raw = shuiyu_v0.env(**settings), shuiyu_v0.raw_env(**settings)
    wrapped.reset(seed=5)
    raw.reset(seed=5)
    for _ in walk(wrapped, random.Random(5)):
        history = wrapped.unwrapped.game_state.history
        for turn in history[len(raw.game_state.history) :]:
            raw.step(turn.action)
        assert snapshot(wrapped) == snapshot(raw)
    while wrapped.agents:
        for env in (wrapped, raw):
            env.step(None)
        assert wrapped.agents == raw.agents
        assert wrapped.rewards == raw.rewards


# Seeds and resets


def hands_of(env: AECEnv) -> list[tuple[int, ...]]:
    return list(env.unwrapped.game_state.deal.hands)


def dealt(seed: int, index: int, seats: int = 2) -> list[tuple[int, ...]]:
    return deals.deal_hands(Deck(), seats, seed, 0, index)


@pytest.mark.parametrize("seed", [0, 7, np.int64(7), np.uint32(7), 2**70, -1])
def test_a_seed_starts_its_stream_from_the_first_deal(seed: Any) -> None:
    env = shuiyu_v0.env(num_players=2)
    env.reset()
    for _ in range(2):
        env.reset(seed=seed)
        assert hands_of(env) == dealt(int(seed), 0)


def test_seed_zero_is_a_seed() -> None:
    env = shuiyu_v0.env(num_players=2)
    env.reset(seed=5)
    env.reset(seed=0)
    assert hands_of(env) == dealt(0, 0)
    assert hands_of(env) != dealt(5, 0)


def test_a_plain_reset_goes_on_with_the_next_deal() -> None:
    env = shuiyu_v0.env(num_players=2)
    env.reset(seed=7)
    finish(env)
    env.reset()
    assert hands_of(env) == dealt(7, 1)
    env.reset()  # the deal above was begun, so it is used
    assert hands_of(env) == dealt(7, 2)
    env.reset(options={"hands": HANDS_2})
    assert hands_of(env) != dealt(7, 3)
    env.reset()
    assert hands_of(env) == dealt(7, 4)
    env.reset(seed=7)
    assert hands_of(env) == dealt(7, 0)


def test_a_plain_reset_counts_every_deal_of_the_episode_before() -> None:
    env = shuiyu_v0.env(num_players=2, rounds=3)
    env.reset(seed=7)
    finish(env)
    assert [list(deal.hands) for deal in env.unwrapped.game_state.finished] == [
        dealt(7, i) for i in range(3)
    ]
    env.reset()
    assert hands_of(env) == dealt(7, 3)
    rng = random.Random(0)
    while len(env.unwrapped.game_state.finished) < 2:
        env.step(rng.choice(legal_of(env)))
    assert hands_of(env) == dealt(7, 5)  # the third deal is begun, with no action yet
    env.reset()
    assert hands_of(env) == dealt(7, 6)


def test_an_unseeded_environment_draws_its_seed_once() -> None:
    env, other = shuiyu_v0.env(num_players=2), shuiyu_v0.env(num_players=2)
    env.reset()
    seed = env.unwrapped.game_state.seed
    for index in range(1, 4):
        env.reset()
        assert hands_of(env) == dealt(seed, index)
    other.reset()
    assert other.unwrapped.game_state.seed != seed


def test_global_generators_are_neither_read_nor_moved() -> None:
    records = []
    for global_seed in (1, 2):
        random.seed(global_seed)
        np.random.seed(global_seed)  # noqa: NPY002 (the global generator is the point)
        before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
        env = shuiyu_v0.env(num_players=3, rounds=3, dealer_rotation="random")
        env.reset(seed=3)
        finish(env)
        records.append(env.unwrapped.game_state.to_record())
        env.reset()
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002
    assert records[0] == records[1]


def test_a_seeded_reset_keeps_the_settings() -> None:
    settings: dict[str, Any] = {
        "num_players": 3,
        "rules": RuleSet(max_stake=2, declare="in_turn"),
        "rounds": 2,
        "dealer_rotation": "rotate",
        "reward": "drinks",
        "render_mode": "ansi",
    }
    env = shuiyu_v0.env(**settings)
    before = env.unwrapped.game.settings()
    env.reset(seed=4)
    finish(env)
    env.reset(seed=4)
    assert env.unwrapped.game.settings() == before == env.unwrapped.game_state.game.settings()
    assert env.unwrapped.render_mode == "ansi"
    assert len(env.unwrapped.game_state.finished) == 0


def test_options_set_up_the_first_deal() -> None:
    env = shuiyu_v0.env(num_players=2, rounds=2, dealer_rotation="rotate")
    env.reset(seed=1, options={"hands": HANDS_2, "dealer": 1})
    assert env.agent_selection == "player_1"
    record = env.unwrapped.game_state.to_record()["deals"][0]
    assert record["hands"] == HANDS_2
    take(env, "SPLIT_0 SPLIT_0 COVER FOLD")
    assert env.unwrapped.game_state.deal.dealer == 0
    assert hands_of(env) == dealt(1, 1)
    env.reset(seed=1, options={"dealer": np.int64(1)})
    assert hands_of(env) == dealt(1, 0)
    assert env.agent_selection == "player_1"
    env.reset(seed=1, options={"hands": None, "dealer": None})
    assert hands_of(env) == dealt(1, 0)


@pytest.mark.parametrize("options", [{}, {"options": 1}, {"wind": "east", "dealer": 1}, None])
def test_unknown_options_are_ignored(options: Any) -> None:
    env = shuiyu_v0.env(num_players=2)
    env.reset(seed=1, options=options)
    assert hands_of(env) == dealt(1, 0)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"options": 3}, DealError, "options: expected a dictionary"),
        ({"options": [("dealer", 1)]}, DealError, "options: expected a dictionary"),
        ({"options": {"dealer": 2}}, DealError, "dealer: expected a seat from 0 to 1"),
        ({"options": {"dealer": "player_1"}}, DealError, "dealer"),
        ({"options": {"dealer": True}}, DealError, "dealer"),
        ({"options": {"hands": "As Kd 7c 2h"}}, DealError, "one hand per seat"),
        ({"options": {"hands": HANDS_2[:1]}}, DealError, "expected 2 hands"),
        ({"options": {"hands": [HANDS_2[0], "Qs 9h 8d"]}}, DealError, r"hands\[1\]"),
        ({"options": {"hands": [HANDS_2[0], "As 9h 8d 4c"]}}, DealError, "already in"),
        ({"options": {"hands": [HANDS_2[0], "Qs 9h 8d 4x"]}}, CardError, "4x"),
        ({"options": {"hands": 5}}, DealError, "hands"),
        ({"seed": 1.5}, DealError, "seed"),
        ({"seed": "7"}, DealError, "seed"),
        ({"seed": True}, DealError, "seed"),
    ],
)
def test_a_malformed_reset_is_refused_and_changes_nothing(
    arguments: dict[str, Any], error: type[ShuiyuError], match: str
) -> None:
    env = shuiyu_v0.env(num_players=2)
    env.reset(seed=9)
    take(env, "SPLIT_0")
    before = snapshot(env)
    with pytest.raises(error, match=match):
        env.reset(**arguments)
    assert snapshot(env) == before
    finish(env)
    env.reset()
    assert hands_of(env) == dealt(9, 1)


# Several rounds


def test_last_deal_is_the_reveal_as_each_seat_saw_it() -> None:
    env = shuiyu_v0.env(num_players=4, rounds=2, dealer_rotation="rotate")
    env.reset(seed=2, options={"hands": HANDS_4})
    assert env.infos == {agent: {} for agent in env.possible_agents}
    take(env, "SPLIT_0 SPLIT_1 SPLIT_2 SPLIT_0 OPEN COVER FORCE KILL DOUBT FOLD")
    assert env.infos == {agent: {} for agent in env.possible_agents}
    take(env, "SPLIT_2")
    for seat, agent in enumerate(env.possible_agents):
        # Player 2 was folded to: only it knows its own hand and split.
        private = seat == 2
        assert env.infos[agent] == {
            "last_deal": {
                "seat": seat,
                "dealer": 0,
                "hands": [
                    "As Kd 7c 2h",
                    "Qs 9h 8d 4c",
                    "Js Ts 6d 5c" if private else None,
                    "Ah Kc 3s 3d",
                ],
                "splits": [0, 1, 2 if private else None, 0],
                "declarations": [None, "OPEN", "COVER", "FORCE"],
                "calls": [None, "KILL", "FOLD", None],
                "replies": [None, "DOUBT", None, None],
                "stakes": [None, 1, 1, 1],
                "force_splits": [None, None, None, 2],
                "decided": [None, "COMPARED", "AGREED", "COMPARED"],
                "outcomes": [
                    None,
                    env.infos[agent]["last_deal"]["outcomes"][1],
                    None,
                    env.infos[agent]["last_deal"]["outcomes"][3],
                ],
                "rewards": list(env.rewards.values()),
            }
        }
        outcomes = env.infos[agent]["last_deal"]["outcomes"]
        assert {outcomes[1], outcomes[3]} <= {"DEALER_WINS", "PUSH", "PUNTER_WINS"}
    # The deals agree with the core, and stay until the next one is settled.
    kept = copy.deepcopy(env.infos)
    rng = random.Random(0)
    while not any(env.terminations.values()):
        assert env.infos == kept
        assert env.last()[4] == kept[env.agent_selection]
        env.step(rng.choice(legal_of(env)))
    assert env.infos != kept
    second = env.unwrapped.game_state.finished[1]
    for agent in env.possible_agents:
        last_deal = env.infos[agent]["last_deal"]
        assert last_deal["dealer"] == 1
        assert last_deal["rewards"] == second.rewards
    env.reset()
    assert env.infos == {agent: {} for agent in env.possible_agents}


def test_a_single_round_needs_no_last_deal() -> None:
    env = shuiyu_v0.env(num_players=2)
    env.reset(seed=1)
    finish(env)
    assert env.infos == {"player_0": {}, "player_1": {}}


def exchange_hidden(env: AECEnv, seat: int, rng: random.Random) -> AECEnv | None:
    """Return the first deal with the cards that ``seat`` has not seen dealt anew, played alike.

    Every hand keeps its special status, so the same actions are legal.
    """
    state = env.unwrapped.game_state
    deal = state.finished[0] if state.finished else state.deal
    view = view_of(deal, seat)
    hidden = [owner for owner, hand in enumerate(view.hands) if hand is None]
    known = {card for hand in view.hands if hand is not None for card in hand}
    pool = [card for card in state.game.rules.deck.cards if card not in known]
    if not hidden:
        return None
    for _ in range(200):
        cards = rng.sample(pool, 4 * len(hidden))
        hands = list(deal.hands)
        for i, owner in enumerate(hidden):
            hands[owner] = tuple(sorted(cards[4 * i : 4 * i + 4], reverse=True))
        if [special_of(hand) for hand in hands] == [special_of(hand) for hand in deal.hands]:
            break
    else:
        return None
    game = state.game
    other = shuiyu_v0.env(**game.settings())
    other.reset(seed=state.seed, options={"hands": hands, "dealer": deal.dealer})
    for action in deal.actions:
        other.step(action)
    return other


@pytest.mark.parametrize("preset", list(PRESETS))
def test_infos_do_not_depend_on_hidden_cards(preset: str) -> None:
    rng = random.Random(1)
    differences = compared = 0
    for seed in range(40):
        env = shuiyu_v0.env(num_players=4, rules=preset, rounds=2)
        env.reset(seed=seed)
        while not env.unwrapped.game_state.finished:
            env.step(rng.choice(legal_of(env)))
        for seat, agent in enumerate(env.possible_agents):
            other = exchange_hidden(env, seat, rng)
            if other is None:
                continue
            compared += 1
            assert other.infos[agent] == env.infos[agent]
            assert other.rewards == env.rewards
            differences += other.infos != env.infos
    assert compared > 50
    assert differences > 25  # what was exchanged shows in somebody else's info


# Illegal actions


ILLEGAL = [3, 22, 23, 99, -1, np.int64(8), np.array(8)]


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("action", ILLEGAL)
def test_an_illegal_action_raises_and_changes_nothing(action: Any, wrapped: bool) -> None:
    env = (shuiyu_v0.env if wrapped else shuiyu_v0.raw_env)(num_players=3, rounds=2)
    env.reset(seed=5)
    take(env, "SPLIT_0")
    before = snapshot(env)
    with pytest.raises(IllegalActionError, match="seat 1 in phase ARRANGE; legal: SPLIT_0"):
        env.step(action)
    assert snapshot(env) == before
    finish(env)
    env.reset()
    finish(env)
    env.reset(seed=5)
    take(env, "SPLIT_0")
    assert snapshot(env) == before


@pytest.mark.parametrize("mode", ["raise", "terminate"])
@pytest.mark.parametrize("action", [None, 1.0, "SPLIT_0", True, np.array([0]), float("nan")])
def test_what_is_no_action_at_all_raises_in_both_modes(action: Any, mode: str) -> None:
    env = shuiyu_v0.env(num_players=3, illegal_action=mode)
    env.reset(seed=5)
    before = snapshot(env)
    with pytest.raises(IllegalActionError, match="expected an action id"):
        env.step(action)
    assert snapshot(env) == before


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("action", ILLEGAL)
def test_terminating_ends_the_episode_for_all_and_keeps_zero_sum(
    action: Any, wrapped: bool
) -> None:
    make = shuiyu_v0.env if wrapped else shuiyu_v0.raw_env
    env = make(num_players=4, illegal_action="terminate", render_mode="ansi")
    env.reset(seed=5)
    take(env, "SPLIT_0")
    env.step(action)
    agents = env.possible_agents
    expected = {agent: -1.0 if agent == "player_1" else 1 / 3 for agent in agents}
    assert env.rewards == expected
    assert sum(env.rewards.values()) == pytest.approx(0)
    assert env.terminations == dict.fromkeys(agents, True)
    assert env.truncations == dict.fromkeys(agents, False)
    assert not any(env.observe(agent)["action_mask"].any() for agent in agents)
    assert "cancelled" in env.render()
    reported = {}
    while env.agents:
        agent = env.agent_selection
        _, reported[agent], termination, _, info = env.last()
        assert termination is True
        assert ("illegal_action" in info) == (agent == "player_1")
        env.step(None)
    assert reported == expected


def test_play_goes_on_normally_after_an_illegal_end() -> None:
    env = shuiyu_v0.env(num_players=3, illegal_action="terminate")
    env.reset(seed=5)
    env.step(22)
    env.reset()
    assert hands_of(env) == dealt(5, 1, seats=3)
    assert env.infos == {agent: {} for agent in env.possible_agents}
    assert env.observe("player_0")["action_mask"].any()
    finish(env)
    assert list(env.rewards.values()) == env.unwrapped.game_state.returns()


def test_terminating_under_drinks_charges_only_the_offender() -> None:
    env = shuiyu_v0.env(num_players=3, illegal_action="terminate", reward="drinks")
    env.reset(seed=5)
    env.step(22)
    assert env.rewards == {"player_0": -1.0, "player_1": 0.0, "player_2": 0.0}


def test_terminating_keeps_what_earlier_deals_paid() -> None:
    env = shuiyu_v0.env(num_players=2, rounds=2, illegal_action="terminate")
    env.reset(seed=5, options={"hands": HANDS_2})
    take(env, "SPLIT_0 SPLIT_0 COVER FOLD")
    assert env.rewards == {"player_0": -1.0, "player_1": 1.0}
    env.step(22)  # by the dealer, who has not been told of his loss since he folded
    assert env.rewards == {"player_0": -1.0, "player_1": 1.0}
    assert env.unwrapped._cumulative_rewards == {"player_0": -1.0, "player_1": 2.0}
    assert "last_deal" in env.infos["player_0"]
    assert env.unwrapped.game_state.returns() == [-1.0, 1.0]


# Copies


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("clone", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_in_the_middle_of_a_game_are_equal_and_independent(
    clone: Any, wrapped: bool
) -> None:
    make = shuiyu_v0.env if wrapped else shuiyu_v0.raw_env
    rng = random.Random(3)
    for seed in range(4):
        env = make(num_players=3, rules=RuleSet(max_stake=2), rounds=2, dealer_rotation="random")
        env.reset(seed=seed)
        for number in walk(env, rng):
            if number % 7:
                continue
            twin, untouched = clone(env), snapshot(env)
            assert snapshot(twin) == untouched
            assert twin.unwrapped.game_state == env.unwrapped.game_state
            finish(twin)
            twin.reset()
            assert snapshot(env) == untouched
            # The same actions lead to the same game, and the next deals are the same.
            first, second = clone(env), clone(env)
            finish(first, seed)
            finish(second, seed)
            assert snapshot(first) == snapshot(second)
            first.reset()
            second.reset()
            assert hands_of(first) == hands_of(second)


def test_copies_can_be_made_before_the_first_reset() -> None:
    for clone in (copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))):
        twin = clone(shuiyu_v0.env(num_players=3))
        twin.reset(seed=1)
        assert hands_of(twin) == dealt(1, 0, seats=3)


@pytest.mark.parametrize("mode", ["human", "rgb_array"])
def test_copies_of_a_rendered_environment_draw_for_themselves(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet(monkeypatch)
    env = shuiyu_v0.env(num_players=2, render_mode=mode)
    env.reset(seed=1)
    env.render()
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert snapshot(twin) == snapshot(env)
        twin.step(legal_of(twin)[0])
        twin.render()
        env.render()
        twin.close()
    env.close()


# The game behind, registry, imports, documentation


def test_the_game_behind_gives_the_record() -> None:
    env = shuiyu_v0.env(num_players=2)
    with pytest.raises(ShuiyuError, match=r"call reset\(\)"):
        _ = env.unwrapped.game_state
    env.reset(seed=4)
    finish(env)
    record = env.unwrapped.game_state.to_record()
    assert record["seed"] == 4
    assert env.unwrapped.game.replay(record) == env.unwrapped.game_state
    clone = env.unwrapped.game_state.clone()
    clone.undo()
    assert env.unwrapped.game_state.is_terminal


def test_the_core_plays_the_same_game() -> None:
    env = shuiyu_v0.env(num_players=2)
    env.reset(options={"hands": HANDS_2})
    actions = "SPLIT_0 SPLIT_1 OPEN PUSH DOUBT"
    state = play(env.unwrapped.game.new_state(hands=HANDS_2), actions)
    take(env, actions)
    assert list(env.rewards.values()) == state.returns()


def test_pettingzoos_registry_makes_the_environment() -> None:
    pettingzoo = pytest.importorskip("pettingzoo", minversion="1.27")
    for name in ("shuiyu-v0", "shuiyu_v0", "shuiyu"):
        env = pettingzoo.make("aec", name, num_players=3, rules="dahua")
        assert isinstance(env.unwrapped, shuiyu_v0.raw_env)
        assert env.unwrapped.game.rules == PRESETS["dahua"]
        assert len(env.possible_agents) == 3


def run_python(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_imports_are_light_and_older_pettingzoo_is_fine() -> None:
    heavy = "[m for m in ('torch', 'numba', 'pygame') if m in sys.modules]"
    assert run_python(f"import sys, shuiyu_env.shuiyu_v0; print({heavy})") == "[]"
    code = (
        "import sys, pettingzoo\n"
        "for name in ('register', 'make', 'aec_registry'): pettingzoo.__dict__.pop(name, None)\n"
        "from shuiyu_env import shuiyu_v0\n"
        "env = shuiyu_v0.env(); env.reset(); print(len(env.agents))"
    )
    assert run_python(code) == "4"
    code = (
        "import importlib\n"
        "from shuiyu_env import shuiyu_v0\n"
        "importlib.reload(shuiyu_v0); print(shuiyu_v0.env())"
    )
    assert run_python(code) == "shuiyu_v0"  # registered once: twice would warn


def test_the_documentation_page_is_true() -> None:
    page = shuiyu_v0.__doc__
    assert page is not None
    example = re.search(r"```python\n(.*?)```", page, re.S)
    assert example is not None
    exec(example[1], {})
    for seats, word in ((2, "two"), (4, "four")):
        size = shuiyu_v0.raw_env(num_players=seats).state_space.shape[0]
        assert re.search(rf"{size} for {word}", page)
    width, height = PICTURE_SIZE
    assert f"uint8[{height}, {width}, 3]" in page
    for argument in shuiyu_v0.raw_env.__init__.__annotations__:
        assert argument == "return" or f"* `{argument}`" in page


def test_rendering_without_a_mode_only_warns() -> None:
    env = shuiyu_v0.env()
    env.reset()
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None
    env.close()
    env.close()


def test_a_failed_first_reset_leaves_the_order_of_calls_watched() -> None:
    env = shuiyu_v0.env()
    with pytest.raises(DealError):
        env.reset(options={"dealer": 9})
    with pytest.raises(AttributeError, match="before reset"):
        _ = env.agents
    env.reset(seed=1)
    with pytest.raises(DealError):
        env.reset(options={"dealer": 9})
    # The episode before it goes on.
    env.step(int(np.flatnonzero(env.last()[0]["action_mask"])[0]))


def test_nobody_is_to_act_after_an_illegal_action_ended_the_episode() -> None:
    env = shuiyu_v0.raw_env(num_players=3, illegal_action="terminate")
    env.reset(seed=1)
    env.step(int(Action.KILL))
    for agent in env.possible_agents:
        fields = env.layout.views(env.observe(agent)["observation"])
        assert not fields["seats.to_act"].any()
    assert not env.layout.views(env.state())["seats.to_act"].any()


def test_env_takes_and_shows_the_arguments_of_the_environment() -> None:
    assert inspect.signature(shuiyu_v0.env) == inspect.signature(shuiyu_v0.raw_env)
    assert shuiyu_v0.env(3, "dahua").unwrapped.game == Game(3, "dahua")
