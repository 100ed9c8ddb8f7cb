"""Policies in ONNX files, from this package or from any other library.

Needs onnxruntime (the ``onnx`` extra).

A file is a policy if its first input is ``float32[B, D]``, the observation, and its first
output ``float[B, A]``, a score for every action. A second input, if there is one, is the
action mask, ``[B, A]``, non-zero where legal, of whatever type of number the file asks for.
If the output is called ``probabilities`` it is taken for that, otherwise for logits, of which
a softmax is taken. In both cases illegal actions get probability 0, whatever the file says.

Metadata of the file may say more: under ``shuiyu`` a JSON object, with ``num_players`` and
``rules`` to be checked against the game, and the promises ``outcomes_only`` and
``strengths_only`` of :class:`~shuiyu_env.policy.Policy`.
"""

from __future__ import annotations

__all__ = ["METADATA_KEY", "OnnxPolicy", "load_onnx"]

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from shuiyu_env.core.errors import CheckpointError, PolicyError, ShuiyuError
from shuiyu_env.core.game import Game
from shuiyu_env.core.rules import RuleSet
from shuiyu_env.observation import layout_of
from shuiyu_env.policy import check_inputs

METADATA_KEY = "shuiyu"

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(bool)": np.bool_,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
}


class OnnxPolicy:
    """A session of onnxruntime as a policy.

    Args:
        session: a loaded model.
        name: how errors name it.
        info: what its metadata says.

    Raises:
        CheckpointError: inputs or outputs that are none of a policy.
    """

    def __init__(self, session: Any, name: str, info: Mapping[str, Any] | None = None) -> None:
        self.session, self.name, self.info = session, name, dict(info or {})
        inputs, outputs = session.get_inputs(), session.get_outputs()
        if not 1 <= len(inputs) <= 2 or not outputs:
            raise CheckpointError(
                f"{name}: expected one input (the observation) or two (and the action mask), and an"
                f" output; got inputs {[i.name for i in inputs]}, outputs"
                f" {[o.name for o in outputs]}"
            )
        for entry in inputs:
            if entry.type not in _TYPES:
                raise CheckpointError(
                    f"{name}: input {entry.name!r}: expected numbers, got {entry.type}"
                )
            _check_rows(entry, name, "input")
        _check_rows(outputs[0], name, "output")
        self._inputs = [(entry.name, _TYPES[entry.type]) for entry in inputs]
        self._widths = [_width(entry) for entry in inputs]
        self._output = outputs[0].name
        self._answers = _width(outputs[0])

    @property
    def outcomes_only(self) -> bool:
        """Whether the file promises what :class:`~shuiyu_env.policy.Policy` says."""
        return self.info.get("outcomes_only") is True

    @property
    def strengths_only(self) -> bool:
        """Whether the file promises what :class:`~shuiyu_env.policy.Policy` says."""
        return self.info.get("strengths_only") is True

    def check_game(self, game: Game) -> None:
        """Refuse a game that the file was not made for.

        Raises:
            CheckpointError: other seats, rules or widths.
        """
        for key, expected in (
            ("num_players", game.num_players),
            ("rules", game.rules.to_dict()),
        ):
            found = self.info.get(key)
            if found is None:
                continue
            if key == "rules":
                try:
                    found = RuleSet.from_dict(found).to_dict()
                except (ShuiyuError, TypeError, AttributeError) as error:
                    raise CheckpointError(f"{self.name}: metadata: rules: {error}") from None
            if isinstance(expected, dict) and isinstance(found, dict):
                differ = [k for k in expected if found.get(k) != expected[k]]
                expected = {k: expected[k] for k in differ}
                found = {k: found.get(k) for k in differ}
            if found != expected:
                raise CheckpointError(
                    f"{self.name}: made for another game: expected {key} {expected!r}, got"
                    f" {found!r}"
                )
        layout = layout_of(game)
        wanted = [("observation", layout.size), ("action mask", layout.num_actions)]
        found_widths = [*self._widths, self._answers]
        names = [*wanted[: len(self._widths)], ("output", layout.num_actions)]
        for (what, width), found in zip(names, found_widths, strict=True):
            if found is not None and found != width:
                raise CheckpointError(
                    f"{self.name}: {what}: expected {width} columns for this game, got {found}"
                )

    def probabilities(
        self, observation: npt.NDArray[np.float32], action_mask: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64]:
        """Return the probability of each action.

        Args:
            observation: ``float32[B, D]``.
            action_mask: ``[B, A]``, non-zero where legal; at least one in every row.

        Returns:
            ``float64[B, A]``; rows sum to 1, illegal actions have exactly 0.

        Raises:
            PolicyError: the file cannot answer, or what it answers is not finite or leaves
                no probability to a legal action.
        """
        observation, legal = check_inputs(observation, action_mask)
        given = dict(zip(self._inputs, (observation, legal), strict=False))
        try:
            (answer,) = self.session.run(
                [self._output], {name: array.astype(kind) for (name, kind), array in given.items()}
            )
        except Exception as error:  # whatever the runtime raises
            text = str(error).strip().splitlines()
            raise PolicyError(
                f"{self.name}: the model failed: {text[0] if text else error}"
            ) from error
        scores = np.asarray(answer, dtype=np.float64)
        if scores.shape != legal.shape:
            raise PolicyError(
                f"{self.name}: expected an output of shape {list(legal.shape)} (rows, actions), got"
                f" {list(scores.shape)}"
            )
        if self._output != "probabilities":
            # Of the legal actions only: others may be anything, also infinite.
            scores = np.where(legal, scores, -np.inf)
            top = scores.max(axis=1, keepdims=True)
            with np.errstate(invalid="ignore"):
                scores = np.exp(scores - top)
        scores = np.where(legal, scores, 0.0)
        total = scores.sum(axis=1, keepdims=True)
        good = np.isfinite(scores).all(axis=1) & (scores >= 0.0).all(axis=1) & (total[:, 0] > 0.0)
        if not good.all():
            row = int(np.argmin(good))
            raise PolicyError(
                f"{self.name}, row {row}: expected finite {self._output} with something left for"
                f" the legal actions, got {np.asarray(answer)[row][legal[row]].tolist()}"
            )
        result: npt.NDArray[np.float64] = scores / total
        return result


def load_onnx(path: str | os.PathLike[str], game: Game | None = None) -> OnnxPolicy:
    """Read a policy from an ONNX file; it runs on the CPU.

    Args:
        path: the file.
        game: the game it is wanted for; what the file says of its own is checked against it.

    Raises:
        CheckpointError: not a model, not a policy, or one of another game.
    """
    path = Path(path)
    options = onnxruntime.SessionOptions()
    # Batches are small, and several threads wait for each other more than they help.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            os.fspath(path), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # whatever the runtime raises
        raise CheckpointError(
            f"{path}: cannot be read as an ONNX model: {_one_line(error)}"
        ) from error
    text = session.get_modelmeta().custom_metadata_map.get(METADATA_KEY, "{}")
    try:
        info = json.loads(text)
        if not isinstance(info, dict):
            raise ValueError(f"expected an object, got {info!r}")
    except ValueError as error:
        raise CheckpointError(f"{path}: metadata {METADATA_KEY!r} is no JSON: {error}") from None
    policy = OnnxPolicy(session, str(path), info)
    if game is not None:
        policy.check_game(game)
    return policy


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text[:300] if text else type(error).__name__


def _check_rows(entry: Any, name: str, what: str) -> None:
    """Refuse an input or output that is no batch of rows, as far as the file says."""
    shape = entry.shape
    if len(shape) != 2 and shape:
        raise CheckpointError(
            f"{name}: {what} {entry.name!r}: expected two dimensions, rows and columns, got"
            f" {len(shape)}"
        )
    if shape and isinstance(shape[0], int):
        raise CheckpointError(
            f"{name}: {what} {entry.name!r}: expected any number of rows, got {shape[0]}: export"
            " it with a dynamic first dimension"
        )


def _width(entry: Any) -> int | None:
    """Return the columns of an input or output, if the file fixes them."""
    shape = entry.shape
    return shape[1] if len(shape) == 2 and isinstance(shape[1], int) else None
