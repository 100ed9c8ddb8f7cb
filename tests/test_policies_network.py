"""The network, masked distributions and the policy around them."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from games import random_states

from shuiyu_env.core.actions import Action
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import ConfigError, PolicyError
from shuiyu_env.core.game import Game, State
from shuiyu_env.observation import Layout, layout_of
from shuiyu_env.policies.network import (
    CARD_FIELDS,
    ActorCritic,
    MaskedCategorical,
    NetworkConfig,
    NetworkPolicy,
    field_columns,
)

# More threads only get into each other's way on such small networks.
torch.set_num_threads(1)

GAMES = [
    Game(2),
    Game(4, {"preset": "dahua", "max_stake": 3}),
    Game(3, "dahua_house", reward="drinks"),
    Game(13, {"declare": "in_turn"}),
]


def network_for(game: Game, seed: int = 0, **config: object) -> ActorCritic:
    settings = NetworkConfig(**{"hidden": (16,), **config})  # type: ignore[arg-type]
    return ActorCritic(layout_of(game), settings, torch.Generator().manual_seed(seed))


def positions(game: Game, episodes: int = 20) -> tuple[list[State], np.ndarray, np.ndarray]:
    """States of random play, with the observations and masks of the seats to act."""
    rng = random.Random(1)
    layout = layout_of(game)
    states: list[State] = []
    for episode in range(episodes):
        played = random_states(game, rng, special=episode % 2 == 0)
        states += [state.clone() for state in played if not state.is_terminal]
    observation = np.stack([layout.encode(s.view(s.current_player)) for s in states])
    mask = np.zeros((len(states), game.num_actions), dtype=np.int8)
    for row, state in enumerate(states):
        mask[row, list(state.legal_actions())] = 1
    return states, observation, mask


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4, 1e20, 1e37])
@pytest.mark.parametrize("seed", range(3))
def test_field_case_19_masked_sampling_never_returns_an_illegal_action(
    scale: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows, actions = 1500, 23
    logits = scale * torch.randn(rows, actions, generator=generator)
    mask = (torch.rand(rows, actions, generator=generator) < 0.3).to(torch.int8)
    # One legal action in the first third: the one the network likes least.
    third = rows // 3
    mask[:third] = 0
    mask[torch.arange(third), logits[:third].argmin(dim=1)] = 1
    mask[torch.arange(rows), torch.randint(actions, (rows,), generator=generator)] |= (
        torch.arange(rows) >= third
    ).to(torch.int8)
    distribution = MaskedCategorical(logits, mask)
    legal = mask != 0
    for _ in range(20):
        action = distribution.sample(generator)
        assert bool(legal.gather(1, action[:, None]).all())
        assert bool(torch.isfinite(distribution.log_prob(action)).all())
    assert bool((distribution.probs[~legal] == 0.0).all())
    torch.testing.assert_close(distribution.probs.sum(dim=1), torch.ones(rows))
    entropy = distribution.entropy()
    assert bool(torch.isfinite(entropy).all())
    assert bool((entropy[:third] == 0.0).all())
    means = [-float(p[q].log().mean()) for p, q in zip(distribution.probs, legal, strict=True)]
    finite = torch.tensor(means).isfinite()
    torch.testing.assert_close(distribution.surprise()[finite], torch.tensor(means)[finite])


def test_field_case_19_logits_below_the_illegal_ones_stay_legal() -> None:
    logits = torch.tensor([[-3e9, 5.0, -3e9], [-1e30, 1e30, 0.0]])
    mask = torch.tensor([[1, 0, 1], [1, 0, 0]])
    torch.testing.assert_close(
        MaskedCategorical(logits, mask).probs, torch.tensor([[0.5, 0.0, 0.5], [1.0, 0.0, 0.0]])
    )


def test_field_case_19_no_noise_makes_an_illegal_action_win(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Exponential noise can be 0, whose logarithm is infinite.
    monkeypatch.setattr(torch.Tensor, "exponential_", lambda self, generator=None: self.zero_())
    mask = torch.tensor([[0, 0, 1], [0, 1, 0]])
    assert MaskedCategorical(torch.zeros(2, 3), mask).sample().tolist() == [2, 1]


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_entropies_and_log_probabilities_have_finite_gradients(scale: float) -> None:
    logits = scale * torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    logits.requires_grad_()
    mask = torch.zeros(50, 6)
    mask[:, 2] = 1
    mask[25:, 4:] = 1
    distribution = MaskedCategorical(logits, mask)
    (distribution.entropy() + distribution.log_probs[:, 2]).sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert bool(torch.isfinite(logits.grad).all())
    assert bool((logits.grad[:, [0, 1, 3]] == 0.0).all())


def test_samples_follow_the_probabilities() -> None:
    logits = torch.log(torch.tensor([0.1, 0.2, 0.3, 0.4])).expand(40_000, 4)
    mask = torch.tensor([1, 1, 0, 1]).expand(40_000, 4)
    action = MaskedCategorical(logits, mask).sample(torch.Generator().manual_seed(0))
    share = torch.bincount(action, minlength=4) / 40_000
    # Four standard deviations.
    torch.testing.assert_close(share, torch.tensor([1, 2, 0, 4]) / 7, atol=0.01, rtol=0.0)


@pytest.mark.parametrize("game", GAMES, ids=lambda game: f"{game.num_players}-{game.num_actions}")
@pytest.mark.parametrize("cards", [False, True])
def test_field_case_19_policy_answers_as_the_protocol_asks(game: Game, cards: bool) -> None:
    _, observation, mask = positions(game)
    network = network_for(game, cards=cards)
    # Far from uniform, so that masking matters.
    with torch.no_grad():
        network.policy_head.weight *= 3000.0
    whole = NetworkPolicy(network).probabilities(observation, mask)
    assert whole.dtype == np.float32
    assert whole.shape == mask.shape
    assert (whole[mask == 0] == 0.0).all()
    np.testing.assert_allclose(whole.sum(axis=1), 1.0, atol=1e-6)
    chunked = NetworkPolicy(network, chunk=7).probabilities(observation, mask != 0)
    np.testing.assert_allclose(chunked, whole, atol=1e-5)
    assert not network.training
    assert not any(p.grad is not None for p in network.parameters())


def test_policy_takes_read_only_arrays_and_no_rows() -> None:
    game = GAMES[0]
    _, observation, mask = positions(game, 2)
    observation.flags.writeable = mask.flags.writeable = False
    policy = NetworkPolicy(network_for(game))
    assert policy.probabilities(observation, mask).shape == mask.shape
    assert policy.probabilities(observation[:0], mask[:0]).shape == (0, 23)


def test_policy_names_what_does_not_fit() -> None:
    policy = NetworkPolicy(network_for(GAMES[0]))
    size = layout_of(GAMES[0]).size
    good, mask = np.zeros((2, size), np.float32), np.ones((2, 23), np.int8)
    with pytest.raises(PolicyError, match=rf"observation: expected shape \[B, {size}\].*\[2, 5\]"):
        policy.probabilities(good[:, :5], mask)
    with pytest.raises(PolicyError, match=r"action_mask: expected shape \[B, 23\].*\[2, 28\]"):
        policy.probabilities(good, np.ones((2, 28), np.int8))
    with pytest.raises(PolicyError, match="action_mask: expected shape"):
        policy.probabilities(good, mask[:1])
    with pytest.raises(PolicyError, match="expected shape"):
        policy.probabilities(good[0], mask[0])
    mask[1] = 0
    with pytest.raises(PolicyError, match="row 1"):
        policy.probabilities(good, mask)
    policy.network.policy_head.bias.data[:] = float("nan")
    with pytest.raises(PolicyError, match="not finite"):
        policy.probabilities(good, np.ones((2, 23), np.int8))


@pytest.mark.parametrize("game", GAMES, ids=lambda game: f"{game.num_players}-{game.num_actions}")
def test_without_cards_the_network_does_not_read_them(game: Game) -> None:
    _, observation, _ = positions(game, 5)
    columns = field_columns(layout_of(game), CARD_FIELDS)
    assert len(columns) == 52 * (game.num_players + 1)
    blind, seeing = network_for(game), network_for(game, cards=True)
    assert not set(CARD_FIELDS) & set(blind.input_fields)
    assert set(CARD_FIELDS) <= set(seeing.input_fields)
    assert seeing.num_features == blind.num_features + len(columns)
    x = torch.from_numpy(observation)
    changed = x.clone()
    changed[:, columns] = 1.0 - changed[:, columns]
    with torch.no_grad():
        assert torch.equal(blind(x)[0], blind(changed)[0])
        assert not torch.equal(seeing(x)[0], seeing(changed)[0])


@pytest.mark.parametrize("cards", [False, True])
@pytest.mark.parametrize("phase", [Phase.CALL, Phase.REARRANGE])
def test_heads_up_only_outcomes_count_where_the_opponent_lies_open(
    cards: bool, phase: Phase
) -> None:
    game = Game(2, {"declarations": ["OPEN", "FORCE"], "surrender_to_open": True})
    states, observation, _ = positions(game, 100)
    rows = [row for row, state in enumerate(states) if state.phase == phase]
    assert len(rows) > 20
    network = network_for(game, cards=cards)
    other = observation[rows]
    before = network.features(torch.from_numpy(other.copy()))
    fields = layout_of(game).views(other)
    # Other cards with the same result, for the call that of the committed split.
    fields["hand"][:] = np.roll(fields["hand"], 5, axis=1)
    fields["strengths"] /= 2
    fields["split"][:] = np.roll(fields["split"], 1, axis=1)
    if phase == Phase.CALL:
        fields["seats.outcomes"][:] = np.roll(fields["seats.outcomes"], 1, axis=2)
    assert torch.equal(network.features(torch.from_numpy(other)), before)
    # Another result is another information set.
    fields["seats.outcomes"][:] = np.roll(fields["seats.outcomes"], 1, axis=3)
    after = network.features(torch.from_numpy(other))
    assert bool((after != before).any(dim=1).all())


def test_own_cards_count_elsewhere_and_at_larger_tables() -> None:
    for game, config in ((Game(2), {}), (Game(2), {"outcomes_only": False}), (Game(3), {})):
        states, observation, _ = positions(game, 60)
        network = network_for(game, **config)
        other = observation.copy()
        strengths = layout_of(game).views(other)["strengths"]
        strengths /= 2
        features, changed = (network.features(torch.from_numpy(x)) for x in (observation, other))
        same = (features == changed).all(dim=1)
        hidden = [
            bool(game.num_players == 2 and not config)
            and (
                state.phase == Phase.REARRANGE
                or (state.phase == Phase.CALL and state.deal.declarations[1] == Action.OPEN)
            )
            for state in states
        ]
        assert same.tolist() == hidden
        assert any(hidden) == (game.num_players == 2 and not config)


def test_first_weights_come_from_the_generator_alone() -> None:
    game = GAMES[0]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = network_for(game, seed=5).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again, other = network_for(game, seed=5).state_dict(), network_for(game, seed=6).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["policy_head.weight"], other["policy_head.weight"])


def test_configuration_is_checked_and_kept() -> None:
    config = NetworkConfig(hidden=(3, 4), cards=True, thresholds={"arrange": 0.3})
    assert NetworkConfig.from_dict(config.to_dict()) == config
    assert len({config, NetworkConfig.from_dict(config.to_dict())}) == 1
    with pytest.raises(ConfigError, match=r"network\.hidden: expected whole numbers.*got 0"):
        NetworkConfig(hidden=(3, 0))
    for thresholds, message in (
        ({"arange": 0.1}, "got 'arange'; did you mean 'arrange'"),
        ({"over": 0.1}, "expected phases, of stake, .*got 'over'"),
        ({"call": 1.5}, r"thresholds\.call: expected a probability from 0 to 1, got 1\.5"),
        ({"call": float("nan")}, r"thresholds\.call: expected a probability .*got nan"),
        ({"call": True}, r"thresholds\.call: expected a probability .*got True"),
        ([0.1], r"thresholds: expected phases and probabilities.*got \[0\.1\]"),
    ):
        with pytest.raises(ConfigError, match=message):
            NetworkConfig(thresholds=thresholds)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'hiden'; did you mean 'hidden'"):
        NetworkConfig.from_dict({"hiden": [3]})
    with pytest.raises(ConfigError, match=r"no field 'hands'.*did you mean 'hand'"):
        field_columns(Layout(2, 23), ["hands"])


@pytest.mark.parametrize("game", GAMES, ids=lambda game: f"{game.num_players}-{game.num_actions}")
def test_what_lies_below_a_threshold_is_not_played(game: Game) -> None:
    thresholds = {"arrange": 0.4, "declare": 0.2, "reply": 1.0, "stake": 0.35}
    states, observation, mask = positions(game, 40)
    plain, cut = network_for(game), network_for(game, thresholds=thresholds)
    for network in (plain, cut):
        with torch.no_grad():
            network.policy_head.weight *= 300.0
    before = NetworkPolicy(plain).probabilities(observation, mask)
    after = NetworkPolicy(cut).probabilities(observation, mask)
    changed = set()
    for state, old, new in zip(states, before, after, strict=True):
        phase = Phase(state.view(state.current_player).phase).name.lower()
        least = min(thresholds.get(phase, 0.0), float(old.max()))
        kept = []
        for p in map(float, old):
            slope = (p - (least - 0.003)) / 0.003
            kept.append(p if p >= least else p * slope if slope > 0.0 else 0.0)
        np.testing.assert_allclose(new, np.array(kept) / sum(kept), atol=3e-4)
        assert (new > 0.0).sum() <= (old >= least - 0.003).sum()
        if (old != new).any():
            changed.add(phase)
    assert changed == {name for name in thresholds if name != "stake" or game.rules.max_stake > 1}
    for network, others, same in ((plain, thresholds, after), (cut, {}, before)):
        other = NetworkPolicy(network).with_thresholds(others)
        np.testing.assert_array_equal(other.probabilities(observation, mask), same)
        shared = (n.policy_head.weight.data_ptr() for n in (network, other.network))
        assert len(set(shared)) == 1
    # What is learned from stays as it is.
    x = torch.from_numpy(observation)
    torch.testing.assert_close(plain(x)[0], cut(x)[0], rtol=0.0, atol=0.0)


def test_network_without_hidden_layers_works() -> None:
    game = GAMES[1]
    _, observation, mask = positions(game, 2)
    assert np.isfinite(
        NetworkPolicy(network_for(game, hidden=())).probabilities(observation, mask)
    ).all()


def test_bins_say_between_which_edges_a_strength_lies() -> None:
    _, observation, _ = positions(Game(2))
    plain, binned = network_for(Game(2), bins=0), network_for(Game(2), bins=4)
    x = torch.from_numpy(observation)
    features, more = plain.features(x), binned.features(x)
    torch.testing.assert_close(more[:, : plain.num_features], features)
    bins = more[:, plain.num_features :].reshape(len(x), -1, 4)
    # Of one's own six, the committed two, and two of each seat's exposed hand.
    assert bins.shape[1] == 12
    read = field_columns(plain.layout, plain.input_fields)
    # Those that are hidden, here and there, are hidden in bins as well.
    own = np.isin(read, field_columns(plain.layout, ("strengths",)))
    strengths = features[:, : len(read)][:, own]
    expected = (strengths[..., None] * 4 - torch.arange(4)).clamp(0.0, 1.0)
    torch.testing.assert_close(bins[:, :6], expected)
    assert expected.amax() == 1.0
    torch.testing.assert_close(bins.sum(dim=2)[:, :6], strengths * 4)


def test_no_rows_have_no_features() -> None:
    network = network_for(Game(3))
    assert network.features(torch.zeros(0, network.layout.size)).shape == (0, network.num_features)
