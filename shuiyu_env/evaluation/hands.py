"""Hands as they were played: by a policy against itself, decision by decision."""

from __future__ import annotations

__all__ = ["Decision", "PlayedHand", "false_claims", "play_hands", "sampled_rates"]

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.actions import Action
from shuiyu_env.core.contest import ContestTree, Payoffs, Phase
from shuiyu_env.core.deals import Purpose, random_words
from shuiyu_env.core.game import Game, State
from shuiyu_env.core.hands import Outcome, Special, compare, special_of
from shuiyu_env.core.play import NONE, Deal, Decided
from shuiyu_env.evaluation.bluffing import Rates, claims
from shuiyu_env.observation import layout_of
from shuiyu_env.policy import Policy, checked_probabilities, sample_actions

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Decision:
    """One decision of a played hand.

    Attributes:
        seat: who decided.
        contest: the punter whose contest it is about; the seat itself while hands are arranged.
        phase: what kind of decision it was.
        action: what was done.
        chances: ``float64[A]``, the policy's probabilities.
        observation: ``float32[D]``, what the seat saw.
        mask: ``bool[A]``, what was legal.
    """

    seat: int
    contest: int
    phase: Phase
    action: Action
    chances: Floats
    observation: npt.NDArray[np.float32]
    mask: npt.NDArray[np.bool_]


@dataclass
class PlayedHand:
    """A deal that was played to its end.

    Attributes:
        state: its end.
        decisions: all of them, in order.
    """

    state: State
    decisions: list[Decision] = field(default_factory=list)


def play_hands(policy: Policy, game: Game, count: int, seed: int, name: str) -> list[PlayedHand]:
    """Return deals 0 to ``count - 1`` of a seed, the policy in all seats and seat 0 dealing.

    Args:
        policy: plays everybody.
        game: the game, of one round.
        count: how many.
        seed: of deals and actions: those of the first rotation of a match.
        name: how errors name the policy.

    Raises:
        PolicyError: an unusable answer.
    """
    layout = layout_of(game)
    hands = [PlayedHand(game.new_state(seed, dealer=0, stream=0, index=i)) for i in range(count)]
    words = [random_words(seed, 0, i, Purpose.ACTIONS) for i in range(count)]
    while going := [i for i in range(count) if not hands[i].state.is_terminal]:
        states = [hands[i].state for i in going]
        seats = [int(state.current_player or 0) for state in states]
        seen = np.stack(
            [layout.encode(state.view(seat)) for state, seat in zip(states, seats, strict=True)]
        )
        mask = np.zeros((len(going), game.num_actions), dtype=np.int8)
        for row, state in enumerate(states):
            mask[row, list(state.legal_actions())] = 1
        chances = checked_probabilities(policy, seen, mask, name, seats)
        drawn = np.array([next(words[i]) for i in going]) / 2.0**32
        actions = sample_actions(chances, mask, drawn)
        for row, (i, state) in enumerate(zip(going, states, strict=True)):
            action = Action(int(actions[row]))
            seat, contest = seats[row], state.deal.contest
            hands[i].decisions.append(
                Decision(
                    seat,
                    seat if contest == NONE else contest,
                    state.phase,
                    action,
                    chances[row],
                    seen[row],
                    mask[row] != 0,
                )
            )
            state.apply(action)
    return hands


def false_claims(hand: PlayedHand) -> dict[int, set[tuple[Action, ...]]]:
    """Return, by punter, the claims of a hand that were false: bluffs."""
    deal, tree = hand.state.deal, hand.state.game.tree
    result: dict[int, set[tuple[Action, ...]]] = {}
    for punter in deal.table.punters[deal.dealer]:
        if deal.decided[punter] != Decided.BY_SPECIAL:
            path, column = _ending(deal, punter, tree)
            result[punter] = {
                claim.path
                for claim in claims(tree)
                if claim.path == path[: len(claim.path)] and claim.false[column]
            }
    return result


def sampled_rates(hands: list[PlayedHand]) -> Rates:
    """Return how often what was done in some hands; at larger tables each punter's contest counts.

    Contests that specials decided before anybody declared are left out, so the fractions sum
    to those that came to a declaration.
    """
    tree = hands[0].state.game.tree
    leaves = {node.path: np.zeros(len(Payoffs._fields)) for node in tree.nodes if node.is_leaf}
    contests = 0
    for hand in hands:
        deal = hand.state.deal
        for punter in deal.table.punters[deal.dealer]:
            contests += 1
            if deal.decided[punter] != Decided.BY_SPECIAL:
                path, column = _ending(deal, punter, tree)
                leaves[path][column] += 1
    return Rates(tree, {path: counts / contests for path, counts in leaves.items()})


def _ending(deal: Deal, punter: int, tree: ContestTree) -> tuple[tuple[Action, ...], int]:
    """Return a contest's path, and the column of ``Payoffs`` it ended in, or would have."""
    said = (deal.declarations[punter], deal.calls[punter], deal.replies[punter])
    path = tuple(Action(action) for action in said if action != NONE)
    split, forced = deal.splits[deal.dealer], deal.force_splits[punter]
    strengths = deal.table.ranking.strengths
    outcome = compare(
        strengths(deal.hands[deal.dealer], split if forced == NONE else forced),
        strengths(deal.hands[punter], deal.splits[punter]),
    )
    payoffs = next(node.payoffs for node in tree.nodes if node.is_leaf and node.path == path)
    special = (
        outcome == Outcome.DEALER_WINS
        and special_of(deal.hands[deal.dealer]) != Special.NONE
        and payoffs is not None
        and payoffs.dealer_wins_by_special != payoffs.dealer_wins
    )
    return path, len(Outcome) if special else int(outcome)
