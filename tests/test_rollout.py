"""Self-play experience: who is credited with what, and that no deal is lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from games import random_rules, random_states
from torch import Tensor

from agents.critic import Critic
from agents.rollout import (
    Batch,
    Rollout,
    exploration_weights,
    longest_deal,
    seat_advantages,
)
from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.actions import Action
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.game import Game
from shuiyu_env.observation import layout_of
from shuiyu_env.policies.network import (
    ActorCritic,
    MaskedCategorical,
    NetworkConfig,
    field_columns,
)

# More threads only get into each other's way on such small networks.
torch.set_num_threads(1)

GAMES = {
    "heads-up": Game(2),
    "specials": Game(2, {"deck": {"ranks": 2, "suits": 4}}),
    "stakes": Game(4, {"max_stake": 3, "declare": "in_turn"}),
    "at once": Game(3),
    "drinks": Game(3, "dahua_house", reward="drinks"),
    "rounds": Game(3, "dahua", rounds=3, dealer_rotation="rotate"),
    "rounds with stakes": Game(2, {"max_stake": 2}, rounds=2, dealer_rotation="random"),
}
each_game = pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)


def network_for(game: Game, seed: int = 0) -> ActorCritic:
    network = ActorCritic(
        layout_of(game), NetworkConfig(hidden=(8,)), torch.Generator().manual_seed(seed)
    )
    with torch.no_grad():
        network.policy_head.weight *= 30.0  # far from uniform
    return network


def rollout_for(game: Game, num_envs: int = 6, window: int = 5, seed: int = 3) -> Rollout:
    features = network_for(game).num_features
    critic = Critic(layout_of(game), features, (8,), torch.Generator().manual_seed(1))
    return Rollout(BatchEnv(game, num_envs, seed), window, features, critic=critic)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows_of(batches: Iterable[Batch], *names: str) -> Counter[bytes]:
    """All rows of some batches as a multiset of their bytes."""
    rows: Counter[bytes] = Counter()
    for batch in batches:
        columns = [getattr(batch, name).numpy() for name in names]
        rows.update(b"".join(c[i].tobytes() for c in columns) for i in range(len(batch)))
    return rows


def test_field_case_21_seats_are_credited_with_their_own_later_rewards() -> None:
    # One deal of three seats: 0, 1, 2, 0, 0, 1 act, then 0 is paid 3, 1 loses 2, 2 loses 1.
    seat = torch.tensor([[0], [1], [2], [0], [0], [1]])
    value = torch.tensor([[0.5], [0.25], [-1.0], [1.0], [2.0], [-0.5]])
    reward = torch.zeros(6, 1, 3)
    reward[5, 0] = torch.tensor([3.0, -2.0, -1.0])
    settled = torch.tensor([[False]] * 5 + [[True]])
    # Monte Carlo: the seat's own reward, less the estimate, also where others act after it.
    advantage, known = seat_advantages(seat, value, reward, settled, 1.0)
    assert advantage[:, 0].tolist() == [2.5, -2.25, 0.0, 2.0, 1.0, -1.5]
    assert known.all()
    # One step: to the seat's own next estimate, never to another seat's.
    advantage, _ = seat_advantages(seat, value, reward, settled, 0.0)
    assert advantage[:, 0].tolist() == [0.5, -0.75, 0.0, 1.0, 1.0, -1.5]
    # In between: seat 0 has deltas 0.5, 1, 1; seat 1 has -0.75, -1.5.
    advantage, _ = seat_advantages(seat, value, reward, settled, 0.5)
    assert advantage[:, 0].tolist() == [1.25, -1.5, 0.0, 1.5, 1.0, -1.5]


def test_field_case_21_deals_do_not_mix() -> None:
    # Two settled deals and the beginning of a third; in the second only seat 1 acts.
    seat = torch.tensor([[0], [1], [1], [1], [0]])
    value = torch.zeros(5, 1)
    reward = torch.zeros(5, 1, 2)
    reward[1, 0] = torch.tensor([1.0, -1.0])
    reward[3, 0] = torch.tensor([-5.0, 5.0])
    settled = torch.tensor([[False], [True], [False], [True], [False]])
    advantage, known = seat_advantages(seat, value, reward, settled, 1.0)
    assert advantage[:4, 0].tolist() == [1.0, -1.0, 5.0, 5.0]
    assert known[:, 0].tolist() == [True, True, True, True, False]


@each_game
@pytest.mark.parametrize("window", [1, 4, 17])
def test_field_case_21_returns_are_those_of_the_core_and_every_deal_comes_once(
    game: Game, window: int
) -> None:
    seed, num_envs, windows = 11, 5, 120 // window
    env = BatchEnv(game, num_envs, seed)
    steps: list[tuple[np.ndarray, np.ndarray]] = []
    step = env.step

    def recorded(actions: Any) -> None:
        steps.append((env.observation.copy(), np.array(actions)))
        step(actions)

    env.step = recorded  # type: ignore[method-assign]
    network, draws = network_for(game), generator()
    rollout = Rollout(env, window, network.num_features)
    batches = [rollout.collect(network, draws, 1.0) for _ in range(windows)]

    expected: Counter[bytes] = Counter()
    deals = waiting = 0
    for i in range(num_envs):
        episode = 0
        state = game.new_state(seed, stream=i, index=0)
        decisions: list[tuple[bytes, int]] = []
        for observation, actions in steps:
            features = network.features(torch.from_numpy(observation[i : i + 1])).numpy()
            decisions.append((features.tobytes() + actions[i].tobytes(), state.current_player or 0))
            state.apply(actions[i])
            if state.is_terminal or not state.deal.actions:
                paid = np.array(state.finished[-1].rewards, dtype=np.float32)
                expected.update(row + paid[seat].tobytes() for row, seat in decisions)
                decisions, deals = [], deals + 1
            if state.is_terminal:
                episode += 1
                state = game.new_state(seed, stream=i, index=episode * game.rounds)
        waiting += len(decisions)
    for batch in batches:
        # Rewards are small whole numbers; the sum of advantage and value has rounding errors.
        batch.returns = batch.returns.round() + 0.0
    assert rows_of(batches, "features", "action", "returns") == expected
    assert sum(batch.deals for batch in batches) == deals > num_envs
    assert rollout.waiting == waiting


@each_game
@pytest.mark.parametrize("gae_lambda", [0.0, 0.7, 1.0])
def test_where_a_window_ends_does_not_matter(game: Game, gae_lambda: float) -> None:
    network = network_for(game)
    names = tuple(field.name for field in fields(Batch) if field.name != "deals")
    short, draws = rollout_for(game, window=3), generator()
    parts = [short.collect(network, draws, gae_lambda, 0.5) for _ in range(20)]
    whole = rollout_for(game, window=60).collect(network, generator(), gae_lambda, 0.5)
    assert rows_of(parts, *names) == rows_of([whole], *names)
    assert sum(part.deals for part in parts) == whole.deals > 0


def log_probs(network: ActorCritic, batch: Batch) -> Tensor:
    with torch.no_grad():
        logits, _ = network.heads(batch.features)
        return MaskedCategorical(logits, batch.action_mask).log_prob(batch.action)


@each_game
def test_field_case_20_log_probabilities_are_those_of_the_network_that_acted(game: Game) -> None:
    rollout, draws = rollout_for(game, num_envs=20, window=24), generator()
    old, new = network_for(game, 0), network_for(game, 1)
    first = rollout.collect(old, draws, 1.0)
    # Of all seats alike, before any update.
    # Cards are not among the features, so the role is the second field, after the phase.
    assert old.input_fields[:2] == ("phase", "role")
    (role,) = np.flatnonzero(
        np.isin(
            field_columns(layout_of(game), old.input_fields),
            field_columns(layout_of(game), ("role",)),
        )
    )[:1]
    assert (first.features[:, role : role + 2].sum(dim=0) > 0).all()
    torch.testing.assert_close(first.log_prob, log_probs(old, first), atol=1e-5, rtol=0.0)
    waiting = rollout.waiting
    assert waiting > 0
    second = rollout.collect(new, draws, 1.0)
    by_old = (second.log_prob - log_probs(old, second)).abs() < 1e-5
    by_new = (second.log_prob - log_probs(new, second)).abs() < 1e-5
    assert bool((by_old | by_new).all())
    # Forced decisions have log-probability 0 under both.
    forced = second.action_mask.sum(dim=1) == 1
    assert int((~by_new).sum()) <= waiting <= int((by_old | forced).sum())
    assert int((~by_new).sum()) > 0


@each_game
def test_a_restored_rollout_goes_on_exactly(game: Game) -> None:
    network, draws = network_for(game), generator()
    rollout = rollout_for(game, num_envs=8, window=7)
    for _ in range(3):
        rollout.collect(network, draws, 0.9)
    state, position = rollout.state_dict(), draws.get_state()
    expected = [rollout.collect(network, draws, 0.9) for _ in range(3)]
    other = rollout_for(game, num_envs=8, window=7)
    other.load_state_dict(state)
    draws.set_state(position)
    for batch in expected:
        again = other.collect(network, draws, 0.9)
        for name in ("features", "hidden", "action", "log_prob", "value", "advantage", "returns"):
            assert torch.equal(getattr(again, name), getattr(batch, name))


def test_explored_decisions_count_as_the_policy_would_have_made_them() -> None:
    # Three seats; 0 deals. 1 and 2 split (ratios 0.5, 0.25), 1 opens (0.1), 2 covers (2), 0 calls.
    # In turn, seat 2 sees the hand of seat 1; at the same time, it does not.
    seat = torch.tensor([[1], [2], [0], [1], [2], [0], [1], [0]])
    ratio = torch.tensor([0.5, 0.25, 1.0, 0.1, 2.0, 1.0, 1.0, 1.0])[:, None]
    exposes = torch.tensor([[False]] * 3 + [[True]] + [[False]] * 4)
    settled = torch.tensor([[False]] * 7 + [[True]])
    # Seat 1's are 0.05 together, up to and with its opening; seat 2's 0.5, for all of the deal.
    expected = torch.tensor([0.025] * 4 + [0.5] * 4)[:, None]
    at_once = torch.tensor([[False]] * 3 + [[True]] * 2 + [[False]] * 3)
    for covered in (torch.zeros_like(at_once), at_once):
        expected[4] = 0.025 if covered.any() else 0.5
        columns = (seat, ratio, exposes, covered, settled)
        torch.testing.assert_close(exploration_weights(*columns, 3), expected)
        # Deals do not mix.
        twice = [torch.cat([x, x]) for x in columns]
        torch.testing.assert_close(exploration_weights(*twice, 3), torch.cat([expected, expected]))


@pytest.mark.parametrize("name", ["heads-up", "specials", "stakes", "at once"])
def test_exploration_shows_more_and_favours_nothing(name: str) -> None:
    game = GAMES[name]
    network, n = network_for(game), game.num_players
    # A policy that hardly ever opens.
    with torch.no_grad():
        network.policy_head.bias[int(Action.OPEN)] -= 6.0
    found = []
    for exploration in (0.0, 0.4):
        # Long windows: those of many short deals would be handed out first.
        rollout = rollout_for(game, num_envs=150, window=500)
        found.append(rollout.collect(network, generator(), 1.0, exploration))
    assert (found[0].weight == 1.0).all()
    opened = [int((batch.action == int(Action.OPEN)).sum()) / batch.deals for batch in found]
    assert opened[1] > opened[0] + 0.15
    # What the decisions before the calls are worth: the same, by weight. (In turn, with more
    # punters, one who declares after an opened hand knows of it, and sees that more often.)
    unseen = n == 2 or game.rules.declare == "simultaneous"
    columns = field_columns(layout_of(game), network.input_fields)
    role = columns.index(field_columns(layout_of(game), ("role",))[0])
    phases = [columns.index(field_columns(layout_of(game), ("phase",))[p]) for p in Phase][:-1]
    for side in (0, 1):
        for phase in (Phase.ARRANGE, Phase.DECLARE)[: 1 + (side == 1 and unseen)]:
            means, errors = [], []
            for batch in found:
                rows = (batch.features[:, role + side] != 0) & (
                    batch.features[:, phases[phase]] != 0
                )
                weight, returns = batch.weight[rows].double(), batch.returns[rows].double()
                mean = float((weight * returns).sum() / weight.sum())
                means.append(mean)
                spread = (weight * (returns - mean)).square().sum().sqrt() / weight.sum()
                # Rows of one deal are not independent where there are many seats.
                errors.append(float(spread) * (n - 1) ** 0.5)
                assert float(weight.mean()) == pytest.approx(1.0, abs=0.05)
            assert abs(means[0] - means[1]) < 4.0 * (errors[0] ** 2 + errors[1] ** 2) ** 0.5


def test_batches_are_copies() -> None:
    game = GAMES["heads-up"]
    rollout, network, draws = rollout_for(game, window=20), network_for(game), generator()
    batch = rollout.collect(network, draws, 1.0)
    kept = batch.features.clone()
    rollout.collect(network, draws, 1.0)
    assert torch.equal(batch.features, kept)


def test_longest_deal_bounds_every_deal_and_is_reached() -> None:
    rng = random.Random(0)
    for _ in range(60):
        rules = random_rules(rng)
        game = Game(rng.randint(2, min(4, rules.deck.max_seats)), rules)
        for _ in range(5):
            *_, last = random_states(game, rng)
            assert len(last.deal.actions) <= longest_deal(game)
    for game, most in ((Game(2), 5), (Game(4), 13), (Game(3, {"max_stake": 2}), 11)):
        longest = 0
        for _ in range(2000):
            *_, last = random_states(game, rng)
            longest = max(longest, len(last.deal.actions))
        assert longest == longest_deal(game) == most
