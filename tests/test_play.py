"""Whole deals: the package against the second implementation of the rules, and laws of play."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import plain_rules
import pytest
from games import (
    deal_some,
    examples,
    games,
    plain_deal,
    play,
    random_game,
    rngs,
)
from hypothesis import given
from hypothesis import strategies as st

from shuiyu_env.core.actions import Action
from shuiyu_env.core.contest import Phase, compile_tree
from shuiyu_env.core.errors import IllegalActionError
from shuiyu_env.core.game import Game
from shuiyu_env.core.play import NONE, Decided
from shuiyu_env.core.rules import DECLARATIONS, RuleSet
from shuiyu_env.core.view import view_of

QUICK_DEALS = 4_000
SLOW_DEALS = 100_000

DECIDED = {
    None: Decided.NOT_YET,
    "special": Decided.BY_SPECIAL,
    "agreed": Decided.AGREED,
    "compared": Decided.COMPARED,
}
OUTCOMES = {"dealer": 0, "push": 1, "punter": 2}


def codes(names: list[str | None]) -> list[int]:
    return [NONE if name is None else plain_rules.ACTION_NAMES.index(name) for name in names]


def numbers(values: list[int | None]) -> list[int]:
    return [NONE if value is None else value for value in values]


class Match:
    """One deal, number ``number`` of all, played in both implementations.

    Everything about it is drawn from its number, so ``check_deal(number)`` plays it again.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.rng = random.Random(number)
        self.game = random_game(self.rng)
        hands = deal_some(self.rng, self.game)
        dealer = self.rng.randrange(self.game.num_players)
        self.state = self.game.new_state(0, hands=hands, dealer=dealer)
        self.plain = plain_deal(self.game, hands, dealer)

    def same(self, what: str, plain: Any, package: Any) -> None:
        if plain != package:
            done = " ".join(Action(action).name for action in self.state.deal.actions)
            raise AssertionError(
                f"{what}: the plain rules say {plain}, the package says {package};"
                f" {self.game!r}, hands {self.plain.hands}, dealer {self.plain.dealer},"
                f" after {done!r}"
            )

    def viewers(self) -> list[int]:
        """All seats of a small table, and of a large one two."""
        n = self.game.num_players
        if n <= 3:
            return list(range(n))
        return self.rng.sample(range(n), 2)

    def check_position(self) -> None:
        plain, state = self.plain, self.state
        deal = state.deal
        contest = plain.contest()
        self.same("phase", plain.phase(), state.phase.name.lower())
        self.same("over", plain.over, state.is_terminal)
        self.same("seat to act", plain.seat(), state.current_player)
        self.same("contest", NONE if contest is None else contest, deal.contest)
        self.same("legal actions", plain.legal(), list(state.legal_actions()))
        self.same("rewards", plain.returns(), deal.rewards)
        self.same("returns", plain.returns(), state.returns())

    def check_views(self) -> None:
        plain, deal = self.plain, self.state.deal
        n, dealer = self.game.num_players, plain.dealer
        stakes = numbers(plain.stakes)
        if self.game.rules.max_stake == 1:
            stakes = [NONE if seat == dealer else 1 for seat in range(n)]
        decided = [int(DECIDED[plain.decided(seat)]) for seat in range(n)]
        outcomes = [NONE] * n
        if plain.over:
            for punter in plain.punters():
                if plain.decided(punter) != "agreed":
                    outcomes[punter] = OUTCOMES[plain.outcome(punter)]
        for viewer in self.viewers():
            view = view_of(deal, viewer)
            for owner in range(n):
                who = f"viewer {viewer}, owner {owner}"
                self.same(
                    f"hand seen, {who}",
                    tuple(plain.hands[owner]) if plain.sees_hand(viewer, owner) else None,
                    view.hands[owner],
                )
                self.same(
                    f"split seen, {who}",
                    plain.splits[owner] if plain.sees_split(viewer, owner) else NONE,
                    view.splits[owner],
                )
                self.same(
                    f"declaration seen, {who}",
                    codes([plain.declarations[owner]])[0]
                    if plain.sees_declaration(viewer, owner)
                    else NONE,
                    view.declarations[owner],
                )
                self.same(
                    f"force split seen, {who}",
                    plain.force_splits[owner] if plain.sees_force_split(viewer, owner) else NONE,
                    view.force_splits[owner],
                )
                self.same(
                    f"exposed, {who}",
                    all(
                        plain.sees_hand(other, owner) and plain.sees_split(other, owner)
                        for other in ((owner + 1) % n, (owner + 2) % n)
                        if other != owner
                    ),
                    view.exposed[owner],
                )
            self.same("calls", codes(plain.calls), view.calls)
            self.same("replies", codes(plain.replies), view.replies)
            self.same("stakes", stakes, view.stakes)
            self.same("decided", decided, view.decided)
            self.same("outcomes", outcomes, view.outcomes)
            self.same("rewards", plain.returns(), view.rewards)
            self.same("dealer", dealer, view.dealer)
            self.same("phase", plain.phase(), Phase(view.phase).name.lower())
            self.same("viewer", viewer, view.seat)

    def play(self) -> None:
        while True:
            self.check_position()
            # On a large table a look now and then, and always at the end.
            if self.game.num_players <= 3 or self.plain.over or self.rng.random() < 0.4:
                self.check_views()
            if self.plain.over:
                return
            action = self.rng.choice(self.plain.legal())
            self.plain.apply(action)
            self.state.apply(action)

    def leaves(self) -> Iterator[tuple[Any, ...]]:
        """What became of each contest, to know what the deals have reached."""
        plain = self.plain
        for punter in plain.punters():
            decided = plain.decided(punter)
            outcome = None if decided == "agreed" else plain.outcome(punter)
            if decided == "special":
                kinds = [plain_rules.special(plain.hands[seat]) for seat in (plain.dealer, punter)]
                yield ("special", *kinds, outcome)
            else:
                yield (
                    plain.declarations[punter],
                    plain.calls[punter],
                    plain.replies[punter],
                    outcome,
                )


def check_deal(number: int) -> Match:
    """Play one deal in both implementations and compare them at every step."""
    try:
        match = Match(number)
        match.play()
    except Exception as error:
        error.add_note(f"to play it again: test_play.check_deal({number})")
        raise
    return match


@pytest.fixture
def _remember_specials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remember the special status of hands, which the plain rules work out again and again."""
    remembered = lru_cache(maxsize=2**16)(plain_rules.special)
    monkeypatch.setattr(plain_rules, "special", lambda hand: remembered(tuple(hand)))


@pytest.mark.usefixtures("_remember_specials")
def test_package_agrees_with_plain_rules() -> None:
    reached: Counter[tuple[Any, ...]] = Counter()
    for number in range(QUICK_DEALS):
        reached.update(check_deal(number).leaves())
    # The deals would prove little if they did not get everywhere.
    for node in compile_tree(RuleSet(surrender_to_open=True)).nodes:
        if node.is_leaf:
            path = [action.name for action in node.path] + [None] * (3 - len(node.path))
            for outcome in OUTCOMES if node.compares else [None]:
                assert reached[(*path, outcome)] > 10, (path, outcome)
    for dealer in range(3):
        for punter in range(3):
            if (dealer, punter) != (0, 0):
                outcomes = {key[3] for key in reached if key[:3] == ("special", dealer, punter)}
                assert ("dealer" in outcomes) == (dealer >= punter)
                assert ("punter" in outcomes) == (dealer <= punter)
                assert ("push" in outcomes) == (dealer == punter == 1)


@pytest.mark.slow
@pytest.mark.usefixtures("_remember_specials")
def test_package_agrees_with_plain_rules_long() -> None:
    for number in range(QUICK_DEALS, QUICK_DEALS + SLOW_DEALS):
        check_deal(number)


# ---- laws -----------------------------------------------------------------------------------


def finish(game: Game, hands: Any, dealer: int, actions: list[int] | random.Random) -> Any:
    """Play a deal to its end, by given actions or at random; returns the finished deal."""
    state = game.new_state(0, hands=hands, dealer=dealer)
    while not state.is_terminal:
        if isinstance(actions, random.Random):
            state.apply(actions.choice(state.legal_actions()))
        else:
            state.apply(actions[len(state.deal.actions)])
    return state.deal


def with_reward(game: Game, reward: Any) -> Game:
    return Game(game.num_players, game.rules, reward=reward)


@given(games(), rngs)
@examples(150)
def test_transfer_is_zero_sum_and_drinks_charges_only_losers(
    game: Game, rng: random.Random
) -> None:
    hands, dealer = deal_some(rng, game), rng.randrange(game.num_players)
    transfer = finish(with_reward(game, "transfer"), hands, dealer, rng)
    drinks = finish(with_reward(game, "drinks"), hands, dealer, transfer.actions)
    assert sum(transfer.rewards) == 0
    units = [r for seat, r in enumerate(transfer.rewards) if seat != dealer]
    assert transfer.rewards[dealer] == -sum(units)
    assert [r for seat, r in enumerate(drinks.rewards) if seat != dealer] == [
        min(u, 0) for u in units
    ]
    assert drinks.rewards[dealer] == -sum(max(u, 0) for u in units)
    # A printed reward of nothing is 0.0, never -0.0.
    assert "-0.0" not in f"{transfer.rewards} {drinks.rewards}"


PER_SEAT = (
    "hands splits exposed declarations calls replies stakes decided force_splits outcomes rewards"
)


@given(games(), rngs)
@examples(100)
def test_rotating_the_seats_rotates_the_deal(game: Game, rng: random.Random) -> None:
    n = game.num_players
    hands, dealer, turn = deal_some(rng, game), rng.randrange(n), rng.randrange(1, n)

    def turned(values: list[Any]) -> list[Any]:
        return [values[(seat - turn) % n] for seat in range(n)]

    state = game.new_state(0, hands=hands, dealer=dealer)
    rotated = game.new_state(0, hands=turned(hands), dealer=(dealer + turn) % n)
    while True:
        assert rotated.legal_actions() == state.legal_actions()
        for seat in range(n):
            view, other = state.view(seat), rotated.view((seat + turn) % n)
            for name in ("dealer", "to_act", "contest"):
                where = getattr(view, name)
                assert getattr(other, name) == (where if where == NONE else (where + turn) % n)
            for name in PER_SEAT.split():
                assert getattr(other, name) == turned(getattr(view, name)), name
        assert rotated.returns() == turned(state.returns())
        if state.is_terminal:
            break
        action = rng.choice(state.legal_actions())
        state.apply(action)
        rotated.apply(action)


@given(games(), rngs)
@examples(100)
def test_a_stake_multiplies_its_own_contest_and_no_other(game: Game, rng: random.Random) -> None:
    rules = RuleSet.from_dict({**game.rules.to_dict(), "max_stake": 5})
    game = Game(game.num_players, rules, reward=game.reward)
    hands, dealer = deal_some(rng, game), rng.randrange(game.num_players)
    punters = game.num_players - 1
    ones = finish(game, hands, dealer, _Staked([1] * punters, rng))
    actions = ones.actions[punters:]
    stakes = [rng.randint(1, 5) for _ in range(punters)]
    staked = finish(game, hands, dealer, _staking(stakes) + actions)
    order = [(dealer + 1 + i) % game.num_players for i in range(punters)]
    for punter, stake in zip(order, stakes, strict=True):
        assert staked.rewards[punter] == stake * ones.rewards[punter]
    threes = finish(game, hands, dealer, _staking([3] * punters) + actions)
    assert threes.rewards == [3 * reward for reward in ones.rewards]
    # Without stakes at all, the same deal is played for one unit.
    unstaked = Game(game.num_players, {**rules.to_dict(), "max_stake": 1}, reward=game.reward)
    assert finish(unstaked, hands, dealer, actions).rewards == ones.rewards


def _staking(stakes: list[int]) -> list[int]:
    return [Action.STAKE_1 + stake - 1 for stake in stakes]


class _Staked(random.Random):
    """Chooses given stakes, then at random."""

    def __init__(self, stakes: list[int], rng: random.Random) -> None:
        super().__init__(rng.getrandbits(32))
        self.first = _staking(stakes)

    def choice(self, seq: Any) -> Any:
        return self.first.pop(0) if self.first else super().choice(seq)


@given(games(), rngs, st.sampled_from(DECLARATIONS))
@examples(100)
def test_a_declaration_nobody_makes_changes_nothing(
    game: Game, rng: random.Random, extra: str
) -> None:
    more = Game(
        game.num_players,
        {**game.rules.to_dict(), "declarations": [*game.rules.declarations, extra]},
        reward=game.reward,
    )
    hands, dealer = deal_some(rng, game), rng.randrange(game.num_players)
    state = game.new_state(0, hands=hands, dealer=dealer)
    other = more.new_state(0, hands=hands, dealer=dealer)
    while not state.is_terminal:
        legal = set(state.legal_actions())
        added = {Action[extra].value} if state.phase == Phase.DECLARE else set()
        assert set(other.legal_actions()) == legal | added
        action = rng.choice(state.legal_actions())
        state.apply(action)
        other.apply(action)
        assert (other.deal.phase, other.deal.seat) == (state.deal.phase, state.deal.seat)
        assert other.deal.exposed == state.deal.exposed
    assert other.returns() == state.returns()


# ---- the flow of a deal, by hand ------------------------------------------------------------


FOUR_HANDS = ["Kd 8c 9h 2s", "Qd 2c 5h 6s", "As 8s Kh 9s", "3d 3c Ac 5d"]


def test_seat_order_starts_left_of_the_dealer_in_every_phase() -> None:
    game = Game(4, RuleSet(max_stake=2))
    state = game.new_state(0, hands=FOUR_HANDS, dealer=2)
    actions = (
        "STAKE_1 STAKE_2 STAKE_1 SPLIT_0 SPLIT_0 SPLIT_0 SPLIT_0 COVER OPEN COVER"
        " PUSH BELIEVE FOLD LOOK"
    )
    seats = []
    for name in actions.split():
        seats.append(state.current_player)
        play(state, name)
    assert seats == [3, 0, 1, 2, 3, 0, 1, 3, 0, 1, 2, 0, 2, 2]
    assert state.is_terminal


def test_contests_come_by_declaration_then_by_seat() -> None:
    game = Game(7)
    rng = random.Random(5)
    hands = [["As Kd 7c 2h", "Ad Kc 7h 2s", "Ac Kh 7s 2d", "Qs Jd 9c 3h", "Qd Jc 9h 3s"], []]
    hands[1] = ["Qc Jh 9s 3d", "8d 6c 5h 4s"]
    state = game.new_state(0, hands=hands[0] + hands[1], dealer=0)
    play(state, " ".join(["SPLIT_0"] * 7))
    play(state, "FORCE ATTACK COVER OPEN REQUEST_PUSH OPEN")
    order = []
    while not state.is_terminal:
        if not order or order[-1] != state.deal.contest:
            order.append(state.deal.contest)
        state.apply(rng.choice(state.legal_actions()))
    assert order == [4, 6, 5, 3, 2, 1]


def test_every_decision_is_asked_also_with_one_legal_action() -> None:
    game = Game(2, RuleSet(declarations=("OPEN",)))
    state = game.new_state(0, hands=["As Kd 7c 2h", "Qs Qd 9c 3h"], dealer=0)
    play(state, "SPLIT_2 SPLIT_1")
    assert state.legal_actions() == (Action.OPEN,)
    shuiyu = game.new_state(0, hands=["As Ad 7c 7h", "Qs Qd 9c 3h"], dealer=0)
    assert shuiyu.legal_actions() == (Action.SPLIT_0,)
    supreme = game.new_state(0, hands=["As Ad Ac Ah", "Qs Qd 9c 3h"], dealer=0)
    assert supreme.legal_actions() == (0, 1, 2)


def test_illegal_actions_name_seat_phase_and_legal_actions_and_change_nothing() -> None:
    state = Game(3).new_state(3)
    with pytest.raises(
        IllegalActionError, match=r"illegal action 8 \(KILL\) for seat 0 in phase ARRANGE; legal: "
    ):
        state.apply(Action.KILL)
    before = state.clone()
    for action in (-1, 23, 99, 2**70, 1.0, True, "SPLIT_0", None, [0], Action.OPEN):
        with pytest.raises(IllegalActionError):
            state.apply(action)  # type: ignore[arg-type]
        assert state == before
        assert state.legal_actions() == before.legal_actions()
    play(state, "SPLIT_0 SPLIT_0 SPLIT_0 COVER COVER FOLD FOLD")
    with pytest.raises(IllegalActionError, match="the deal is over"):
        state.apply(0)
