"""Matches with control variates, until a precision, and in several goes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shuiyu_env import PRESETS, Deck, Game, RuleSet
from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.deals import deal_hands
from shuiyu_env.core.errors import CheckpointError, ConfigError
from shuiyu_env.evaluation import MatchResult, play_match
from shuiyu_env.evaluation.lookahead import look_ahead
from shuiyu_env.exact import equilibrium_of, expected_value, tabulate
from shuiyu_env.policies import load
from shuiyu_env.policies.reference import Uniform

SMALL = replace(PRESETS["nanning"], deck=Deck(ranks=4, suits=3))
PAIR = ["honest", "bluffer"]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what is solved here apart from the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUIYU_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def roles(result: MatchResult, entry: int = 0) -> dict[str, Any]:
    return {role: getattr(result.entries[entry], role) for role in ("dealer", "punter", "both")}


def exact_values(names: list[str], rules: RuleSet) -> dict[str, float]:
    """Return what the first of two policies wins, by role."""
    me, other = (tabulate(load(name), rules) for name in names)
    dealer = -float(expected_value(me, other))
    punter = float(expected_value(other, me))
    return {"dealer": dealer, "punter": punter, "both": (dealer + punter) / 2}


@pytest.mark.parametrize("preset", list(PRESETS))
def test_the_cards_played_are_the_same(preset: str) -> None:
    plain = play_match(["bluffer", "uniform"], preset, 60, seed=4)
    controlled = play_match(
        ["bluffer", "uniform"], preset, 60, seed=4, control_variates=True, batch_size=50
    )
    np.testing.assert_array_equal(controlled.units, plain.units)
    assert plain.adjusted is None
    assert controlled.adjusted is not None
    assert not np.array_equal(controlled.adjusted, controlled.units)
    np.testing.assert_allclose(controlled.adjusted.sum(axis=2), 0.0, atol=1e-12)
    assert "control variates" in controlled.table()
    assert controlled.to_dict()["control_variates"] is True


@pytest.mark.parametrize("preset", list(PRESETS))
def test_an_equilibrium_against_itself_is_worth_its_value_without_luck(preset: str) -> None:
    equilibrium = equilibrium_of(preset)
    result = play_match([equilibrium, equilibrium], preset, 40, control_variates=True)
    value = float(equilibrium.info["value"])
    for entry in (0, 1):
        wanted = {"dealer": -value, "punter": value, "both": 0.0}
        for role, estimate in roles(result, entry).items():
            assert estimate.mean == pytest.approx(wanted[role], abs=1e-9)
            assert estimate.standard_error < 1e-9


def test_luck_has_mean_zero_whatever_is_played() -> None:
    """The exact expectation, over all actions, of what is left of some deals."""

    class Cycle(Uniform):
        """Not what the equilibrium does, and without chance: always the same rank of action."""

        def __init__(self, rank: int) -> None:
            self.rank = rank

        def probabilities(self, observation: Any, action_mask: Any) -> Any:
            legal = np.asarray(action_mask) != 0
            count = legal.sum(axis=1)
            chosen = np.argsort(~legal, axis=1, kind="stable")[
                np.arange(len(legal)), self.rank % count
            ]
            return np.eye(legal.shape[1])[chosen]

    value = float(equilibrium_of(SMALL).info["value"])
    # Without chance in the actions only the cards are luck: what is left is what they paid,
    # minus what they are worth to the equilibrium.
    game = Game(2, SMALL)
    for ranks in ((0, 1), (2, 0), (1, 5)):
        players = [Cycle(rank) for rank in ranks]
        result = play_match(players, game, 50, control_variates=True)
        assert result.adjusted is not None
        hands = [deal_hands(SMALL.deck, 2, 0, 0, deal) for deal in range(50)]
        root = look_ahead(game, hands, equilibrium_of(SMALL), "equilibrium")[0].value
        expected = result.units[:, 0, 1] - root + value
        np.testing.assert_allclose(result.adjusted[:, 0, 1], expected, atol=1e-9)


def test_it_agrees_with_the_exact_value_and_is_closer() -> None:
    truth = exact_values(PAIR, SMALL)
    plain = roles(play_match(PAIR, SMALL, 2500, seed=3))
    controlled = roles(play_match(PAIR, SMALL, 2500, seed=3, control_variates=True))
    for role, value in truth.items():
        estimate = controlled[role]
        assert abs(estimate.mean - value) < 4.0 * estimate.standard_error, role
        assert estimate.standard_error < plain[role].standard_error


def coverage(rules: RuleSet, matches: int, deals: int, truth: dict[str, float]) -> dict[str, int]:
    covered = dict.fromkeys(truth, 0)
    for seed in range(matches):
        result = play_match(PAIR, rules, deals, seed=1000 + seed, control_variates=True)
        for role, estimate in roles(result).items():
            covered[role] += estimate.low <= truth[role] <= estimate.high
    return covered


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    covered = coverage(SMALL, 100, 120, exact_values(PAIR, SMALL))
    # Of 100 with probability 0.95 fewer than 88 are one in 250 such counts.
    assert all(count >= 88 for count in covered.values()), covered
    assert min(covered.values()) < 100


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["nanning", "dahua"])
def test_intervals_cover_the_truth_on_the_full_deck(preset: str) -> None:
    rules = PRESETS[preset]
    covered = coverage(rules, 100, 150, exact_values(PAIR, rules))
    assert all(count >= 88 for count in covered.values()), covered


@pytest.mark.parametrize("preset", list(PRESETS))
def test_looking_ahead_meets_every_state_once(preset: str) -> None:
    game = Game(2, preset)
    hands = [deal_hands(game.rules.deck, 2, 9, 0, deal) for deal in range(3)]
    levels = look_ahead(game, hands, Uniform(), "uniform")
    # Worth to the punter: by playing all of it again, with single environments.
    for deal in range(3):

        def value(actions: list[int], deal: int = deal) -> float:
            env = BatchEnv(game, 1, seed=0)
            env.reset(hands=np.array(hands[deal])[None], dealer=0)
            for action in actions:
                env.step([action])
                if env.done[0]:
                    return float(env.reward[0, 1])
            legal = np.flatnonzero(env.action_mask[0])
            return float(np.mean([value([*actions, int(a)]) for a in legal]))

        assert levels[0].value[deal] == pytest.approx(value([]), abs=1e-9)


def test_a_match_ends_when_it_is_precise_enough() -> None:
    result = play_match(["equilibrium"] * 2, "dahua", 10_000, precision=0.01, control_variates=True)
    assert result.num_deals == 512  # one batch of 1,024 games
    result = play_match(PAIR, "dahua", 10_000, precision=0.2, batch_size=128)
    assert 200 <= result.num_deals < 2000
    assert result.precision <= 0.2
    before = play_match(PAIR, "dahua", result.num_deals - 64)
    assert before.num_deals < 200 or before.precision > 0.2
    # It gives up at the number of deals.
    assert play_match(PAIR, "dahua", 250, precision=1e-6, batch_size=100).num_deals == 250


class Interrupting(Uniform):
    """Is interrupted when it is asked for the so-manieth time."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def probabilities(self, observation: Any, action_mask: Any) -> Any:
        self.calls -= 1
        if self.calls == 0:
            raise KeyboardInterrupt
        return super().probabilities(observation, action_mask)


@pytest.mark.parametrize("control_variates", [False, True])
def test_an_interrupted_match_goes_on(tmp_path: Path, control_variates: bool) -> None:
    state = tmp_path / "deep" / "match.npz"
    settings: dict[str, Any] = {
        "game": "dahua", "names": ["a", "b"], "batch_size": 32, "control_variates": control_variates
    }  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        play_match([Interrupting(40), "honest"], num_deals=200, state=state, **settings)
    with np.load(state) as kept:
        assert 0 < len(kept["units"]) < 200
        assert len(kept["units"]) % 16 == 0
    again = play_match(["uniform", "honest"], num_deals=200, state=state, **settings)
    whole = play_match(["uniform", "honest"], num_deals=200, **settings)
    np.testing.assert_array_equal(again.units, whole.units)
    assert again.entries == whole.entries
    # More deals of the same match, and fewer.
    more = play_match(["uniform", "honest"], num_deals=230, state=state, **settings)
    assert more.entries == play_match(["uniform", "honest"], num_deals=230, **settings).entries
    fewer = play_match([Interrupting(1), "honest"], num_deals=50, state=state, **settings)
    assert fewer.entries == play_match(["uniform", "honest"], num_deals=50, **settings).entries
    assert [file.name for file in state.parent.iterdir()] == ["match.npz"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"seed": 2}, "seed 2, got 1"),
        ({"names": ["a", "c"]}, "names"),
        ({"game": "nanning"}, "rules"),
        ({"control_variates": True}, "control_variates True, got False"),
    ],
)
def test_the_state_of_another_match_is_refused(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    settings: dict[str, Any] = {"game": "dahua", "names": ["a", "b"], "seed": 1}
    settings["state"] = tmp_path / "match.npz"
    play_match(PAIR, num_deals=4, **settings)
    with pytest.raises(CheckpointError, match=problem):
        play_match(PAIR, num_deals=4, **(settings | change))


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "match.npz"
    play_match(PAIR, "dahua", 20, state=state)
    whole = state.read_bytes()
    for k in range(40):
        data = bytearray(whole)
        data[len(whole) * k // 40] ^= 0x10
        state.write_bytes(data)
        # Some bytes do not matter.
        with contextlib.suppress(CheckpointError):
            play_match(PAIR, "dahua", 20, state=state)
    for damaged in (whole[:100], b"", b"x" * 100):
        state.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="cannot be read as the state"):
            play_match(PAIR, "dahua", 20, state=state)
    state.write_bytes(whole)
    with np.load(state) as kept:
        arrays = dict(kept)
    arrays["units"] = arrays["units"][:5]
    arrays["adjusted"] = arrays["adjusted"][:4]
    np.savez(state, **arrays)
    with pytest.raises(CheckpointError, match="adjusted is damaged"):
        play_match(PAIR, "dahua", 20, state=state)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"precision": 0.0}, "precision: expected a number of units above 0, got 0.0"),
        ({"precision": float("nan")}, "precision"),
        ({"precision": "x"}, "precision"),
        ({"precision": True}, "precision"),
        ({"state": 5}, "expected a file ending in .npz, got 5"),
        ({"control_variates": True, "game": Game(2, reward="drinks")}, "reward='drinks'"),
        ({"control_variates": True, "game": Game(2, RuleSet(max_stake=2))}, "max_stake=2"),
        ({"state": "match.json"}, "expected a file ending in .npz"),
    ],
)
def test_bad_settings_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=problem):
        play_match(PAIR, num_deals=2, **settings)
    with pytest.raises(ConfigError, match="got 3 seats"):
        play_match([*PAIR, "uniform"], num_deals=2, control_variates=True)
