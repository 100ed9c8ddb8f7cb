"""How close to the equilibrium a network can come: one that is shown its answers.

    python benchmarks/imitation.py            # prints the table
    python benchmarks/imitation.py --write    # and puts it into docs/benchmark.md

No learning from play: cross-entropy against the equilibrium's probabilities, in the states of
games in which it is played, with some uniform play mixed in. What NashConv is left is what a
network of this size, trained for so long and played without thresholds, does not express.

Needs ``pip install -e ".[train]"``.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from report import ROOT, describe_machine, markdown, write_section

from shuiyu_env import Game
from shuiyu_env.batch import BatchEnv
from shuiyu_env.exact import equilibrium_of, nashconv
from shuiyu_env.observation import layout_of
from shuiyu_env.policies.network import (
    ActorCritic,
    MaskedCategorical,
    NetworkConfig,
    NetworkPolicy,
)
from shuiyu_env.policy import sample_actions

PAGE = ROOT / "docs" / "benchmark.md"
BATCH, UNIFORM = 4096, 0.2
RATES = (3e-3, 1e-5)  # of Adam, linearly from one to the other
NETWORKS = ((128, 16), (128, 64), (256, 64))  # width of two hidden layers, bins


def imitate(preset: str, width: int, bins: int, seconds: float) -> list[str]:
    """Return one row of the table."""
    game = Game(2, preset)
    equilibrium = equilibrium_of(preset)
    config = NetworkConfig((width, width), bins=bins)
    network = ActorCritic(layout_of(game), config, torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(network.parameters(), lr=RATES[0])
    env, rng = BatchEnv(game, BATCH, 3), np.random.default_rng(0)
    began, steps = time.process_time(), 0
    while (done := (time.process_time() - began) / seconds) < 1.0:
        for group in optimizer.param_groups:
            group["lr"] = RATES[0] + (RATES[1] - RATES[0]) * done
        seen, mask = env.observation.copy(), env.action_mask.copy()
        wanted = equilibrium.probabilities(seen, mask)
        uniform = mask / mask.sum(axis=1, keepdims=True)
        played = (1.0 - UNIFORM) * wanted + UNIFORM * uniform
        env.step(sample_actions(played, mask, rng.random(len(mask))))
        logits, _ = network(torch.from_numpy(seen))
        policy = MaskedCategorical(logits, torch.from_numpy(mask))
        loss = -(torch.from_numpy(wanted).float() * policy.log_probs).sum(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    found = nashconv(NetworkPolicy(network), preset, threads=1)
    numbers = (found.nashconv, found.dealer_gain, found.punter_gain)
    return [
        f"`{preset}`",
        f"{width}-{width}",
        str(bins),
        f"{steps * BATCH / 1e6:.0f} M",
        *(f"{float(number):.4f}" for number in numbers),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=150.0, help="of one core, each network")
    parser.add_argument("--preset", action="append", help="may be repeated; nanning and dahua")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for preset in options.preset or ("nanning", "dahua"):
        for width, bins in NETWORKS:
            rows.append(imitate(preset, width, bins, options.seconds))
            print(*rows[-1], flush=True)
    head = ["Preset", "network", "bins", "answers shown", "NashConv"]
    head += ["dealer's gain", "punter's gain"]
    text = (
        f"{markdown(head, rows)}\nEach network was trained for"
        f" {options.seconds:.0f} seconds of one core. Made by `python benchmarks/imitation.py"
        f" --write` on {describe_machine('torch', 'numba')}."
    )
    if options.write:
        write_section("imitation", text, PAGE)


if __name__ == "__main__":
    main()
