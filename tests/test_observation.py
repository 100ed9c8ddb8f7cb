"""The observation: layout, meaning of every field, perfect recall."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import plain_rules
import pytest
from games import (
    deal_some,
    examples,
    games,
    plain_deal,
    play,
    random_hands,
    rngs,
)
from hypothesis import given

from shuiyu_env.core.actions import num_actions
from shuiyu_env.core.cards import Deck, parse_hand
from shuiyu_env.core.errors import ShuiyuError
from shuiyu_env.core.game import Game, State
from shuiyu_env.core.hands import ranking
from shuiyu_env.core.rules import RuleSet
from shuiyu_env.core.view import View
from shuiyu_env.observation import Layout, ViewBatch, infer_layout, layout_of
from shuiyu_env.tables import hand_table

FloatArray = npt.NDArray[np.float32]
PlainDeal = plain_rules.PlainDeal

PHASES = ["stake", "arrange", "declare", "call", "reply", "rearrange", "over"]
DECLARATIONS = ["OPEN", "COVER", "FORCE", "ATTACK", "REQUEST_PUSH"]
CALLS = "KILL PUSH SURRENDER LOOK FOLD DECLINE ACCEPT DEMAND GRANT REFUSE"
REPLIES = "BELIEVE DOUBT PAY CONTEST CONCEDE"


def walk(game: Game, rng: random.Random) -> tuple[State, PlainDeal]:
    """A state and the same deal by the plain rules, some random way into it."""
    hands, dealer = deal_some(rng, game), rng.randrange(game.num_players)
    state = game.new_state(0, hands=hands, dealer=dealer)
    plain = plain_deal(game, hands, dealer)
    for _ in range(rng.choice([0, 2, 5, 10, 20, 40, 100])):
        if plain.over:
            break
        action = rng.choice(plain.legal())
        state.apply(action)
        plain.apply(action)
    return state, plain


# ---- the layout -----------------------------------------------------------------------------


def all_layouts() -> list[tuple[int, int]]:
    return [(n, num_actions(stake)) for n in range(2, 14) for stake in range(1, 6)]


def test_fields_cover_the_vector_exactly_once() -> None:
    for n, actions in all_layouts():
        layout = Layout(n, actions)
        covered = np.zeros(layout.size, dtype=np.int32)
        for view in layout.views(covered).values():
            view += 1
        assert (covered == 1).all()
        names = [field.name for field in layout.fields]
        assert len(set(names)) == len(names)
        assert all(field.meaning for field in layout.fields)
        own = sum(field.size for field in layout.fields if not field.per_seat)
        block = sum(field.size for field in layout.fields if field.per_seat)
        assert layout.size == own + n * block


def test_layout_depends_on_seats_and_action_space_only() -> None:
    for n in (2, 4):
        first = layout_of(Game(n))
        for rules in (
            "dahua",
            "dahua_house",
            RuleSet(deck=Deck(4, 4), declarations=("FORCE",), declare="in_turn"),
        ):
            for reward in ("transfer", "drinks"):
                game = Game(n, rules, rounds=3, dealer_rotation="random", reward=reward)  # type: ignore[arg-type]
                assert layout_of(game) is first
        staked = layout_of(Game(n, RuleSet(max_stake=3)))
        assert staked.size == first.size + 3 * n


def test_infer_layout_is_unique() -> None:
    seen = {}
    for n, actions in all_layouts():
        layout = infer_layout(Layout(n, actions).size, actions)
        assert (layout.num_players, layout.num_actions) == (n, actions)
        seen[layout.size, actions] = n
    assert len(seen) == len(all_layouts())


@pytest.mark.parametrize(
    ("size", "actions"),
    [(0, 23), (1, 23), (10**6, 23), (-1, 23), (None, 24), (None, 29), (None, 0)],
)
def test_infer_layout_refuses_other_sizes(size: int | None, actions: int) -> None:
    size = Layout(2, 23).size if size is None else size
    with pytest.raises(ShuiyuError, match=f"observations of {size} numbers and {actions} actions"):
        infer_layout(size, actions)


def test_views_share_memory_and_take_any_leading_shape() -> None:
    layout = Layout(3, 25)
    for lead in ((), (4,), (2, 5)):
        vector = np.zeros((*lead, layout.size), dtype=np.float32)
        for i, (name, view) in enumerate(layout.views(vector).items()):
            field = layout.fields[i]
            assert name == field.name
            assert view.shape == lead + ((3,) if field.per_seat else ()) + field.shape
            assert np.shares_memory(view, vector)
            view[...] = i + 1
        assert (vector > 0).all()
    # Also of a slice, which is not contiguous.
    wide = np.zeros((4, 2 * layout.size), dtype=np.float32)
    part = wide[:, : layout.size]
    for view in layout.views(part).values():
        assert np.shares_memory(view, wide)
        view[...] = 1
    assert wide.sum() == part.size


def test_views_of_an_observation_are_its_fields() -> None:
    game = Game(2)
    state = play(game.new_state(0, hands=["As Kd 7c 2h", "Qs Qd 9c 3h"]), "SPLIT_1")
    vector = layout_of(game).encode(state.view(0))
    view = layout_of(game).views(vector)
    assert np.flatnonzero(view["hand"]).tolist() == [2, 21, 44, 51]
    view["hand"][0] = 0.5
    assert 0.5 in vector


@pytest.mark.parametrize("shape", [(), (3,), (2, 4), (0,)])
def test_views_refuse_other_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShuiyuError, match=r"expected an array \[\.\.\., "):
        Layout(2, 23).views(np.zeros(shape))


# ---- one state at a time and many at once ---------------------------------------------------


@given(games(), rngs)
@examples(80)
def test_encode_and_encode_many_are_equal_to_the_bit(game: Game, rng: random.Random) -> None:
    layout = layout_of(game)
    table = hand_table(game.rules.deck, game.rules.tie_break)
    views: list[View] = []
    for _ in range(3):
        hands, dealer = deal_some(rng, game), rng.randrange(game.num_players)
        state = game.new_state(0, hands=hands, dealer=dealer)
        while True:
            views.append(state.view(rng.choice([None, *range(game.num_players)])))
            if state.is_terminal:
                break
            state.apply(rng.choice(state.legal_actions()))
    one = np.array([layout.encode(view) for view in views])
    many = layout.encode_many(ViewBatch.from_views(views, table), table)
    assert one.dtype == many.dtype == np.float32
    assert one.shape == many.shape == (len(views), layout.size)
    assert one.tobytes() == many.tobytes()
    assert one.min() >= 0
    assert one.max() <= 1
    for i in range(0, len(views), 7):
        single = ViewBatch.from_views(views[i : i + 1], table)
        assert layout.encode_many(single, table).tobytes() == one[i].tobytes()


def test_every_call_gives_a_fresh_array() -> None:
    state = Game(3).new_state(2)
    layout = layout_of(state.game)
    first = layout.encode(state.view(0))
    before = first.copy()
    second = layout.encode(state.view(0))
    second[:] = 9
    assert (first == before).all()
    assert (layout.encode(state.view(0)) == before).all()


# ---- what every field means -----------------------------------------------------------------


def flags(size: int, index: int | None) -> list[float]:
    return [float(i == index) for i in range(size)]


def card_flags(hand: list[int] | None) -> list[float]:
    return [float(hand is not None and card in hand) for card in range(52)]


def named(names: list[str], name: str | None) -> list[float]:
    return [float(one == name) for one in names]


def results(plain: PlainDeal, me: int, other: int) -> list[list[float]]:
    """The three splits of ``me`` against the exposed hand of ``other``: win, push, lose."""
    if (me == plain.dealer) == (other == plain.dealer):
        return [[0.0] * 3] * 3
    mine, theirs = plain.hands[me], plain.hands[other]
    their_split = plain.splits[other]
    assert their_split is not None
    rows = []
    for split in range(3):
        # A split that a Shuiyu may not be laid in counts as its split 0.
        split = split if split in plain_rules.legal_splits(mine) else 0
        if me == plain.dealer:
            winner = plain_rules.compare_hands(
                mine, split, theirs, their_split, plain.rules["tie_break"]
            )
            rows.append(named(["dealer", "push", "punter"], winner))
        else:
            winner = plain_rules.compare_hands(
                theirs, their_split, mine, split, plain.rules["tie_break"]
            )
            rows.append(named(["punter", "push", "dealer"], winner))
    return rows


def expected_fields(plain: PlainDeal, me: int) -> dict[str, Any]:
    """Every field but the strengths, from the plain rules alone."""
    n, dealer = plain.num_players, plain.dealer
    dealt = plain.sees_hand(me, me)
    fields: dict[str, Any] = {
        "phase": flags(7, PHASES.index(plain.phase())),
        "role": [float(me == dealer), float(me != dealer)],
        "hand": card_flags(plain.hands[me] if dealt else None),
        "split": flags(3, plain.splits[me]),
    }
    seats: dict[str, list[Any]] = {}
    for distance in range(n):
        seat = (me + distance) % n
        other = (seat + 1) % n
        exposed = plain.sees_hand(other, seat) and plain.sees_split(other, seat)
        declared = plain.declarations[seat] if plain.sees_declaration(me, seat) else None
        decided = plain.decided(seat)
        force = plain.force_splits[seat] if plain.sees_force_split(me, seat) else None
        stake = plain.stakes[seat]
        values = {
            "dealer": [float(seat == dealer)],
            "to_act": [float(seat == plain.seat())],
            "contested": [float(seat == plain.contest())],
            "stake": flags(plain.rules["max_stake"], None if stake is None else stake - 1),
            "declaration": named(DECLARATIONS, declared),
            "call": named(CALLS.split(), plain.calls[seat]),
            "reply": named(REPLIES.split(), plain.replies[seat]),
            "decided": named(["special", "agreed", "compared"], decided),
            "force_split": flags(3, force),
            "exposed": [float(exposed)],
            "shown_hand": card_flags(plain.hands[seat] if exposed else None),
            "shown_split": flags(3, plain.splits[seat] if exposed else None),
            "outcomes": results(plain, me, seat) if exposed else [[0.0] * 3] * 3,
        }
        if plain.rules["max_stake"] == 1:
            values["stake"] = []
        for name, value in values.items():
            seats.setdefault(f"seats.{name}", []).append(value)
    return fields | seats


@given(games(), rngs)
@examples(250)
def test_every_field_says_what_the_plain_rules_say(game: Game, rng: random.Random) -> None:
    state, plain = walk(game, rng)
    layout = layout_of(game)
    for me in rng.sample(range(game.num_players), min(3, game.num_players)):
        view = layout.views(layout.encode(state.view(me)))
        expected = expected_fields(plain, me)
        assert set(view) - set(expected) == {"strengths", "seats.shown_strengths"}
        for name, value in expected.items():
            assert view[name].tolist() == value, name


def order(a: float, b: float) -> int:
    return int(a > b) - int(a < b)


@given(games(), rngs)
@examples(250)
def test_strengths_order_as_the_plain_rules_do(game: Game, rng: random.Random) -> None:
    """Groups of ordinary hands by their own order; specials above, in theirs."""
    hands, dealer = deal_some(rng, game), rng.randrange(game.num_players)
    state = game.new_state(0, hands=hands, dealer=dealer)
    plain = plain_deal(game, hands, dealer)
    while not plain.over:
        action = rng.choice(plain.legal())
        state.apply(action)
        plain.apply(action)
    layout = layout_of(game)
    tie_break = game.rules.tie_break
    # Everything whose strengths this table can see: (status, tail, head, their strengths).
    known = []
    for me in range(game.num_players):
        view = layout.views(layout.encode(state.view(me)))
        mine = plain.hands[me]
        known += [(mine, split, view["strengths"][split].tolist()) for split in range(3)]
        for distance, shown in enumerate(view["seats.shown_strengths"]):
            seat = (me + distance) % game.num_players
            if view["seats.exposed"][distance]:
                known.append((plain.hands[seat], plain.splits[seat], shown.tolist()))
            else:
                assert shown.tolist() == [0.0, 0.0]
    for _ in range(60):
        (a, i, (tail_a, head_a)), (b, j, (tail_b, head_b)) = rng.choices(known, k=2)
        assert 0 <= tail_a <= head_a <= 1
        i, j = (k if k in plain_rules.legal_splits(h) else 0 for h, k in ((a, i), (b, j)))
        kind_a, kind_b = plain_rules.special(a), plain_rules.special(b)
        if kind_a != kind_b:
            assert order(tail_a, head_b) == order(head_a, tail_b) == order(kind_a, kind_b)
        elif kind_a == 2:
            assert order(tail_a, tail_b) == order(head_a, head_b) == order(a[0] // 4, b[0] // 4)
        else:
            groups_a = plain_rules.head_and_tail(a, i, tie_break)
            groups_b = plain_rules.head_and_tail(b, j, tie_break)
            heads, tails = (
                plain_rules.compare_groups(groups_a[k], groups_b[k], tie_break) for k in (0, 1)
            )
            assert (order(head_a, head_b), order(tail_a, tail_b)) == (heads, tails)


def test_no_card_before_the_last_stake() -> None:
    game = Game(3, RuleSet(max_stake=2))
    state = play(game.new_state(1), "STAKE_2")
    view = layout_of(game).views(layout_of(game).encode(state.view(1)))
    assert view["seats.stake"][0].tolist() == [0, 1]
    for name in ("hand", "split", "strengths", "seats.shown_hand", "seats.outcomes"):
        assert not view[name].any()


def test_fields_of_a_deal_by_hand() -> None:
    """Seat 2 deals; seat 0 opens, seat 1 covers; seen by the dealer while he calls to seat 0."""
    game = Game(3)
    hands = ["As Ks 7c 2h", "Qd Qs 9c 3h", "Ad 8h 7d 2c"]
    state = game.new_state(0, hands=hands, dealer=2)
    play(state, "SPLIT_0 SPLIT_1 SPLIT_2 OPEN COVER")
    layout = layout_of(game)
    view = layout.views(layout.encode(state.view(2)))
    assert view["phase"].tolist() == [0, 0, 0, 1, 0, 0, 0]
    assert view["role"].tolist() == [1, 0]
    assert np.flatnonzero(view["hand"]).tolist() == sorted(parse_hand(hands[2]))
    assert view["split"].tolist() == [1, 0, 0]
    # From the dealer on: himself, seat 0, seat 1.
    assert view["seats.dealer"].ravel().tolist() == [1, 0, 0]
    assert view["seats.to_act"].ravel().tolist() == [1, 0, 0]
    assert view["seats.contested"].ravel().tolist() == [0, 1, 0]
    assert view["seats.declaration"].tolist() == [[0] * 5, [1, 0, 0, 0, 0], [0, 1, 0, 0, 0]]
    assert view["seats.exposed"].ravel().tolist() == [0, 1, 0]
    assert np.flatnonzero(view["seats.shown_hand"][1]).tolist() == sorted(parse_hand(hands[0]))
    assert view["seats.shown_split"][1].tolist() == [0, 1, 0]
    # Seat 0 lies A7 (8) over K2 (2). The dealer has A8 (9) | 72 (9), A7 (8) | 82 (0),
    # A2 (3) | 87 (5): his nines win; his A7 loses to A7 by suit, and the tail too; 5 and 3 push.
    assert view["seats.outcomes"][1].tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert not view["seats.outcomes"][[0, 2]].any()
    top = ranking(Deck(), "card").max_strength
    strengths = [ranking(Deck(), "card").strengths(parse_hand(hands[2]), k) for k in range(3)]
    assert np.allclose(view["strengths"], np.array(strengths) / top)


def test_the_whole_table_is_seen_from_seat_0_with_all_hands_open() -> None:
    game = Game(3)
    hands = ["As Ks 7c 2h", "Qd Qs 9c 3h", "Ad 8h 7d 2c"]
    state = play(game.new_state(0, hands=hands, dealer=2), "SPLIT_0 SPLIT_1")
    view = layout_of(game).views(layout_of(game).encode(state.view(None)))
    assert view["role"].tolist() == [0, 1]
    assert view["seats.exposed"].ravel().tolist() == [1, 1, 1]
    assert view["seats.dealer"].ravel().tolist() == [0, 0, 1]
    for seat in range(3):
        shown = np.flatnonzero(view["seats.shown_hand"][seat]).tolist()
        assert shown == sorted(parse_hand(hands[seat]))
    assert view["seats.shown_split"].tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]


@given(games(), rngs)
@examples(60)
def test_rotating_the_seats_rotates_the_observations(game: Game, rng: random.Random) -> None:
    n = game.num_players
    hands, dealer, turn = deal_some(rng, game), rng.randrange(n), rng.randrange(1, n)
    state = game.new_state(0, hands=hands, dealer=dealer)
    rotated = game.new_state(
        0, hands=[hands[(seat - turn) % n] for seat in range(n)], dealer=(dealer + turn) % n
    )
    layout = layout_of(game)
    while True:
        for seat in range(n):
            one = layout.encode(state.view(seat))
            other = layout.encode(rotated.view((seat + turn) % n))
            assert one.tobytes() == other.tobytes()
        if state.is_terminal:
            break
        action = rng.choice(state.legal_actions())
        state.apply(action)
        rotated.apply(action)


# ---- perfect recall -------------------------------------------------------------------------


def everything_seen(state: State, seat: int) -> tuple[Any, ...]:
    """All that a seat has come to know in this deal, with seats counted from itself."""
    n = state.game.num_players
    view = state.view(seat)
    turns = tuple(((turn.seat - seat) % n, turn.action) for turn in state.observed_history(seat))
    order = [(seat + i) % n for i in range(n)]
    return (
        (view.dealer - seat) % n,
        turns,
        tuple(view.hands[other] for other in order),
        tuple(view.splits[other] for other in order),
        tuple(view.rewards[other] for other in order) if state.is_terminal else None,
    )


def check_recall(rules: RuleSet, num_players: int, deals: int, seed: int) -> int:
    """Collect what was seen by observation: equal vectors, equal knowledge and legal actions."""
    rng = random.Random(seed)
    game = Game(num_players, rules)
    layout = layout_of(game)
    seen: dict[bytes, tuple[Any, ...]] = {}
    legal: dict[bytes, tuple[int, ...]] = {}
    met_again = 0
    # Few hands, so that information sets are met again and again.
    pool = [random_hands(rng, rules.deck, num_players) for _ in range(12)]
    for _ in range(deals):
        hands = rng.choice(pool)
        state = game.new_state(0, hands=hands, dealer=rng.randrange(num_players))
        while True:
            for seat in range(num_players):
                key = layout.encode(state.view(seat)).tobytes()
                knowledge = everything_seen(state, seat)
                met_again += key in seen
                assert seen.setdefault(key, knowledge) == knowledge
                if state.current_player == seat:
                    actions = state.legal_actions()
                    assert legal.setdefault(key, actions) == actions
            if state.is_terminal:
                break
            state.apply(rng.choice(state.legal_actions()))
    # And the other way about: different vectors, different knowledge.
    assert len(set(seen.values())) == len(seen)
    return met_again


RECALL = [
    (RuleSet(deck=Deck(2, 4)), 2),
    (RuleSet(deck=Deck(5, 2), declare="in_turn", surrender_to_open=True), 2),
    (RuleSet(deck=Deck(3, 4), tie_break="next_group", max_stake=2), 3),
    (RuleSet(deck=Deck(4, 4), specials="at_showdown"), 3),
    (RuleSet(deck=Deck(4, 4), declare="in_turn", max_stake=2), 4),
]


@pytest.mark.parametrize(("rules", "num_players"), RECALL)
def test_information_states_differ_as_soon_as_anything_seen_does(
    rules: RuleSet, num_players: int
) -> None:
    assert check_recall(rules, num_players, 250, seed=num_players) > 500


@pytest.mark.slow
@pytest.mark.parametrize(("rules", "num_players"), RECALL)
def test_information_states_differ_as_soon_as_anything_seen_does_long(
    rules: RuleSet, num_players: int
) -> None:
    for seed in range(10):
        assert check_recall(rules, num_players, 1_500, seed) > 5_000


def test_splits_of_equal_strengths_are_told_apart() -> None:
    # All groups have 0 points; in splits 1 and 2 the king tops one and the queen the other.
    game = Game(2)
    layout = layout_of(game)
    hands = ["Ks Qd Jc Th", "As Kd 7c 2h"]
    profile = ranking(Deck(), "card").profile(parse_hand(hands[0]))
    assert profile[1] == profile[2]
    states = [play(game.new_state(0, hands=hands), f"SPLIT_{k}") for k in range(3)]
    for seat in (0, 1):
        vectors = {layout.encode(state.view(seat)).tobytes() for state in states}
        # The punter cannot tell them apart: the split is hidden from it.
        assert len(vectors) == (3 if seat == 0 else 1)


def test_a_view_of_another_number_of_seats_is_refused() -> None:
    view = Game(3).new_state(1).view(0)
    for seats in (2, 4):
        with pytest.raises(ShuiyuError, match=f"expected a view of {seats} seats, got one of 3"):
            layout_of(Game(seats)).encode(view)


def test_layouts_of_no_game_are_refused() -> None:
    for seats, actions in ((1, 23), (14, 23), (2, 24), (2, 40), (-1, 23)):
        with pytest.raises(ShuiyuError, match="expected 2 to 13 seats"):
            Layout(seats, actions)
    with pytest.raises(ShuiyuError, match="expected an array"):
        Layout(2, 23).views([0.0] * 262)  # type: ignore[arg-type]
