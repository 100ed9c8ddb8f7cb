"""Processes that learn together: what one alone does, and how one of several ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from agents.workers import Workers
from shuiyu_env.core.errors import ConfigError

ROOT = Path(__file__).parents[1]


def test_one_alone_hears_only_itself() -> None:
    workers = Workers()
    numbers = torch.tensor([1.0, 2.0])
    assert workers.is_first
    assert torch.equal(workers.sum(numbers), numbers)
    assert (workers.fewest(3), workers.total(2.5)) == (3, 2.5)
    assert (workers.any(True), workers.any(False)) == (True, False)
    assert (workers.gather("a"), workers.share("b")) == (["a"], "b")
    network = torch.nn.Linear(2, 1)
    network(numbers).backward()
    assert network.weight.grad is not None
    before = network.weight.grad.clone()
    workers.average_gradients(network)
    assert torch.equal(network.weight.grad, before)


def test_without_the_others_there_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"WORLD_SIZE is '2'.*torchrun"):
        Workers.join()


#: What two processes make of two values.
TOGETHER = """
import sys
import torch
from agents.workers import Workers

workers = Workers.join()
mine = 1.0 + 2.0 * workers.rank
network = torch.nn.Linear(2, 1)
network.weight.grad = torch.full((1, 2), mine)
network.bias.grad = torch.full((1,), 10.0 * mine)
workers.average_gradients(network)
assert network.weight.grad.tolist() == [[2.0, 2.0]], network.weight.grad
assert network.bias.grad.tolist() == [20.0], network.bias.grad
own = torch.tensor([mine])
assert workers.sum(own).item() == 4.0
assert own.item() == mine
assert (workers.total(mine), workers.fewest(int(mine))) == (4.0, 1)
assert (workers.any(workers.rank == 1), workers.any(False)) == (True, False)
assert workers.gather(mine) == ([1.0, 3.0] if workers.is_first else [])
assert workers.share(mine) == 1.0
print("done", workers.rank, flush=True)
workers.leave()
Workers.exit(0)
"""


def test_two_hear_each_other(tmp_path: Path) -> None:
    script = tmp_path / "together.py"
    script.write_text(TOGETHER)
    result = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node=2", str(script)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.split()) == ["0", "1", "done", "done"]


@pytest.mark.parametrize("size", ["1", "2"])
def test_the_end_keeps_output_and_code(size: str) -> None:
    # What is still in buffers when a process of several ends must not be lost.
    code = "from agents.workers import Workers; print('out'); Workers.exit(3)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "WORLD_SIZE": size},
    )
    assert (result.returncode, result.stdout) == (3, "out\n")
