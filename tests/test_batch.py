"""The array contract, held against single states."""

from __future__ import annotations

import json

import numpy as np
import pytest
from games import games
from hypothesis import given, settings
from hypothesis import strategies as st

from shuiyu_env import Game
from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.errors import DealError, IllegalActionError, RulesError, ShuiyuError
from shuiyu_env.core.game import State
from shuiyu_env.observation import layout_of

ARRAYS = ("observation", "action_mask", "seat", "reward", "done")


def snapshot(env: BatchEnv) -> dict[str, np.ndarray]:
    return {name: getattr(env, name).copy() for name in ARRAYS}


def assert_row_is(env: BatchEnv, i: int, state: State) -> None:
    seat = state.current_player
    assert env.seat[i] == seat
    np.testing.assert_array_equal(env.observation[i], layout_of(env.game).encode(state.view(seat)))
    assert tuple(np.flatnonzero(env.action_mask[i])) == state.legal_actions()


@settings(max_examples=40, deadline=None)
@given(game=games(max_rounds=3), seed=st.integers(0, 2**64 - 1), num_envs=st.integers(1, 4))
def test_every_row_is_the_state_of_its_own_stream(game: Game, seed: int, num_envs: int) -> None:
    env = BatchEnv(game, num_envs, seed)
    index = [0] * num_envs
    states = [game.new_state(seed, stream=i) for i in range(num_envs)]
    for _ in range(40):
        actions = env.sample_actions()
        expected_reward = np.zeros((num_envs, game.num_players), dtype=np.float32)
        expected_done = np.zeros(num_envs, dtype=bool)
        for i in range(num_envs):
            assert_row_is(env, i, states[i])
            states[i].apply(actions[i])
            expected_reward[i] = states[i].rewards()
            if states[i].is_terminal:
                expected_done[i] = True
                index[i] += game.rounds
                states[i] = game.new_state(seed, stream=i, index=index[i])
        env.step(actions)
        np.testing.assert_array_equal(env.reward, expected_reward)
        np.testing.assert_array_equal(env.done, expected_done)


def test_what_an_environment_plays_does_not_depend_on_the_batch() -> None:
    small, large = BatchEnv(Game(3), 2, seed=5), BatchEnv(Game(3), 7, seed=5, threads=2)
    for _ in range(60):
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(small, name), getattr(large, name)[:2])
        actions = large.sample_actions()
        np.testing.assert_array_equal(small.sample_actions(), actions[:2])
        small.step(actions[:2])
        large.step(actions)


def test_arrays_are_written_in_place_and_shared_with_torch() -> None:
    torch = pytest.importorskip("torch")
    env = BatchEnv(Game(2), 3, seed=0)
    arrays = [getattr(env, name) for name in ARRAYS]
    tensors = [torch.from_numpy(array) for array in arrays]
    for _ in range(10):
        env.step(env.sample_actions())
    env.reset()
    for name, array, tensor in zip(ARRAYS, arrays, tensors, strict=True):
        assert getattr(env, name) is array
        np.testing.assert_array_equal(tensor.numpy(), array)


def test_plain_reset_goes_on_with_the_next_deals() -> None:
    env = BatchEnv(Game(2), 2, seed=9)
    env.step(env.sample_actions())
    env.reset()
    assert not env.reward.any()
    assert not env.done.any()
    for i in range(2):
        assert_row_is(env, i, env.game.new_state(9, stream=i, index=1))


def test_given_hands_and_dealers() -> None:
    game = Game(3, dealer_rotation="rotate", rounds=2)
    hands = np.array([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 12]])
    env = BatchEnv(game, 2, seed=1)
    env.reset(hands=hands, dealer=[2, 0])
    for i, dealer in enumerate((2, 0)):
        assert_row_is(env, i, game.new_state(hands=hands.tolist(), dealer=dealer))
    both = np.stack([hands, hands + 20])
    env.reset(hands=both, dealer=1)
    for i in range(2):
        assert_row_is(env, i, game.new_state(hands=both[i].tolist(), dealer=1))
    # Only the first deal is given: the episode's second comes from the stream.
    while len(env.states[0].finished) == 0:
        env.step(env.sample_actions())
    assert env.states[0].deal.hands == game.new_state(1, index=5).deal.hands


def test_state_dict_goes_on_exactly_also_through_json() -> None:
    game = Game(2, "dahua", rounds=2, dealer_rotation="random")
    env = BatchEnv(game, 4, seed=3)
    env.reset(hands=[[0, 1, 2, 3], [4, 5, 6, 7]])
    for _ in range(11):
        env.step(env.sample_actions())
    other = BatchEnv(game, 4, seed=3)
    other.load_state_dict(json.loads(json.dumps(env.state_dict())))
    for _ in range(40):
        for name, array in snapshot(env).items():
            np.testing.assert_array_equal(getattr(other, name), array)
        actions = env.sample_actions()
        np.testing.assert_array_equal(other.sample_actions(), actions)
        env.step(actions)
        other.step(actions)


def test_state_dict_of_another_batch_is_refused() -> None:
    saved = BatchEnv(Game(2), 2, seed=3).state_dict()
    for env, name in (
        (BatchEnv(Game(3), 2, seed=3), "game"),
        (BatchEnv(Game(2), 1, seed=3), "num_envs"),
        (BatchEnv(Game(2), 2, seed=4), "seed"),
    ):
        with pytest.raises(ShuiyuError, match=f"expected {name}"):
            env.load_state_dict(saved)


@pytest.mark.parametrize("bad", [99, -1, 8])
def test_one_illegal_action_is_named_and_nothing_changes(bad: int) -> None:
    env = BatchEnv(Game(2), 4, seed=0)
    env.step(env.sample_actions())
    before = snapshot(env)
    actions = env.sample_actions()
    actions[2] = bad
    with pytest.raises(IllegalActionError, match=r"environment 2: .* seat 1 .* ARRANGE.*SPLIT_0"):
        env.step(actions)
    for name, array in before.items():
        np.testing.assert_array_equal(getattr(env, name), array)
    actions[2] = np.flatnonzero(env.action_mask[2])[0]
    env.step(actions)


@pytest.mark.parametrize("actions", [[0], [0.0, 0.0], [[0, 0]], [True, False], None, ["a", "b"]])
def test_actions_of_a_wrong_shape_or_type(actions: object) -> None:
    env = BatchEnv(Game(2), 2, seed=0)
    with pytest.raises(IllegalActionError, match=r"expected integers of shape \(2,\)"):
        env.step(actions)  # type: ignore[arg-type]


def test_bad_construction_and_bad_hands() -> None:
    for kwargs in ({"num_envs": 0}, {"num_envs": 1.5}, {"num_envs": 1, "threads": 0}):
        with pytest.raises(RulesError, match="expected a whole number of 1 or more"):
            BatchEnv(Game(2), seed=0, **kwargs)  # type: ignore[arg-type]
    with pytest.raises(DealError, match="seed"):
        BatchEnv(Game(2), 1, seed=0.5)  # type: ignore[arg-type]
    env = BatchEnv(Game(2), 2, seed=0)
    before = snapshot(env)
    for kwargs in (
        {"hands": [[0, 1, 2, 3]]},
        {"hands": [[0, 1, 2, 3], [3, 4, 5, 6]]},
        {"hands": [[0, 1, 2, 3], [4, 5, 6, 52]]},
        {"dealer": 2},
        {"dealer": [0, 1, 0]},
        {"dealer": 0.5},
    ):
        with pytest.raises(ShuiyuError):
            env.reset(**kwargs)  # type: ignore[arg-type]
    for name, array in before.items():
        np.testing.assert_array_equal(getattr(env, name), array)
