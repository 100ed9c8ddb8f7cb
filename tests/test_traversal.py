"""External sampling, held against the whole tree of one deal."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from games import random_game, random_hands
from torch import Tensor

from agents.traversal import Traversal, deal_game, traverse
from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.errors import ConfigError
from shuiyu_env.core.game import Game, State
from shuiyu_env.observation import layout_of

# More threads only get into each other's way.
torch.set_num_threads(1)


class RandomPolicy:
    """The same fixed, uneven probabilities whoever asks; some actions are (almost) never taken."""

    def __init__(self, game: Game, seed: int = 0) -> None:
        shape = (layout_of(game).size, game.num_actions)
        generator = torch.Generator().manual_seed(seed)
        self.weights = torch.randn(shape, generator=generator, dtype=torch.float64) * 0.7

    def __call__(self, observation: Tensor, mask: Tensor) -> Tensor:
        logits = (observation.double() @ self.weights).masked_fill(~mask, -torch.inf)
        return logits.softmax(dim=-1).float()


@dataclass
class Tree:
    """What every line of play of one deal says, by information set of traverser and opponents."""

    policy: RandomPolicy
    traverser: int
    #: Sum over its histories of their reach without the traverser, times action values.
    values: dict[int, Any] = field(default_factory=lambda: defaultdict(float))
    #: The same sum of reach alone.
    reach: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    own_reach: dict[int, float] = field(default_factory=dict)
    opponents: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    def visit(self, state: State, reach: float = 1.0, own: float = 1.0) -> float:
        seat = state.current_player
        if seat is None:
            return float(state.returns()[self.traverser])
        legal = state.legal_actions()
        observation = layout_of(state.game).encode(state.view(seat))
        mask = np.zeros((1, state.game.num_actions), dtype=bool)
        mask[0, list(legal)] = True
        answer = self.policy(torch.from_numpy(observation[None]), torch.from_numpy(mask))[
            0
        ].double()
        key = int(number(observation))
        mine = seat == self.traverser
        values = np.zeros(state.game.num_actions)
        for action in legal:
            child = state.clone()
            child.apply(action)
            p = float(answer[action])
            values[action] = self.visit(child, reach * (1 if mine else p), own * (p if mine else 1))
        if len(legal) > 1:
            if mine:
                self.values[key] += reach * values
                self.reach[key] += reach
                self.own_reach[key] = own
            else:
                self.opponents[key] += reach
        return float(values @ answer.numpy())


DECK = {"deck": {"ranks": 4, "suits": 4}}
GAMES = [
    (Game(2, DECK), 64.0),
    (Game(2, DECK), 4.0),
    (Game(2, {"preset": "dahua_house", "max_stake": 2, **DECK}, reward="drinks"), 64.0),
    (Game(3, {"preset": "dahua", "declare": "in_turn", **DECK}), 4.0),
]


def sampled(
    game: Game, hands: list[list[int]], seat: int, max_width: float, deals: int, seed: int
) -> Traversal:
    env = BatchEnv(game, deals, seed=0)
    env.reset(hands)
    generator = torch.Generator().manual_seed(seed)
    return traverse(env, seat, RandomPolicy(game), generator, max_width=max_width)


def number(observation: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Return one number for each row of observations; different ones for different rows."""
    bits = np.ascontiguousarray(observation).view(np.int32).astype(np.int64)
    factors = np.random.default_rng(0).integers(-(2**62), 2**62, observation.shape[-1])
    with np.errstate(over="ignore"):
        return (bits * factors).sum(axis=-1)


def check(groups: list[tuple[Tensor, Tensor]], group_deals: int, expected: dict[int, Any]) -> None:
    """Compare the sums of samples over a deal, by information set, with what is expected.

    How far the means may be off is told from how much those of independent groups differ.
    """
    keys, inverse = np.unique(
        np.concatenate([number(seen.numpy()) for seen, _ in groups]), return_inverse=True
    )
    group = np.repeat(np.arange(len(groups)), [len(seen) for seen, _ in groups])
    samples = np.concatenate([rows.double().numpy() for _, rows in groups])
    sums = np.zeros((len(groups), len(keys), samples.shape[1]))
    np.add.at(sums, (group, inverse), samples)
    sums /= group_deals
    error = sums.std(axis=0, ddof=1) / len(groups) ** 0.5
    visits = np.bincount(inverse)
    checked = 0
    for k, key in enumerate(keys):
        assert int(key) in expected
        # Errors of a few visits are themselves unknown.
        if visits[k] >= 100:
            off = np.abs(sums[:, k].mean(axis=0) - expected[int(key)])
            assert (off <= 6.0 * error[k] + 1e-5).all()
            checked += 1
    assert checked >= 3


@pytest.mark.parametrize(("game", "max_width"), GAMES)
def test_expectations_are_those_of_the_whole_tree(game: Game, max_width: float) -> None:
    hands = random_hands(random.Random(3), game.rules.deck, game.num_players)
    deals = 200
    for seat in range(2):
        tree = Tree(RandomPolicy(game), seat)
        expected = tree.visit(game.new_state(hands=hands))
        groups = [sampled(game, hands, seat, max_width, deals, seed) for seed in range(20)]
        root = torch.cat([found.root_value for found in groups])
        assert abs(float(root.mean()) - expected) < 5 * float(root.std()) / len(root) ** 0.5

        own = [found.traverser for found in groups]
        values = [(o.seen, o.weight[:, None] * o.action_values) for o in own]
        check(values, deals, tree.values)
        check([(o.seen, o.weight[:, None]) for o in own], deals, tree.reach)
        others = [found.opponents for found in groups]
        check([(o.seen, o.weight[:, None]) for o in others], deals, tree.opponents)
        for nodes in own:
            own_reach = [tree.own_reach[int(key)] for key in number(nodes.seen.numpy())]
            np.testing.assert_allclose(nodes.reach.numpy(), own_reach, rtol=1e-4)


def test_field_case_23_the_strategy_weighted_value_is_passed_up() -> None:
    game = Game(2, DECK)
    hands = random_hands(random.Random(1), game.rules.deck, 2)
    for seat in (0, 1):
        found = sampled(game, hands, seat, 64.0, 300, seed=0)
        own = found.traverser
        policy = RandomPolicy(game)(own.seen, own.mask)
        torch.testing.assert_close(own.value, (policy * own.action_values).sum(dim=1))
        assert (own.action_values[~own.mask] == 0).all()
        assert (own.advantages[~own.mask] == 0).all()
        torch.testing.assert_close(
            (policy * own.advantages).sum(dim=1), torch.zeros(len(own.value)), atol=1e-5, rtol=0
        )
        # The traverser's first decision is the deal's: its value is passed up to the root.
        first = own.reach == 1.0
        if seat == 0:
            assert torch.equal(own.value[first], found.root_value)
        assert (own.weight == 1.0).all()
        assert (found.opponents.weight == 1.0).all()


def test_what_is_not_branched_still_sums_up() -> None:
    # A dealer of five punters has hundreds of lines of play in one deal.
    game = Game(6, {"preset": "nanning", "declarations": ["OPEN", "COVER", "FORCE"]})
    env = BatchEnv(game, 400, seed=0)
    policy = RandomPolicy(game)

    def run(width: float) -> Traversal:
        return traverse(env, 0, policy, torch.Generator().manual_seed(0), max_width=width)

    wide, narrow = run(1e6), run(8.0)
    assert narrow.num_nodes < wide.num_nodes * 0.6
    assert (wide.traverser.weight == 1.0).all()
    assert (narrow.traverser.weight > 1.0).any()
    # Each phase's decisions count as often in sum, whether tried or drawn.
    phases = slice(0, 6)
    for name in ("traverser", "opponents"):
        totals = []
        for found in (wide, narrow):
            nodes = getattr(found, name)
            totals.append((nodes.seen[:, phases] * nodes.weight[:, None]).sum(dim=0))
        torch.testing.assert_close(totals[1], totals[0], rtol=0.25, atol=1.0)
    error = (wide.root_value - narrow.root_value).std() / 20
    assert abs(float(wide.root_value.mean() - narrow.root_value.mean())) < 5 * error


def test_any_game_of_any_size_can_be_traversed() -> None:
    rng = random.Random(0)
    games = [random_game(rng, rounds=rng.randint(1, 3)) for _ in range(25)] + [Game(13)]
    for number, game in enumerate(games):
        one = deal_game(game)
        assert one.rounds == 1
        assert one.rules == game.rules
        assert one.reward == game.reward
        env = BatchEnv(one, 4, seed=number)
        before = {key: str(value) for key, value in env.state_dict().items()}
        generator = torch.Generator().manual_seed(0)
        seats = np.arange(4) % game.num_players
        found = traverse(env, seats, RandomPolicy(game), generator, max_width=16.0)
        assert {key: str(value) for key, value in env.state_dict().items()} == before
        own, others = found.traverser, found.opponents
        assert (own.mask.sum(dim=1) > 1).all()
        assert (others.mask.sum(dim=1) > 1).all()
        assert len(own.value) + len(others.weight) <= found.num_nodes
        assert found.root_value.shape == (4,)
        for tensor in (*own, *others):
            assert torch.isfinite(tensor.float()).all()
        assert (others.probabilities.sum(dim=1) - 1.0).abs().max() < 1e-5


def test_observations_are_encoded_before_anything_is_asked_or_kept() -> None:
    game = Game(2, DECK)
    env = BatchEnv(game, 5, seed=0)
    asked = []

    def policy(seen: Tensor, mask: Tensor) -> Tensor:
        asked.append(seen.shape[1])
        return mask / mask.sum(dim=-1, keepdim=True)

    generator = torch.Generator().manual_seed(0)
    found = traverse(env, [0, 1, 0, 1, 1], policy, generator, lambda o: o[:, :9].long())
    assert set(asked) == {9}
    assert found.traverser.seen.shape[1] == found.opponents.seen.shape[1] == 9
    assert found.traverser.seen.dtype == torch.int64
    with pytest.raises(ConfigError, match="max_width: expected 1 or more, got 0"):
        traverse(env, 0, policy, generator, max_width=0.5)
