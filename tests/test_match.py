"""Matches: against exact expectations, against a plain replay, and their intervals."""

from __future__ import annotations

import json
import sys
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from shuiyu_env import Deck, Game, RuleSet
from shuiyu_env.core.deals import Purpose, random_words
from shuiyu_env.core.errors import DealError, PolicyError, RulesError
from shuiyu_env.core.game import State
from shuiyu_env.evaluation import against_table, match_against, play_match
from shuiyu_env.evaluation.estimate import Estimate, student_t
from shuiyu_env.observation import layout_of
from shuiyu_env.policies import Policy, load
from shuiyu_env.policies.reference import Bluffer, Uniform

TINY = RuleSet(deck=Deck(2, 4), specials="at_showdown", surrender_to_open=True)
ENTRY_FIELDS = ("dealer", "punter", "both")


def distribution(policy: Policy, state: State) -> dict[int, float]:
    """Return the probability of each action at one state."""
    legal = list(state.legal_actions())
    mask = np.zeros((1, state.game.num_actions), dtype=np.int8)
    mask[0, legal] = 1
    observation = layout_of(state.game).encode(state.view(state.current_player))[None]
    row = policy.probabilities(observation, mask)[0]
    return {action: float(row[action]) for action in legal if row[action] > 0.0}


def expected_units(state: State, policies: list[Policy]) -> np.ndarray:
    """Return the expectation of each seat's units, by walking the whole tree."""
    if state.is_terminal:
        return np.array(state.returns())
    total = np.zeros(state.game.num_players)
    assert state.current_player is not None
    for action, probability in distribution(policies[state.current_player], state).items():
        child = state.clone()
        child.apply(action)
        total += probability * expected_units(child, policies)
    return total


def exact_dealer_units(game: Game, dealer: str, punter: str) -> float:
    """Return the dealer's expectation over all heads-up deals of a deck of eight cards."""
    cards = game.rules.deck.cards
    values = [
        expected_units(
            game.new_state(hands=[hand, [card for card in cards if card not in hand]]),
            [load(dealer), load(punter)],
        )[0]
        for hand in combinations(cards, 4)
    ]
    assert len(values) == 70
    return float(np.mean(values))


@pytest.fixture(scope="module")
def exact() -> dict[tuple[str, str], float]:
    """The dealer's expectation in the tiny game, by (dealer, punter)."""
    game = Game(2, TINY)
    names = ("uniform", "bluffer")
    return {(d, p): exact_dealer_units(game, d, p) for d in names for p in names}


@pytest.mark.parametrize("pair", [("uniform", "uniform"), ("uniform", "bluffer")])
def test_a_match_estimates_the_exact_expectation(
    exact: dict[tuple[str, str], float], pair: tuple[str, str]
) -> None:
    result = play_match(pair, TINY, num_deals=3000, seed=2)
    for (me, other), entry in zip((pair, pair[::-1]), result.entries, strict=True):
        dealer, punter = exact[me, other], -exact[other, me]
        truth = {"dealer": dealer, "punter": punter, "both": (dealer + punter) / 2}
        for field, value in truth.items():
            estimate = getattr(entry, field)
            assert 0.0 < estimate.standard_error < 0.06
            assert abs(estimate.mean - value) < 4 * estimate.standard_error, field
    if pair[0] != pair[1]:
        assert abs(result.entries[0].both.mean) > 4 * result.entries[0].both.standard_error


@pytest.mark.parametrize(
    "game",
    [
        Game(2),
        Game(3, "dahua_house", dealer_rotation="random"),
        Game(3, RuleSet(max_stake=3, declare="in_turn"), reward="drinks"),
    ],
)
def test_a_match_is_what_its_documentation_says(game: Game) -> None:
    """Replayed with single states, from the specified generators."""
    names = ["uniform", "bluffer", "honest"][: game.num_players]
    num_deals, seed, n = 9, 2**40 + 1, game.num_players
    result = play_match(names, game, num_deals, seed, batch_size=5)
    policies = [load(name) for name in names]
    units = np.zeros((num_deals, n, n))
    for deal in range(num_deals):
        for rotation in range(n):
            state = game.new_state(seed, dealer=0, stream=0, index=deal)
            words = random_words(seed, rotation, deal, Purpose.ACTIONS)
            while not state.is_terminal:
                assert state.current_player is not None
                entry = (state.current_player - rotation) % n
                u, below = next(words) / 2**32, 0.0
                for action, probability in distribution(policies[entry], state).items():
                    below += probability
                    if u < below:
                        state.apply(action)
                        break
            for seat, reward in enumerate(state.returns()):
                units[deal, rotation, (seat - rotation) % n] = reward
    np.testing.assert_array_equal(result.units, units)
    for entry in range(n):
        dealer = units[:, -entry % n, entry]
        punter = (units[:, :, entry].sum(axis=1) - dealer) / (n - 1)
        for field, values in zip(
            ENTRY_FIELDS, (dealer, punter, (dealer + punter) / 2), strict=True
        ):
            estimate = getattr(result.entries[entry], field)
            assert estimate.mean == pytest.approx(values.mean())
            error = values.std(ddof=1) / np.sqrt(num_deals)
            assert estimate.standard_error == pytest.approx(error)
            half = 2.306004 * error  # Student's t with 8 degrees of freedom
            assert estimate.low == pytest.approx(values.mean() - half, abs=2e-3 * half + 1e-9)
            assert estimate.high == pytest.approx(values.mean() + half, abs=2e-3 * half + 1e-9)


@pytest.mark.parametrize("n", [2, 4])
def test_results_depend_on_neither_batch_size_nor_threads(n: int) -> None:
    names = ["uniform", "bluffer", "honest", "bluffer"][:n]
    results = [
        play_match(names, "nanning", 20, 5, batch_size=size, threads=threads)
        for size, threads in ((1, 1), (7, 3), (1024, 2))
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(other.units, results[0].units)
        assert other.to_dict() == results[0].to_dict()
    assert not np.array_equal(play_match(names, "nanning", 20, 6).units, results[0].units)


@pytest.mark.parametrize("n", [2, 3])
def test_transfers_are_zero_sum_between_the_entries(n: int) -> None:
    result = play_match(["uniform", "honest", "bluffer"][:n], "nanning", 50, 1)
    np.testing.assert_array_equal(result.units.sum(axis=2), 0.0)
    weighted = sum(entry.dealer.mean + (n - 1) * entry.punter.mean for entry in result.entries)
    assert weighted == pytest.approx(0.0, abs=1e-9)
    if n == 2:
        assert result.entries[0].both.mean == pytest.approx(-result.entries[1].both.mean)
        assert result.entries[0].both.standard_error == pytest.approx(
            result.entries[1].both.standard_error
        )


def test_drinks_only_lose() -> None:
    result = play_match(["uniform"] * 3, Game(3, reward="drinks"), 30, 1)
    assert (result.units <= 0.0).all()
    assert result.entries[0].both.mean < -0.5
    assert "drinks" in result.table()


@pytest.mark.parametrize("n", [2, 4])
def test_equal_deterministic_policies_get_exactly_equal_results(n: int) -> None:
    """Every entry holds every hand of every deal, so only the order of the deals' sums differs."""
    entries = play_match(["honest"] * n, "nanning", 40, 3).entries
    for entry in entries[1:]:
        for field in ENTRY_FIELDS:
            mine, first = getattr(entry, field), getattr(entries[0], field)
            assert (mine.mean, mine.standard_error) == (first.mean, first.standard_error)
    assert entries[0].dealer.standard_error > 0.0
    if n == 2:
        assert entries[0].both == Estimate(0.0, 0.0, 0.0, 0.0)


def test_equal_random_policies_draw_independently_of_each_other() -> None:
    """Were the same numbers used in both rotations, equal policies would mirror each other."""
    result = play_match(["uniform", "uniform"], "nanning", 40, 3)
    assert result.entries[0].both.standard_error > 0.0
    assert len(np.unique(result.units[:, 0, 0] == -result.units[:, 1, 0])) == 2


@pytest.mark.parametrize("rules", ["nanning", "dahua", "dahua_house"])
@pytest.mark.parametrize("n", [2, 4])
def test_the_reference_policies_are_a_ladder(rules: str, n: int) -> None:
    game = Game(n, rules)
    for row in match_against("honest", ["uniform"], game, 150, 1):
        assert row.result.both.low > 0.2
    for row in match_against("bluffer", ["uniform"], game, 150, 1):
        assert row.result.both.low > 0.2
    for row in match_against("cautious", ["uniform"], game, 400, 1):
        assert row.result.both.low > 0.0
    (row,) = match_against("honest", ["bluffer"], game, 600, 1)
    assert row.result.both.low > 0.0


def test_match_against_seats_the_policy_once_in_every_seat() -> None:
    game = Game(3, "dahua")
    rows = match_against(Bluffer(0.5), ["uniform", "honest"], game, 12, 4, name="mine")
    assert [row.opponent for row in rows] == ["uniform", "honest"]
    for row in rows:
        alone = play_match([Bluffer(0.5), row.opponent, row.opponent], game, 12, 4)
        np.testing.assert_array_equal(row.match.units, alone.units)
        assert row.result == row.match.entries[0]
        assert row.result.name == "mine"
        names = [entry.name for entry in row.match.entries]
        assert names == ["mine", f"{row.opponent} (1)", f"{row.opponent} (2)"]
        assert json.loads(json.dumps(row.to_dict()))["both"]["mean"] == row.result.both.mean
    lines = against_table(rows).splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("mine: dahua, 3 seats, 12 deals")
    assert lines[2].split()[0] == "uniform"
    assert f"{rows[1].result.both.mean:+.3f}" in lines[3]
    assert against_table([]) == "no opponents"
    assert match_against("honest", ["uniform"], "dahua", 5)[0].match.game == Game(2, "dahua")


def test_opponents_are_loaded_before_anything_is_played() -> None:
    class Never(Uniform):
        def probabilities(self, observation: Any, action_mask: Any) -> Any:
            raise AssertionError("played")

    with pytest.raises(PolicyError, match="did you mean 'honest'"):
        match_against(Never(), ["uniform", "honset"], num_deals=2)


def test_results_as_json_and_text() -> None:
    result = play_match(["honest", "honest", Uniform()], "nanning", 10, 8)
    data = json.loads(json.dumps(result.to_dict()))
    assert Game(3, data["rules"]) == result.game
    assert (data["num_players"], data["num_deals"], data["seed"]) == (3, 10, 8)
    assert (data["reward"], data["confidence"]) == ("transfer", 0.95)
    assert [entry["name"] for entry in data["entries"]] == ["honest (1)", "honest (2)", "Uniform"]
    for entry, plain in zip(result.entries, data["entries"], strict=True):
        for field in ENTRY_FIELDS:
            estimate = getattr(entry, field)
            assert plain[field]["low"] == estimate.low <= estimate.mean <= estimate.high
    lines = result.table().splitlines()
    assert lines[1].split() == ["policy", "dealer", "punter", "both"]
    for entry, line in zip(result.entries, lines[2:], strict=True):
        assert line.startswith(entry.name)
        assert str(entry.both) in line
    named = play_match(["honest", "honest"], names=["a", "b"], num_deals=2)
    assert [entry.name for entry in named.entries] == ["a", "b"]


class Broken(Uniform):
    """Answers with something unusable when it is to call."""

    def __init__(self, value: float) -> None:
        self.value = value

    def probabilities(self, observation: Any, action_mask: Any) -> Any:
        result = super().probabilities(observation, action_mask)
        result[action_mask[:, 8:18].any(axis=1), 0] = self.value
        return result


@pytest.mark.parametrize(
    ("value", "problem"),
    [(np.nan, "not finite"), (0.5, "an illegal action has a prob"), (-1.0, "negative")],
)
def test_a_bad_answer_names_policy_seat_and_phase(value: float, problem: str) -> None:
    with pytest.raises(
        PolicyError, match=rf"policy 'broken', row \d+, seat 0, phase CALL.*{problem}"
    ):
        play_match(["uniform", Broken(value)], "dahua", 20, names=["fine", "broken"])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"policies": ["honest"]}, PolicyError, "expected 2 entries, one per seat.*got 1"),
        ({"policies": []}, PolicyError, "expected 2 entries, one per seat.*got 0"),
        ({"policies": ["honest"] * 3, "game": Game(2)}, PolicyError, "expected 2 entries.*got 3"),
        ({"policies": "honest"}, PolicyError, "policies: expected a list of policies"),
        ({"policies": ["honest", "honset"]}, PolicyError, "did you mean 'honest'"),
        ({"policies": ["honest", 3]}, PolicyError, "expected a policy's name.*got 3"),
        ({"names": ["a"]}, PolicyError, "names: expected 2 texts"),
        ({"names": ["a", 1]}, PolicyError, "names: expected 2 texts"),
        ({"game": Game(2, rounds=3)}, RulesError, "expected a game with rounds=1, got rounds=3"),
        ({"game": "naning"}, RulesError, "did you mean 'nanning'"),
        ({"num_deals": 1}, DealError, "num_deals: expected an integer of 2 or more, got 1"),
        ({"num_deals": 10.0}, DealError, "num_deals: expected an integer of 2 or more, got 10.0"),
        ({"seed": "x"}, DealError, "seed: expected an integer, got 'x'"),
        ({"seed": None}, DealError, "seed: expected an integer, got None"),
        ({"seed": True}, DealError, "seed: expected an integer, got True"),
        ({"batch_size": 0}, DealError, "batch_size: expected an integer of 1 or more, got 0"),
    ],
)
def test_bad_arguments_are_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        play_match(**({"policies": ["honest", "uniform"], "num_deals": 2} | arguments))


def test_seeds_and_numbers_of_numpy_are_accepted() -> None:
    a = play_match(["uniform", "honest"], "dahua", np.int64(4), np.uint32(0))
    np.testing.assert_array_equal(a.units, play_match(["uniform", "honest"], "dahua", 4, 0).units)
    json.dumps(a.to_dict())


def test_a_progress_bar_counts_all_games(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play_match(["uniform", "honest"], "dahua", 10, progress=True, batch_size=7)
    if "tqdm" in sys.modules:
        assert "20/20" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "tqdm", None)
    play_match(["uniform", "honest"], "dahua", 10, progress=True)
    assert capsys.readouterr().err == ""


def test_quantiles_of_students_t() -> None:
    table = {1: 12.7062, 2: 4.30265, 3: 3.18245, 5: 2.57058, 10: 2.22814, 30: 2.04227}
    for degrees, value in table.items():
        assert student_t(0.975, degrees) == pytest.approx(value, rel=3e-3)
    assert student_t(0.975, 10**6) == pytest.approx(1.959966, rel=1e-5)
    stats = pytest.importorskip("scipy.stats")
    for degrees in range(1, 200):
        for probability in (0.9, 0.95, 0.975):
            assert student_t(probability, degrees) == pytest.approx(
                stats.t.ppf(probability, degrees), rel=3e-3
            )


@pytest.mark.slow
def test_intervals_cover_the_truth_as_often_as_they_say(
    exact: dict[tuple[str, str], float],
) -> None:
    dealer, punter = exact["uniform", "bluffer"], -exact["bluffer", "uniform"]
    truth = {"dealer": dealer, "punter": punter, "both": (dealer + punter) / 2}
    repeats = 1000
    covered = dict.fromkeys(truth, 0)
    for seed in range(repeats):
        entry = play_match(["uniform", "bluffer"], TINY, num_deals=30, seed=seed).entries[0]
        for field, value in truth.items():
            estimate = getattr(entry, field)
            covered[field] += estimate.low <= value <= estimate.high
    for count in covered.values():
        # Three standard deviations of a binomial around 95 %.
        assert abs(count / repeats - 0.95) < 3 * np.sqrt(0.95 * 0.05 / repeats), covered
