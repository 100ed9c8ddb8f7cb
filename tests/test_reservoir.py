"""The reservoir: a uniform sample in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents.reservoir import Reservoir
from shuiyu_env.core.errors import ConfigError, ShuiyuError


def numbers(capacity: int, seed: int = 0) -> Reservoir:
    generator = torch.Generator().manual_seed(seed)
    return Reservoir(
        capacity,
        generator,
        number=((), torch.int64),
        pair=((2,), torch.float32),
        even=((), torch.bool),
    )


def show(reservoir: Reservoir, *numbers: int) -> None:
    number = torch.tensor(numbers, dtype=torch.int64)
    pair = torch.stack([number, -number], dim=1).float()
    reservoir.add(number=number, pair=pair, even=number % 2 == 0)


def test_everything_is_kept_in_order_until_it_is_full() -> None:
    reservoir = numbers(5)
    assert len(reservoir) == 0
    show(reservoir, 3, 1)
    show(reservoir)
    show(reservoir, 4, 1, 5)
    assert reservoir.all()["number"].tolist() == [3, 1, 4, 1, 5]
    assert reservoir.seen == len(reservoir) == 5
    show(reservoir, *range(100, 200))
    assert reservoir.seen == 105
    assert len(reservoir) == 5


@pytest.mark.parametrize("chunks", [[1000], [1] * 50 + [950], [70] * 10 + [300], [9, 991]])
def test_each_row_stays_with_the_same_probability(chunks: list[int]) -> None:
    runs, capacity = 400, 20
    kept = np.zeros(1000)
    for seed in range(runs):
        reservoir = numbers(capacity, seed)
        first = 0
        for size in chunks:
            show(reservoir, *range(first, first + size))
            first += size
        rows = reservoir.all()["number"]
        assert len(set(rows.tolist())) == capacity
        kept[rows] += 1
    # By parts: the first 20 rows, which fill it, the rows of small and of large chunks, the last.
    for part in (slice(0, 20), slice(20, 100), slice(100, 700), slice(980, 1000)):
        mean = kept[part].mean()
        expected = runs * capacity / 1000
        # Rows compete, so this is a little more than the true deviation.
        deviation = np.sqrt(expected / (part.stop - part.start))
        assert abs(mean - expected) < 4.5 * deviation


def test_the_fields_of_a_row_stay_together() -> None:
    reservoir = numbers(30)
    for first in range(0, 500, 50):
        show(reservoir, *range(first, first + 50))
    for rows in (reservoir.all(), reservoir.sample(200)):
        torch.testing.assert_close(rows["pair"][:, 0], rows["number"].float())
        torch.testing.assert_close(rows["pair"][:, 1], -rows["number"].float())
        assert torch.equal(rows["even"], rows["number"] % 2 == 0)
    assert {rows.dtype for rows in reservoir.sample(3).values()} == {
        torch.int64,
        torch.float32,
        torch.bool,
    }


def test_samples_are_uniform_over_what_is_there() -> None:
    reservoir = numbers(1000)
    show(reservoir, *range(10))
    counts = np.bincount(reservoir.sample(10_000)["number"], minlength=10)
    assert len(counts) == 10
    assert abs(counts - 1000).max() < 150
    own = torch.Generator().manual_seed(5)
    first = reservoir.sample(50, own)["number"]
    own.manual_seed(5)
    assert torch.equal(first, reservoir.sample(50, own)["number"])


def test_memory_grows_with_what_is_kept_and_no_further() -> None:
    reservoir = numbers(10_000)
    assert reservoir.nbytes == 0
    show(reservoir, 1)
    row = 8 + 2 * 4 + 1
    assert reservoir.nbytes <= 1024 * row
    for first in range(0, 50_000, 777):
        show(reservoir, *range(first, first + 777))
    assert reservoir.nbytes == 10_000 * row
    with pytest.raises(ConfigError, match="capacity: expected 1 or more, got 0"):
        numbers(0)


def test_a_restored_reservoir_goes_on_exactly() -> None:
    reservoir, other = numbers(40, 1), numbers(40, 2)
    show(reservoir, *range(130))
    show(other, *range(1000, 1007))
    state, draws = reservoir.state_dict(), reservoir.generator.get_state()
    other.load_state_dict(state)
    other.generator.set_state(draws)
    for each in (reservoir, other):
        show(each, *range(130, 300))
    assert torch.equal(reservoir.all()["number"], other.all()["number"])
    assert reservoir.seen == other.seen == 300
    # What was saved is not what goes on.
    assert state["seen"] == 130
    assert int(state["rows"]["number"].max()) < 130
    fresh = numbers(40)
    fresh.load_state_dict(numbers(40).state_dict())
    show(fresh, 7)
    assert fresh.all()["number"].tolist() == [7]


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    reservoir = numbers(5)
    with pytest.raises(ShuiyuError, match="expected rows to draw from"):
        reservoir.sample(1)
    show(reservoir, 1, 2)
    number, pair, even = torch.zeros(2).long(), torch.zeros(2, 2), torch.zeros(2).bool()
    with pytest.raises(ShuiyuError, match="expected the fields number, pair, even, got number"):
        reservoir.add(number=number)
    with pytest.raises(ShuiyuError, match=r"pair: expected torch.float32 of shape \[2, 2\]"):
        reservoir.add(number=number, pair=torch.zeros(2, 3), even=even)
    with pytest.raises(ShuiyuError, match=r"even: expected torch.bool .* got torch.int64"):
        reservoir.add(number=number, pair=pair, even=number)
    with pytest.raises(ShuiyuError, match="as many rows of each field"):
        reservoir.add(number=number[:1], pair=pair, even=even)
    show(other := numbers(7), *range(9))
    with pytest.raises(ShuiyuError, match=r"expected 5 rows of 9 seen \(capacity 5\), got 7"):
        reservoir.load_state_dict(other.state_dict())
    assert reservoir.all()["number"].tolist() == [1, 2]
