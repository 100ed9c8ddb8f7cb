"""The critic that knows both hands: whom it looks at, what it reads, what it is good for."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from games import hands_rich_in_specials

from agents.critic import Critic
from agents.ppo import PPO, PPOConfig
from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.game import Game
from shuiyu_env.core.play import NONE
from shuiyu_env.observation import layout_of
from shuiyu_env.policies.network import NetworkConfig
from shuiyu_env.tables import hand_table

torch.set_num_threads(1)

GAMES = [
    Game(2),
    Game(2, "dahua_house"),
    Game(4, {"max_stake": 3, "declare": "in_turn"}),
    Game(5, "dahua", rounds=3, dealer_rotation="random"),
]


@pytest.mark.parametrize("game", GAMES, ids=str)
def test_the_opposite_seat_is_the_dealer_or_the_punter_in_question(game: Game) -> None:
    env, n = BatchEnv(game, 40, 5), game.num_players
    critic = Critic(layout_of(game), 3)
    states = [game.new_state(5, stream=i) for i in range(40)]
    phases = set()
    for _ in range(12):
        opposite = critic.opposite(env.observation, env.seat)
        for i, state in enumerate(states):
            if state is None:
                continue
            deal = state.deal
            phases.add(deal.phase)
            if deal.seat != deal.dealer:
                assert opposite[i] == deal.dealer
            elif deal.contest != NONE:
                assert opposite[i] == deal.contest
            else:
                assert opposite[i] == (deal.seat + 1) % n
        actions = env.sample_actions()
        env.step(actions)
        for i, state in enumerate(states):
            if state is not None:
                state.apply(int(actions[i]))
                if env.settled[i]:
                    states[i] = None  # type: ignore[call-overload]
    assert len(phases) >= 4


def test_it_reads_what_the_opposite_seat_keeps_to_itself() -> None:
    game = Game(2, {"deck": {"ranks": 4, "suits": 4}})
    table = hand_table(game.rules.deck, game.rules.tie_break)
    rng = random.Random(1)
    hands = np.array([hands_rich_in_specials(rng, game.rules.deck, 2) for _ in range(200)])
    hands = np.sort(hands)[..., ::-1]
    env = BatchEnv(game, 200, 0)
    env.reset(hands)
    critic = Critic(layout_of(game), 0)
    laid = np.full(200, NONE)
    for _ in range(2):
        assert not env.settled.any()
        me = env.seat.copy()
        other = env.observe(critic.opposite(env.observation, me))
        observations = (torch.from_numpy(seen) for seen in (env.observation, other))
        hidden = critic.hidden(*observations).numpy()
        assert hidden.shape == (200, critic.num_hidden)
        rows = np.arange(200)
        own, its = (table.strengths[table.index(hands[rows, seat])] for seat in (me, 1 - me))
        # The opposite split, once there is one; the strengths of all its splits.
        assert np.array_equal(hidden[:, :3], np.eye(4)[laid][:, :3])
        order = np.argsort(its.ravel(), kind="stable")
        assert (np.diff(hidden[:, 3:9].ravel()[order]) >= 0).all()
        assert len(np.unique(hidden[:, 3:9])) == len(np.unique(its))
        signs = np.sign(own[:, :, None].astype(int) - its[:, None]).reshape(200, -1)
        assert np.array_equal(hidden[:, 9:], signs)
        actions = env.sample_actions()
        laid = actions
        env.step(actions)


@pytest.mark.parametrize("rules", ["nanning", "dahua_house"])
def test_it_explains_far_more_than_the_network_that_sees_one_hand(rules: str) -> None:
    explained = {}
    config = PPOConfig(total_steps=60_000, num_envs=256, window=8, minibatch_size=512)
    for central in (False, True):
        ppo = PPO(
            Game(2, rules),
            replace(config, central_critic=central),
            NetworkConfig(hidden=(32,)),
            seed=0,
        )
        rows = []
        while not ppo.is_finished:
            rows.append(ppo.iterate()["explained_variance"])
        explained[central] = float(np.mean(rows[-5:]))
    assert explained[True] > explained[False] + 0.1, explained
