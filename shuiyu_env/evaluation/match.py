"""Matches: policies against each other on duplicate deals, with confidence intervals.

Every deal is played once for every rotation of the entries over the seats,
seat 0 dealing. So each entry holds every hand of every deal, and deals once;
much of the luck of the cards cancels. The games of one deal are not
independent, so the deal is the unit of all statistics.

Deal ``i`` is deal ``i`` of stream 0 of the seed. In rotation ``r``, entry ``e``
sits at seat ``(e + r) mod n``, and decision ``t`` of the game (counted from 0)
uses the ``t``-th 32-bit word of :func:`~shuiyu_env.core.deals.random_words`
for ``(seed, stream r, deal i, Purpose.ACTIONS)``. So a match is a function of
its arguments; the size of the batches matters only to policies whose answers
depend on it, as those of networks may by rounding.
"""

from __future__ import annotations

__all__ = [
    "AgainstRow",
    "EntryResult",
    "Estimate",
    "MatchResult",
    "against_table",
    "match_against",
    "play_match",
    "student_t",
]

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from shuiyu_env.batch import BatchEnv
from shuiyu_env.core.checks import as_integer
from shuiyu_env.core.deals import Purpose, deal_hands, random_words
from shuiyu_env.core.errors import DealError, PolicyError, RulesError
from shuiyu_env.core.game import Game
from shuiyu_env.core.rules import RuleSet
from shuiyu_env.policies.loading import load
from shuiyu_env.policy import Policy, checked_probabilities, is_policy, sample_actions
from shuiyu_env.progress import progress_bar

PolicySpec = str | os.PathLike[str] | Policy

#: Two-sided confidence of all intervals.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean in units per deal, with its 95 % confidence interval.

    Attributes:
        mean: the mean over deals.
        standard_error: of the mean.
        low, high: the interval, by Student's t.
    """

    mean: float
    standard_error: float
    low: float
    high: float

    @classmethod
    def of(cls, values: npt.NDArray[np.float64]) -> Estimate:
        """Return the estimate from one value for each of at least two independent deals."""
        count = len(values)
        mean = float(values.mean())
        error = float(values.std(ddof=1)) / math.sqrt(count)
        half = student_t(0.5 + CONFIDENCE / 2, count - 1) * error
        return cls(mean, error, mean - half, mean + half)

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ± {self.high - self.mean:.3f}"


@dataclass(frozen=True)
class EntryResult:
    """What one entry of a match won, in units per deal.

    Attributes:
        name: its name.
        dealer: as the dealer.
        punter: as a punter, the mean over the punters' seats.
        both: the mean of these two; heads-up, what it wins per deal.
    """

    name: str
    dealer: Estimate
    punter: Estimate
    both: Estimate


@dataclass(frozen=True)
class MatchResult:
    """The result of a match.

    Attributes:
        entries: one result per entry, in the order given.
        game: the game that was played.
        num_deals: N, number of independent deals, each played in all rotations.
        seed: seed of the deals and of the actions.
        units: ``float32[N, n, n]``: what each entry won in each deal and
            rotation (``[deal, rotation, entry]``).
    """

    entries: tuple[EntryResult, ...]
    game: Game
    num_deals: int
    seed: int
    units: npt.NDArray[np.float32] = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return settings and results as plain JSON values, without the single deals."""
        return {
            "rules": self.game.rules.to_dict(),
            "num_players": self.game.num_players,
            "reward": self.game.reward,
            "num_deals": self.num_deals,
            "seed": self.seed,
            "confidence": CONFIDENCE,
            "entries": [asdict(entry) for entry in self.entries],
        }

    def table(self) -> str:
        """Return the results as text, one line per entry."""
        rows = [
            (entry.name, str(entry.dealer), str(entry.punter), str(entry.both))
            for entry in self.entries
        ]
        return _table(self._title(), ("policy", "dealer", "punter", "both"), rows)

    def _title(self) -> str:
        game = self.game
        rotations = f"{game.num_players} rotations"
        return (
            f"{game.rules.name or 'own rules'}, {game.num_players} seats, {self.num_deals} deals in"
            f" {rotations}, seed {self.seed}; units per deal ({game.reward}), 95 % intervals"
        )


@dataclass(frozen=True)
class AgainstRow:
    """How a policy did against one opponent.

    Attributes:
        opponent: the opponent's name.
        result: the policy's own result.
        match: the whole match.
    """

    opponent: str
    result: EntryResult
    match: MatchResult

    def to_dict(self) -> dict[str, Any]:
        """Return opponent, policy's name and estimates as plain JSON values."""
        return {"opponent": self.opponent, **asdict(self.result)}


def play_match(
    policies: Sequence[PolicySpec],
    game: Game | str | RuleSet | Mapping[str, Any] = "nanning",
    num_deals: int = 1000,
    seed: int = 0,
    *,
    names: Sequence[str] | None = None,
    batch_size: int = 1024,
    threads: int = 1,
    progress: bool = False,
) -> MatchResult:
    """Play a match on duplicate deals.

    Args:
        policies: one entry per seat, each a policy or what
            :func:`~shuiyu_env.policies.load` takes.
        game: the game (of one round), or the rules of one with as many seats as
            entries: a preset's name, a :class:`RuleSet` or a mapping.
        num_deals: how many deals, at least 2; ``num_deals * n`` games are played.
        seed: an integer; decides deals and actions.
        names: how results and errors name the entries; by default as they were
            specified, numbered where they are the same.
        batch_size: how many games are played side by side.
        threads: how many threads step them.
        progress: whether to show a progress bar (if tqdm is installed).

    Raises:
        PolicyError: wrong number of policies or names, a policy that cannot be
            loaded, or that answered with something unusable.
        RulesError: a game that is none, or has several rounds.
        DealError: number of deals, batch size or seed out of range.
    """
    entries = _as_list("policies", policies)
    if not isinstance(game, Game):
        game = Game(max(len(entries), 2), game)
    n = game.num_players
    if len(entries) != n:
        raise PolicyError(
            f"policies: expected {n} entries, one per seat of the game, got {len(entries)}"
        )
    if game.rounds != 1:
        raise RulesError(
            f"a match plays single deals: expected a game with rounds=1, got rounds={game.rounds}"
        )
    num_deals = _integer("num_deals", num_deals, 2)
    batch_size = _integer("batch_size", batch_size, 1)
    seed = _integer("seed", seed)
    names = _names(entries, names)
    # Entries of one specification share one policy, so that it is asked once for all of them.
    texts = {_default_name(spec): load(spec, game) for spec in entries if not is_policy(spec)}
    players = [spec if is_policy(spec) else texts[_default_name(spec)] for spec in entries]

    units = np.zeros((num_deals, n, n), dtype=np.float32)
    env = BatchEnv(game, min(batch_size, num_deals * n), seed, threads)
    with progress_bar(num_deals * n, progress, unit="game") as bar:
        for start in range(0, num_deals * n, env.num_envs):
            numbers = np.arange(start, min(start + env.num_envs, num_deals * n))
            deals, rotations = numbers // n, numbers % n
            units[deals, rotations] = _play_games(env, players, names, seed, deals, rotations)
            bar.update(len(numbers))

    results = []
    wide = units.astype(np.float64)
    for entry, name in enumerate(names):
        deals_at = -entry % n  # the rotation that takes it to seat 0
        dealer = wide[:, deals_at, entry]
        punter = np.delete(wide[:, :, entry], deals_at, axis=1).mean(axis=1)
        results.append(
            EntryResult(
                name,
                Estimate.of(dealer),
                Estimate.of(punter),
                Estimate.of((dealer + punter) / 2),
            )
        )
    return MatchResult(tuple(results), game, num_deals, seed, units)


def _play_games(
    env: BatchEnv,
    players: Sequence[Policy],
    names: Sequence[str],
    seed: int,
    deals: npt.NDArray[np.intp],
    rotations: npt.NDArray[np.intp],
) -> npt.NDArray[np.float32]:
    """Play one game for each of at most ``num_envs`` deals and rotations.

    Returns:
        ``float32[games, n]``, the units of each entry.
    """
    game = env.game
    n, count = game.num_players, len(deals)
    hands = {
        int(deal): deal_hands(game.rules.deck, n, seed, 0, int(deal)) for deal in np.unique(deals)
    }
    cards = [hands[int(deal)] for deal in deals]
    # Rows without a game of ours play a copy of the last one.
    env.reset(hands=np.array(cards + cards[-1:] * (env.num_envs - count)), dealer=0)
    words = [
        random_words(seed, int(rotation), int(deal), Purpose.ACTIONS)
        for deal, rotation in zip(deals, rotations, strict=True)
    ]
    # Whose turn it is: by seat and rotation the entry, by entry the first that shares its policy.
    entry_at = (np.arange(n) - rotations[:, None]) % n
    first = np.array([next(i for i in range(n) if players[i] is player) for player in players])
    units = np.zeros((count, n), dtype=np.float32)
    rows = np.arange(count)
    playing = np.ones(count, dtype=np.bool_)
    while playing.any():
        # A game that is over has begun anew: it only has to go on until the last one is over.
        actions = env.action_mask.argmax(axis=1)
        owner = first[entry_at[rows, env.seat[:count]]]
        for entry in np.unique(owner[playing]):
            asked = np.flatnonzero(playing & (owner == entry))
            mask = env.action_mask[asked]
            probabilities = checked_probabilities(
                players[entry], env.observation[asked], mask, names[entry], env.seat[asked]
            )
            uniforms = np.array([next(words[row]) for row in asked]) / 2.0**32
            actions[asked] = sample_actions(probabilities, mask, uniforms)
        env.step(actions)
        ended = np.flatnonzero(playing & env.done[:count])
        units[ended[:, None], entry_at[ended]] = env.reward[ended]
        playing[ended] = False
    return units


def match_against(
    policy: PolicySpec,
    opponents: Sequence[PolicySpec],
    game: Game | str | RuleSet | Mapping[str, Any] = "nanning",
    num_deals: int = 1000,
    seed: int = 0,
    *,
    name: str | None = None,
    batch_size: int = 1024,
    progress: bool = False,
) -> list[AgainstRow]:
    """Play a policy against each of several opponents, on the same deals.

    Heads-up it meets the opponent; at larger tables it sits, once, among
    copies of it, in every seat in turn.

    Args:
        policy: the policy, or its specification.
        opponents: the opponents.
        game: the game, or the rules of a heads-up one.
        num_deals, seed, batch_size, progress: see :func:`play_match`.
        name: the policy's name in the results.

    Returns:
        One row per opponent; :func:`against_table` makes a text of them.

    Raises:
        PolicyError, RulesError, DealError: see :func:`play_match`.
    """
    if not isinstance(game, Game):
        game = Game(2, game)
    name = _default_name(policy) if name is None else name
    policy = load(policy, game)
    # All are loaded first: a wrong name should not come to light after an hour's play.
    loaded = [(_default_name(spec), load(spec, game)) for spec in _as_list("opponents", opponents)]
    rows = []
    for opponent_name, opponent in loaded:
        copies = [opponent] * (game.num_players - 1)
        result = play_match(
            [policy, *copies],
            game,
            num_deals,
            seed,
            names=_numbered([name, *[opponent_name] * len(copies)]),
            batch_size=batch_size,
            progress=progress,
        )
        rows.append(AgainstRow(opponent_name, result.entries[0], result))
    return rows


def against_table(rows: Sequence[AgainstRow]) -> str:
    """Return the rows of :func:`match_against` as text, one line per opponent."""
    if not rows:
        return "no opponents"
    lines = [
        (row.opponent, str(row.result.dealer), str(row.result.punter), str(row.result.both))
        for row in rows
    ]
    title = f"{rows[0].result.name}: {rows[0].match._title()}"
    return _table(title, ("against", "dealer", "punter", "both"), lines)


def student_t(probability: float, degrees: int) -> float:
    """Return a quantile of Student's t distribution, for probabilities from 0.5 to 0.995.

    Exact for one and two degrees of freedom; beyond, by the expansion of
    Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5, within
    0.3 % at the 97.5 % quantile.
    """
    if degrees == 1:
        return math.tan(math.pi * (probability - 0.5))
    if degrees == 2:
        return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    z = NormalDist().inv_cdf(probability)
    terms: tuple[float, ...] = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / degrees**power for power, term in enumerate(terms))


def _as_list(name: str, values: Any) -> list[Any]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise PolicyError(f"{name}: expected a list of policies, got {values!r}")
    return list(values)


def _default_name(spec: PolicySpec) -> str:
    return os.fspath(spec) if isinstance(spec, (str, os.PathLike)) else type(spec).__name__


def _names(entries: Sequence[PolicySpec], names: Sequence[str] | None) -> list[str]:
    if names is None:
        return _numbered([_default_name(entry) for entry in entries])
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise PolicyError(f"names: expected {len(entries)} texts, one per policy, got {names!r}")
    result = list(names)
    if len(result) != len(entries) or not all(isinstance(name, str) for name in result):
        raise PolicyError(f"names: expected {len(entries)} texts, one per policy, got {names!r}")
    return result


def _numbered(names: Sequence[str]) -> list[str]:
    """Return the names, numbered where they occur more than once."""
    return [
        f"{name} ({list(names[:i]).count(name) + 1})" if list(names).count(name) > 1 else name
        for i, name in enumerate(names)
    ]


def _integer(name: str, value: object, low: int | None = None) -> int:
    number = as_integer(value)
    if number is None or (low is not None and number < low):
        bound = "" if low is None else f" of {low} or more"
        raise DealError(f"{name}: expected an integer{bound}, got {value!r}")
    return number


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(c.rjust(w) for c, w in others)]).rstrip()

    return "\n".join([title, line(head), *map(line, rows)])
