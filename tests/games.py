"""Random games for the tests: rule sets, hands rich in specials, and random play."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import plain_rules
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from shuiyu_env.core.actions import Action
from shuiyu_env.core.cards import Deck
from shuiyu_env.core.game import Game, State
from shuiyu_env.core.rules import DECLARATIONS, PRESETS, RuleSet

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


def examples(number: int) -> settings:
    """Settings of a hypothesis test: so many examples, the same on every run and every clock."""
    return settings(
        max_examples=number,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


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


#: Generators for what need not shrink: the hands, the actions taken.
rngs = st.builds(random.Random, st.integers(0, 2**32 - 1))


def random_rules(rng: random.Random, decks: list[Deck] = DECKS) -> RuleSet:
    """A rule set drawn without hypothesis, for long runs."""
    return RuleSet(
        declarations=tuple(rng.sample(DECLARATIONS, rng.randint(1, len(DECLARATIONS)))),
        max_stake=rng.randint(1, 5),
        deck=rng.choice(decks),
        **{name: rng.choice(values) for name, values in CHOICES.items()},
    )


def random_game(rng: random.Random, *, rounds: int = 1, max_seats: int = 13) -> Game:
    """A game drawn without hypothesis: a preset one time in four; small tables more often."""
    rules = rng.choice(list(PRESETS.values())) if rng.random() < 0.25 else random_rules(rng)
    most = min(max_seats, rules.deck.max_seats)
    return Game(
        rng.randint(2, most) if rng.random() < 0.25 else rng.randint(2, min(5, most)),
        rules,
        rounds=rounds,
        dealer_rotation=rng.choice(["fixed", "rotate", "random"]),
        reward=rng.choice(["transfer", "drinks"]),
    )


def random_hands(rng: random.Random, deck: Deck, num_players: int) -> list[list[int]]:
    """Shuffle and deal, without the package's own generator."""
    cards = rng.sample(deck.cards, 4 * num_players)
    return [cards[i : i + 4] for i in range(0, len(cards), 4)]


def hands_rich_in_specials(rng: random.Random, deck: Deck, num_players: int) -> list[list[int]]:
    """Deal so that about half of the seats get a special, where the deck has any."""
    left: dict[int, list[int]] = {}
    for card in rng.sample(deck.cards, deck.size):
        left.setdefault(card >> 2, []).append(card)
    hands = []
    for _ in range(num_players):
        hand: list[int] = []
        wish = rng.choices([(), (2, 2), (4,)], weights=[5, 4, 1])[0]
        if wish:
            ranks = [rank for rank, cards in left.items() if len(cards) >= wish[0]]
            if len(ranks) >= len(wish):
                for rank in rng.sample(ranks, len(wish)):
                    hand += [left[rank].pop() for _ in range(wish[0])]
        hands.append(hand)
    # Ordinary hands come last, from whatever is left.
    rest = [card for cards in left.values() for card in cards]
    rng.shuffle(rest)
    for hand in hands:
        while len(hand) < 4:
            hand.append(rest.pop())
    rng.shuffle(hands)
    return hands


def deal_some(rng: random.Random, game: Game) -> list[list[int]]:
    """Hands for a game, a third of the time rich in specials."""
    deal = hands_rich_in_specials if rng.random() < 1 / 3 else random_hands
    return deal(rng, game.rules.deck, game.num_players)


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


def play(state: State, actions: str) -> State:
    """Take actions by name (``"SPLIT_0 OPEN KILL"``); returns the state."""
    for name in actions.split():
        state.apply(Action[name])
    return state


def plain_deal(game: Game, hands: list[list[int]], dealer: int) -> plain_rules.PlainDeal:
    """The same deal in the second implementation of the rules."""
    return plain_rules.PlainDeal(
        game.num_players, game.rules.to_dict(), [list(h) for h in hands], dealer, game.reward
    )
