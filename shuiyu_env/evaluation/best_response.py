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

__all__ = ["Gain", "LocalBestResponse", "LowerBound", "lower_bound"]

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.actions import Action
from shuiyu_env.core.cards import HAND_SIZE
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import PolicyError
from shuiyu_env.core.game import Game
from shuiyu_env.core.rules import DECLARATIONS, RuleSet
from shuiyu_env.evaluation.estimate import Estimate, student_t
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
from shuiyu_env.observation import CALLS, REPLIES, layout_of
from shuiyu_env.policies.loading import load
from shuiyu_env.policy import Policy, checked_probabilities, sample_actions

#: One-sided confidence of a lower bound; two roles share what may go wrong.
CONFIDENCE = 0.95
_LOCAL = "local best response"
_ROLES = ("dealer", "punter")

Integers = npt.NDArray[np.integer[Any]]


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


class LocalBestResponse:
    """Answers each decision as well as it can, and plays on as the policy does.

    It deals hands that are possible to the other seats, plays what was seen to happen, weighs
    each hand by how likely the policy was to do that, and then plays every action out.

    Args:
        policy: what all seats play, this one's own later decisions too.
        game: the game.
        particles: hands dealt for each decision.
        seed: of these hands; the same for the same observation.
    """

    def __init__(self, policy: Policy, game: Game, particles: int = 128, seed: int = 0) -> None:
        self.policy, self.particles = policy, at_least(1, "particles", particles)
        # As for deals, any integer, modulo 2**64.
        self.seed = at_least(None, "seed", seed) % 2**64
        self.game = Game(game.num_players, game.rules, reward=game.reward)
        self.layout = layout_of(self.game)

    def probabilities(
        self, observation: npt.NDArray[np.float32], action_mask: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64]:
        """Return 1 for what seems best; as :class:`~shuiyu_env.policy.Policy` says."""
        mask = np.asarray(action_mask)
        result = np.zeros(mask.shape)
        size = max(1, 32768 // self.particles)
        for start in range(0, len(mask), size):
            part = slice(start, start + size)
            best = self._best(np.asarray(observation[part]), mask[part])
            result[np.arange(start, start + len(best)), best] = 1.0
        return result

    def _best(self, observation: npt.NDArray[np.float32], mask: npt.NDArray[Any]) -> Integers:
        """Return the best action of each row."""
        n, count = self.game.num_players, self.particles
        seen = {k: np.asarray(v) for k, v in self.layout.views(observation).items()}
        # The dealer sits in seat 0: where this seat is, and every other seen from it.
        me = (-seen["seats.dealer"][..., 0].argmax(axis=1)) % n
        hands, uniforms = self._deal(observation, seen, me)
        row = np.repeat(np.arange(len(mask)), count)
        env = BatchEnv(self.game, len(row), self.seed)
        env.reset(hands=hands, dealer=0)
        weight = np.ones(len(row))
        value, total = np.zeros(mask.shape), np.zeros(len(mask))
        step = 0
        while True:
            # What these see is what was seen: here is the decision.
            there = (env.seat == me[row]) & (env.observation == observation[row]).all(axis=1)
            if there.any():
                at = np.flatnonzero(there & (weight > 0.0))
                self._play_out(env, at, row[at], me, weight[at], mask, value, total)
            going = ~there & (weight > 0.0)
            chances = self._answers(env, going)
            drawn = sample_actions(chances, env.action_mask, uniforms[:, step])
            told = self._told(env, seen, row, me)
            # Another deal than the one that was seen: an own decision that was not made, an
            # action that is not legal.
            possible = (told >= 0) | (env.seat != me[row])
            action = np.where(told >= 0, told, drawn)
            legal = env.action_mask[np.arange(len(row)), action] != 0
            going &= possible & legal
            likely = chances[np.arange(len(row)), action]
            others = (told >= 0) & (env.seat != me[row])
            weight *= np.where(others, likely, 1.0)
            going &= weight > 0.0
            if not going.any():
                break
            rows = np.flatnonzero(going)
            env = env.branch(rows, action[rows])
            row, weight, uniforms = row[rows], weight[rows], uniforms[rows]
            weight = np.where(env.settled, 0.0, weight)
            step += 1
        # Where nothing fits, as the policy would.
        lost = np.flatnonzero(total == 0.0)
        if len(lost):
            value[lost] = checked_probabilities(
                self.policy, observation[lost], mask[lost], "the policy"
            )
        best: Integers = np.where(mask != 0, value, -np.inf).argmax(axis=1)
        return best

    def _deal(
        self,
        observation: npt.NDArray[np.float32],
        seen: Mapping[str, npt.NDArray[Any]],
        me: Integers,
    ) -> tuple[Integers, npt.NDArray[np.float64]]:
        """Return hands ``[rows * particles, n, 4]`` by seat, and numbers to draw actions by."""
        n, count = self.game.num_players, self.particles
        deck = np.array(self.game.rules.deck.cards)
        hands = np.empty((len(me), count, n, HAND_SIZE), dtype=np.int64)
        uniforms = np.empty((len(me), count, 1 + n * len(Phase)))
        for i, own in enumerate(me):
            rng = np.random.default_rng([self.seed, zlib.crc32(observation[i].tobytes())])
            shown = seen["seats.shown_hand"][i].astype(bool)
            shown[0] = seen["hand"][i] != 0
            free = np.setdiff1d(deck, np.flatnonzero(shown.any(axis=0)))
            shuffled = rng.permuted(np.broadcast_to(free, (count, len(free))), axis=1)
            for other in range(n):
                seat = (own + other) % n
                if shown[other].any():
                    hands[i, :, seat] = np.flatnonzero(shown[other])[::-1]
                else:
                    taken, shuffled = shuffled[:, :HAND_SIZE], shuffled[:, HAND_SIZE:]
                    hands[i, :, seat] = -np.sort(-taken, axis=1)
            uniforms[i] = rng.random(uniforms[i].shape)
        return hands.reshape(-1, n, HAND_SIZE), uniforms.reshape(-1, uniforms.shape[-1])

    def _answers(self, env: BatchEnv, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        chances = np.where(env.action_mask != 0, 1.0, 0.0)
        rows = np.flatnonzero(wanted)
        if len(rows):
            chances[rows] = checked_probabilities(
                self.policy, env.observation[rows], env.action_mask[rows], "the policy"
            )
        return chances

    def _told(
        self,
        env: BatchEnv,
        seen: Mapping[str, npt.NDArray[Any]],
        row: Integers,
        me: Integers,
    ) -> Integers:
        """Return the action that the observation says was taken here, -1 where it is hidden."""
        n = self.game.num_players
        there = {k: np.asarray(v) for k, v in self.layout.views(env.observation).items()}
        phase = there["phase"].argmax(axis=1)
        acting = (env.seat - me[row]) % n
        contested = (env.seat + there["seats.contested"][..., 0].argmax(axis=1) - me[row]) % n

        def of(field: str, seat: Integers) -> npt.NDArray[Any]:
            return seen[field][row, seat]

        split = np.where(
            (acting == 0)[:, None], seen["split"][row], of("seats.shown_split", acting)
        )
        stakes = seen["seats.stake"].shape[-1]
        first_stake = self.game.num_actions - stakes
        sources: list[tuple[Phase, npt.NDArray[Any], Sequence[int]]] = [
            (Phase.ARRANGE, split, range(split.shape[1])),
            (Phase.DECLARE, of("seats.declaration", acting), [Action[d] for d in DECLARATIONS]),
            (Phase.CALL, of("seats.call", contested), CALLS),
            (Phase.REPLY, of("seats.reply", acting), REPLIES),
            (Phase.REARRANGE, of("seats.force_split", contested), range(split.shape[1])),
        ]
        if stakes:
            levels = range(first_stake, first_stake + stakes)
            sources.append((Phase.STAKE, of("seats.stake", acting), levels))
        told = np.full(len(row), -1, dtype=np.int64)
        for kind, flags, actions in sources:
            known = (phase == kind) & (flags != 0).any(axis=1)
            told[known] = np.asarray([int(a) for a in actions])[flags.argmax(axis=1)][known]
        return told

    def _play_out(
        self,
        env: BatchEnv,
        at: Integers,
        row: Integers,
        me: Integers,
        weight: npt.NDArray[np.float64],
        mask: npt.NDArray[Any],
        value: npt.NDArray[np.float64],
        total: npt.NDArray[np.float64],
    ) -> None:
        """Take every legal action in these environments, and add what came of it to ``value``."""
        if not len(at):
            return
        np.add.at(total, row, weight)
        which, actions = np.nonzero(mask[row] != 0)
        now = env.branch(at[which], actions)
        paid = np.zeros(len(which))
        playing = np.arange(len(which))
        rng = np.random.default_rng([self.seed, len(at)])
        # The same numbers for all actions of a particle.
        draws = rng.random((len(at), 1 + self.game.num_players * len(Phase)))
        for step in range(draws.shape[1]):
            paid[playing] += now.reward[np.arange(len(playing)), me[row[which[playing]]]]
            keep = np.flatnonzero(~now.settled)
            playing = playing[keep]
            if not len(playing):
                break
            chances = checked_probabilities(
                self.policy, now.observation[keep], now.action_mask[keep], "the policy"
            )
            chosen = sample_actions(chances, now.action_mask[keep], draws[which[playing], step])
            now = now.branch(keep, chosen)
        np.add.at(value, (row[which], actions), weight[which] * paid)


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
