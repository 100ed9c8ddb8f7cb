"""Policies in files: a safetensors file whose header says which game it plays.

The header's one entry, :data:`HEADER_KEY`, is a JSON object. Nothing in the
file can execute code, and what it says is checked before a weight is used.
"""

from __future__ import annotations

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "load_policy",
    "read_header",
    "save_policy",
]

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from shuiyu_env.core.actions import num_actions
from shuiyu_env.core.errors import CheckpointError, PolicyError, ShuiyuError
from shuiyu_env.core.game import Game
from shuiyu_env.core.rules import RuleSet
from shuiyu_env.files import write_atomically
from shuiyu_env.observation import LAYOUT_VERSION, Layout
from shuiyu_env.policies.network import ActorCritic, NetworkConfig, NetworkPolicy
from shuiyu_env.policies.tabular import Reader, TablePolicy

FORMAT = "shuiyu-policy"
FORMAT_VERSION = 2
HEADER_KEY = "shuiyu"

#: Whether the file holds a network's weights or a table. Older files do not say; they are networks.
FORM = "form"
_NETWORK, _TABLE = "network", "table"

_REQUIRED = {
    "format": str,
    "version": int,
    "layout_version": int,
    "num_players": int,
    "rules": dict,
    "network": dict,
    "input_fields": list,
    "sha256": str,
}


def save_policy(
    path: str | os.PathLike[str],
    policy: ActorCritic | NetworkPolicy | TablePolicy,
    game: Game,
    **info: Any,
) -> Path:
    """Write a policy with everything that is needed to use it; equal ones give equal bytes.

    Args:
        path: where to; an existing file is replaced in one step.
        policy: the policy, or a network, on any device.
        game: the game it was trained on.
        info: further JSON values for the header, such as ``algorithm`` and ``env_steps``.

    Returns:
        The path.

    Raises:
        CheckpointError: ``info`` has a name of the header's own or a value
            that JSON has not, or the policy is of another layout than the game.
    """
    for name in info:
        if name in _REQUIRED or name == FORM:
            raise CheckpointError(f"info: {name!r} is an entry of the header itself")
    reads: Reader | ActorCritic
    if isinstance(policy, TablePolicy):
        form, reads = _TABLE, policy.reader
        tensors = {
            "keys": torch.from_numpy(np.ascontiguousarray(policy.keys)),
            "probabilities": torch.from_numpy(np.ascontiguousarray(policy.table)),
        }
    else:
        network = policy.network if isinstance(policy, NetworkPolicy) else policy
        form, reads = _NETWORK, network
        tensors = {
            name: tensor.detach().cpu().contiguous()
            for name, tensor in network.state_dict().items()
        }
    layout = reads.layout
    if (layout.num_players, layout.num_actions) != (game.num_players, game.num_actions):
        raise CheckpointError(
            f"expected a {form} for {game.num_players} seats and {game.num_actions} actions, got"
            f" one for {layout.num_players} and {layout.num_actions}"
        )
    header = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "layout_version": LAYOUT_VERSION,
        "num_players": game.num_players,
        "rules": game.rules.to_dict(),
        FORM: form,
        "network": reads.config.to_dict(),
        "input_fields": list(reads.input_fields),
        **info,
    }
    try:
        # As it will be read, so that the digest is of what is read.
        header = json.loads(json.dumps(header, allow_nan=False))
        header["sha256"] = _digest(header, tensors)
        text = json.dumps(header, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"info: expected JSON values: {error}") from None
    return write_atomically(path, safetensors.torch.save(tensors, {HEADER_KEY: text}))


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a policy file says about itself, without building the network.

    Raises:
        CheckpointError: there is no such file, it is damaged, or it is not a
            policy of this package and version.
    """
    return _read(path, tensors=False)[0]


def load_policy(
    path: str | os.PathLike[str], game: Game | None = None
) -> NetworkPolicy | TablePolicy:
    """Read a policy, on the CPU; its header becomes the policy's ``info``.

    Args:
        path: the file.
        game: the game it is wanted for. Seats, rules and deck must be those it
            was trained on; rounds, rotation and reward may differ.

    Raises:
        CheckpointError: no such file, not a policy, damaged, of another format
            or layout version, for another game, or weights that do not fit.
    """
    header, tensors = _read(path, tensors=True)
    is_table = header.get(FORM) == _TABLE
    (_check_table if is_table else _check_tensors)(path, header, tensors)
    rules = RuleSet.from_dict(header["rules"])
    if game is not None:
        _check_game(path, header["num_players"], rules, game)
    layout = Layout(header["num_players"], num_actions(rules.max_stake))
    reads: Reader | ActorCritic
    try:
        config = NetworkConfig.from_dict(header["network"])
        if is_table:
            reads = Reader(layout, config)
        else:
            # The weights drawn here are overwritten; drawing them must not disturb the global
            # generator.
            reads = ActorCritic(layout, config, torch.Generator().manual_seed(0))
    except (ShuiyuError, TypeError) as error:
        raise CheckpointError(f"{path}: the header's network is unusable: {error}") from None
    if list(reads.input_fields) != header["input_fields"]:
        raise CheckpointError(
            f"{path}: expected a {_TABLE if is_table else _NETWORK} that reads the fields"
            f" {list(reads.input_fields)}, got one for {header['input_fields']}"
        )
    if isinstance(reads, Reader):
        rows = len(tensors["keys"])
        expected = {"keys": [rows, 2], "probabilities": [rows, layout.num_actions]}
    else:
        expected = {name: list(tensor.shape) for name, tensor in reads.state_dict().items()}
    got = {name: list(tensor.shape) for name, tensor in tensors.items()}
    for name in sorted(expected.keys() | got.keys()):
        if expected.get(name) != got.get(name):
            raise CheckpointError(
                f"{path}: weights {name!r}: expected shape {expected.get(name, 'none')}, got"
                f" {got.get(name, 'none')}"
            )
    if _digest(header, tensors) != header["sha256"]:
        raise CheckpointError(
            f"{path}: damaged: expected header and weights with SHA-256 {header['sha256']}, got"
            f" {_digest(header, tensors)}"
        )
    if isinstance(reads, ActorCritic):
        reads.load_state_dict(tensors)
        return NetworkPolicy(reads, info=header)
    try:
        keys, table = tensors["keys"].numpy(), tensors["probabilities"].numpy()
        return TablePolicy(reads, keys, table, info=header)
    except PolicyError as error:
        raise CheckpointError(f"{path}: {error}") from None


def _read(
    path: str | os.PathLike[str], *, tensors: bool
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the checked header and, if asked for, the tensors."""
    path = Path(path)
    if not path.is_file():
        what = "a directory" if path.is_dir() else "nothing"
        raise CheckpointError(f"{path}: expected a policy file (.safetensors), got {what}")
    loaded: dict[str, Tensor] = {}
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(HEADER_KEY)
            if tensors:
                loaded = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"{path}: expected a safetensors file, got one that is damaged or of another kind"
            f" ({error})"
        ) from None
    if text is None:
        raise CheckpointError(
            f"{path}: expected a {FORMAT} file, got a safetensors file without its header"
        )
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: the header is damaged ({error})") from None
    _check_header(path, header)
    return header, loaded


def _check_header(path: Path, header: Any) -> None:
    if not isinstance(header, Mapping) or header.get("format") != FORMAT:
        got = header.get("format") if isinstance(header, Mapping) else header
        raise CheckpointError(f"{path}: expected format {FORMAT!r}, got {got!r}")
    # Versions first: what else a header of another version holds is unknown.
    for name, expected in (("version", FORMAT_VERSION), ("layout_version", LAYOUT_VERSION)):
        if header.get(name) != expected:
            raise CheckpointError(
                f"{path}: expected {name} {expected}, got {header.get(name)!r}; a policy must be"
                " trained anew for another version"
            )
    for name, kind in _REQUIRED.items():
        if not isinstance(header.get(name), kind):
            raise CheckpointError(
                f"{path}: header entry {name!r}: expected {kind.__name__}, got {header.get(name)!r}"
            )
    form = header.get(FORM, _NETWORK)
    if form not in (_NETWORK, _TABLE):
        raise CheckpointError(
            f"{path}: header entry {FORM!r}: expected {_NETWORK!r} or {_TABLE!r}, got {form!r}"
        )
    try:
        Game(header["num_players"], RuleSet.from_dict(header["rules"]))
    except (ShuiyuError, TypeError) as error:
        raise CheckpointError(f"{path}: the header's game is unusable: {error}") from None


def _check_game(path: str | os.PathLike[str], num_players: int, rules: RuleSet, game: Game) -> None:
    if num_players != game.num_players:
        raise CheckpointError(
            f"{path}: expected a policy for {game.num_players} seats, got one for {num_players}"
        )
    expected, got = game.rules.to_dict(), rules.to_dict()
    different = [name for name in expected if expected[name] != got[name]]
    if different:
        raise CheckpointError(
            f"{path}: expected a policy for other rules: "
            + "; ".join(f"{name}: expected {expected[name]}, got {got[name]}" for name in different)
        )


def _check_tensors(
    path: str | os.PathLike[str], header: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Check what the file holds before a network of the size its header claims is made."""
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32:
            raise CheckpointError(f"{path}: weights {name!r}: expected float32, got {tensor.dtype}")
    hidden = header["network"].get("hidden")
    widths = [len(t) for name, t in tensors.items() if name.startswith("body.") and t.ndim == 2]
    if not isinstance(hidden, list) or sorted(map(str, hidden)) != sorted(map(str, widths)):
        raise CheckpointError(
            f"{path}: expected weights for hidden layers {hidden!r}, got layers of widths {widths}"
        )


def _check_table(
    path: str | os.PathLike[str], header: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Check that the file holds a table."""
    kinds = {"keys": torch.int64, "probabilities": torch.float32}
    for name in sorted(kinds.keys() | tensors.keys()):
        got = tensors[name].dtype if name in tensors else None
        if got != kinds.get(name) or tensors[name].ndim != 2:
            raise CheckpointError(
                f"{path}: {name!r}: expected a table of keys (int64) and probabilities (float32),"
                f" got {got or 'nothing'}"
            )


def _digest(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a header, apart from its own entry for it, and of the weights."""
    signed = {name: value for name, value in header.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(signed, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
