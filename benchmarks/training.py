"""How much of training is the network: the rate of training, beside that of its passes alone.

    python benchmarks/training.py [--iterations 20] [--write]

Trains by configs/ppo.yaml. After every iteration it repeats, on observations kept from
it, only what the network does in one: the forward passes that choose the actions,
window step by window step, and the update. What training takes beyond that is games,
gathering and bookkeeping. The repeated update is undone.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from pathlib import Path

import torch
from report import describe_machine, markdown, write_section

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from agents.config import parse  # noqa: E402
from agents.ppo import PPO  # noqa: E402
from agents.rollout import Batch, Rollout  # noqa: E402
from shuiyu_env.policies.network import MaskedCategorical  # noqa: E402


class KeepingRollout(Rollout):
    """A rollout that keeps the batch that it handed out last, and one time step's inputs."""

    batch: Batch

    def collect(self, *arguments: object) -> Batch:  # type: ignore[override]
        self.observation = torch.from_numpy(self.env.observation.copy())
        self.mask = torch.from_numpy(self.env.action_mask != 0)
        self.batch = super().collect(*arguments)  # type: ignore[arg-type]
        return self.batch


def network_alone(learner: PPO, rollout: KeepingRollout) -> float:
    """Return the seconds that the passes of one iteration take."""
    network, critic = learner.network, learner.critic
    assert critic is not None
    kept = copy.deepcopy(learner.state_dict())
    began = time.perf_counter()
    with torch.no_grad():
        for _ in range(rollout.window):
            features = network.features(rollout.observation)
            logits, _ = network.heads(features)
            critic(features, rollout.steps.hidden[-1])
            policy = MaskedCategorical(logits, rollout.mask)
            policy.log_prob(policy.sample(learner.generator))
    learner.update(rollout.batch)
    seconds = time.perf_counter() - began
    learner.load_state_dict(kept)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--iterations", type=int, default=20, help="iterations (default 20)")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    options = parser.parse_args()
    config, _ = parse([], ROOT / "configs" / "ppo.yaml")
    torch.set_num_threads(config.threads)
    learner = PPO(config.game.make(), config.ppo, config.network, config.seed)
    rollout = KeepingRollout(
        learner.rollout.env,
        config.ppo.window,
        learner.network.num_features,
        critic=learner.critic,
    )
    learner.rollout = rollout
    learner.iterate()
    rows = []
    for _ in range(options.iterations):
        learned = learner.iterate()
        rows.append((learned, network_alone(learner, rollout)))
    steps = learner.steps_per_iteration
    whole = statistics.median(steps / learned["seconds"] for learned, _ in rows)
    alone = statistics.median(steps / seconds for _, seconds in rows)
    ratio = statistics.median(seconds / learned["seconds"] for learned, seconds in rows)
    shares = {
        name: statistics.median(learned[f"share_{name}"] for learned, _ in rows)
        for name in ("environment", "network", "update")
    }
    gathering = 1.0 - sum(shares.values())
    table = markdown(
        ["", ""],
        [
            ["training, decisions per second", f"{whole:,.0f}"],
            ["the network's passes alone", f"{alone:,.0f}"],
            ["ratio", f"{ratio:.2f}"],
            ["share of games", f"{shares['environment']:.1%}"],
            ["share of gathering and the rest", f"{gathering:.1%}"],
            ["share of forward passes", f"{shares['network']:.1%}"],
            ["share of the update", f"{shares['update']:.1%}"],
        ],
    )
    print(table)
    print(f"ratio: {ratio:.2f}")
    if options.write:
        heading = (
            f"Measured by `python benchmarks/training.py --write` (seed {config.seed}, medians of"
            f" {options.iterations} iterations of {steps:,} decisions, {config.threads} thread) on"
            f" {describe_machine('torch', 'numba')}.\n\n"
        )
        write_section("training", heading + table)


if __name__ == "__main__":
    main()
