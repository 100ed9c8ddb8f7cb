"""Several processes that learn one network together: ``torchrun --nproc-per-node N train.py``.

Every process has its own environments and random streams and the same weights.
Gradients are averaged before every step, so the weights stay the same, and a
step learns from the experience of all. One process, the first, writes.
"""

from __future__ import annotations

__all__ = ["Workers"]

import os
import sys
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn

from shuiyu_env.core.errors import ConfigError


class Workers:
    """The processes that learn together; by default, this one alone.

    Attributes:
        rank: this process's number, from 0.
        size: how many there are.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size

    @classmethod
    def join(cls, device: str = "cpu") -> Workers:
        """Join the processes that ``torchrun`` started; without it, work alone.

        Raises:
            ConfigError: the environment names processes, but they cannot be joined.
        """
        if os.environ.get("WORLD_SIZE", "1") == "1":
            return cls()
        try:
            if device == "cuda":
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            if not dist.is_initialized():
                # Counters and flags are on the CPU, gradients where the network is.
                dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
        except (ValueError, RuntimeError) as error:
            raise ConfigError(
                f"WORLD_SIZE is {os.environ['WORLD_SIZE']!r}, but the other processes cannot be"
                f" joined ({str(error).splitlines()[0]}); start with torchrun --nproc-per-node N"
                " train.py, or unset it"
            ) from None
        return cls(dist.get_rank(), dist.get_world_size())

    @staticmethod
    def leave() -> None:
        """Leave them, at the end."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @staticmethod
    def exit(code: int) -> NoReturn:
        """End this process."""
        if os.environ.get("WORLD_SIZE", "1") == "1":
            raise SystemExit(code)
        # A thread of the communication library that still holds a tensor when the interpreter
        # is taken down aborts the process, and with it the work of all the others.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of all processes' tensors; a call that all of them must make."""
        if self.size > 1:
            tensor = tensor.clone()
            dist.all_reduce(tensor)
        return tensor

    def fewest(self, number: int) -> int:
        """Return the smallest of all processes' numbers."""
        if self.size == 1:
            return number
        tensor = torch.tensor(number)
        dist.all_reduce(tensor, dist.ReduceOp.MIN)
        return int(tensor)

    def total(self, number: float) -> float:
        """Return the sum of all processes' numbers."""
        return (
            float(self.sum(torch.tensor(number, dtype=torch.float64))) if self.size > 1 else number
        )

    def average_gradients(self, network: nn.Module) -> None:
        """Replace all gradients by their means over the processes."""
        if self.size == 1:
            return
        gradients = [p.grad for p in network.parameters() if p.grad is not None]
        together = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(together)
        together /= self.size
        parts = torch.split(together, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def any(self, flag: bool) -> bool:
        """Return whether any process says so."""
        return self.total(float(flag)) > 0.0

    def gather(self, value: Any) -> list[Any]:
        """Return all processes' values, by rank, to the first process; none to the others."""
        if self.size == 1:
            return [value]
        values: list[Any] | None = [None] * self.size if self.is_first else None
        dist.gather_object(value, values)
        return values or []

    def share(self, value: Any) -> Any:
        """Return the first process's value."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values)
        return values[0]
