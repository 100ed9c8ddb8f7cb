"""Random games for the tests: rule sets, hands rich in specials, and random play."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from shuiyu_env.core.cards import Deck
from shuiyu_env.core.game import Game, State
from shuiyu_env.core.rules import DECLARATIONS, RuleSet

DECKS = [Deck(), Deck(13, 2), Deck(4, 4), Deck(5, 2), Deck(2, 4), Deck(9, 1), Deck(13, 3)]

CHOICES: dict[str, list[Any]] = {
    "tie_break": ["card", "next_group"],
    "surrender_to_open": [False, True],
    "attack_accept": [False, True],
    "attack_on_push": [-2, 0],
    "force_on_push": [-3, 0],
    "doubted_push_when_dealer_wins": [-2, 2],
    "specials": ["declared", "at_showdown"],
    "cover_lost_to_special": [1, 2],
    "declare": ["simultaneous", "in_turn"],
}


def rule_sets(decks: list[Deck] = DECKS) -> st.SearchStrategy[RuleSet]:
    """Any rule set, with one of some decks."""
    return st.builds(
        RuleSet,
        declarations=st.lists(st.sampled_from(DECLARATIONS), min_size=1, unique=True),
        max_stake=st.integers(1, 5),
        deck=st.sampled_from(decks),
        **{name: st.sampled_from(values) for name, values in CHOICES.items()},
    )


@st.composite
def games(draw: st.DrawFn, max_rounds: int = 1) -> Game:
    """Any game; small numbers of seats are the simplest."""
    rules = draw(rule_sets())
    return Game(
        draw(st.integers(2, min(13, rules.deck.max_seats))),
        rules,
        rounds=draw(st.integers(1, max_rounds)),
        dealer_rotation=draw(st.sampled_from(["fixed", "rotate", "random"])),
        reward=draw(st.sampled_from(["transfer", "drinks"])),
    )


def random_rules(rng: random.Random, decks: list[Deck] = DECKS) -> RuleSet:
    """A rule set drawn without hypothesis, for long runs."""
    return RuleSet(
        declarations=tuple(rng.sample(DECLARATIONS, rng.randint(1, len(DECLARATIONS)))),
        max_stake=rng.randint(1, 5),
        deck=rng.choice(decks),
        **{name: rng.choice(values) for name, values in CHOICES.items()},
    )


def hands_rich_in_specials(rng: random.Random, deck: Deck, num_players: int) -> list[list[int]]:
    """Deal so that about half of the seats get a special, where the deck has any."""
    left = list(deck.cards)
    rng.shuffle(left)
    hands = []
    for _ in range(num_players):
        wish = rng.choices([(), (2, 2), (4,)], weights=[5, 4, 1])[0]
        hand: list[int] = []
        for count in wish:
            rank = next((card >> 2 for card in left if _same_rank(left, card) >= count), None)
            hand += [card for card in left if card >> 2 == rank][:count]
            left = [card for card in left if card not in hand]
        # Ordinary hands come from the back, where no pair is being looked for.
        while len(hand) < 4:
            hand.append(left.pop())
        hands.append(hand)
    rng.shuffle(hands)
    return hands


def _same_rank(cards: list[int], card: int) -> int:
    return sum(other >> 2 == card >> 2 for other in cards)


def random_states(
    game: Game, rng: random.Random, *, special: bool = False, dealer: int | None = None
) -> Iterator[State]:
    """Play one episode at random, yielding the (same, changing) state before each action and at
    the end."""
    hands = hands_rich_in_specials(rng, game.rules.deck, game.num_players) if special else None
    state = game.new_state(rng.getrandbits(60), hands=hands, dealer=dealer)
    while not state.is_terminal:
        yield state
        state.apply(rng.choice(state.legal_actions()))
    yield state
