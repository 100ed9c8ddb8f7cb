"""What one seat may see: nothing that depends on what is hidden from it.

A deal is played; at each of its positions everything that the plain rules hide
from a viewer is exchanged for something else (cards among the unseen hands and
the undealt rest, hidden splits, hidden declarations), the same game is played
again, and the viewer must not be able to tell the two apart.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import plain_rules
import pytest
from games import deal_some, plain_deal, play, random_game

from shuiyu_env.core.actions import Action
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import DealError
from shuiyu_env.core.game import Game, State
from shuiyu_env.core.hands import special_of
from shuiyu_env.core.play import NONE
from shuiyu_env.core.rules import RuleSet
from shuiyu_env.core.view import View, view_of
from shuiyu_env.observation import layout_of

PlainDeal = plain_rules.PlainDeal


def perceived(state: State, viewer: int) -> dict[str, Any]:
    """Everything that the package tells a viewer about a state."""
    view = state.view(viewer)
    known = {
        field.name: getattr(view, field.name)
        for field in dataclasses.fields(View)
        if field.name != "table"
    }
    known["observation"] = layout_of(state.game).encode(view).tobytes()
    known["history"] = state.observed_history(viewer)
    known["player"] = state.current_player
    known["legal"] = state.legal_actions() if state.current_player == viewer else None
    known["returns"] = state.returns()
    return known


def hidden_hands(plain: PlainDeal, viewer: int) -> list[int]:
    return [seat for seat in range(plain.num_players) if not plain.sees_hand(viewer, seat)]


def other_hands(
    rng: random.Random, plain: PlainDeal, viewer: int, keep_status: bool
) -> list[list[int]] | None:
    """Deal the unseen hands anew from the cards that the viewer does not see.

    Each keeps its special status if it should: it is public, or decides what could be done.
    """
    hidden = hidden_hands(plain, viewer)
    deck = plain_rules.deck_cards(plain.rules["deck"]["ranks"], plain.rules["deck"]["suits"])
    seen = {
        card
        for seat in range(plain.num_players)
        if seat not in hidden
        for card in plain.hands[seat]
    }
    left = [card for card in deck if card not in seen]
    status = {seat: plain_rules.special(plain.hands[seat]) for seat in hidden}
    hands = [list(hand) for hand in plain.hands]
    # Specials first: they need their ranks.
    for seat in sorted(hidden, key=lambda seat: -status[seat]):
        for _ in range(200):
            hand = rng.sample(left, 4)
            if keep_status and status[seat] and rng.random() < 0.9:
                hand = _special(rng, left, status[seat]) or hand
            if not keep_status or plain_rules.special(hand) == status[seat]:
                break
        else:
            return None
        hands[seat] = hand
        left = [card for card in left if card not in hand]
    return hands


def _special(rng: random.Random, cards: list[int], kind: int) -> list[int] | None:
    by_rank: dict[int, list[int]] = {}
    for card in rng.sample(cards, len(cards)):
        by_rank.setdefault(card // 4, []).append(card)
    if kind == 2:
        fours = [group for group in by_rank.values() if len(group) == 4]
        return rng.choice(fours) if fours else None
    pairs = [group[:2] for group in by_rank.values() if len(group) >= 2]
    return [card for pair in rng.sample(pairs, 2) for card in pair] if len(pairs) >= 2 else None


def other_game(
    rng: random.Random, game: Game, plain: PlainDeal, actions: list[int], viewer: int
) -> tuple[list[list[int]], list[int]] | None:
    """Hands and actions that differ from a deal's only in what the viewer does not know.

    Returns ``None`` if the cards left do not give any.
    """
    # Before anybody shows a special, a seat's status is as hidden as its cards.
    keep = plain.specials_were_declared() or rng.random() < 0.5
    hands = other_hands(rng, plain, viewer, keep)
    if hands is None:
        return None
    other = plain_deal(game, hands, plain.dealer)
    changed = []
    for action in actions:
        phase, seat, contest = other.phase(), other.seat(), other.contest()
        assert seat is not None
        hidden = False
        if phase == "arrange":
            hidden = not plain.sees_split(viewer, seat)
        elif phase == "declare":
            hidden = not plain.sees_declaration(viewer, seat)
        elif phase == "rearrange":
            assert contest is not None
            hidden = not plain.sees_force_split(viewer, contest)
        if hidden:
            action = rng.choice(other.legal())
        if action not in other.legal():
            return None
        other.apply(action)
        changed.append(action)
    return hands, changed


def check_deal(number: int) -> int:
    """Check one random deal for one viewer at some of its positions; returns how many."""
    try:
        return _check_deal(random.Random(number))
    except Exception as error:
        error.add_note(f"to play it again: test_view.check_deal({number})")
        raise


def _check_deal(rng: random.Random) -> int:
    game = random_game(rng, max_seats=7)
    hands, dealer = deal_some(rng, game), rng.randrange(game.num_players)
    viewer = rng.randrange(game.num_players)
    state = game.new_state(0, hands=hands, dealer=dealer)
    plain = plain_deal(game, hands, dealer)
    told = [perceived(state, viewer)]
    checked = 0
    while True:
        if plain.over or rng.random() < 0.3:
            for _ in range(2):
                other = other_game(rng, game, plain, state.deal.actions, viewer)
                if other is not None:
                    checked += 1
                    replay(game, dealer, *other, viewer, told)
        if plain.over:
            return checked
        action = rng.choice(plain.legal())
        plain.apply(action)
        state.apply(action)
        told.append(perceived(state, viewer))


def replay(
    game: Game,
    dealer: int,
    hands: list[list[int]],
    actions: list[int],
    viewer: int,
    told: list[dict[str, Any]],
) -> None:
    """Play the other game; the viewer must be told the same all along."""
    state = game.new_state(1, hands=hands, dealer=dealer)
    for i, expected in enumerate(told):
        now = perceived(state, viewer)
        for name, value in expected.items():
            assert now[name] == value, (
                f"{name} tells viewer {viewer} what is hidden from it: {now[name]} instead of"
                f" {value}, in {game!r}, hands {hands}, dealer {dealer}, after {actions[:i]}"
            )
        if i < len(actions):
            state.apply(actions[i])


def test_nothing_hidden_reaches_a_viewer() -> None:
    assert sum(map(check_deal, range(500))) > 1_500


@pytest.mark.slow
def test_nothing_hidden_reaches_a_viewer_long() -> None:
    assert sum(map(check_deal, range(500, 12_000))) > 30_000


# ---- by hand --------------------------------------------------------------------------------

# Nobody has a special. Seat 0 deals.
PLAIN = ["Kd 8c 9h 2s", "Qd 2c 5h 6s", "As 8s Kh 9s", "3d 3c Ac 5d"]
# Seat 3 has a Shuiyu.
ONE_SPECIAL = [*PLAIN[:3], "3d 3c 5s 5d"]
DEALER_SPECIAL = ["Kd Kc 9h 9d", "Qd 2c 5h 6s", "As 8s Kh 8d", "3d 3c 5s 5d"]


def at(hands: list[str], actions: str, **rules: Any) -> State:
    return play(Game(4, RuleSet(**rules)).new_state(0, hands=hands, dealer=0), actions)


def hands_seen(state: State, viewer: int) -> set[int]:
    return {seat for seat, hand in enumerate(state.view(viewer).hands) if hand is not None}


def splits_seen(state: State, viewer: int) -> set[int]:
    return {seat for seat, split in enumerate(state.view(viewer).splits) if split != NONE}


def declarations_seen(state: State, viewer: int) -> set[int]:
    return {seat for seat, made in enumerate(state.view(viewer).declarations) if made != NONE}


def everyone(look: Callable[[State, int], set[int]], state: State) -> list[set[int]]:
    return [look(state, viewer) for viewer in range(4)]


ARRANGED = "SPLIT_0 SPLIT_0 SPLIT_0 SPLIT_0"
OWN = [{0}, {1}, {2}, {3}]


def test_no_card_before_the_last_stake() -> None:
    state = at(PLAIN, "STAKE_2 STAKE_1", max_stake=2)
    assert everyone(hands_seen, state) == [set()] * 4
    assert state.view(1).stakes == [NONE, 2, 1, NONE]
    assert state.view(None).hands == [None] * 4
    play(state, "STAKE_1")
    assert everyone(hands_seen, state) == OWN


def test_arranging_is_hidden() -> None:
    state = at(PLAIN, "SPLIT_0 SPLIT_1")
    assert everyone(hands_seen, state) == OWN
    assert everyone(splits_seen, state) == [{0}, {1}, set(), set()]


def test_simultaneous_declarations_stay_hidden_to_the_last() -> None:
    state = at(PLAIN, f"{ARRANGED} OPEN COVER")
    assert everyone(declarations_seen, state) == [set(), {1}, {2}, set()]
    assert everyone(hands_seen, state) == OWN
    play(state, "FORCE")
    assert everyone(declarations_seen, state) == [{1, 2, 3}] * 4
    # OPEN and FORCE lie face up with their splits.
    assert everyone(hands_seen, state) == [{0, 1, 3}, {1, 3}, {1, 2, 3}, {1, 3}]
    assert everyone(splits_seen, state) == everyone(hands_seen, state)


@pytest.mark.parametrize(
    ("declaration", "shown"),
    [("OPEN", True), ("FORCE", True), ("COVER", False), ("ATTACK", False), ("REQUEST_PUSH", False)],
)
def test_declarations_in_turn_are_seen_at_once(declaration: str, shown: bool) -> None:
    state = at(PLAIN, f"{ARRANGED} {declaration}", declare="in_turn")
    assert state.phase is Phase.DECLARE
    assert everyone(declarations_seen, state) == [{1}] * 4
    for viewer in (0, 2, 3):
        assert (1 in hands_seen(state, viewer)) == shown
        assert (1 in splits_seen(state, viewer)) == shown


def test_a_punters_special_is_shown_and_the_dealer_shows_nothing() -> None:
    state = at(ONE_SPECIAL, "SPLIT_0 SPLIT_1 SPLIT_1")
    assert everyone(hands_seen, state) == OWN
    play(state, "SPLIT_0")
    assert everyone(hands_seen, state) == [{0, 3}, {1, 3}, {2, 3}, {3}]
    assert [state.view(0).decided[seat] for seat in (1, 2, 3)] == [0, 0, 1]
    play(state, "COVER COVER FOLD FOLD")
    # Nothing was compared: what was face down stays so.
    assert everyone(hands_seen, state) == [{0, 3}, {1, 3}, {2, 3}, {3}]


def test_the_dealers_special_is_shown_with_each_punters() -> None:
    state = at(DEALER_SPECIAL, "SPLIT_0 SPLIT_0 SPLIT_0 SPLIT_0")
    assert state.is_terminal
    assert everyone(hands_seen, state) == [{0, 3}, {0, 1, 3}, {0, 2, 3}, {0, 3}]


def test_a_special_at_the_showdown_shows_nothing_by_itself() -> None:
    state = at(DEALER_SPECIAL, ARRANGED, specials="at_showdown")
    assert state.phase is Phase.DECLARE
    assert everyone(hands_seen, state) == OWN
    play(state, "COVER COVER COVER FOLD FOLD FOLD")
    assert everyone(hands_seen, state) == OWN


def test_the_reveal_shows_the_dealer_and_who_was_compared() -> None:
    state = at(PLAIN, f"{ARRANGED} COVER COVER ATTACK LOOK")
    # The comparison is made at the reveal: until then nothing of it shows.
    assert everyone(hands_seen, state) == OWN
    play(state, "FOLD")
    assert everyone(hands_seen, state) == OWN
    assert state.view(2).outcomes == [NONE] * 4
    play(state, "DECLINE")
    assert everyone(hands_seen, state) == [{0, 1}, {0, 1}, {0, 1, 2}, {0, 1, 3}]
    assert everyone(splits_seen, state) == everyone(hands_seen, state)
    assert [outcome != NONE for outcome in state.view(3).outcomes] == [False, True, False, False]


def test_without_a_comparison_nothing_new_is_shown() -> None:
    state = at(PLAIN, f"{ARRANGED} COVER REQUEST_PUSH ATTACK REFUSE CONCEDE FOLD DEMAND PAY")
    assert state.is_terminal
    assert everyone(hands_seen, state) == OWN
    opened = at(PLAIN, f"{ARRANGED} OPEN REQUEST_PUSH ATTACK PUSH BELIEVE GRANT DECLINE")
    assert opened.is_terminal
    assert everyone(hands_seen, opened) == [{0, 1}, {1}, {1, 2}, {1, 3}]


def test_the_new_split_of_a_forced_showdown() -> None:
    state = at(PLAIN, f"{ARRANGED} FORCE COVER FORCE LOOK SPLIT_2")
    assert [view_of(state.deal, seat).force_splits[1] for seat in range(4)] == [2, NONE, NONE, NONE]
    assert not any(0 in hands_seen(state, viewer) for viewer in (1, 2, 3))
    play(state, "SPLIT_1")
    for seat in range(4):
        assert state.view(seat).force_splits == [NONE, 2, NONE, 1]
        assert state.view(seat).splits[0] == Action.SPLIT_0


def test_the_whole_table() -> None:
    state = at(PLAIN, f"{ARRANGED} OPEN COVER")
    view = state.view(None)
    assert view.seat is None
    assert view.hands == list(state.deal.hands)
    assert view.splits == [0, 0, 0, 0]
    assert view.declarations == [NONE, Action.OPEN, Action.COVER, NONE]


def test_the_hands_used_here_are_what_they_are_called() -> None:
    for hands, kinds in (
        (PLAIN, [0] * 4),
        (ONE_SPECIAL, [0, 0, 0, 1]),
        (DEALER_SPECIAL, [1, 0, 0, 1]),
    ):
        state = Game(4).new_state(0, hands=hands, dealer=0)
        assert [special_of(hand) for hand in state.deal.hands] == kinds


@pytest.mark.parametrize("seat", [-1, 3, True, 1.0, "x"])
def test_there_is_no_such_seat(seat: object) -> None:
    state = Game(3).new_state(1)
    with pytest.raises(DealError, match="seat: expected a seat from 0 to 2"):
        state.view(seat)  # type: ignore[arg-type]
    with pytest.raises(DealError, match="seat: expected a seat from 0 to 2"):
        state.observed_history(seat)  # type: ignore[arg-type]
    assert state.view(np.int64(1)) == state.view(1)  # type: ignore[arg-type]
