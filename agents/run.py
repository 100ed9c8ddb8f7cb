"""A training run's folder: its configuration, metrics, checkpoints and curve.

::

    runs/<name>/
      config.yaml           every setting, written out
      metrics.jsonl         one JSON object per iteration
      events.out.tfevents…  the same for TensorBoard
      policy.safetensors    the newest policy (and older ones in checkpoints/)
      last.safetensors      the last iterate, if the policy is an average
      state.pt              everything else that resuming needs
      curve.png             the learning curve
      match.json            the match against the reference policies at the end
"""

from __future__ import annotations

__all__ = ["STATE_VERSION", "Run"]

import json
import os
import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
import yaml  # type: ignore[import-untyped]
from torch.utils.tensorboard import SummaryWriter

from agents.config import TrainConfig, to_dict
from agents.learner import Learner
from agents.plot import draw_curve
from shuiyu_env.core.errors import CheckpointError, ConfigError, ShuiyuError
from shuiyu_env.files import open_atomically, write_atomically
from shuiyu_env.policies.checkpoint import read_header, save_policy

if sys.platform != "win32":
    import fcntl

#: Raised whenever an older state can no longer be resumed.
STATE_VERSION = 4


class Run:
    """The folder of one run. Made by :meth:`create` or :meth:`open`."""

    def __init__(self, path: Path, config: TrainConfig) -> None:
        self.path = path
        self.config = config
        self.policy_path = path / "policy.safetensors"
        self.state_path = path / "state.pt"
        self.metrics_path = path / "metrics.jsonl"
        self.metrics: list[dict[str, Any]] = []
        #: The iteration of the newest policy in the folder.
        self.saved = 0
        self._events: SummaryWriter | None = None
        self._locked: IO[bytes] | None = None

    def _lock(self) -> None:
        """Keep other processes from training this run until :meth:`close`, or this one's end."""
        if sys.platform == "win32":
            return
        try:
            self._locked = (self.path / "config.yaml").open("rb")
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot be read: {error.strerror}") from None
        try:
            fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CheckpointError(
                f"{self.path}: another process is training this run; wait for it, or stop it"
            ) from None

    @classmethod
    def create(cls, config: TrainConfig) -> Run:
        """Make a new folder; never one that exists.

        A name that was asked for must be free. A name that is made up gets a
        number if it is taken.

        Raises:
            ConfigError: the name is taken, or the folder cannot be made.
        """
        runs = Path(config.runs_dir)
        game = config.game.make()
        name = (
            config.name or f"{config.algorithm}-{game.rules.name or 'custom'}-{game.num_players}p"
        )
        number = 1
        while True:
            path = runs / (name if number == 1 else f"{name}-{number}")
            try:
                path.mkdir(parents=True)
                break
            except FileExistsError:
                if config.name is not None:
                    raise ConfigError(
                        f"name: {path} exists already; choose another --name, or go on with"
                        f" --resume {path}"
                    ) from None
                number += 1
            except OSError as error:
                raise ConfigError(
                    f"runs_dir: cannot make the folder {path}: {error.strerror}"
                ) from None
        text = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
        write_atomically(path / "config.yaml", text.encode())
        run = cls(path, config)
        run._lock()
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str], config: TrainConfig, learner: Learner) -> Run:
        """Open a run's folder to go on with it, and put the learner where the run stopped.

        Metrics of iterations after the last checkpoint are dropped: they will
        be done again.

        Raises:
            CheckpointError: the training state is missing, damaged, of another
                version, of another number of processes, or does not fit the configuration.
        """
        run = cls(Path(path), config)
        try:
            if learner.workers.is_first:
                run._lock()
            run._restore(learner)
        except BaseException:
            run.close()
            raise
        return run

    def _restore(self, learner: Learner) -> None:
        """Put the learner, and the metrics, where the run stopped."""
        state = _load_state(self.state_path)
        workers, made_by = state.get("workers"), json.loads(json.dumps(self._decisive()))
        begun, now = dict(_flat(state.get("settings", {}))), dict(_flat(made_by))
        changed = [name for name in {**begun, **now} if begun.get(name) != now.get(name)]
        if changed:
            raise CheckpointError(
                f"{self.state_path}: does not fit {self.path / 'config.yaml'}: "
                + ", ".join(f"{n} was {begun.get(n)!r}, now {now.get(n)!r}" for n in changed)
                + "; a run goes on with the settings it was begun with"
            )
        if not isinstance(workers, list):
            raise CheckpointError(
                f"{self.state_path}: expected a training state, that of each process, got none"
            )
        if len(workers) != learner.workers.size:
            raise CheckpointError(
                f"{self.state_path}: expected {len(workers)} processes, which it was written by,"
                f" got {learner.workers.size}; use torchrun --nproc-per-node {len(workers)}"
            )
        try:
            learner.load_state_dict(workers[learner.workers.rank])
        except (
            ShuiyuError,
            AttributeError,
            IndexError,
            KeyError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:
            raise CheckpointError(
                f"{self.state_path}: does not fit {self.path / 'config.yaml'}: "
                + " ".join(str(error).split())
                + _LOST
            ) from None
        for name in ("iteration", "env_steps", "deals"):
            value = getattr(learner, name)
            if type(value) is not int or value < 0:
                raise CheckpointError(
                    f"{self.state_path}: {name}: expected a number of 0 or more, got {value!r}"
                )
        if learner.iteration > learner.iterations:
            raise CheckpointError(
                f"{self.state_path}: iteration: expected {learner.iterations} at most, got"
                f" {learner.iteration}"
            )
        self.saved = learner.iteration
        kept: list[str] = []
        try:
            if learner.iteration:
                kept = self.metrics_path.read_text("utf-8").splitlines()[: learner.iteration]
            self.metrics = [json.loads(line) for line in kept]
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{self.metrics_path}: missing or damaged ({error})") from None
        numbers = [row.get("iteration") if isinstance(row, dict) else None for row in self.metrics]
        if numbers != list(range(1, learner.iteration + 1)):
            raise CheckpointError(
                f"{self.metrics_path}: expected the iterations 1 to {learner.iteration}, one a line"
            )
        for row in self.metrics:
            for name in ("env_steps", "train_seconds", "cpu_seconds", "seconds"):
                if not isinstance(row.get(name), (int, float)):
                    raise CheckpointError(
                        f"{self.metrics_path}: iteration {row['iteration']}: {name}: expected a"
                        f" number, got {row.get(name)!r}"
                    )
        if learner.workers.is_first:
            write_atomically(self.metrics_path, "".join(f"{line}\n" for line in kept).encode())

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Write the metrics of one iteration; they hold ``iteration`` and ``env_steps``."""
        row = dict(metrics)
        self.metrics.append(row)
        with self.metrics_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if self._events is None:
            # After resuming: what was written there after the last checkpoint is void.
            resumed = len(self.metrics) > 1
            self._events = SummaryWriter(
                str(self.path), purge_step=row["env_steps"] if resumed else None
            )
        for name, value in row.items():
            if isinstance(value, (int, float)):
                self._events.add_scalar(f"training/{name}", value, row["env_steps"])
        for opponent, result in row.get("match", {}).items():
            self._events.add_scalar(f"match/{opponent}", result["mean"], row["env_steps"])
        for kind, result in row.get("nashconv", {}).items():
            for name, value in result.items():
                self._events.add_scalar(f"nashconv/{kind}/{name}", value, row["env_steps"])

    def save(self, learner: Learner) -> None:
        """Write policies, training state and curve; all processes must call it."""
        # Gathered, so that one file holds a state of all that belongs together.
        states = learner.workers.gather(_plain(learner.state_dict()))
        if not learner.workers.is_first:
            self.saved = learner.iteration
            return
        header = {
            "algorithm": learner.name,
            "env_steps": learner.env_steps,
            "deals": learner.deals,
            "iteration": learner.iteration,
            "seed": self.config.seed,
            "settings": self._decisive(),
        }
        policies = learner.policies()
        paths = self._paths(policies)
        first = next(iter(policies))
        save_policy(
            self.path / "checkpoints" / f"{learner.iteration:06d}.safetensors",
            policies[first],
            learner.game,
            kind=first,
            **header,
        )
        # The state first: a policy must never be newer than what resuming starts from.
        _save_state(self.state_path, states, self._decisive())
        for kind, policy in policies.items():
            save_policy(paths[kind], policy, learner.game, kind=kind, **header)
        if self._events is not None:
            self._events.flush()
        self.saved = learner.iteration
        draw_curve(self.path / "curve.png", self.metrics, self.path.name)

    def has_policies_of(self, learner: Learner) -> bool:
        """Return whether the newest policies are there, and of the learner's iteration."""
        try:
            found = [read_header(path) for path in self._paths(learner.policies()).values()]
        except CheckpointError:
            return False
        return all(header.get("iteration") == learner.iteration for header in found)

    def _paths(self, kinds: Iterable[str]) -> dict[str, Path]:
        """Return where the newest policies are written, by kind; the first is the run's."""
        first, *others = kinds
        return {first: self.policy_path} | {k: self.path / f"{k}.safetensors" for k in others}

    def _decisive(self) -> dict[str, Any]:
        """Return the settings that decide what is learned: what makes the policy again."""
        settings = to_dict(self.config)
        names = ("algorithm", "game", "network", "seed", self.config.algorithm)
        return {name: settings[name] for name in names}

    def save_match(self, result: Mapping[str, Any]) -> Path:
        """Write the match at the end and return where."""
        text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
        return write_atomically(self.path / "match.json", text.encode())

    def close(self) -> None:
        """Close the files."""
        if self._events is not None:
            self._events.close()
        if self._locked is not None:
            self._locked.close()


#: What to do when there is nothing to go on from.
_LOST = "; the run cannot go on, begin a new one; its policies can still be loaded"


def _flat(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings by their dotted names."""
    if not isinstance(settings, Mapping):
        yield prefix, settings
        return
    for name, value in settings.items():
        yield from _flat(value, f"{prefix}.{name}" if prefix else str(name))


def _save_state(path: Path, workers: list[Any], settings: Mapping[str, Any]) -> None:
    # The settings as they are read again: lists, no tuples.
    plain = json.loads(json.dumps(settings))
    # Straight into the file: memories of millions of decisions are gigabytes, once is enough.
    with open_atomically(path) as file:
        torch.save({"version": STATE_VERSION, "settings": plain, "workers": workers}, file)


def _load_state(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(
            f"{path}: expected a training state, but there is no such file{_LOST}"
        )
    try:
        # Tensors and plain values only: nothing in the file is executed.
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        # Its own text advises to load the file unsafely.
        raise CheckpointError(
            f"{path}: expected a training state, got a file that holds something other than"
            f" tensors and plain values, or is damaged; it was not loaded{_LOST}"
        ) from None
    except (OSError, RuntimeError, ValueError, EOFError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"{path}: expected a training state, got a file that is damaged or of another kind"
            f" ({reason}){_LOST}"
        ) from None
    version = state.get("version") if isinstance(state, dict) else None
    if version != STATE_VERSION:
        raise CheckpointError(
            f"{path}: expected a training state of version {STATE_VERSION}, got {version!r}"
        )
    restored: dict[str, Any] = _with_arrays(state)
    return restored


#: Marks what was an array, to be told apart from tensors when loading.
_ARRAY = "__array__"


def _plain(value: Any) -> Any:
    """Return a state in types that safe loading accepts: arrays become tensors, enums numbers."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return {_ARRAY: torch.from_numpy(value.copy())}
    if isinstance(value, torch.Tensor):
        return value.cpu()  # wherever it is loaded again
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, IntEnum):
        return int(value)
    return value


def _with_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {_ARRAY}:
            return value[_ARRAY].numpy()
        return {key: _with_arrays(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_arrays(item) for item in value]
    return value
