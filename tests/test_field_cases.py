"""Faults that users of other multi-agent libraries met: one test at least for each kind.

Environment
     1  an illegal move, then reset: play goes on; illegal actions name seat, phase and legal ones
     2  the mask is the rules' legal actions: int8, all zero for everybody but the acting seat
     3  every legal action works in every reachable state
     4  all seats terminate at the same step
     5  agents and spaces are fixed at construction
     6  every deal's reward reaches every seat, in the documented order, and adds up
     7  one seat may act several times running
     8  reset keeps the constructor's settings; malformed options are errors, foreign ones are not
     9  0 is a seed; no global generator is touched; a plain reset does not seed anew
    10  deepcopy and pickle in the middle of a game
    11  clone, undo and replay agree at every node
    12  observe() works for every agent at any time
Information
    13  nothing that a seat is given depends on cards that it cannot see
    14  information states differ as soon as anything seen differs
    15  named views share memory with the vector
    16  documented shapes and indices are made from the code
    17  rotating the seats rotates the observations
Rendering
    18  the last frame shows the final state; all numbers of seats fit; close() is safe twice
Learning (tested in test_policies_network.py, test_ppo.py and test_rollout.py)
    19  masked sampling never returns an illegal action
    20  old log-probabilities are taken before any update
    21  a learner is credited with what follows its last action, and only with its own reward
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

import numpy as np
import plain_rules
import pytest
from games import deal_some, plain_deal, play, random_game, random_states
from test_observation import RECALL, check_recall
from test_view import check_deal, hidden_hands, other_game

from shuiyu_env import shuiyu_v0
from shuiyu_env.core.actions import Action
from shuiyu_env.core.cards import Deck
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import CardError, DealError, IllegalActionError, RulesError
from shuiyu_env.core.game import Game, State
from shuiyu_env.core.rules import PRESETS, RuleSet
from shuiyu_env.observation import layout_of

ROOT = Path(__file__).resolve().parent.parent
STAKED = RuleSet(max_stake=3, declare="in_turn", surrender_to_open=True)


def make(**settings: Any) -> Any:
    return shuiyu_v0.env(**settings)


def some_envs(number: int, rounds: int = 3) -> Iterator[tuple[random.Random, Any]]:
    """Environments of random settings."""
    for seed in range(number):
        rng = random.Random(seed)
        game = random_game(rng, rounds=rng.randint(1, rounds))
        yield rng, make(**game.settings())


def steps(env: Any, rng: random.Random) -> Iterator[str]:
    """Play an episode at random, to the removal of the last seat; yields who is about to act."""
    for agent in env.agent_iter():
        yield agent
        if env.terminations[agent]:
            env.step(None)
        else:
            mask = env.observe(agent)["action_mask"]
            env.step(int(rng.choice(np.flatnonzero(mask))))


def state_of(env: Any) -> State:
    return env.unwrapped.game_state


def picture(env: Any) -> dict[str, Any]:
    """Everything that an environment tells, as comparable values."""
    return {
        "observations": {
            agent: [array.tobytes() for array in env.observe(agent).values()]
            for agent in env.possible_agents
        },
        "state": env.state().tobytes(),
        "agents": list(env.agents),
        "selection": env.agent_selection,
        "rewards": dict(env.rewards),
        "cumulative": dict(env._cumulative_rewards),
        "terminations": dict(env.terminations),
        "truncations": dict(env.truncations),
        "infos": copy.deepcopy(env.infos),
    }


# ---- 1: an illegal move, then reset ---------------------------------------------------------


@pytest.mark.parametrize("illegal_action", ["raise", "terminate"])
def test_field_case_01_illegal_move_then_reset_plays_on(illegal_action: str) -> None:
    env = make(num_players=3, illegal_action=illegal_action)
    untouched = make(num_players=3)
    for seed in range(6):
        rng = random.Random(seed)
        env.reset(seed=seed)
        for _ in range(seed):
            mask = env.observe(env.agent_selection)["action_mask"]
            env.step(int(rng.choice(np.flatnonzero(mask))))
        agent = env.agent_selection
        illegal = int(np.flatnonzero(env.observe(agent)["action_mask"] == 0)[0])
        before = picture(env)
        if illegal_action == "raise":
            with pytest.raises(IllegalActionError):
                env.step(illegal)
            assert picture(env) == before
        else:
            env.step(illegal)
            assert all(env.terminations.values())
            assert set(env.terminations) == set(env.possible_agents)
        env.reset(seed=100 + seed)
        untouched.reset(seed=100 + seed)
        assert picture(env) == picture(untouched)
        for _ in steps(env, random.Random(1)):
            pass
        for _ in steps(untouched, random.Random(1)):
            pass
        assert state_of(env) == state_of(untouched)
        assert state_of(env).is_terminal


def test_field_case_01_illegal_actions_name_seat_phase_and_legal_actions() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        game = random_game(rng)
        for state in random_states(game, rng, special=seed % 3 == 0):
            if state.is_terminal:
                continue
            illegal = [a for a in range(-2, 32) if a not in state.legal_actions()]
            with pytest.raises(IllegalActionError) as caught:
                state.apply(rng.choice(illegal))
            message = str(caught.value)
            assert f"for seat {state.current_player} in phase {state.phase.name}" in message
            for action in state.legal_actions():
                assert f"{Action(action).name} ({action})" in message


# ---- 2: masks -------------------------------------------------------------------------------


def test_field_case_02_masks_are_the_plain_rules_legal_actions() -> None:
    for rng, env in some_envs(40, rounds=1):
        game = env.unwrapped.game
        hands, dealer = deal_some(rng, game), rng.randrange(game.num_players)
        env.reset(seed=0, options={"hands": hands, "dealer": dealer})
        plain = plain_deal(game, hands, dealer)
        while True:
            for seat, agent in enumerate(env.possible_agents):
                mask = env.observe(agent)["action_mask"]
                assert mask.dtype == np.int8
                assert mask.shape == (game.num_actions,) == (env.action_space(agent).n,)
                legal = plain.legal() if seat == plain.seat() else []
                assert np.flatnonzero(mask).tolist() == legal
                assert set(mask.tolist()) <= {0, 1}
                assert bool(mask.any()) == (seat == plain.seat())
            if plain.over:
                break
            assert env.agent_selection == f"player_{plain.seat()}"
            action = rng.choice(plain.legal())
            plain.apply(action)
            env.step(action)


def test_field_case_02_a_mask_handed_out_does_not_change_or_change_anything() -> None:
    env = make(num_players=2)
    env.reset(seed=1)
    first = env.observe("player_0")
    kept = first["action_mask"].copy(), first["observation"].copy()
    env.step(0)
    assert (first["action_mask"] == kept[0]).all()
    assert (first["observation"] == kept[1]).all()
    second = env.observe("player_1")
    second["action_mask"][:] = 1
    second["observation"][:] = 7
    assert env.observe("player_1")["action_mask"].sum() < 23
    assert env.observe("player_1")["observation"].max() == 1


# ---- 3: every legal action works everywhere -------------------------------------------------


def everywhere(state: State) -> int:
    """Take every legal action in every state that can follow; returns the number of states."""
    if state.is_terminal:
        return 1
    count = 1
    for action in state.legal_actions():
        after = state.clone()
        after.apply(action)
        count += everywhere(after)
    return count


@pytest.mark.parametrize(
    ("rules", "hands"),
    [
        (RuleSet(surrender_to_open=True), ["As Kd 7c 2h", "Qs Qd 9c 3h"]),
        (RuleSet(surrender_to_open=True), ["As Ad 7c 7h", "Qs Qd 9c 3h"]),
        (RuleSet(specials="at_showdown"), ["As Ad Ac Ah", "Qs Qd 9c 9h"]),
        (RuleSet(declarations=("FORCE", "OPEN"), declare="in_turn"), ["As Kd 7c 2h"] * 0),
    ],
)
def test_field_case_03_every_legal_action_works_in_every_state(
    rules: RuleSet, hands: list[str]
) -> None:
    hands = hands or ["As Kd 7c 2h", "Qs Qd 9c 3h", "4s 4d 3c 3d"]
    state = Game(len(hands), rules).new_state(0, hands=hands)
    assert everywhere(state) > 3


# ---- 4, 5: the agents -----------------------------------------------------------------------


def test_field_case_04_all_seats_end_at_the_same_step() -> None:
    for rng, env in some_envs(40):
        env.reset(seed=rng.getrandbits(32))
        for _ in steps(env, rng):
            assert set(env.terminations) == set(env.agents)
            assert len(set(env.terminations.values())) == 1
            assert all(type(value) is bool for value in env.terminations.values())
            assert not any(env.truncations.values())
            over = state_of(env).is_terminal
            assert all(value == over for value in env.terminations.values())
            if not over:
                assert env.agents == env.possible_agents
        assert env.agents == []
        assert state_of(env).is_terminal


def test_field_case_05_agents_and_spaces_are_fixed_at_construction() -> None:
    env = make(num_players=5, rules=STAKED, rounds=2)
    agents = list(env.possible_agents)
    assert agents == [f"player_{seat}" for seat in range(5)]
    spaces = {a: (env.observation_space(a), env.action_space(a)) for a in agents}
    size = layout_of(env.unwrapped.game).size
    for seed in range(3):
        env.reset(seed=seed)
        listed = env.agents
        for _ in steps(env, random.Random(seed)):
            assert env.possible_agents == agents
            for agent in agents:
                assert env.observation_space(agent) is spaces[agent][0]
                assert env.action_space(agent) is spaces[agent][1]
                assert env.observation_space(agent).contains(env.observe(agent))
            assert env.state_space.contains(env.state())
        assert listed is not env.possible_agents
        assert env.possible_agents == agents
    assert list(spaces[agents[0]][0].spaces) == ["observation", "action_mask"]
    assert spaces[agents[0]][0]["observation"].shape == (size,)
    assert spaces[agents[0]][1].n == 26


# ---- 6: rewards -----------------------------------------------------------------------------


@pytest.mark.parametrize("reward", ["transfer", "drinks"])
def test_field_case_06_rewards_reach_every_seat_and_add_up(reward: Any) -> None:
    for rng, env in some_envs(30):
        settings = env.unwrapped.game.settings()
        env = make(**{**settings, "reward": reward})
        env.reset(seed=rng.getrandbits(32))
        n = env.unwrapped.game.num_players
        received = dict.fromkeys(env.possible_agents, 0.0)
        paid = [0.0] * n
        deals = 0
        for agent in steps(env, rng):
            # What last() says is all that was paid since the seat's own last step.
            _, cumulative, termination, truncation, _ = env.last()
            received[agent] += cumulative
            assert not truncation
            if not termination:
                if len(state_of(env).finished) > deals:
                    deals = len(state_of(env).finished)
                    rewards = state_of(env).finished[-1].rewards
                    assert [env.rewards[a] for a in env.possible_agents] == rewards
                    paid = [a + b for a, b in zip(paid, rewards, strict=True)]
                else:
                    assert not any(env.rewards.values())
                if reward == "transfer":
                    assert sum(env.rewards.values()) == 0
        returns = state_of(env).returns()
        assert [received[agent] for agent in env.possible_agents] == returns
        last = state_of(env).finished[-1].rewards
        assert [a + b for a, b in zip(paid, last, strict=True)] == returns
        if reward == "transfer":
            assert sum(returns) == 0
        else:
            assert all(value <= 0 for value in returns)


# ---- 7: one seat several times running ------------------------------------------------------


def test_field_case_07_consecutive_turns_of_one_seat() -> None:
    env = make(num_players=4)
    hands = ["Kd 8c 9h 2s", "Qd 2c 5h 6s", "As 8s Kh 9s", "3d 3c Ac 5d"]
    env.reset(seed=0, options={"hands": hands, "dealer": 0})
    for name in "SPLIT_0 SPLIT_0 SPLIT_0 SPLIT_0 FORCE COVER COVER".split():  # noqa: SIM905
        env.step(Action[name].value)
    for name in "LOOK FOLD SPLIT_1".split():  # noqa: SIM905
        assert env.agent_selection == "player_0"
        assert env.observe("player_0")["action_mask"][Action[name]] == 1
        assert env.last()[1] == 0
        env.step(Action[name].value)
    assert all(env.terminations.values())
    assert [env.rewards[agent] for agent in env.possible_agents] == state_of(env).returns()
    # Also from one deal into the next.
    env = make(num_players=2, rules="dahua", rounds=2)
    env.reset(seed=0, options={"hands": hands[:2], "dealer": 0})
    for name in "SPLIT_0 SPLIT_0 COVER FOLD".split():  # noqa: SIM905
        env.step(Action[name].value)
    assert env.agent_selection == "player_0"
    assert env.last()[1] == -1
    env.step(0)
    assert env._cumulative_rewards == {"player_0": 0, "player_1": 1}


# ---- 8, 9: reset and seeds ------------------------------------------------------------------


def test_field_case_08_reset_keeps_the_constructors_settings() -> None:
    env = make(num_players=3, rules=STAKED, rounds=2, dealer_rotation="rotate", reward="drinks")
    game = env.unwrapped.game
    for arguments in ({}, {"seed": 4}, {"seed": 4, "options": {"dealer": 2}}, {"options": {}}):
        env.reset(**arguments)
        assert env.unwrapped.game == game
        assert state_of(env).game is game
        for _ in steps(env, random.Random(0)):
            pass
        first = arguments.get("options", {}).get("dealer", 0)
        assert [deal.dealer for deal in state_of(env).finished] == [first, (first + 1) % 3]


@pytest.mark.parametrize("options", [None, {}, {"options": 1}, {"Hands": [], "seed": 3}])
def test_field_case_08_options_that_are_not_ours_are_tolerated(options: Any) -> None:
    env = make(num_players=2)
    env.reset(seed=3, options=options)
    plain = make(num_players=2)
    plain.reset(seed=3)
    assert picture(env) == picture(plain)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"hands": ["As Kd 7c 2h"]}, DealError, "expected 2 hands"),
        ({"hands": "As Kd 7c 2h"}, DealError, "expected a list of one hand per seat"),
        ({"hands": ["As Kd 7c 2h", "As Qd 9c 3h"]}, DealError, r"hands\[1\]: As is already in"),
        ({"hands": ["As Kd 7c 2h", "Xs Qd 9c 3h"]}, CardError, r"hands\[1\]: .*got 'Xs'"),
        ({"dealer": 2}, DealError, "dealer: expected a seat from 0 to 1, got 2"),
        ({"dealer": "player_1"}, DealError, "dealer: expected an integer, got 'player_1'"),
        ({"dealer": 1.5}, DealError, "dealer: expected an integer, got 1.5"),
        ([("dealer", 1)], DealError, "options: expected a dictionary"),
    ],
)
def test_field_case_08_malformed_options_of_ours_are_errors(
    options: Any, error: type[Exception], message: str
) -> None:
    env = make(num_players=2)
    env.reset(seed=1)
    before = picture(env)
    with pytest.raises(error, match=message):
        env.reset(seed=2, options=options)
    assert picture(env) == before


def test_field_case_09_zero_is_a_seed_and_plain_reset_goes_on() -> None:
    def hands(env: Any, **arguments: Any) -> Any:
        env.reset(**arguments)
        return state_of(env).deal.hands

    one, other = make(num_players=3), make(num_players=3)
    assert hands(one, seed=0) == hands(other, seed=0) != hands(one, seed=1)
    # Without a seed the stream goes on, in the same way in both; nothing is dealt twice.
    one.reset(seed=0)
    following = [hands(one) for _ in range(4)]
    other.reset(seed=0)
    assert [hands(other) for _ in range(4)] == following
    assert len({*following, hands(one, seed=0)}) == 5
    # Two environments that nobody seeded do not deal alike.
    assert hands(make(num_players=3)) != hands(make(num_players=3))


def test_field_case_09_global_generators_are_neither_read_nor_disturbed() -> None:
    env = make(num_players=4, dealer_rotation="random", rounds=2)

    def global_states() -> tuple[Any, ...]:
        return random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002

    records = []
    for outside in (1, 2):
        random.seed(outside)
        np.random.seed(outside)  # noqa: NPY002
        before = global_states()
        env.reset(seed=5)
        for _ in steps(env, random.Random(3)):
            pass
        assert global_states() == before
        records.append(state_of(env).to_record())
    assert records[0] == records[1]


def test_field_case_09_same_seed_same_game_in_another_process() -> None:
    code = (
        "from shuiyu_env import shuiyu_v0\n"
        "env = shuiyu_v0.env(num_players=5, rules='dahua')\n"
        "env.reset(seed=2**40 + 1)\n"
        "print(env.unwrapped.game_state.deal.hands)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[-1]
        for hash_seed in ("1", "2")
    }
    assert outputs == {str(Game(5, "dahua").new_state(2**40 + 1).deal.hands)}


# ---- 10, 11: copies, undo, replay -----------------------------------------------------------


def test_field_case_10_copies_in_the_middle_are_equal_and_independent() -> None:
    for rng, env in some_envs(25):
        env.reset(seed=rng.getrandbits(32))
        for _ in range(rng.randrange(40)):
            if not state_of(env).is_terminal:
                env.step(rng.choice(state_of(env).legal_actions()))
        copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
        for other in copies:
            assert picture(other) == picture(env)
        before = picture(env)
        for _ in steps(copies[0], random.Random(5)):
            pass
        assert picture(env) == before
        # The second copy and the original play the same game to the end.
        while env.agents:
            over = state_of(env).is_terminal
            action = None if over else rng.choice(state_of(env).legal_actions())
            env.step(action)
            copies[1].step(action)
            if env.agents:
                assert picture(copies[1]) == picture(env)
        # Also the deals that follow.
        env.reset()
        copies[1].reset()
        assert picture(copies[1]) == picture(env)


def test_field_case_10_an_environment_copies_before_reset() -> None:
    env = make(num_players=3)
    for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        other.reset(seed=4)
        env.reset(seed=4)
        assert picture(other) == picture(env)
        env = make(num_players=3)


def test_field_case_11_clone_undo_and_replay_agree_at_every_node() -> None:
    for seed in range(25):
        rng = random.Random(seed)
        game = random_game(rng, rounds=rng.randint(1, 3))
        layout = layout_of(game)

        def told(state: State) -> list[bytes]:
            seats = range(state.game.num_players)
            return [layout.encode(state.view(seat)).tobytes() for seat in seats]  # noqa: B023

        seen = []
        for state in random_states(game, rng, special=seed % 3 == 0):
            seen.append(told(state))
            replayed = Game.replay(json.loads(json.dumps(state.to_record())))
            for other in (state.clone(), replayed, copy.deepcopy(state)):
                assert other == state
                assert told(other) == seen[-1]
        for expected in reversed(seen):
            assert told(state) == expected
            if expected is not seen[0]:
                state.undo()


# ---- 12: observing at any time --------------------------------------------------------------


def test_field_case_12_observe_works_for_every_agent_at_any_time() -> None:
    for rng, env in some_envs(25):
        env.reset(seed=rng.getrandbits(32))
        for _ in steps(env, rng):
            for agent in env.possible_agents:
                seen = env.observe(agent)
                assert list(seen) == ["observation", "action_mask"]
                assert env.observation_space(agent).contains(seen)
        assert env.agents == []
        for agent in env.possible_agents:
            seen = env.observe(agent)
            assert env.observation_space(agent).contains(seen)
            assert not seen["action_mask"].any()
            assert seen["observation"].any()


# ---- 13: no leak ----------------------------------------------------------------------------


def test_field_case_13_no_leak_through_views() -> None:
    # The long form, with observations, masks and histories, is in test_view.py.
    assert sum(map(check_deal, range(50_000, 50_050))) > 100


def test_field_case_13_no_leak_through_the_environment() -> None:
    """Exchange what a seat does not see: observation, info and rendering stay as they were."""
    compared = 0
    for seed in range(120):
        rng = random.Random(seed)
        game = random_game(rng, max_seats=5)
        n = game.num_players
        viewer, dealer = rng.randrange(n), rng.randrange(n)
        # Two deals an episode, so that infos carry the first as it was seen.
        settings = {**game.settings(), "rounds": 2, "dealer_rotation": "fixed"}
        settings |= {"render_mode": "ansi", "render_view": viewer}
        hands = deal_some(rng, game)
        plain = plain_deal(game, hands, dealer)
        actions: list[int] = []
        length = rng.choice([n, 2 * n, 4 * n, 1000])
        while not plain.over and len(actions) < length:
            actions.append(rng.choice(plain.legal()))
            plain.apply(actions[-1])
        other = other_game(rng, game, plain, actions, viewer)
        if other is None or not hidden_hands(plain, viewer):
            continue
        compared += 1
        told = []
        for these, done in ((hands, actions), other):
            env = make(**settings)
            env.reset(seed=9, options={"hands": these, "dealer": dealer})
            seen = []
            for action in [*done, None]:
                agent = f"player_{viewer}"
                seen.append(
                    (
                        {name: array.tobytes() for name, array in env.observe(agent).items()},
                        copy.deepcopy(env.infos[agent]),
                        dict(env.rewards),
                        env.agent_selection,
                        env.render(),
                    )
                )
                if action is not None:
                    env.step(action)
            told.append(seen)
        assert told[0] == told[1], f"seed {seed}"
    assert compared > 60


# ---- 14, 15, 16, 17: the vector -------------------------------------------------------------


def test_field_case_14_information_states_are_told_apart() -> None:
    for rules, num_players in RECALL:
        assert check_recall(rules, num_players, 100, seed=99) > 100


def test_field_case_14_splits_of_equal_strengths_are_told_apart() -> None:
    game = Game(2)
    views = []
    for split in (1, 2):
        state = game.new_state(0, hands=["Ks Qd Jc Th", "As Kd 7c 2h"])
        views.append(layout_of(game).encode(play(state, f"SPLIT_{split}").view(0)))
    assert views[0].tobytes() != views[1].tobytes()


def test_field_case_15_named_views_share_memory_with_the_vector() -> None:
    env = make(num_players=4, rules=STAKED)
    env.reset(seed=1)
    for _ in steps(env, random.Random(1)):
        seen = env.observe(env.agent_selection)["observation"]
        views = env.unwrapped.layout.views(seen)
        assert all(np.shares_memory(view, seen) for view in views.values())
        total = sum(float(view.sum()) for view in views.values())
        assert total == pytest.approx(float(seen.sum()), rel=1e-5)
        if state_of(env).phase not in (Phase.STAKE, Phase.OVER):
            assert views["hand"].sum() == 4


def test_field_case_16_the_page_of_shapes_is_made_from_the_code() -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "docs" / "make_environment.py", "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    for field in layout_of(Game(2, STAKED)).fields:
        assert f"`{field.name}`" in page


def test_field_case_16_the_docstring_states_the_true_shapes() -> None:
    text = shuiyu_v0.__doc__
    assert text is not None
    two, four = (layout_of(Game(n)).size for n in (2, 4))
    assert f"{two} for two seats, {four} for four" in text
    assert "`Discrete(23)`" in text


def test_field_case_17_rotating_the_seats_rotates_the_observations() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        game = random_game(rng)
        n = game.num_players
        hands, dealer, turn = deal_some(rng, game), rng.randrange(n), rng.randrange(1, n)
        envs = [make(**game.settings()) for _ in range(2)]
        envs[0].reset(seed=0, options={"hands": hands, "dealer": dealer})
        turned = [hands[(seat - turn) % n] for seat in range(n)]
        envs[1].reset(seed=0, options={"hands": turned, "dealer": (dealer + turn) % n})
        while True:
            for seat in range(n):
                agents = f"player_{seat}", f"player_{(seat + turn) % n}"
                one, other = (env.observe(a) for env, a in zip(envs, agents, strict=True))
                assert one["observation"].tobytes() == other["observation"].tobytes()
                assert one["action_mask"].tobytes() == other["action_mask"].tobytes()
                assert envs[0].rewards[agents[0]] == envs[1].rewards[agents[1]]
            if state_of(envs[0]).is_terminal:
                break
            action = rng.choice(state_of(envs[0]).legal_actions())
            for env in envs:
                env.step(action)


# ---- 18: rendering --------------------------------------------------------------------------


@pytest.mark.parametrize("num_players", range(2, 14))
def test_field_case_18_every_number_of_seats_is_drawn_to_the_last_frame(num_players: int) -> None:
    rng = random.Random(num_players)
    settings = {"num_players": num_players, "rules": STAKED}
    text = make(**settings, render_mode="ansi")
    drawn = make(**settings, render_mode="rgb_array")
    for env in (text, drawn):
        env.reset(seed=num_players)
    first, first_text = drawn.render(), text.render()
    while not state_of(text).is_terminal:
        action = rng.choice(state_of(text).legal_actions())
        for env in (text, drawn):
            env.step(action)
    last, last_text = drawn.render(), text.render()
    for frame in (first, last):
        assert frame.dtype == np.uint8
        assert frame.shape == (800, 1280, 3)
        assert len(np.unique(frame[::8, ::8].reshape(-1, 3), axis=0)) > 5
    assert (first != last).any()
    assert isinstance(last_text, str)
    assert last_text != first_text
    # The last frame is the final state: what everybody won stands in it.
    for seat, units in enumerate(state_of(text).returns()):
        line = next(line for line in last_text.splitlines() if f"player_{seat} " in line)
        assert line.split()[-1] == (f"{units:+g}" if units else "0")
    # It stays so when the seats have gone.
    for _ in steps(text, rng):
        pass
    for _ in steps(drawn, rng):
        pass
    assert text.render() == last_text
    assert (drawn.render() == last).all()
    for env in (text, drawn):
        env.close()
        env.close()


def test_field_case_18_human_mode_returns_nothing_and_closes_twice() -> None:
    env = make(num_players=3, render_mode="human")
    env.unwrapped.metadata = {**env.unwrapped.metadata, "render_fps": 0}
    env.reset(seed=1)
    for _ in steps(env, random.Random(2)):
        assert env.render() is None
    assert env.render() is None
    env.close()
    env.close()
    make(num_players=2).close()


def test_field_case_18_a_wrong_render_mode_is_an_error() -> None:
    with pytest.raises(RulesError, match="did you mean 'rgb_array'"):
        make(render_mode="rgb array")


# ---- the presets, end to end ----------------------------------------------------------------


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_play_to_the_end_at_every_table(name: str) -> None:
    for n in range(2, 14):
        env = make(num_players=n, rules=name)
        env.reset(seed=n)
        for _ in steps(env, random.Random(n)):
            pass
        assert sum(state_of(env).returns()) == 0


def test_the_plain_rules_and_the_package_name_the_same_actions() -> None:
    assert [action.name for action in Action] == plain_rules.ACTION_NAMES
    assert dataclasses.asdict(RuleSet())["deck"] == dataclasses.asdict(Deck())
