"""The solver: its updates to the letter, convergence, interruption and resumption."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from games import examples
from hypothesis import given
from hypothesis import strategies as st

from shuiyu_env.core.cards import Deck
from shuiyu_env.core.errors import CheckpointError, ConfigError, RulesError
from shuiyu_env.core.rules import PRESETS, RuleSet
from shuiyu_env.exact import Equilibrium, load_equilibrium, solve
from shuiyu_env.exact import solving as solving_module
from shuiyu_env.exact.heads_up import HeadsUpGame
from shuiyu_env.exact.solver import ALGORITHMS, Decision, Solver
from shuiyu_env.exact.solving import default_algorithm

SMALL = Deck(4, 4)


def small(preset: str, deck: Deck = SMALL) -> RuleSet:
    return dataclasses.replace(PRESETS[preset], deck=deck)


# ---- the update, to the letter ----------------------------------------------------------------


def discounts_by_the_papers(name: str, t: int, horizon: int) -> tuple[float, float, float]:
    """Factors of positive regrets, negative regrets and the average before iteration t adds."""
    done = min(t / horizon, 1.0)  # a schedule stays at its end
    alpha, beta, gamma = {
        "dcfr": (1.5, 0.0, 2.0),
        "hs-dcfr": (1 + 3 * done, -1 - 2 * done, 30 - 5 * done),
    }.get(name, (None, None, {"cfr": 0.0, "cfr+": 1.0, "pcfr+": 2.0, "pcfr+5": 5.0}.get(name)))
    before = t - 1
    average = (before / t) ** gamma if gamma else 1.0
    if alpha is None:
        return 1.0, 1.0, average
    if before == 0:
        return 0.0, 0.0, average  # nothing is there to discount
    return (
        before**alpha / (before**alpha + 1),
        before**beta / (before**beta + 1),
        average,
    )


def plain_iteration(
    name: str,
    t: int,
    horizon: int,
    values: list[float],
    sign: float,
    regrets: list[float],
    strategy: list[float],
    total: list[float],
) -> tuple[list[float], list[float], list[float]]:
    """One update of one decision with every action legal, action by action."""
    positive, negative, average = discounts_by_the_papers(name, t, horizon)
    mean = sum(p * v for p, v in zip(strategy, values, strict=True))
    now = [sign * (v - mean) for v in values]
    after = [r * (positive if r > 0 else negative) + n for r, n in zip(regrets, now, strict=True)]
    if name in ("cfr+", "pcfr+", "pcfr+5"):
        after = [max(r, 0.0) for r in after]
    guess = [r + n for r, n in zip(after, now, strict=True)] if "pcfr" in name else after
    weights = [max(g, 0.0) for g in guess]
    norm = sum(weights)
    strategy = [w / norm if norm > 0 else 1 / len(weights) for w in weights]
    total = [average * s + p for s, p in zip(total, strategy, strict=True)]
    return after, strategy, total


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_the_convention_of_the_update(name: str) -> None:
    """Discount, then add, by t - 1: another order or another t is another algorithm."""
    rng = np.random.default_rng(5)
    horizon = 12
    decision = Decision(np.ones((4, 3, 3), dtype=np.bool_), np.float64)
    rows = [([0.0] * 3, [1 / 3] * 3, [0.0] * 3) for _ in range(12)]
    for t in range(1, 16):
        values = rng.normal(size=(4, 3, 3))
        discounts = ALGORITHMS[name].discounts(t, horizon)
        decision.update(values, -1.0, ALGORITHMS[name], discounts, threads=2)
        decision.accumulate(None, discounts.average)
        for k, row in enumerate(values.reshape(-1, 3)):
            regrets, strategy, total = rows[k]
            rows[k] = plain_iteration(
                name, t, horizon, row.tolist(), -1.0, regrets, strategy, total
            )
        for k, array in enumerate((decision.regret, decision.strategy, decision.total)):
            np.testing.assert_allclose(array.reshape(-1, 3), [row[k] for row in rows], atol=1e-12)


@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(ALGORITHMS)))
@examples(30)
def test_illegal_actions_are_never_played(seed: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    legal = rng.random((20, 3)) < 0.6
    legal[:, 0] |= ~legal.any(axis=1)
    decision = Decision(legal, np.float32)
    for t in range(1, 6):
        discounts = ALGORITHMS[name].discounts(t, 5)
        values = rng.normal(size=(20, 3)) * 10.0 ** rng.integers(-8, 8)
        decision.update(values, 1.0, ALGORITHMS[name], discounts, threads=1)
        decision.accumulate(rng.random(20).astype(np.float32), discounts.average)
        for strategy in (decision.strategy, decision.average()):
            assert (strategy[~legal] == 0).all()
            assert (strategy >= 0).all()
            np.testing.assert_allclose(strategy.sum(axis=1), 1.0, atol=1e-5)


def test_no_reach_is_the_uniform_average() -> None:
    decision = Decision(np.array([[True, False, True]]), np.float32)
    decision.accumulate(np.zeros(1, dtype=np.float32), 1.0)
    assert decision.average().tolist() == [[0.5, 0.0, 0.5]]


# ---- convergence ------------------------------------------------------------------------------

# NashConv that must be reached, on 16 cards. Measured: about half of each.
REACHED = {
    "hs-dcfr": {30: 5e-4, 100: 1.5e-4},
    "dcfr": {30: 2e-3, 100: 1e-4},
    "pcfr+5": {30: 2e-3, 100: 3e-4},
    "pcfr+": {30: 5e-3, 100: 5e-4},
    "cfr+": {30: 3e-2, 100: 3e-3},
    "cfr": {30: 0.2, 100: 0.06},
}


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_converges(name: str) -> None:
    game = HeadsUpGame(small("nanning"), threads=1)
    solver = Solver(game, name, horizon=50, dtype=np.float64)
    values = []
    for iteration in range(1, 101):
        solver.step()
        if iteration in REACHED[name]:
            average = solver.average()
            assert 0.0 <= average.nashconv <= REACHED[name][iteration], iteration
            values.append((average.low, average.high))
    # The intervals hold the same value.
    assert max(low for low, _ in values) <= min(high for _, high in values)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_presets_are_solved(preset: str) -> None:
    equilibrium = solve(small(preset), 3e-4, threads=1)
    info = equilibrium.info
    assert info["nashconv"] <= 3e-4
    assert info["iterations"] <= 200
    assert float(equilibrium.nashconv().nashconv) == pytest.approx(info["nashconv"], abs=1e-12)
    assert info["dealer_gain"] >= 0
    assert info["punter_gain"] >= 0
    rows = info["convergence"]
    assert [row["iteration"] for row in rows] == sorted({row["iteration"] for row in rows})
    assert all(row["low"] <= info["value"] + 1e-3 for row in rows)
    assert json.loads(json.dumps(info)) == info


def test_rank_multisets_agree_with_single_hands() -> None:
    rules = dataclasses.replace(PRESETS["dahua_house"], deck=Deck(5, 3))
    results = []
    for by_ranks in (True, False):
        game = HeadsUpGame(rules, by_ranks=by_ranks, threads=2)
        assert game.classes.by_ranks is by_ranks
        solver = Solver(game, "hs-dcfr", horizon=50, dtype=np.float64)
        marks = []
        for _ in range(25):
            solver.step()
            average = solver.average()
            marks.append((average.low, average.high))
        results.append(marks)
    # Hands of the same ranks are alike from the first iteration on, so every step is the same.
    np.testing.assert_allclose(results[0], results[1], atol=1e-9)


def test_the_full_deck_has_1820_rank_multisets() -> None:
    game = HeadsUpGame(PRESETS["dahua_house"])
    assert game.classes.size == 1820
    assert game.classes.multiplicity.sum() == 270725


def test_attack_adds_nothing_to_cover() -> None:
    """Under the defaults the dealer can answer an attack as he would a cover."""
    with_attack = solve(RuleSet(declarations=("OPEN", "COVER", "ATTACK"), deck=SMALL), 2e-4)
    without = solve(RuleSet(declarations=("OPEN", "COVER"), deck=SMALL), 2e-4)
    assert with_attack.info["value"] == pytest.approx(without.info["value"], abs=4e-4)
    # Not so where a push spares the attacker.
    spared = solve(
        RuleSet(declarations=("OPEN", "COVER", "ATTACK"), attack_on_push=0, deck=SMALL), 2e-4
    )
    assert spared.info["value"] > without.info["value"] + 0.01


# ---- interruption -----------------------------------------------------------------------------


def interrupt_at(monkeypatch: pytest.MonkeyPatch, iteration: int) -> None:
    """Press Ctrl-C in the middle of an iteration."""
    step = Solver.step

    def interrupted(self: Solver) -> None:
        if self.iteration == iteration - 1:
            os.kill(os.getpid(), signal.SIGINT)
        step(self)

    monkeypatch.setattr(Solver, "step", interrupted)


class StopError(Exception):
    pass


def same_tables(a: Equilibrium, b: Equilibrium) -> bool:
    return a.tables.keys() == b.tables.keys() and all(
        np.array_equal(a.tables[name], b.tables[name]) for name in a.tables
    )


@pytest.mark.parametrize("algorithm", ["hs-dcfr", "pcfr+"])
def test_an_interrupted_run_ends_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    rules, checkpoint = small("dahua"), tmp_path / "run.npz"
    options: dict[str, Any] = {
        "target": 1e-9,
        "max_iterations": 17,
        "algorithm": algorithm,
        "threads": 1,
    }
    whole = solve(rules, **options)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 11)
        with pytest.raises(KeyboardInterrupt):
            solve(rules, checkpoint=checkpoint, **options)
    assert checkpoint.exists()
    resumed = solve(rules, checkpoint=checkpoint, **options)
    assert same_tables(whole, resumed)
    assert [row["iteration"] for row in resumed.info["convergence"]] == [
        row["iteration"] for row in whole.info["convergence"]
    ]
    assert resumed.info["nashconv"] == whole.info["nashconv"]


def test_a_long_run_saves_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tmp_path / "run.npz"
    monkeypatch.setattr(solving_module._Run, "SAVE_EVERY", 0.0)
    step = Solver.step

    def stopped(self: Solver) -> None:
        if self.iteration == 5:
            raise StopError
        step(self)

    monkeypatch.setattr(Solver, "step", stopped)
    with pytest.raises(StopError):
        solve(small("dahua"), 1e-9, checkpoint=checkpoint, threads=1)
    with np.load(checkpoint) as archive:
        assert json.loads(bytes(archive["header"]))["iteration"] == 5


def test_a_checkpoint_of_another_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "run.npz"
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            solve(small("dahua"), 1e-9, checkpoint=checkpoint)
    before = checkpoint.read_bytes()
    for rules, options in (
        (small("nanning"), {}),
        (small("dahua"), {"algorithm": "cfr+"}),
        (small("dahua"), {"horizon": 77}),
    ):
        with pytest.raises(CheckpointError, match="remove it, or name another file"):
            solve(rules, 1e-9, checkpoint=checkpoint, **options)
    checkpoint.write_bytes(before[: len(before) // 2])
    with pytest.raises(CheckpointError, match="damaged, remove it to begin again"):
        solve(small("dahua"), 1e-9, checkpoint=checkpoint)


# ---- bad settings -----------------------------------------------------------------------------


def test_an_interrupt_finishes_the_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, or SIGTERM, amid an update: half of one is never kept."""
    rules, checkpoint = small("dahua"), tmp_path / "run.npz"
    options: dict[str, Any] = {"target": 1e-12, "max_iterations": 9, "threads": 1}
    whole = solve(rules, **options)
    update = Solver._update_dealer
    for number in (signal.SIGINT, signal.SIGTERM):

        def interrupted(self: Solver, discounts: Any, number: int = number) -> None:
            if self.iteration == 5:
                os.kill(os.getpid(), number)
            update(self, discounts)

        with monkeypatch.context() as patch:
            patch.setattr(Solver, "_update_dealer", interrupted)
            with pytest.raises(KeyboardInterrupt):
                solve(rules, checkpoint=checkpoint, **options)
        assert same_tables(whole, solve(rules, checkpoint=checkpoint, **options))
        checkpoint.unlink()


def test_a_missed_target_can_be_gone_on_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules, checkpoint, out = small("dahua"), tmp_path / "run.npz", tmp_path / "solved.npz"
    first = solve(rules, 1e-12, max_iterations=3, checkpoint=checkpoint, out=out, threads=1)
    assert first.info["missed"] == 1e-12
    assert "was not met in 3 iterations" in caplog.text
    assert checkpoint.exists()
    assert same_tables(first, load_equilibrium(out))
    second = solve(rules, 1e-3, checkpoint=checkpoint, out=out, threads=1)
    assert second.info["convergence"][0]["iteration"] == 1
    assert second.info["nashconv"] <= 1e-3
    assert not checkpoint.exists()
    assert same_tables(second, load_equilibrium(out))


def test_files_that_cannot_be_written_are_known_before(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("out", "checkpoint"):
        for path in (tmp_path, tmp_path / "file" / "x.npz", "x" * 300 + "/y.npz", "a\0b/c.npz", ""):
            with pytest.raises(ConfigError, match="expected a file that can be written"):
                solve(small("dahua"), 1e-2, **{name: path})  # type: ignore[arg-type]


def test_a_result_that_cannot_be_written_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, out = tmp_path / "run.npz", tmp_path / "solved.npz"

    def full(self: Equilibrium, path: Any) -> Path:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Equilibrium, "save", full)
        with pytest.raises(ConfigError, match="could not be written: no space left"):
            solve(small("dahua"), 1e-3, checkpoint=checkpoint, out=out)
    assert checkpoint.exists()
    assert not out.exists()
    solve(small("dahua"), 1e-3, checkpoint=checkpoint, out=out)
    assert out.exists()
    assert not checkpoint.exists()


def test_small_decks_are_solved_by_what_solves_them() -> None:
    """Nine cards, where HS-DCFR stops at some 2e-3."""
    equilibrium = solve(small("nanning", Deck(3, 3)), 5e-4)
    assert equilibrium.info["algorithm"] == "pcfr+5"
    assert equilibrium.info["nashconv"] <= 5e-4
    assert default_algorithm(PRESETS["nanning"]) == "hs-dcfr"


@pytest.mark.parametrize("target", [1, np.float32(0.5), np.int64(1)])
def test_targets_of_any_kind_of_number(target: Any) -> None:
    assert solve(small("dahua"), target).info["nashconv"] <= target


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": True}, "target"),
        ({"target": 10**400}, "target"),
        ({"target": 0.0}, "target: expected a number of units above 0, got 0.0"),
        ({"target": float("nan")}, "target"),
        ({"target": "small"}, "target"),
        ({"max_iterations": 0}, "max_iterations: expected a whole number of 1 or more, got 0"),
        ({"horizon": 2.5}, "horizon"),
        ({"threads": 0}, "threads"),
    ],
)
def test_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        solve(small("dahua"), **({"target": 1e-2} | options))


def test_bad_names() -> None:
    with pytest.raises(RulesError, match=r"algorithm: .* did you mean 'dcfr'"):
        solve(small("dahua"), algorithm="dcffr")
    with pytest.raises(RulesError, match="did you mean 'dahua'"):
        solve("dahuaa")
    with pytest.raises(RulesError, match="max_stake=1, got 3"):
        solve(RuleSet(max_stake=3, deck=SMALL))
