"""Which decisions a trained policy's NashConv comes from: each kind left to the equilibrium.

    python benchmarks/decisions.py            # prints the table
    python benchmarks/decisions.py --write    # and puts it into docs/benchmark.md

NashConv is of the whole policy, but one may ask how much less it would be if one kind of
decision were taken as the equilibrium takes it, and the others as the policy does. The parts
do not add up: an equilibrium's calls answer the equilibrium's declarations. The network is
taken as it is, without the thresholds that the policy is played with.

An equilibrium has to be asked about every hand, not only its strengths: a minute a row on `dahua`,
several on `nanning`.

Needs ``pip install -e ".[train]"``.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import numpy.typing as npt
from report import ROOT, describe_machine, markdown, write_section

from shuiyu_env import Game
from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.contest import Phase
from shuiyu_env.exact import equilibrium_of, nashconv
from shuiyu_env.observation import layout_of
from shuiyu_env.policies import load
from shuiyu_env.policies.network import NetworkPolicy
from shuiyu_env.policy import Policy

PAGE = ROOT / "docs" / "benchmark.md"
PHASES = (Phase.ARRANGE, Phase.DECLARE, Phase.CALL, Phase.REPLY, Phase.REARRANGE)
DEALS = 8192
SURE = 0.95  # an arrangement this probable counts as the only one


class Joined:
    """A policy that leaves the decisions of some phase to another."""

    outcomes_only = True
    strengths_only = False

    def __init__(self, policy: Policy, other: Policy, column: int | None) -> None:
        self.policy, self.other, self.column = policy, other, column

    def probabilities(
        self, observation: npt.NDArray[np.float32], action_mask: npt.NDArray[Any]
    ) -> npt.NDArray[np.floating[Any]]:
        """Return the probability of each action."""
        own = self.policy.probabilities(observation, action_mask)
        if self.column is None:
            return own
        theirs = self.other.probabilities(observation, action_mask)
        return np.where(observation[:, self.column, None] != 0, theirs, own)


def network_of(game: Game) -> NetworkPolicy:
    """Return the policy that ships, without thresholds."""
    policy = load(f"nash_pg-{game.rules.name}-2", game)
    assert isinstance(policy, NetworkPolicy)
    return policy.with_thresholds({})


def rows_of(preset: str) -> list[list[str]]:
    """Return the rows of the table for a preset."""
    game = Game(2, preset)
    policy, equilibrium = network_of(game), equilibrium_of(preset)
    layout = layout_of(game)
    phases = layout.views(np.arange(layout.size))["phase"]
    rows = []
    for phase in (None, *PHASES):
        column = None if phase is None else int(phases[phase])
        found = nashconv(Joined(policy, equilibrium, column), preset, threads=1)
        numbers = (found.nashconv, found.dealer_gain, found.punter_gain)
        rows.append(
            [
                f"`{preset}`",
                "none" if phase is None else phase.name.lower(),
                *(f"{float(number):.4f}" for number in numbers),
            ]
        )
        print(*rows[-1], flush=True)
    return rows


def mixed(preset: str) -> str:
    """Return how often the policy and the equilibrium arrange a hand in more than one way."""
    game = Game(2, preset)
    env = BatchEnv(game, DEALS, seed=1)
    policies = (network_of(game), equilibrium_of(preset))
    found = [p.probabilities(env.observation, env.action_mask) for p in policies]
    parts = [(chances.max(axis=1) < SURE).mean() for chances in found]
    apart = np.abs(found[0] - found[1]).sum(axis=1).mean() / 2
    return (
        f"On `{preset}` the network arranges {parts[0]:.0%} of a dealer's hands more than one way,"
        f" the equilibrium {parts[1]:.0%}; the two are {apart:.2f} apart in total variation."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--preset", action="append", help="may be repeated (default dahua)")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    presets = options.preset or ["dahua"]
    rows = [row for preset in presets for row in rows_of(preset)]
    head = ["Preset", "left to the equilibrium", "NashConv", "dealer's gain", "punter's gain"]
    notes = "\n".join(mixed(preset) for preset in presets)
    print(notes)
    text = (
        f"{markdown(head, rows)}\n{notes}\n\nPolicies `nash_pg-<preset>-2`. Made by `python"
        f" benchmarks/decisions.py --write` on {describe_machine('torch', 'numba')}."
    )
    if options.write:
        write_section("decisions", text, PAGE)


if __name__ == "__main__":
    main()
