"""Games and states: sessions of several deals, records and replay (rules, section "Sessions")."""

from __future__ import annotations

__all__ = ["MAX_SEATS", "Game", "State", "Turn"]

import secrets
from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal, NamedTuple, cast, get_args

from shuiyu_env.core import deals
from shuiyu_env.core.actions import Action, num_actions, parse_action
from shuiyu_env.core.cards import card_text, parse_hand
from shuiyu_env.core.checks import as_integer, check_choice
from shuiyu_env.core.contest import ContestTree, Phase
from shuiyu_env.core.errors import (
    DealError,
    RecordError,
    RulesError,
    ShuiyuError,
)
from shuiyu_env.core.hands import Hand
from shuiyu_env.core.play import NONE, Deal, RewardMode, Table
from shuiyu_env.core.rules import RuleSet, resolve_rules
from shuiyu_env.core.view import View, view_of

DealerRotation = Literal["fixed", "rotate", "random"]

MAX_SEATS = 13

#: More rounds than anybody plays; they are counted in 64 bits.
MAX_ROUNDS = 10**12
RECORD_FORMAT = "shuiyu-record"
RECORD_VERSION = 1


class Turn(NamedTuple):
    """One action of a history."""

    deal: int
    seat: int
    action: Action | None  #: ``None`` where the reader of the history may not know it


class Game:
    """The settings of a table. Immutable; makes states.

    Args:
        num_players: seats, 2 to 13, as many as the deck can deal four cards to. Two
            by default, the game that can be studied exactly; the environment's
            default is four, as the game is usually played.
        rules: a preset's name, a :class:`RuleSet` or a mapping of its fields.
        rounds: deals in an episode, at least 1.
        dealer_rotation: ``"fixed"``, ``"rotate"`` (deal i by the i-th seat
            after the first dealer) or ``"random"`` (drawn each deal).
        reward: ``"transfer"`` (zero-sum) or ``"drinks"`` (only losers are charged).

    Raises:
        RulesError: a setting out of range.
    """

    def __init__(
        self,
        num_players: int = 2,
        rules: str | RuleSet | Mapping[str, Any] = "nanning",
        rounds: int = 1,
        dealer_rotation: DealerRotation = "fixed",
        reward: RewardMode = "transfer",
    ) -> None:
        self.rules = resolve_rules(rules)
        self.num_players = _whole_number("num_players", num_players, 2, MAX_SEATS)
        if self.num_players > self.rules.deck.max_seats:
            deck = self.rules.deck
            raise RulesError(
                f"num_players: a deck of {deck.ranks} ranks and {deck.suits} suits seats at most"
                f" {deck.max_seats}, got {num_players}"
            )
        self.rounds = _whole_number("rounds", rounds, 1, MAX_ROUNDS)
        self.dealer_rotation = check_choice(
            "dealer_rotation", dealer_rotation, get_args(DealerRotation)
        )
        self.reward = cast(RewardMode, check_choice("reward", reward, get_args(RewardMode)))
        self.table = Table(self.num_players, self.rules, self.reward)
        self.num_actions = num_actions(self.rules.max_stake)

    @property
    def tree(self) -> ContestTree:
        """The compiled contest tree of the rules."""
        return self.table.tree

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain values."""
        return {
            "num_players": self.num_players,
            "rules": self.rules.to_dict(),
            "rounds": self.rounds,
            "dealer_rotation": self.dealer_rotation,
            "reward": self.reward,
        }

    def new_state(
        self,
        seed: int | None = None,
        hands: Sequence[str | Sequence[int | str]] | None = None,
        dealer: int | None = None,
        *,
        stream: int = 0,
        index: int = 0,
    ) -> State:
        """Begin an episode.

        Args:
            seed: seed of the deals, an integer; drawn from the system if ``None``.
            hands: the first deal's hands instead, one per seat, each
                ``"As Kd 7c 2h"`` or four card texts or codes.
            dealer: the first deal's dealer instead of seat 0 (or, under random
                rotation, instead of a drawn one).
            stream: which stream of the seed.
            index: the first deal's number in the stream; later deals follow.

        Raises:
            DealError: hands, dealer, seed, stream or index that cannot be dealt.
            CardError: a text or code that is no card.
        """
        seed = secrets.randbits(63) if seed is None else _integer("seed", seed)
        stream = _integer("stream", stream)
        index = _integer("index", index)
        if index < 0:
            raise DealError(f"index: expected 0 or more, got {index}")
        first = None if hands is None else self._check_hands(hands)
        if dealer is not None:
            dealer = _integer("dealer", dealer)
            if not 0 <= dealer < self.num_players:
                raise DealError(
                    f"dealer: expected a seat from 0 to {self.num_players - 1}, got {dealer}"
                )
        return State(self, seed, stream, index, first, dealer)

    def _check_hands(self, hands: Sequence[Any]) -> list[Hand]:
        # A set or a mapping has no order of seats.
        if isinstance(hands, (str, bytes, Set, Mapping)) or not hasattr(hands, "__len__"):
            raise DealError(f"hands: expected a list of one hand per seat, got {hands!r}")
        if len(hands) != self.num_players:
            raise DealError(
                f"hands: expected {self.num_players} hands, one per seat, got {len(hands)}"
            )
        parsed = [parse_hand(hand, f"hands[{seat}]") for seat, hand in enumerate(hands)]
        deck = set(self.rules.deck.cards)
        owner: dict[int, int] = {}
        for seat, hand in enumerate(parsed):
            for card in hand:
                if card not in deck:
                    raise DealError(
                        f"hands[{seat}]: {card_text(card)} is not in a deck of"
                        f" {self.rules.deck.ranks} ranks and {self.rules.deck.suits} suits"
                    )
                if card in owner:
                    raise DealError(
                        f"hands[{seat}]: {card_text(card)} is already in hands[{owner[card]}]"
                    )
                owner[card] = seat
        return parsed

    @staticmethod
    def replay(record: Mapping[str, Any]) -> State:
        """Rebuild a state from :meth:`State.to_record`'s output and check it.

        Raises:
            RecordError: the record is malformed, an action in it is illegal, or
                its returns are not what the actions give.
        """
        return _replay(record)

    def __repr__(self) -> str:
        preset = self.rules.name or repr(self.rules)
        return (
            f"Game(num_players={self.num_players}, rules={preset!r}, rounds={self.rounds},"
            f" dealer_rotation={self.dealer_rotation!r}, reward={self.reward!r})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Game) and self.settings() == other.settings()

    def __hash__(self) -> int:
        return hash((self.num_players, self.rules, self.rounds, self.dealer_rotation, self.reward))

    # Immutable: a copy of a state shares its game, and a pickle rebuilds it from its settings.
    def __deepcopy__(self, memo: dict[int, Any]) -> Game:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Game, (
            self.num_players,
            self.rules,
            self.rounds,
            self.dealer_rotation,
            self.reward,
        )


class State:
    """An episode in progress. Made by :meth:`Game.new_state`.

    Attributes:
        game: its settings.
        seed, stream, index: where its deals come from (``index``: of the first).
        given_hands, given_dealer: what the first deal was set to, or ``None``.
        deal: the deal being played, or the last one when the episode is over.
        finished: the deals settled so far.
    """

    __slots__ = (
        "deal",
        "finished",
        "game",
        "given_dealer",
        "given_hands",
        "index",
        "seed",
        "stream",
    )

    def __init__(
        self,
        game: Game,
        seed: int,
        stream: int,
        index: int,
        hands: list[Hand] | None,
        dealer: int | None,
    ) -> None:
        self.game = game
        self.seed = seed
        self.stream = stream
        self.index = index
        self.given_hands = hands
        self.given_dealer = dealer
        self.finished: list[Deal] = []
        self.deal = self._new_deal(0)

    def _new_deal(self, number: int) -> Deal:
        game = self.game
        index = self.index + number
        if number == 0 and self.given_hands is not None:
            hands: Sequence[Hand] = self.given_hands
        else:
            hands = deals.deal_hands(
                game.rules.deck, game.num_players, self.seed, self.stream, index
            )
        if game.dealer_rotation == "fixed":
            dealer = self.given_dealer or 0
        elif game.dealer_rotation == "rotate":
            dealer = ((self.given_dealer or 0) + number) % game.num_players
        elif number == 0 and self.given_dealer is not None:
            dealer = self.given_dealer
        else:
            dealer = deals.draw_dealer(game.num_players, self.seed, self.stream, index)
        return Deal(game.table, hands, dealer)

    @property
    def is_terminal(self) -> bool:
        """Whether all deals of the episode are settled."""
        return len(self.finished) == self.game.rounds

    @property
    def current_player(self) -> int | None:
        """The seat to act; ``None`` when the episode is over."""
        seat = self.deal.seat
        return None if seat == NONE else seat

    @property
    def phase(self) -> Phase:
        """What is decided next; ``OVER`` when the episode is."""
        return Phase(self.deal.phase)

    def legal_actions(self) -> tuple[int, ...]:
        """Return the ids of the legal actions of the seat to act, ascending; empty at the end."""
        return self.deal.legal

    def apply(self, action: int) -> None:
        """Take an action for the seat to act. The next deal of the episode begins by itself.

        Raises:
            IllegalActionError: not legal; names seat, phase and the legal actions.
        """
        deal = self.deal
        deal.apply(action)
        if deal.seat == NONE:
            self.finished.append(deal)
            if len(self.finished) < self.game.rounds:
                self.deal = self._new_deal(len(self.finished))

    def undo(self) -> None:
        """Take the last action back.

        Raises:
            IndexError: there is none.
        """
        if self.finished and (self.is_terminal or not self.deal.actions):
            # Settled deals may be shared with clones, so a copy is taken back.
            self.deal = self.finished.pop().clone()
        if not self.deal.actions:
            raise IndexError("undo: no action has been taken in this episode")
        self.deal.undo()

    def rewards(self) -> list[float]:
        """Return what the last action paid each seat: a deal's rewards if it settled one."""
        if self.finished and (self.is_terminal or not self.deal.actions):
            return self.finished[-1].rewards[:]
        return [0.0] * self.game.num_players

    def returns(self) -> list[float]:
        """Return the units each seat has won so far, over all settled deals."""
        totals = [0.0] * self.game.num_players
        for deal in self.finished:
            for seat, reward in enumerate(deal.rewards):
                totals[seat] += reward
        return totals

    def view(self, seat: int | None) -> View:
        """Return what ``seat`` may see of the current deal (``None``: the whole table)."""
        return view_of(self.deal, seat)

    @property
    def history(self) -> list[Turn]:
        """Everything that was done, in order: ``(deal, seat, action)``. For one seat's eyes, see
        :meth:`observed_history`."""
        return [
            Turn(number, seat, Action(action))
            for number, deal in enumerate(self._all_deals())
            for seat, action in zip(deal.seats, deal.actions, strict=True)
        ]

    def observed_history(self, seat: int) -> list[Turn]:
        """Return the history as ``seat`` may know it: who acted, and the actions it could see.

        Raises:
            DealError: there is no such seat.
        """
        turns = []
        for number, deal in enumerate(self._all_deals()):
            seen = view_of(deal, seat)
            for actor, action, known in _with_knowledge(deal, seen):
                turns.append(Turn(number, actor, Action(action) if known else None))
        return turns

    def _all_deals(self) -> list[Deal]:
        return self.finished if self.is_terminal else [*self.finished, self.deal]

    def clone(self) -> State:
        """Return an independent copy."""
        copy: State = object.__new__(State)
        for name in State.__slots__:
            setattr(copy, name, getattr(self, name))
        copy.finished = self.finished[:]
        copy.deal = self.deal.clone()
        return copy

    __copy__ = clone

    def __deepcopy__(self, memo: dict[int, Any]) -> State:
        return self.clone()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        return (
            self.game == other.game
            and self._all_deals() == other._all_deals()
            and self._deals_to_come() == other._deals_to_come()
        )

    def _deals_to_come(self) -> tuple[int, int, int] | None:
        """Return where the next deals come from, ``None`` if there will be none."""
        if len(self.finished) + 1 >= self.game.rounds:
            return None
        return self.seed, self.stream, self.index

    __hash__ = None  # type: ignore[assignment]

    def to_record(self) -> dict[str, Any]:
        """Return the episode so far as plain JSON values: rules, deals, actions by name, returns.

        The record shows everything, also hidden cards and the seed.
        """
        return {
            "format": RECORD_FORMAT,
            "version": RECORD_VERSION,
            **self.game.settings(),
            "seed": self.seed,
            "stream": self.stream,
            "index": self.index,
            "deals": [
                {
                    "dealer": deal.dealer,
                    "hands": [" ".join(map(card_text, hand)) for hand in deal.hands],
                    "actions": [Action(action).name for action in deal.actions],
                }
                for deal in self._all_deals()
            ],
            "returns": self.returns(),
        }

    def __repr__(self) -> str:
        who = "over" if self.is_terminal else f"seat {self.current_player}, {self.phase.name}"
        return f"State({self.game!r}, deal {len(self.finished)} of {self.game.rounds}: {who})"


def _with_knowledge(deal: Deal, seen: View) -> list[tuple[int, int, bool]]:
    """Return ``(seat, action, whether the viewer knows the action)`` of each turn of a deal."""
    replayed = Deal(deal.table, deal.hands, deal.dealer)
    result = []
    for action in deal.actions:
        seat, phase, contest = replayed.seat, replayed.phase, replayed.contest
        known = seat == seen.seat
        if phase == Phase.ARRANGE:
            known = known or seen.splits[seat] != NONE
        elif phase == Phase.DECLARE:
            known = known or seen.declarations[seat] != NONE
        elif phase == Phase.REARRANGE:
            known = known or seen.force_splits[contest] != NONE
        else:
            known = True
        result.append((seat, action, known))
        replayed.apply(action)
    return result


def _replay(record: Mapping[str, Any]) -> State:
    if not isinstance(record, Mapping):
        raise RecordError(f"expected a record (a mapping), got {type(record).__name__}")
    keys = ("format", "version", "num_players", "rules", "rounds", "dealer_rotation", "reward")
    for key in (*keys, "seed", "stream", "index", "deals", "returns"):
        if key not in record:
            raise RecordError(f"the record has no {key!r}")
    if record["format"] != RECORD_FORMAT or record["version"] != RECORD_VERSION:
        raise RecordError(
            f"expected a {RECORD_FORMAT} of version {RECORD_VERSION}, got"
            f" {record['format']!r} of version {record['version']!r}"
        )
    if record["seed"] is None:
        raise RecordError("seed: expected an integer, got null")
    played = record["deals"]
    if not isinstance(played, Sequence) or isinstance(played, str) or not played:
        raise RecordError(f"deals: expected a list of at least one deal, got {played!r}")
    try:
        game = Game(**{key: record[key] for key in keys[2:]})
        if len(played) > game.rounds:
            raise RecordError(f"deals: expected at most {game.rounds} (rounds), got {len(played)}")
        state: State | None = None
        for number, entry in enumerate(played):
            if not isinstance(entry, Mapping) or not {"dealer", "hands", "actions"} <= set(entry):
                raise RecordError(f"deals[{number}]: expected dealer, hands and actions")
            # A new state would choose what is missing.
            if entry["dealer"] is None or entry["hands"] is None:
                raise RecordError(f"deals[{number}]: expected a dealer and hands, got null")
            names = entry["actions"]
            if not isinstance(names, Sequence) or isinstance(names, str):
                raise RecordError(
                    f"deals[{number}]: expected a list of the names of actions, got {names!r}"
                )
            start = game.new_state(
                record["seed"],
                entry["hands"],
                entry["dealer"],
                stream=record["stream"],
                index=record["index"],
            )
            if state is None:
                state = start
            elif state.is_terminal or state.deal.actions:
                raise RecordError(f"deals[{number}]: the deal before it is not finished")
            elif state.deal != start.deal:
                raise RecordError(
                    f"deals[{number}]: hands or dealer are not those that follow from seed, first"
                    " deal and rotation"
                )
            for name in names:
                if len(state.finished) != number:
                    raise RecordError(f"deals[{number}]: {name!r} comes after the deal's end")
                state.apply(parse_action(name))
    except RecordError:
        raise
    except (ShuiyuError, TypeError) as error:
        raise RecordError(f"the record does not replay: {error}") from error
    assert state is not None
    returns = record["returns"]
    if not isinstance(returns, Sequence) or list(returns) != state.returns():
        raise RecordError(
            f"returns: the record says {returns!r}, its actions give {state.returns()!r}"
        )
    return state


def _integer(name: str, value: object) -> int:
    number = as_integer(value)
    if number is None:
        raise DealError(f"{name}: expected an integer, got {value!r}")
    return number


def _whole_number(name: str, value: object, low: int, high: int) -> int:
    number = as_integer(value)
    if number is None or not low <= number <= high:
        raise RulesError(f"{name}: expected a whole number from {low} to {high}, got {value!r}")
    return number
