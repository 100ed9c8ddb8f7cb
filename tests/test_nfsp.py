"""Neural fictitious self-play: what it stores, what it learns from, and that it converges."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from agents.learner import DivergenceError
from agents.nfsp import NFSP, NFSPConfig, SelfPlay, masked
from agents.replay import ReplayBuffer, Transitions
from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.errors import ConfigError
from shuiyu_env.core.game import Game
from shuiyu_env.exact import nashconv
from shuiyu_env.observation import layout_of
from shuiyu_env.policies.network import ActorCritic, MaskedCategorical, NetworkConfig, NetworkPolicy

# More threads only get into each other's way on such small networks.
torch.set_num_threads(1)

SMALL = {"deck": {"ranks": 5, "suits": 2}}
TINY = NFSPConfig(
    total_steps=2000,
    num_envs=16,
    window=12,
    anticipatory=0.5,
    replay_capacity=300,
    reservoir_capacity=200,
    learning_starts=50,
    q_batch_size=32,
    average_batch_size=32,
    target_interval=3,
)

GAMES = {
    "heads-up": Game(2),
    "specials": Game(2, {"deck": {"ranks": 2, "suits": 4}}),
    "stakes": Game(4, {"max_stake": 3, "declare": "in_turn"}),
    "drinks": Game(3, "dahua_house", reward="drinks"),
    "rounds": Game(3, "dahua", rounds=3, dealer_rotation="rotate"),
    "13 seats": Game(13),
}
each_game = pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)


def learner(game: Game | None = None, seed: int = 0, **config: Any) -> NFSP:
    return NFSP(game or Game(2, SMALL), replace(TINY, **config), NetworkConfig(hidden=(16,)), seed)


def iterate(nfsp: NFSP, times: int) -> list[dict[str, float]]:
    return [nfsp.iterate() for _ in range(times)]


def weights(nfsp: NFSP) -> bytes:
    networks = (nfsp.average, nfsp.best_response, nfsp.target)
    return b"".join(t.numpy().tobytes() for n in networks for t in n.state_dict().values())


def network_for(game: Game, seed: int) -> ActorCritic:
    draws = torch.Generator().manual_seed(seed)
    network = ActorCritic(layout_of(game), NetworkConfig(hidden=(8,)), draws)
    with torch.no_grad():
        network.policy_head.weight *= 30.0  # far from uniform
    return network


class Recorded:
    """Self-play of two fixed networks, with all that was seen and done on the way."""

    def __init__(
        self, game: Game, num_envs: int = 5, anticipatory: float = 0.3, epsilon: float = 0.5
    ) -> None:
        self.env = BatchEnv(game, num_envs, seed=11)
        self.average, self.best_response = network_for(game, 0), network_for(game, 1)
        generator = torch.Generator().manual_seed(2)
        self.play = SelfPlay(self.env, self.average.num_features, anticipatory, generator)
        self.epsilon = epsilon
        self.actions: list[np.ndarray] = []
        self.seats: list[np.ndarray] = []
        self.settled: list[np.ndarray] = []
        self.features: list[Tensor] = []
        self.masks: list[np.ndarray] = []
        self.modes: list[Tensor] = []
        self.transitions: list[Transitions] = []
        self.chosen: list[dict[str, Tensor]] = []
        self.deals = 0
        self._env_step = self.env.step
        self.env.step = self._step  # type: ignore[method-assign]

    def _step(self, actions: Any) -> None:
        self.actions.append(np.array(actions))
        self.seats.append(self.env.seat.copy())
        self.features.append(self.average.features(torch.tensor(self.env.observation)))
        self.masks.append(self.env.action_mask != 0)
        self.modes.append(self.play.by_best_response.clone())
        self._env_step(actions)
        self.settled.append(self.env.settled.copy())

    def steps(self, number: int) -> Recorded:
        for _ in range(number):
            transitions, chosen, deals = self.play.step(
                self.best_response, self.average, self.epsilon
            )
            self.transitions += transitions
            self.chosen.append(chosen)
            self.deals += deals
        return self


def row(*parts: Any) -> bytes:
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


@each_game
def test_field_case_21_transitions_are_those_of_the_core(game: Game) -> None:
    """Each seat's, to its own next decision in the deal or to the deal's end, every one once."""
    recorded = Recorded(game).steps(150)
    size = recorded.average.num_features
    nothing = (np.zeros(size, np.float32), np.zeros(game.num_actions, bool))
    expected: Counter[bytes] = Counter()
    deals = 0
    for i in range(5):
        state = game.new_state(11, stream=i, index=0)
        episode = 0
        last: dict[int, tuple[Any, ...]] = {}
        for t, actions in enumerate(recorded.actions):
            seat = state.current_player
            assert seat == recorded.seats[t][i]
            features, mask = recorded.features[t][i].numpy(), recorded.masks[t][i]
            if seat in last:
                expected[row(*last[seat], np.float32(0.0), features, mask)] += 1
            last[seat] = (features, mask, actions[i])
            state.apply(actions[i])
            if state.is_terminal or not state.deal.actions:
                rewards = np.array(state.finished[-1].rewards, dtype=np.float32)
                for seat, decision in last.items():
                    expected[row(*decision, rewards[seat] + 0.0, *nothing)] += 1
                last, deals = {}, deals + 1
            if state.is_terminal:
                episode += 1
                state = game.new_state(11, stream=i, index=episode * game.rounds)
    got: Counter[bytes] = Counter()
    for part in recorded.transitions:
        part.reward += 0.0  # no negative zeros
        columns = [part.features, part.action_mask, part.action, part.reward]
        columns += [part.next_features, part.next_mask]
        got.update(row(*(column[k].numpy() for column in columns)) for k in range(len(part)))
    assert got == expected
    assert recorded.deals == deals > 5


@each_game
def test_a_seat_keeps_to_one_network_for_a_whole_deal(game: Game) -> None:
    recorded = Recorded(game, num_envs=40, anticipatory=0.3).steps(80)
    modes = torch.stack(recorded.modes)
    settled = torch.from_numpy(np.stack(recorded.settled))
    changed = (modes[1:] != modes[:-1]).any(-1)
    assert not changed[~settled[:-1]].any()
    # After a deal each seat is drawn anew, by itself.
    drawn = torch.cat([modes[0], modes[1:][settled[:-1]]]).double()
    assert len(drawn) >= 40
    error = 4 * (0.3 * 0.7 / drawn.numel()) ** 0.5
    assert abs(float(drawn.mean()) - 0.3) < error
    both = float((drawn[:, 0] * drawn[:, 1]).mean())
    assert abs(both - 0.09) < 4 * (0.09 * 0.91 / len(drawn)) ** 0.5


@each_game
def test_field_case_22_the_reservoir_gets_what_the_best_response_thinks_best(game: Game) -> None:
    recorded = Recorded(game, num_envs=20, epsilon=1.0).steps(40)
    explored = 0
    for t, chosen in enumerate(recorded.chosen):
        rows = recorded.modes[t][torch.arange(20), torch.from_numpy(recorded.seats[t])]
        mask = torch.from_numpy(recorded.masks[t])[rows]
        assert torch.equal(chosen["features"], recorded.features[t][rows])
        assert torch.equal(chosen["action_mask"], mask)
        with torch.no_grad():
            values, _ = recorded.best_response.heads(chosen["features"])
        for value, legal, best in zip(values, mask, chosen["action"], strict=True):
            assert best in legal.nonzero()
            assert value[best] == value[legal].max()
        explored += int((torch.from_numpy(recorded.actions[t])[rows] != chosen["action"]).sum())
    assert explored > 0


def test_who_plays_by_what() -> None:
    game = GAMES["heads-up"]
    average_only = Recorded(game, num_envs=200, anticipatory=0.0).steps(20)
    assert all(len(chosen["action"]) == 0 for chosen in average_only.chosen)
    best_only = Recorded(game, num_envs=200, anticipatory=1.0, epsilon=0.0).steps(20)
    for actions, chosen in zip(best_only.actions, best_only.chosen, strict=True):
        assert actions.tolist() == chosen["action"].tolist()
    # The average policy is sampled: its first actions have its probabilities.
    average = average_only
    with torch.no_grad():
        logits, _ = average.average.heads(average.features[0])
        expected = MaskedCategorical(logits, torch.from_numpy(average.masks[0])).probs.sum(0)
    counts = np.bincount(average.actions[0], minlength=game.num_actions)
    assert expected[:3].min() > 10
    np.testing.assert_allclose(counts[:3], expected[:3], atol=4 * np.sqrt(50))


def test_exploration_takes_legal_actions_as_often_as_it_should() -> None:
    recorded = Recorded(GAMES["heads-up"], num_envs=4000, anticipatory=1.0, epsilon=0.3).steps(1)
    other = recorded.actions[0] != recorded.chosen[0]["action"].numpy()
    choices = recorded.masks[0].sum(1)
    expected = 0.3 * (1.0 - 1.0 / choices)
    assert abs(other.mean() - expected.mean()) < 4 * (0.25 / 4000) ** 0.5


def test_field_case_22_illegal_actions_are_never_best() -> None:
    values = torch.tensor([[-5.0, 3.0, -9.0], [-700.0, 1e6, -800.0], [2.0, 1.0, -3.0]])
    mask = torch.tensor([[True, False, True], [False, False, True], [True, True, True]])
    assert masked(values, mask).argmax(-1).tolist() == [0, 2, 0]


def transitions(nfsp: NFSP, size: int) -> Transitions:
    """Legal-looking rows: actions 0 and 1 may be taken, and are, in turn."""
    batch = Transitions.empty(size, nfsp.average.num_features, 23, torch.device("cpu"))
    batch.features += torch.rand(batch.features.shape, generator=nfsp.generator)
    batch.next_features += torch.rand(batch.features.shape, generator=nfsp.generator)
    batch.action_mask[:, :2] = True
    batch.action += torch.arange(size) % 2
    return batch


def test_targets() -> None:
    nfsp = learner()
    batch = transitions(nfsp, 6)
    batch.reward[:3] = torch.tensor([1.0, -2.0, 3.0])
    batch.next_mask[3:, 4:6] = True
    for network, bias in (
        # An illegal action is by far the best, and legal values are negative.
        (nfsp.best_response, {3: 1e6, 4: -7.0, 5: -6.0}),
        (nfsp.target, {3: 1e6, 4: -1.0, 5: -4.0}),
    ):
        with torch.no_grad():
            network.policy_head.weight.zero_()
            for action, value in bias.items():
                network.policy_head.bias[action] = value
    # Chosen by the one network, valued by the other; nothing is added where a deal is over.
    assert nfsp.targets(batch).tolist() == [1.0, -2.0, 3.0, -4.0, -4.0, -4.0]


def test_the_target_network_follows_now_and_then() -> None:
    nfsp = learner(target_interval=3)
    nfsp.replay.add(transitions(nfsp, 64))
    first = nfsp.target.policy_head.bias.clone()
    for number in range(1, 7):
        nfsp._q_step("")
        if number in (1, 2):
            assert torch.equal(nfsp.target.policy_head.bias, first)
        same = torch.equal(nfsp.target.policy_head.bias, nfsp.best_response.policy_head.bias)
        assert same == (number in (3, 6))


def test_action_values_become_mean_rewards() -> None:
    nfsp = learner(q_learning_rate=1e-3, q_batch_size=1024)
    batch = transitions(nfsp, 400)
    batch.features[:] = batch.features[0]
    # Action 0 pays 8 every fourth time, so 2; action 1 pays -1.
    batch.reward += torch.where(batch.action == 0, 8.0 * (torch.arange(400) % 8 == 0), -1.0)
    nfsp.replay = ReplayBuffer(400, nfsp.average.num_features, 23)
    nfsp.replay.add(batch)
    for _ in range(600):
        nfsp._q_step("")
    with torch.no_grad():
        values = nfsp.best_response.heads(batch.features)[0].mean(0)
    assert values[:2].tolist() == pytest.approx([2.0, -1.0], abs=0.3)


def imitated(nfsp: NFSP, actions: Tensor, weight: Tensor) -> dict[str, Tensor]:
    batch = transitions(nfsp, len(actions))
    batch.features[:] = batch.features[0]
    return {
        "features": batch.features.half(),
        "action_mask": batch.action_mask,
        "action": actions,
        "weight": weight,
    }


def test_the_average_policy_imitates_in_proportion() -> None:
    nfsp = learner(average_learning_rate=1e-2, average_batch_size=128)
    # Action 1 was taken in a third of the decisions, which count double: half of the weight.
    actions = (torch.arange(180) % 3 == 0).long()
    rows = imitated(nfsp, actions, 1.0 + actions)
    nfsp.reservoir.add(**rows)
    metrics = [nfsp._average_step("") for _ in range(300)]
    (policy,) = nfsp.policies().values()
    with torch.no_grad():
        logits, _ = policy.network.heads(rows["features"].float())
        probability = MaskedCategorical(logits, rows["action_mask"]).probs.mean(0)
    assert probability[1].item() == pytest.approx(0.5, abs=0.06)
    assert metrics[-1]["entropy"] == pytest.approx(np.log(2), abs=0.1)


def test_field_case_22_what_is_handed_out_is_the_average() -> None:
    nfsp = learner()
    policies = nfsp.policies()
    assert list(policies) == ["average"]
    assert policies["average"].network is nfsp.average
    assert isinstance(policies["average"], NetworkPolicy)


def test_the_replay_buffer_keeps_the_newest() -> None:
    replay, draws = ReplayBuffer(10, 2, 3), torch.Generator().manual_seed(0)
    number = 0
    for size in (3, 4, 0, 6, 25, 10, 2):
        batch = Transitions.empty(size, 2, 3, torch.device("cpu"))
        batch.reward += torch.arange(number, number + size)
        batch.features += batch.reward[:, None]
        number += size
        replay.add(batch)
        assert len(replay) == min(number, 10)
        sample = replay.sample(300, draws)
        assert sorted(set(sample.reward.tolist())) == list(range(max(0, number - 10), number))
        assert torch.equal(sample.features[:, 1], sample.reward)


@pytest.mark.parametrize("which", ["best response", "average policy"])
def test_a_loss_that_is_not_finite_stops_before_the_weights_are_lost(which: str) -> None:
    nfsp = learner()
    nfsp.iterate()
    before = weights(nfsp)
    if which == "best response":
        batch = transitions(nfsp, 400)
        batch.reward += float("nan")
        nfsp.replay.add(batch)
    else:
        rows = imitated(nfsp, torch.zeros(200, dtype=torch.int64), torch.ones(200))
        rows["features"] += float("inf")
        nfsp.reservoir.seen = 0
        nfsp.reservoir.add(**rows)
    with pytest.raises(DivergenceError, match=rf"{which}: the loss is .*expected finite"):
        nfsp._q_step(which) if which == "best response" else nfsp._average_step(which)
    assert weights(nfsp) == before


@pytest.mark.parametrize("rate", ["q_learning_rate", "average_learning_rate"])
def test_weights_too_large_to_compute_with_are_noticed_at_once(rate: str) -> None:
    # The loss of the only step is finite, and so are the weights after it.
    nfsp = learner(q_steps=1, average_steps=1, **{rate: 1e30})
    which = "best response" if rate == "q_learning_rate" else "average policy"
    with pytest.raises(DivergenceError, match=f"iteration 1, {which}: .*no longer finite"):
        nfsp.iterate()


def test_one_seed_decides_everything() -> None:
    runs: list[bytes] = []
    for seed in (4, 4, 5):
        torch.manual_seed(len(runs))
        np.random.seed(len(runs))  # noqa: NPY002 - the global generator must not matter
        nfsp = learner(seed=seed)
        for _ in range(4):
            nfsp.iterate()
        runs.append(weights(nfsp))
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("iterations", [1, 6])
def test_a_restored_learner_goes_on_exactly(iterations: int) -> None:
    nfsp = learner()
    for _ in range(iterations):
        nfsp.iterate()
    state = nfsp.state_dict()
    kept = copy.deepcopy(state)
    expected = iterate(nfsp, 4)
    other = learner()
    other.iterate()  # something to forget
    other.load_state_dict(kept)
    for first in expected:
        second = other.iterate()
        for name in first.keys() - {"seconds", "env_steps_per_second"}:
            if not name.startswith("share_"):
                assert first[name] == second[name], name
    assert weights(nfsp) == weights(other)
    # What is kept of experience must not change while learning goes on.
    assert len(kept["replay"]["reward"]) == min(300, kept["replay"]["added"])
    for name, tensor in kept["replay"].items():
        assert np.array_equal(tensor, state["replay"][name])
    for name, tensor in kept["play"]["last"].items():
        assert torch.equal(tensor, state["play"]["last"][name])


def test_schedules_and_counters() -> None:
    nfsp = learner(epsilon=0.2, final_epsilon=0.1, q_learning_rate=0.01, final_q_learning_rate=0.0)
    rows = []
    while not nfsp.is_finished:
        rows.append(nfsp.iterate())
    assert nfsp.iteration == len(rows) == nfsp.iterations == 11
    assert nfsp.env_steps == 11 * 16 * 12
    assert nfsp.deals == sum(row["deals"] for row in rows) > 0
    np.testing.assert_allclose(
        [r["epsilon"] for r in rows], [0.2 - 0.1 * i / 11 for i in range(11)]
    )
    rates = [r["q_learning_rate"] for r in rows]
    np.testing.assert_allclose(rates, [0.01 * (1 - i / 11) for i in range(11)])
    for metrics in rows:
        shares = [metrics[f"share_{part}"] for part in ("environment", "network", "update")]
        assert 0.0 < sum(shares) <= 1.0
        assert metrics["env_steps_per_second"] > 0.0
    assert {"q_loss", "average_loss", "entropy"} <= rows[-1].keys()


@pytest.mark.parametrize("weighting", [0.0, 1.0, 2.0])
def test_later_iterations_count_more(weighting: float) -> None:
    nfsp = learner(weighting=weighting, reservoir_capacity=100_000)
    sizes = [0]
    for _ in range(3):
        nfsp.iterate()
        sizes.append(len(nfsp.reservoir))
    weights = nfsp.reservoir.all()["weight"]
    for number, (begin, end) in enumerate(itertools.pairwise(sizes), 1):
        assert end > begin
        expected = (number / nfsp.iterations) ** weighting
        np.testing.assert_allclose(weights[begin:end], expected, rtol=1e-6)


def test_a_run_in_which_the_average_would_learn_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"nfsp\.learning_starts: expected fewer .* got 300"):
        learner(total_steps=500, learning_starts=300, reservoir_capacity=300)


def test_nothing_is_learned_before_there_is_enough() -> None:
    nfsp = learner(learning_starts=250, reservoir_capacity=500, window=12)
    before = weights(nfsp)
    metrics = nfsp.iterate()
    assert "q_loss" not in metrics
    assert "average_loss" not in metrics
    assert weights(nfsp) == before
    assert "q_loss" in nfsp.iterate()


@each_game
def test_every_kind_of_game_can_be_learned(game: Game) -> None:
    nfsp = learner(game, num_envs=8, window=40)
    before = weights(nfsp)
    for _ in range(3):
        metrics = nfsp.iterate()
        assert np.isfinite(list(metrics.values())).all()
    assert weights(nfsp) != before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_envs": 0}, r"nfsp\.num_envs: expected 1 or more, got 0"),
        ({"replay_capacity": 0}, r"nfsp\.replay_capacity: expected 1 or more, got 0"),
        ({"anticipatory": 1.1}, r"nfsp\.anticipatory: expected a number from 0 to 1, got 1\.1"),
        ({"anticipatory": 0.0}, r"nfsp\.anticipatory: expected more than 0, got 0\.0"),
        (
            {"replay_capacity": 50},
            r"nfsp\.learning_starts: expected at most the smaller capacity, 50, got 1000",
        ),
        ({"epsilon": float("nan")}, r"nfsp\.epsilon"),
        ({"q_learning_rate": 0.0}, r"nfsp\.q_learning_rate: expected more than 0, got 0\.0"),
        ({"weighting": -1.0}, r"nfsp\.weighting: expected a number from 0 to 5, got -1\.0"),
    ],
)
def test_values_out_of_range_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        NFSPConfig(**change)


def test_every_hyperparameter_is_documented() -> None:
    described = NFSPConfig.__doc__ or ""
    for field in fields(NFSPConfig):
        assert f"\n        {field.name}: " in described


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deck", "bound"), [({"ranks": 5, "suits": 2}, 0.5), ({"ranks": 4, "suits": 3}, 0.3)]
)
def test_the_average_converges_on_small_decks(deck: dict[str, int], bound: float) -> None:
    """Uniform play has a NashConv of 2.22 and 2.01 units on these; 0.31 and 0.12 were reached."""
    rules = {"preset": "nanning", "deck": deck}
    nfsp = NFSP(Game(2, rules), NFSPConfig(total_steps=2_000_000))
    while not nfsp.is_finished:
        nfsp.iterate()
    (policy,) = nfsp.policies().values()
    assert float(nashconv(policy, rules, threads=1).nashconv) < bound
