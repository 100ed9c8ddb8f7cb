"""The compiled engine, held against single states of the core."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from games import DECKS, examples, games, hands_rich_in_specials, random_rules
from hypothesis import given
from hypothesis import strategies as st

from shuiyu_env import PRESETS, Deck, Game, RuleSet
from shuiyu_env.batch import BatchEnv, kernel
from shuiyu_env.core.deals import Purpose, deal_hands, philox4x64
from shuiyu_env.core.errors import DealError, IllegalActionError, RulesError, ShuiyuError
from shuiyu_env.core.game import State
from shuiyu_env.observation import ViewBatch, layout_of
from shuiyu_env.tables import hand_table

ARRAYS = ("observation", "action_mask", "seat", "reward", "settled", "done")


@pytest.fixture(autouse=True)
def _threads_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few environments be stepped by several threads, too."""
    monkeypatch.setattr(BatchEnv, "min_envs_per_thread", 1)


class PlainBatch:
    """The array contract as a plain loop over states: what the engine must equal."""

    def __init__(self, game: Game, num_envs: int, seed: int) -> None:
        self.game = game
        self.seed = seed
        self.used = [0] * num_envs
        self.draws = [0] * num_envs
        self.deals = 0
        self.reset()

    def reset(
        self, hands: Sequence[Any] | None = None, dealer: Sequence[int] | None = None
    ) -> None:
        self.states = [
            self.begin(
                i, None if hands is None else hands[i], None if dealer is None else dealer[i]
            )
            for i in range(len(self.used))
        ]
        self.reward = np.zeros((len(self.used), self.game.num_players), dtype=np.float32)
        self.settled = np.zeros(len(self.used), dtype=np.bool_)
        self.done = np.zeros(len(self.used), dtype=np.bool_)

    def begin(self, i: int, hands: Any = None, dealer: int | None = None) -> State:
        state = self.game.new_state(self.seed, hands, dealer, stream=i, index=self.used[i])
        self.used[i] += 1
        return state

    def step(self, actions: Sequence[int]) -> None:
        self.reward[:] = 0.0
        self.done[:] = False
        for i, action in enumerate(actions):
            state = self.states[i]
            state.apply(int(action))
            self.reward[i] = state.rewards()
            self.settled[i] = state.is_terminal or not state.deal.actions
            if state.is_terminal:
                self.done[i] = True
                self.states[i] = self.begin(i)
            elif not state.deal.actions:
                self.used[i] += 1
            self.deals += int(self.settled[i])

    def arrays(self) -> dict[str, np.ndarray]:
        game = self.game
        seats = [state.deal.seat for state in self.states]
        views = [state.view(seat) for state, seat in zip(self.states, seats, strict=True)]
        table = hand_table(game.rules.deck, game.rules.tie_break)
        mask = np.zeros((len(seats), game.num_actions), dtype=np.int8)
        for row, state in zip(mask, self.states, strict=True):
            row[list(state.legal_actions())] = 1
        batch = ViewBatch.from_views(views, table)
        return {
            "observation": layout_of(game).encode_many(batch, table),
            "action_mask": mask,
            "seat": np.array(seats),
            "reward": self.reward,
            "settled": self.settled,
            "done": self.done,
        }

    def sample_actions(self) -> list[int]:
        """As documented: one 32-bit word a draw, eight a block."""
        actions = []
        for i, state in enumerate(self.states):
            legal = state.legal_actions()
            counter = (0, self.draws[i] // 8, int(Purpose.ACTIONS), 0)
            word = philox4x64(counter, self.seed, i)[self.draws[i] % 8 // 2]
            word = word >> 32 if self.draws[i] % 2 else word & 0xFFFFFFFF
            actions.append(legal[word * len(legal) >> 32])
            self.draws[i] += 1
        return actions


def assert_equal(env: BatchEnv, plain: PlainBatch, context: object = "") -> None:
    for name, expected in plain.arrays().items():
        np.testing.assert_array_equal(getattr(env, name), expected, f"{name} {context}")


def snapshot(env: BatchEnv) -> dict[str, np.ndarray]:
    return {name: getattr(env, name).copy() for name in ARRAYS}


def assert_row_is(env: BatchEnv, i: int, state: State) -> None:
    seat = state.current_player
    assert env.seat[i] == seat
    np.testing.assert_array_equal(env.observation[i], layout_of(env.game).encode(state.view(seat)))
    assert tuple(np.flatnonzero(env.action_mask[i])) == state.legal_actions()


@examples(30)
@given(game=games(max_rounds=3), seed=st.integers(0, 2**64 - 1))
def test_every_seat_sees_what_the_core_shows_it(game: Game, seed: int) -> None:
    n = game.num_players
    env, plain = BatchEnv(game, 2, seed), PlainBatch(game, 2, seed)
    for _ in range(30):
        before = snapshot(env)
        for seat in range(n):
            seats = (seat, (seat + 1) % n)
            for row, viewer, state in zip(env.observe(seats), seats, plain.states, strict=True):
                shown = layout_of(game).encode(state.view(viewer))
                np.testing.assert_array_equal(row, shown, f"seat {viewer}")
        np.testing.assert_array_equal(env.observe(env.seat), env.observation)
        for name, array in snapshot(env).items():
            np.testing.assert_array_equal(array, before[name])
        actions = env.sample_actions()
        plain.sample_actions()
        env.step(actions)
        plain.step(actions)


@pytest.mark.parametrize("seats", [[0, 2], [0, -1], [0], 0, [0.0, 1.0], None])
def test_seats_that_do_not_exist_see_nothing(seats: Any) -> None:
    with pytest.raises(IllegalActionError, match="seats"):
        BatchEnv(Game(2), 2, 0).observe(seats)


@examples(30)
@given(game=games(max_rounds=3), seed=st.integers(0, 2**64 - 1), num_envs=st.integers(1, 4))
def test_every_row_is_the_state_of_its_own_stream(game: Game, seed: int, num_envs: int) -> None:
    env, plain = BatchEnv(game, num_envs, seed), PlainBatch(game, num_envs, seed)
    for _ in range(30):
        assert_equal(env, plain)
        actions = env.sample_actions()
        assert actions.tolist() == plain.sample_actions()
        env.step(actions)
        plain.step(actions)


def agree(game: Game, num_envs: int, num_deals: int, rng: random.Random) -> int:
    """Play both, a third from hands rich in specials; return the number of deals."""
    seed = rng.getrandbits(64)
    env, plain = BatchEnv(game, num_envs, seed, threads=2), PlainBatch(game, num_envs, seed)
    deck, n = game.rules.deck, game.num_players
    step = 0
    # Long enough for the first deal to end everywhere.
    longest = game.rounds * (4 * n + 2)
    while plain.deals < num_deals:
        if step % (3 * longest) == 2 * longest:
            hands = [hands_rich_in_specials(rng, deck, n) for _ in range(num_envs)]
            dealers = [rng.randrange(n) for _ in range(num_envs)]
            env.reset(hands, dealers)
            plain.reset(hands, dealers)
        assert_equal(env, plain, (game, seed, step))
        actions = env.sample_actions()
        env.step(actions)
        plain.step(actions)
        step += 1
    return plain.deals


SETTINGS: list[dict[str, Any]] = [
    {"rules": PRESETS["nanning"]},
    {"rules": PRESETS["dahua"], "rounds": 2, "dealer_rotation": "rotate"},
    {"rules": PRESETS["dahua_house"], "reward": "drinks"},
    {"rules": RuleSet(declare="in_turn", max_stake=3), "dealer_rotation": "random"},
    {"rules": RuleSet(tie_break="next_group", specials="at_showdown", cover_lost_to_special=2)},
]


@pytest.mark.parametrize("num_players", [2, 3, 4, 7, 13])
@pytest.mark.parametrize("arguments", SETTINGS, ids=[f"rules{i}" for i in range(len(SETTINGS))])
def test_engine_equals_core(arguments: dict[str, Any], num_players: int) -> None:
    agree(Game(num_players, **arguments), 40, 120, random.Random(num_players))


@pytest.mark.slow
def test_engine_equals_core_over_200_000_deals() -> None:
    rng = random.Random(2)
    deals = 0
    for num_players, share in ((2, 14_000), (3, 8_000), (4, 6_000), (7, 3_000), (13, 1_200)):
        for arguments in SETTINGS:
            deals += agree(Game(num_players, **arguments), 400, share, rng)
    while deals < 205_000:
        rules = random_rules(rng, DECKS)
        game = Game(
            rng.randint(2, min(13, rules.deck.max_seats)),
            rules,
            rounds=rng.randint(1, 3),
            dealer_rotation=rng.choice(["fixed", "rotate", "random"]),
            reward=rng.choice(["transfer", "drinks"]),
        )
        deals += agree(game, 200, 1_000, rng)
    print(f"{deals:,} deals")


def first_deals(game: Game, num_envs: int, resets: int, seed: int) -> np.ndarray:
    """Return ``[deals, num_players, 4]`` cards of the deals that resets begin."""
    env = BatchEnv(game, num_envs, seed)
    dealt = []
    for _ in range(resets):
        dealt.append(kernel.hands_of(env._batch))
        env.reset()
    return np.concatenate(dealt)


def chi_square_is_plausible(counts: np.ndarray) -> bool:
    """Whether counts of equally likely cells scatter as chance does, within 5 deviations."""
    expected = counts.sum() / counts.size
    statistic = float(((counts - expected) ** 2 / expected).sum())
    freedom = counts.size - 1
    return abs(statistic - freedom) < 5 * (2 * freedom) ** 0.5


def test_every_seat_gets_every_card_equally_often() -> None:
    hands = first_deals(Game(4), 2_000, 100, seed=11)
    for seat in range(4):
        assert chi_square_is_plausible(np.bincount(hands[:, seat].ravel(), minlength=52))


def test_every_hand_of_a_small_deck_comes_equally_often() -> None:
    deck = Deck(4, 4)
    hands = first_deals(Game(4, RuleSet(deck=deck)), 2_000, 100, seed=12)
    table = hand_table(deck, "card")
    for seat in range(4):
        index = table.index(hands[:, seat])
        assert chi_square_is_plausible(np.bincount(index, minlength=table.num_hands))


def test_deals_are_those_of_the_specified_generator() -> None:
    game = Game(3, RuleSet(deck=Deck(13, 3)))
    hands = first_deals(game, 5, 4, seed=2**64 - 3)
    for reset in range(4):
        for i in range(5):
            expected = deal_hands(game.rules.deck, 3, 2**64 - 3, i, reset)
            np.testing.assert_array_equal(hands[reset * 5 + i], expected)


@pytest.mark.parametrize("threads", [2, 3, 64])
def test_what_an_environment_plays_depends_on_neither_batch_nor_threads(threads: int) -> None:
    small, large = BatchEnv(Game(3), 2, seed=5), BatchEnv(Game(3), 7, seed=5, threads=threads)
    for _ in range(60):
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(small, name), getattr(large, name)[:2])
        actions = large.sample_actions()
        np.testing.assert_array_equal(small.sample_actions(), actions[:2])
        small.step(actions[:2])
        large.step(actions)


def test_no_thread_gets_too_little_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchEnv, "min_envs_per_thread", 8)
    for num_envs, threads in ((4, 1), (15, 1), (16, 2), (100, 3)):
        assert BatchEnv(Game(2), num_envs, seed=0, threads=3).threads == threads


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
    env = BatchEnv(Game(2, rounds=2), 2, seed=9)
    env.step(env.sample_actions())
    env.reset()
    assert not env.reward.any()
    assert not env.done.any()
    for i in range(2):
        # One deal was begun, so one is used.
        assert_row_is(env, i, env.game.new_state(9, stream=i, index=1))


def test_given_hands_and_dealers() -> None:
    game = Game(3, dealer_rotation="rotate", rounds=2)
    hands = np.array([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 12]])
    env = BatchEnv(game, 2, seed=1)
    env.reset(hands=hands, dealer=[2, 0])
    for i, dealer in enumerate((2, 0)):
        assert_row_is(env, i, game.new_state(hands=hands.tolist(), dealer=dealer))
    both = np.stack([hands, hands + 20])
    env.reset(hands=both[:, :, ::-1], dealer=1)
    for i in range(2):
        assert_row_is(env, i, game.new_state(hands=both[i].tolist(), dealer=1))


def test_state_dict_goes_on_exactly_also_through_json() -> None:
    game = Game(2, "dahua", rounds=2, dealer_rotation="random")
    env = BatchEnv(game, 4, seed=3)
    env.reset(hands=[[0, 1, 2, 3], [4, 5, 6, 7]])
    for _ in range(11):
        env.step(env.sample_actions())
    saved = env.state_dict()
    as_json = json.loads(json.dumps(saved, default=lambda array: array.tolist()))
    others = [BatchEnv(game, 4, seed=3), BatchEnv(game, 4, seed=3, threads=2)]
    others[0].load_state_dict(saved)
    others[1].load_state_dict(as_json)
    for _ in range(40):
        actions = env.sample_actions()
        for other in others:
            for name, array in snapshot(env).items():
                np.testing.assert_array_equal(getattr(other, name), array)
            np.testing.assert_array_equal(other.sample_actions(), actions)
            other.step(actions)
        env.step(actions)


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_go_on_by_themselves(duplicate: Callable[[BatchEnv], BatchEnv]) -> None:
    env = BatchEnv(Game(3, "dahua"), 5, seed=3, threads=2)
    for _ in range(7):
        env.step(env.sample_actions())
    other = duplicate(env)
    before = snapshot(env)
    for _ in range(9):
        other.step(other.sample_actions())
    for name, array in before.items():
        np.testing.assert_array_equal(getattr(env, name), array)
    for _ in range(9):
        env.step(env.sample_actions())
    for name, array in snapshot(env).items():
        np.testing.assert_array_equal(getattr(other, name), array)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork()")
def test_a_forked_child_steps_with_threads_of_its_own() -> None:
    code = (
        "import os, sys\n"
        "from shuiyu_env import Game\n"
        "from shuiyu_env.batch import BatchEnv\n"
        "BatchEnv.min_envs_per_thread = 1\n"
        "env = BatchEnv(Game(2), 4, seed=0, threads=2)\n"
        "env.step(env.sample_actions())\n"
        "child = os.fork()\n"
        "env.step(env.sample_actions())\n"
        "if child:\n"
        "    sys.exit(os.waitpid(child, 0)[1])\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_state_dict_of_another_batch_is_refused() -> None:
    saved = BatchEnv(Game(2), 2, seed=3).state_dict()
    for env, name in (
        (BatchEnv(Game(3), 2, seed=3), "game"),
        (BatchEnv(Game(2), 1, seed=3), "num_envs"),
        (BatchEnv(Game(2), 2, seed=4), "seed"),
    ):
        before = snapshot(env)
        with pytest.raises(ShuiyuError, match=f"expected {name}"):
            env.load_state_dict(saved)
        for array_name, array in before.items():
            np.testing.assert_array_equal(getattr(env, array_name), array)


def edited(saved: dict[str, Any], name: str, column: Any, value: float) -> dict[str, Any]:
    changed = saved[name].astype(np.asarray(value).dtype)
    changed[column] = value
    return saved | {name: changed}


@pytest.mark.parametrize(
    ("name", "column", "value", "message"),
    [
        ("head", (0, kernel.PHASE), 10**8, "expected 1 to 5"),
        ("head", (1, kernel.SEAT), -1, "expected 0 to 1"),
        ("head", (0, 0), np.nan, "expected head of shape"),
        ("seats", ..., 99, "expected"),
        ("seats", (0, 0, 0), -2, "expected -1 to 2"),
        ("counters", (0, 0), -1, "expected 0 or more"),
    ],
)
def test_edited_state_dict_is_refused(name: str, column: Any, value: float, message: str) -> None:
    env = BatchEnv(Game(2), 2, seed=3)
    before = snapshot(env)
    with pytest.raises(ShuiyuError, match=message):
        env.load_state_dict(edited(env.state_dict(), name, column, value))
    for array_name, array in before.items():
        np.testing.assert_array_equal(getattr(env, array_name), array)


def test_what_is_legal_does_not_depend_on_the_users_arrays() -> None:
    env, other = BatchEnv(Game(2), 3, seed=1), BatchEnv(Game(2), 3, seed=1)
    env.action_mask[:] = 1
    env.seat[:] = 77
    with pytest.raises(IllegalActionError, match=r"environment 2: .* seat 0 .*SPLIT_2"):
        env.step([0, 0, 8])
    env.action_mask[:] = 0
    actions = env.sample_actions()
    np.testing.assert_array_equal(actions, other.sample_actions())
    env.step(actions)
    other.step(actions)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(env, name), getattr(other, name))


@pytest.mark.parametrize("damage", [None, [1, 2], "text"])
def test_damaged_state_dict_is_refused(damage: object) -> None:
    env = BatchEnv(Game(2), 2, seed=3)
    saved = env.state_dict() | {"seats": damage}
    with pytest.raises(ShuiyuError, match="expected seats"):
        env.load_state_dict(saved)
    with pytest.raises(ShuiyuError, match="expected a mapping"):
        env.load_state_dict(damage)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [99, -1, 8, 2**40])
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


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8, np.int64])
def test_actions_of_any_integer_type(dtype: type) -> None:
    env, other = BatchEnv(Game(2), 2, seed=0), BatchEnv(Game(2), 2, seed=0)
    actions = env.sample_actions()
    env.step(actions)
    other.step(np.repeat(actions, 2).astype(dtype)[::2])
    np.testing.assert_array_equal(env.observation, other.observation)


@pytest.mark.parametrize("kwargs", [{"num_envs": 0}, {"num_envs": 1.5}, {"num_envs": True}])
def test_bad_construction(kwargs: dict[str, Any]) -> None:
    with pytest.raises(RulesError, match="expected a whole number of 1 or more"):
        BatchEnv(Game(2), seed=0, **kwargs)
    with pytest.raises(RulesError, match="expected a Game"):
        BatchEnv("nanning", 2, 0)  # type: ignore[arg-type]
    with pytest.raises(DealError, match="seed"):
        BatchEnv(Game(2), 1, seed=True)
    with pytest.raises(RulesError, match="threads"):
        BatchEnv(Game(2), 1, seed=0, threads=0)
    with pytest.raises(DealError, match="seed"):
        BatchEnv(Game(2), 1, seed=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"hands": [[0, 1, 2, 3]]}, "hands: expected integers of shape"),
        ({"hands": [[0, 1, 2, 3], [3, 4, 5, 6]]}, "environment 0: .* already in"),
        ({"hands": [[0, 1, 2, 3], [4, 5, 6, 52]]}, "environment 0: .*from 0 to 51"),
        ({"hands": [[[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 1, 2, 3], [4, 5, 6, 6]]]}, "environment 1"),
        ({"dealer": 2}, r"dealer\[0\]: expected a seat from 0 to 1, got 2"),
        ({"dealer": [0, -1]}, r"dealer\[1\]"),
        ({"dealer": [0, 1, 0]}, "dealer: expected integers of shape"),
        ({"dealer": 0.5}, "dealer: expected integers"),
    ],
)
def test_bad_hands_and_dealers(kwargs: dict[str, Any], message: str) -> None:
    env = BatchEnv(Game(2), 2, seed=0)
    before = snapshot(env)
    with pytest.raises(DealError, match=message):
        env.reset(**kwargs)
    for name, array in before.items():
        np.testing.assert_array_equal(getattr(env, name), array)
    assert_row_is(env, 0, env.game.new_state(0))


def test_memory_of_an_environment_heads_up_is_below_4_kib() -> None:
    env = BatchEnv(Game(2), 8, seed=0)
    assert env.nbytes / 8 < 4096


def test_engine_runs_where_nothing_can_be_cached() -> None:
    code = (
        "from numba.core import caching\n"
        "caching.CacheImpl._locator_classes = []\n"
        "from shuiyu_env.batch import kernel\n"
        "legal = kernel.np.array([1, 2], dtype='uint32')\n"
        "assert kernel.first_illegal(legal, kernel.np.array([0, 0])) == 1\n"
        "assert not kernel.first_illegal.stats.cache_path\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_compiles_nothing_and_the_second_start_loads_from_the_cache() -> None:
    code = (
        "from shuiyu_env import Game\n"
        "from shuiyu_env.batch import BatchEnv, kernel\n"
        "functions = [kernel.begin, kernel.step, kernel.sample, kernel.first_illegal]\n"
        "assert not any(function.signatures for function in functions)\n"
        "env = BatchEnv(Game(2), 2, seed=0)\n"
        "env.step(env.sample_actions())\n"
        "print(sum(sum(f.stats.cache_misses.values()) for f in functions))\n"
    )
    misses = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
        ).stdout.split()[-1]
        for _ in range(2)
    ]
    assert misses[1] == "0"


@examples(15)
@given(game=games(max_rounds=2), seed=st.integers(0, 2**64 - 1))
def test_a_branch_is_what_a_step_would_have_been(game: Game, seed: int) -> None:
    env = BatchEnv(game, 5, seed, threads=2)
    for _ in range(25):
        actions = env.sample_actions()
        before = snapshot(env)
        copies = env.branch(np.arange(5)[::-1], actions[::-1])
        assert copies.num_envs == 5
        for name, array in before.items():
            np.testing.assert_array_equal(getattr(env, name), array)
        env.step(actions)
        # Where the deal is over, the copy goes on with another one.
        same = ~env.settled
        for name in ("reward", "settled", "done"):
            np.testing.assert_array_equal(getattr(copies, name)[::-1], getattr(env, name))
        for name in ("observation", "action_mask", "seat"):
            np.testing.assert_array_equal(
                getattr(copies, name)[::-1][same], getattr(env, name)[same]
            )


def test_one_environment_branches_into_all_its_actions_down_to_the_end() -> None:
    game = Game(3, "dahua")
    hands = [[0, 5, 10, 15], [20, 25, 30, 35], [40, 45, 50, 3]]
    env = BatchEnv(game, 2, seed=4)
    env.reset(hands, dealer=[2, 1])
    states = {0: game.new_state(hands=hands, dealer=1)}
    batch, rows = env, [1]
    leaves = 0
    while rows:
        sources, actions, following = [], [], []
        for row, state in zip(rows, list(states.values()), strict=True):
            for action in state.legal_actions():
                child = state.clone()
                child.apply(action)
                sources.append(row)
                actions.append(action)
                following.append(child)
        batch = batch.branch(sources, actions)
        for i, state in enumerate(following):
            assert batch.settled[i] == batch.done[i] == state.is_terminal
            np.testing.assert_array_equal(batch.reward[i], state.rewards())
            if not state.is_terminal:
                assert_row_is(batch, i, state)
        rows = [i for i, state in enumerate(following) if not state.is_terminal]
        states = {i: following[i] for i in rows}
        leaves += len(following) - len(rows)
    assert leaves > 500


def test_a_branch_goes_on_by_itself() -> None:
    env = BatchEnv(Game(2), 3, seed=0)
    before = snapshot(env)
    copies = env.branch([2, 2, 0, 1], [0, 1, 2, 0])
    again = pickle.loads(pickle.dumps(copies))
    for _ in range(50):
        actions = copies.sample_actions()
        copies.step(actions)
        again.step(actions)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(copies, name), getattr(again, name))
    for name, array in before.items():
        np.testing.assert_array_equal(getattr(env, name), array)


@pytest.mark.parametrize(
    ("rows", "actions", "message"),
    [
        ([0, 3], [0, 0], r"rows\[1\]: expected an environment from 0 to 2, got 3"),
        ([-1], [0], r"rows\[0\]: .* got -1"),
        ([0, 2], [0, 7], "environment 2: "),
        ([0, 1], [0], r"actions: expected integers of shape \(2,\), got int64 of shape \(1,\)"),
        ([0, 1], [0.5, 0.5], "actions: expected integers"),
        ([], [], r"rows: expected integers of shape \(1,\)"),
        (0, [0], r"rows: expected integers of shape \(1,\), got int64 of shape \(\)"),
        ([[0]], [0], "rows: expected integers"),
        ([True], [0], "rows: expected integers"),
    ],
)
def test_bad_branches(rows: Any, actions: Any, message: str) -> None:
    env = BatchEnv(Game(2), 3, seed=0)
    before = snapshot(env)
    with pytest.raises(IllegalActionError, match=message):
        env.branch(rows, actions)
    for name, array in before.items():
        np.testing.assert_array_equal(getattr(env, name), array)
