"""Networks as ONNX files, for use anywhere. Needs torch and onnxscript (the ``onnx`` extra)."""

from __future__ import annotations

__all__ = ["export_onnx"]

import copy
import json
import logging
import os
import warnings
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from shuiyu_env.core.errors import CheckpointError
from shuiyu_env.core.game import Game
from shuiyu_env.files import write_atomically
from shuiyu_env.policies.network import ActorCritic, MaskedCategorical, NetworkPolicy
from shuiyu_env.policies.onnx import METADATA_KEY


class _Masked(nn.Module):
    """What a network plays: probabilities of the legal actions."""

    def __init__(self, network: ActorCritic) -> None:
        super().__init__()
        self.network = network

    def forward(self, observation: Tensor, action_mask: Tensor) -> Tensor:
        """Return ``float32[B, A]`` from ``float32[B, D]`` and ``float32[B, A]``."""
        logits, _ = self.network(observation)
        probs = MaskedCategorical(logits.double(), action_mask).probs
        return self.network.played(observation, probs).float()


def export_onnx(
    policy: ActorCritic | NetworkPolicy, game: Game, path: str | os.PathLike[str]
) -> Path:
    """Write a network as an ONNX file.

    Its inputs are ``observation``, ``float32[B, D]``, and ``action_mask``, ``float32[B, A]``,
    non-zero where legal, its output ``probabilities``, ``float32[B, A]``. The metadata hold the
    game and what else :mod:`shuiyu_env.policies.onnx` reads.

    Args:
        policy: the network, or the policy around it.
        game: the game it was trained for.
        path: the file to write, ``*.onnx``; an existing one is replaced in one step.

    Returns:
        The path.

    Raises:
        CheckpointError: a policy that is no network, or not of this game's layout, or a path
            of another ending.
    """
    path = Path(path)
    if path.suffix != ".onnx":
        raise CheckpointError(f"{path}: expected a file ending in .onnx")
    network = policy.network if isinstance(policy, NetworkPolicy) else policy
    if not isinstance(network, ActorCritic):
        raise CheckpointError(f"only networks can be exported, got a {type(policy).__name__}")
    layout = network.layout
    if (layout.num_players, layout.num_actions) != (game.num_players, game.num_actions):
        raise CheckpointError(
            f"expected a network for {game.num_players} seats and {game.num_actions} actions, got"
            f" one for {layout.num_players} and {layout.num_actions}"
        )
    # Two rows: one would be taken for a constant.
    example = (torch.zeros(2, layout.size), torch.ones(2, layout.num_actions))
    rows = torch.export.Dim("batch")
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                _Masked(copy.deepcopy(network)).cpu().eval(),
                example,
                dynamo=True,
                verbose=False,
                input_names=["observation", "action_mask"],
                output_names=["probabilities"],
                dynamic_shapes=({0: rows}, {0: rows}),
            )
    finally:
        quiet.setLevel(level)
    if program is None:
        raise CheckpointError("the network could not be exported")
    model = program.model_proto
    about = NetworkPolicy(network)
    info = {
        "num_players": game.num_players,
        "rules": game.rules.to_dict(),
        "outcomes_only": about.outcomes_only,
        "strengths_only": about.strengths_only,
    }
    onnx.helper.set_model_props(model, {METADATA_KEY: json.dumps(info)})
    return write_atomically(path, model.SerializeToString())
