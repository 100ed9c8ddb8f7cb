"""What can at least be gained against a policy that cannot be tabulated.

At larger tables, or where a policy is too slow to be asked everything, its best response is
not known. But any other way to play against it that gains something shows that so much can
be gained. Several are tried: the reference policies, an equilibrium, and a local best response
(after Lisy and Bowling, "Equilibrium approximation quality of current no-limit poker bots",
2017). The one that does best on some deals is then played once on fresh ones, so that nothing
is gained by trying many. The result is a lower bound; the truth may be far above, and it is
never to be put beside exact values as if it were one.
"""

from __future__ import annotations

__all__ = ["Gain", "LowerBound", "lower_bound"]

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.errors import PolicyError
from shuiyu_env.core.game import Game
from shuiyu_env.core.rules import RuleSet
from shuiyu_env.evaluation.estimate import Estimate, student_t
from shuiyu_env.evaluation.local_best_response import LocalBestResponse
from shuiyu_env.evaluation.match import (
    MatchResult,
    PolicySpec,
    as_list,
    at_least,
    by_role,
    distinct_names,
    play_match,
)
from shuiyu_env.evaluation.table import equilibrium_at_hand
from shuiyu_env.policies.loading import load
from shuiyu_env.policy import Policy

#: One-sided confidence of a lower bound; two roles share what may go wrong.
CONFIDENCE = 0.95
_LOCAL = "local best response"
_ROLES = ("dealer", "punter")


@dataclass(frozen=True)
class Gain:
    """What was gained in one role, in units per deal.

    Attributes:
        responder: what answered best on the validation deals.
        validation: its mean gain there, which it was chosen for.
        test: its gain on the test deals, two-sided interval.
        low: what it gains at least, with one-sided confidence: together for both roles 95 %.
    """

    responder: str
    validation: float
    test: Estimate
    low: float


@dataclass(frozen=True)
class LowerBound:
    """How exploitable a policy is at least.

    Attributes:
        dealer_gain: by one who deals, while the policy plays all punters.
        punter_gain: by one punter, while the policy deals and plays all other punters.
        num_deals: test deals, each played in all rotations.
    """

    dealer_gain: Gain
    punter_gain: Gain
    num_deals: int

    @property
    def nashconv(self) -> float:
        """At least so many units per deal in both roles together; never below 0."""
        return max(self.dealer_gain.low, 0.0) + max(self.punter_gain.low, 0.0)

    def __str__(self) -> str:
        lines = [
            f"{role + ' gains at least':<24} {gain.low:+.4f}  ({gain.responder}, {gain.test})"
            for role, gain in (("dealer", self.dealer_gain), ("punter", self.punter_gain))
        ]
        return "\n".join([*lines, f"{'both together':<24} {self.nashconv:+.4f}"])

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {"nashconv": self.nashconv, "confidence": CONFIDENCE}


def lower_bound(
    policy: PolicySpec,
    game: Game | str | RuleSet | Mapping[str, Any] = "nanning",
    num_deals: int = 2000,
    seed: int = 0,
    *,
    responders: Sequence[PolicySpec] | None = None,
    validation_deals: int = 500,
    particles: int = 128,
    name: str | None = None,
    progress: bool = False,
) -> LowerBound:
    """Return what can at least be gained against a policy, in either role.

    Args:
        policy: the policy, or its specification.
        game: the game, or the rules of a heads-up one.
        num_deals: test deals, at least 2.
        seed: of all deals; those of validation and test are different ones.
        responders: what is tried; by default the reference policies, heads-up the equilibrium
            if it is at hand, and a local best response.
        validation_deals: deals to choose among them, at least 2.
        particles: hands that the local best response deals for each decision; 0 to do without.
        name: how errors name the policy.
        progress: whether to show progress bars (if tqdm is installed).

    Raises:
        PolicyError, RulesError, DealError: see
            :func:`~shuiyu_env.evaluation.match.play_match`.
    """
    if not isinstance(game, Game):
        game = Game(2, game)
    num_deals = at_least(2, "num_deals", num_deals)
    validation_deals = at_least(2, "validation_deals", validation_deals)
    particles = at_least(0, "particles", particles)
    player = load(policy, game)
    called = name or (policy if isinstance(policy, str) else type(policy).__name__)
    if responders is None:
        responders = ["uniform", "honest", "cautious", "bluffer"]
        responders += ["equilibrium"] if equilibrium_at_hand(game) else []
    specs = as_list("responders", responders)
    labels = distinct_names(specs, None)
    tried = {label: load(spec, game) for label, spec in zip(labels, specs, strict=True)}
    if particles:
        tried[_LOCAL] = LocalBestResponse(player, game, particles, seed)
    if not tried:
        raise PolicyError("responders: expected at least one, or particles for a local one")
    control = equilibrium_at_hand(game)

    def gains(
        responder: Policy, deals: int, at: int, base: MatchResult
    ) -> list[npt.NDArray[np.float64]]:
        """By role and deal: what it wins more than the policy does in its place."""
        result = play(responder, deals, at)
        pairs = zip(_won(result), _won(base), strict=True)
        return [mine - own for mine, own in list(pairs)[: len(_ROLES)]]

    def play(first: Policy, deals: int, at: int) -> MatchResult:
        others = [player] * (game.num_players - 1)
        names = [called, *[f"{called} ({i + 2})" for i in range(len(others))]]
        return play_match(
            [first, *others],
            game,
            deals,
            at,
            names=names,
            control_variates=control,
            progress=progress,
        )

    validation, test = 2 * seed, 2 * seed + 1
    base = play(player, validation_deals, validation)
    found = {
        label: [float(gain.mean()) for gain in gains(one, validation_deals, validation, base)]
        for label, one in tried.items()
    }
    base = play(player, num_deals, test)
    results: dict[str, list[npt.NDArray[np.float64]]] = {}
    chosen = []
    for role in range(len(_ROLES)):
        best = max(found, key=lambda label: found[label][role])
        if best not in results:
            results[best] = gains(tried[best], num_deals, test, base)
        values = results[best][role]
        estimate = Estimate.of(values)
        half = student_t(1.0 - (1.0 - CONFIDENCE) / len(_ROLES), num_deals - 1)
        low = estimate.mean - half * estimate.standard_error
        chosen.append(Gain(best, found[best][role], estimate, low))
    return LowerBound(chosen[0], chosen[1], num_deals)


def _won(result: MatchResult) -> tuple[npt.NDArray[np.float64], ...]:
    return by_role(result.units if result.adjusted is None else result.adjusted, 0)
