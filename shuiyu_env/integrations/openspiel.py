"""Shuiyu as an OpenSpiel game, and policies carried over in both directions.

Importing this module registers the game ``python_shuiyu``. One deal is one game::

    pyspiel.load_game("python_shuiyu(players=3,rules=dahua)")
    load_game({"preset": "nanning", "deck": {"ranks": 2, "suits": 4}}, chance="hand")

Parameters of the game, all optional:

* ``rules``: a preset's name, or the JSON of a mapping that
  :meth:`RuleSet.from_dict <shuiyu_env.core.rules.RuleSet.from_dict>` takes, also with ``;`` for
  every comma, since a comma ends a parameter in OpenSpiel's text form. ``str(game)`` has them so.
* ``players``: seats, 2 to 13.
* ``reward``: ``transfer`` (zero-sum) or ``drinks`` (general-sum).
* ``dealer``: the dealer's seat.
* ``chance``: ``card`` deals card by card, each hand from its highest card down, so that a deal is
  one sequence of outcomes and a node has no more of them than the deck has cards; ``hand``
  deals four cards at once, which makes a small deck's tree smaller.

Everything else is the core's. With stakes, they are chosen before the cards are dealt. A seat
takes up its cards when all are dealt. Information states and observations are the same: the
tensor is the package's observation (:class:`~shuiyu_env.observation.Layout`), which has perfect
recall of a deal, the string says the same in words.
"""

from __future__ import annotations

__all__ = [
    "GAME_NAME",
    "OpenSpielPolicy",
    "ShuiyuGame",
    "ShuiyuState",
    "TabulatedPolicy",
    "load_game",
]

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

try:
    import pyspiel
    from open_spiel.python import policy as openspiel_policy
except ImportError as error:
    raise ImportError(
        f"shuiyu_env.integrations.openspiel needs OpenSpiel ({error}): pip install"
        ' "shuiyu_env[openspiel]"'
    ) from error

from shuiyu_env.core.actions import Action
from shuiyu_env.core.cards import HAND_SIZE, card_text
from shuiyu_env.core.checks import as_integer, check_choice
from shuiyu_env.core.contest import ContestTree, Node, Phase
from shuiyu_env.core.errors import DealError, PolicyError, RulesError, closest
from shuiyu_env.core.game import MAX_SEATS, Game
from shuiyu_env.core.hands import Hand
from shuiyu_env.core.play import NONE, Deal, Decided, RewardMode
from shuiyu_env.core.rules import PRESETS, RuleSet, resolve_rules
from shuiyu_env.core.view import View, view_of
from shuiyu_env.observation import layout_of
from shuiyu_env.policy import Policy, checked_probabilities

GAME_NAME = "python_shuiyu"

#: Most hands that a deck may have to be dealt by one chance node each.
MAX_HAND_OUTCOMES = 20_000

_DEFAULTS = {"rules": "nanning", "players": 2, "reward": "transfer", "dealer": 0, "chance": "card"}
_CHANCE = int(pyspiel.PlayerId.CHANCE)
_TERMINAL = int(pyspiel.PlayerId.TERMINAL)
_STAKE = int(Phase.STAKE)


def load_game(
    rules: str | RuleSet | Mapping[str, Any] = "nanning",
    num_players: int = 2,
    reward: RewardMode = "transfer",
    dealer: int = 0,
    chance: str = "card",
) -> Any:
    """Return the game as a :class:`ShuiyuGame`, a ``pyspiel.Game``.

    Args:
        rules: a preset's name, a rule set, or a mapping of its fields.
        num_players: seats, 2 to 13, as many as the deck can deal four cards to.
        reward: ``"transfer"`` (zero-sum) or ``"drinks"`` (general-sum).
        dealer: the dealer's seat.
        chance: ``"card"`` or ``"hand"``, what one chance node deals.

    Raises:
        RulesError: a parameter out of range.
    """
    parameters = {
        "rules": _rules_text(resolve_rules(rules)),
        "players": num_players,
        "reward": reward,
        "dealer": dealer,
        "chance": chance,
    }
    return pyspiel.load_game(GAME_NAME, _checked(parameters))


def _checked(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters, of the types that OpenSpiel expects; missing ones by default."""
    result = {**_DEFAULTS, **parameters}
    for name, value in parameters.items():
        if name not in _DEFAULTS:
            raise RulesError(
                f"unknown parameter {name!r}{closest(name, _DEFAULTS)}; parameters are"
                f" {', '.join(_DEFAULTS)}"
            )
        if isinstance(_DEFAULTS[name], int):
            result[name] = number = as_integer(value)
            if number is None:
                raise RulesError(f"{name}: expected a whole number, got {value!r}")
        elif not isinstance(value, str):
            raise RulesError(f"{name}: expected a word, got {value!r}")
    return result


def _rules_text(rules: RuleSet) -> str:
    """Return rules as a parameter that OpenSpiel's text form of a game can hold."""
    if rules.name is not None:
        return rules.name
    default = RuleSet().to_dict()
    changed = {name: value for name, value in rules.to_dict().items() if value != default[name]}
    return json.dumps(changed, separators=(";", ":"))


def _parse_rules(text: str) -> RuleSet:
    if not text.lstrip().startswith("{"):
        return resolve_rules(text)
    try:
        fields = json.loads(text.replace(";", ","))
    except json.JSONDecodeError as error:
        raise RulesError(
            f"rules: expected a preset ({', '.join(PRESETS)}) or the JSON of a rule set, got"
            f" {text!r}: {error}"
        ) from None
    return RuleSet.from_dict(fields)


class _Setup:
    """What all positions of a game share."""

    def __init__(self, core: Game, dealer: int, by_hand: bool) -> None:
        self.core = core
        self.dealer = dealer
        self.by_hand = by_hand
        self.deck = core.rules.deck.cards
        self.cards_to_deal = HAND_SIZE * core.num_players

    def __reduce__(self) -> tuple[Any, ...]:
        return _Setup, (self.core, self.dealer, self.by_hand)

    def root(self) -> _Position:
        """Return the beginning. Its hands stand in for those to be dealt; no view shows them."""
        hands = _hands(self.deck[: self.cards_to_deal])
        return _Position(self, (), Deal(self.core.table, hands, self.dealer))


def _hands(cards: tuple[int, ...]) -> list[Hand]:
    return [
        tuple(sorted(cards[i : i + HAND_SIZE], reverse=True))
        for i in range(0, len(cards), HAND_SIZE)
    ]


class _Position:
    """A point of the game tree. Immutable, so that copies of a state can share it.

    Attributes:
        setup: the game's.
        dealt: cards dealt so far, seat by seat.
        deal: the core's deal; with stand-in hands until all cards are dealt.
        player: the seat to act, or OpenSpiel's number for chance or the end.
    """

    __slots__ = ("deal", "dealt", "player", "setup")

    def __init__(self, setup: _Setup, dealt: tuple[int, ...], deal: Deal) -> None:
        self.setup = setup
        self.dealt = dealt
        self.deal = deal
        if deal.seat == NONE:
            self.player = _TERMINAL
        elif len(dealt) < setup.cards_to_deal and deal.phase != _STAKE:
            self.player = _CHANCE
        else:
            self.player = deal.seat

    def child(self, action: int) -> _Position:
        """Return the position that an action or a chance outcome leads to.

        Raises:
            IllegalActionError: the seat to act may not do that.
            DealError: there is no such outcome.
        """
        setup = self.setup
        if self.player != _CHANCE:
            deal = self.deal.clone()
            deal.apply(action)
            return _Position(setup, self.dealt, deal)
        dealt = self.dealt + self.cards_of(action)
        if len(dealt) < setup.cards_to_deal:
            return _Position(setup, dealt, self.deal)
        deal = Deal(setup.core.table, _hands(dealt), setup.dealer)
        for stake in self.deal.actions:
            deal.apply(stake)
        return _Position(setup, dealt, deal)

    def _left(self) -> tuple[list[int], int]:
        """Return the cards, ascending, that this seat may still get, and how many it will."""
        dealt = self.dealt
        to_come = HAND_SIZE - len(dealt) % HAND_SIZE
        top = dealt[-1] if to_come < HAND_SIZE else self.setup.deck[-1] + 1
        return [card for card in self.setup.deck if card < top and card not in dealt], to_come

    def cards_of(self, outcome: int) -> tuple[int, ...]:
        """Return the cards that a chance outcome deals.

        Raises:
            DealError: there is no such outcome.
        """
        left, to_come = self._left()
        if self.setup.by_hand:
            choices = _choices(len(left))
            if 0 <= outcome < len(choices):
                return tuple(left[i] for i in choices[outcome])
        elif 0 <= outcome < len(self.setup.deck):
            card = self.setup.deck[outcome]
            if card in left[to_come - 1 :]:
                return (card,)
        raise DealError(f"no chance outcome {outcome} here; chance_outcomes() has them")

    def outcomes(self) -> list[tuple[int, float]]:
        """Return the chance outcomes and their probabilities.

        By card, an outcome is the card's place in the deck; by hand, a number
        among the hands that can be made of the cards left.
        """
        left, to_come = self._left()
        size = len(left)
        if self.setup.by_hand:
            number = comb(size, HAND_SIZE)
            return [(i, 1 / number) for i in range(number)]
        place = self.setup.deck.index
        # The next card is the highest of those to come: the others lie below it.
        hands = comb(size, to_come)
        return [(place(left[i]), comb(i, to_come - 1) / hands) for i in range(to_come - 1, size)]

    def view(self, seat: int | None) -> View:
        """Return what a seat may see."""
        view = view_of(self.deal, seat)
        if self.player == _CHANCE:
            view.hands = [None] * len(view.hands)
        return view

    def __deepcopy__(self, memo: dict[int, Any]) -> _Position:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.setup, self.dealt, tuple(self.deal.actions))

    def __str__(self) -> str:
        hands = [
            " ".join(map(card_text, self.dealt[i : i + HAND_SIZE]))
            for i in range(0, len(self.dealt), HAND_SIZE)
        ]
        turns = [
            f"{seat}:{Action(action).name}"
            for seat, action in zip(self.deal.seats, self.deal.actions, strict=True)
        ]
        return f"dealer {self.setup.dealer} | {', '.join(hands)} | {' '.join(turns)}"


def _restore(setup: _Setup, dealt: tuple[int, ...], actions: tuple[int, ...]) -> _Position:
    deal = setup.root().deal
    if len(dealt) == setup.cards_to_deal:
        deal = Deal(setup.core.table, _hands(dealt), setup.dealer)
    for action in actions:
        deal.apply(action)
    return _Position(setup, dealt, deal)


@lru_cache(maxsize=8)
def _choices(size: int) -> tuple[tuple[int, ...], ...]:
    """Return all ways to choose a hand from so many cards, highest first."""
    return tuple(choice[::-1] for choice in combinations(range(size), HAND_SIZE))


class ShuiyuGame(pyspiel.Game):  # type: ignore[misc]
    """The game. Made by :func:`load_game` or ``pyspiel.load_game("python_shuiyu", {...})``.

    Attributes:
        core: the same game in this package, :class:`~shuiyu_env.core.game.Game`.
        dealer: the dealer's seat.

    Raises:
        RulesError: a parameter out of range.
    """

    def __init__(self, params: Mapping[str, Any] | None = None) -> None:
        given = _checked(params or {})
        core = Game(given["players"], _parse_rules(given["rules"]), reward=given["reward"])
        dealer: int = given["dealer"]
        if not 0 <= dealer < core.num_players:
            raise RulesError(
                f"dealer: expected a seat from 0 to {core.num_players - 1}, got {dealer}"
            )
        by_hand = check_choice("chance", given["chance"], ("card", "hand")) == "hand"
        deck = core.rules.deck
        hands = comb(deck.size, HAND_SIZE)
        if by_hand and hands > MAX_HAND_OUTCOMES:
            raise RulesError(
                f"chance: a deck of {deck.size} cards has {hands:,} hands, too many for one chance"
                f" node (at most {MAX_HAND_OUTCOMES:,}); use 'card'"
            )
        self.core = core
        self.dealer = dealer
        self._chance_nodes = core.num_players * (1 if by_hand else HAND_SIZE)
        self._root = _Setup(core, dealer, by_hand).root()
        low, high = _utilities(core)
        zero_sum = core.reward == "transfer"
        info = pyspiel.GameInfo(
            num_distinct_actions=core.num_actions,
            max_chance_outcomes=hands if by_hand else deck.size,
            num_players=core.num_players,
            min_utility=low,
            max_utility=high,
            utility_sum=0.0 if zero_sum else None,
            max_game_length=_most_decisions(core),
        )
        # A text form cannot hold plain JSON, so rules are always kept in the form that can.
        super().__init__(_game_type(zero_sum), info, {**given, "rules": _rules_text(core.rules)})

    # What pyspiel would pickle comes back without the attributes; and a new process must first
    # import this module, to know the game.
    def __reduce__(self) -> tuple[Any, ...]:
        return _from_text, (str(self),)

    def new_initial_state(self) -> ShuiyuState:
        """Return the beginning: the first stake, or the first card."""
        return ShuiyuState(self)

    def max_chance_nodes_in_history(self) -> int:
        """Return how many chance nodes deal the cards."""
        return self._chance_nodes

    def make_py_observer(
        self, iig_obs_type: Any = None, params: Mapping[str, Any] | None = None
    ) -> _Observer | None:
        """Return an observer of what one seat sees, or of the whole table (all players' private
        information); ``None`` for other types of observation, as OpenSpiel expects.

        Raises:
            ValueError: there are observation parameters.
        """
        if params:
            raise ValueError(f"expected no observation parameters, got {params!r}")
        kinds = pyspiel.PrivateInfoType
        private = kinds.SINGLE_PLAYER
        if iig_obs_type is not None:
            private = iig_obs_type.private_info
            if not iig_obs_type.public_info or private == kinds.NONE:
                return None
        return _Observer(self.core, everything=private == kinds.ALL_PLAYERS)


def _from_text(text: str) -> Any:
    return pyspiel.load_game(text)


def _game_type(zero_sum: bool) -> Any:
    kinds = pyspiel.GameType
    return kinds(
        short_name=GAME_NAME,
        long_name="Python Shuiyu",
        dynamics=kinds.Dynamics.SEQUENTIAL,
        chance_mode=kinds.ChanceMode.EXPLICIT_STOCHASTIC,
        information=kinds.Information.IMPERFECT_INFORMATION,
        utility=kinds.Utility.ZERO_SUM if zero_sum else kinds.Utility.GENERAL_SUM,
        reward_model=kinds.RewardModel.TERMINAL,
        max_num_players=MAX_SEATS,
        min_num_players=2,
        provides_information_state_string=True,
        provides_information_state_tensor=True,
        provides_observation_string=True,
        provides_observation_tensor=True,
        parameter_specification=_DEFAULTS,
    )


def _utilities(game: Game) -> tuple[float, float]:
    """Return bounds of a seat's returns."""
    tree = game.tree
    rows = [node.payoffs for node in tree.nodes]
    rows += [payoffs for row in tree.special_payoffs for payoffs in row]
    units = [unit for payoffs in rows if payoffs is not None for unit in payoffs]
    least, most, punters = min(units), max(units), game.num_players - 1
    stake = game.rules.max_stake
    low = min(least, -most * punters)
    high = max(most, -least * punters) if game.reward == "transfer" else 0
    return float(low * stake), float(high * stake)


def _most_decisions(game: Game) -> int:
    def depth(tree: ContestTree, node: Node) -> int:
        if node.is_leaf:
            return 0
        return 1 + max(depth(tree, tree.nodes[child]) for child in node.children.values())

    punters = game.num_players - 1
    stakes = punters if game.rules.max_stake > 1 else 0
    return stakes + game.num_players + punters * depth(game.tree, game.tree.root)


class ShuiyuState(pyspiel.State):  # type: ignore[misc]
    """A state; made by :meth:`ShuiyuGame.new_initial_state`. The methods are OpenSpiel's."""

    def __init__(self, game: ShuiyuGame) -> None:
        super().__init__(game)
        # The only attribute: OpenSpiel copies them one by one whenever it clones.
        self._at = game._root

    @property
    def deal(self) -> Deal:
        """The core's deal, open; do not change it. Before the cards are dealt, its hands mean
        nothing."""
        return self._at.deal

    def view(self, seat: int | None) -> View:
        """Return what ``seat`` may see, or with ``None`` the whole table."""
        return self._at.view(seat)

    def current_player(self) -> int:
        return self._at.player

    def is_terminal(self) -> bool:
        return self._at.player == _TERMINAL

    def _legal_actions(self, player: int) -> list[int]:
        return list(self._at.deal.legal)

    def chance_outcomes(self) -> list[tuple[int, float]]:
        return self._at.outcomes()

    def _apply_action(self, action: int) -> None:
        self._at = self._at.child(action)

    def _action_to_string(self, player: int, action: int) -> str:
        if player != _CHANCE:
            return Action(action).name
        seat = len(self._at.dealt) // HAND_SIZE
        return f"{seat} gets {' '.join(map(card_text, self._at.cards_of(action)))}"

    def returns(self) -> list[float]:
        return self._at.deal.rewards[:]

    def __str__(self) -> str:
        return str(self._at)


class _Observer:
    """OpenSpiel's observer protocol: ``tensor``, ``dict`` and text of one state at a time.

    The pieces in ``dict`` share memory with ``tensor`` and, laid end to end, are it: one's own
    fields by name, then ``seats``, a row for each seat in table order from oneself.
    """

    def __init__(self, game: Game, everything: bool) -> None:
        self._layout = layout = layout_of(game)
        self._everything = everything
        self.tensor = np.zeros(layout.size, dtype=np.float32)
        views = layout.views(self.tensor)
        self.dict = {field.name: views[field.name] for field in layout.fields if not field.per_seat}
        self.dict["seats"] = self.tensor[layout.seats_start :].reshape(game.num_players, -1)

    def set_from(self, state: ShuiyuState, player: int) -> None:
        view = state.view(None if self._everything else player)
        self.tensor[:] = self._layout.encode(view)

    def string_from(self, state: ShuiyuState, player: int) -> str:
        return _text(state.view(None if self._everything else player))


_ACTION_NAMES = [action.name for action in Action]
_PHASE_NAMES = [phase.name for phase in Phase]
_DECIDED_NAMES = [decided.name for decided in Decided]


@lru_cache(maxsize=4096)
def _hand_text(hand: Hand) -> str:
    return "".join(map(card_text, hand))


def _text(view: View) -> str:
    """Return what a view shows, all of it, in a few words for each seat."""
    names = _ACTION_NAMES
    me, dealer = view.seat, view.dealer
    parts = [f"{'all' if me is None else me} {_PHASE_NAMES[view.phase]}"]
    if view.to_act != NONE:
        parts.append(f"by {view.to_act}")
    if view.contest != NONE:
        parts.append(f"with {view.contest}")
    staked = bool(view.table.stake_actions)
    for seat, hand in enumerate(view.hands):
        parts.append(f"| {seat}*" if seat == dealer else f"| {seat}")
        if hand is not None:
            parts.append(_hand_text(hand))
            if view.splits[seat] != NONE:
                parts.append(names[view.splits[seat]])
            if view.exposed[seat]:
                parts.append("SHOWN")
        if seat == dealer:
            continue
        if staked and view.stakes[seat] != NONE:
            parts.append(f"STAKE_{view.stakes[seat]}")
        parts += [
            names[action]
            for action in (
                view.declarations[seat],
                view.calls[seat],
                view.replies[seat],
                view.force_splits[seat],
            )
            if action != NONE
        ]
        if view.decided[seat]:
            parts.append(_DECIDED_NAMES[view.decided[seat]])
    return " ".join(parts)


class OpenSpielPolicy(openspiel_policy.Policy):  # type: ignore[misc]
    """One of this package's policies as an OpenSpiel policy, for all seats.

    An information state is asked for once and its answer kept. ``to_tabular()``, which OpenSpiel
    provides, asks for all of them.

    Args:
        game: the game.
        policy: anything with ``probabilities(observation, action_mask)``.
        name: how an error message names the policy.
    """

    def __init__(self, game: ShuiyuGame, policy: Policy, name: str = "policy") -> None:
        super().__init__(game, list(range(game.num_players())))
        self._policy = policy
        self._name = name
        self._known: dict[str, dict[int, float]] = {}

    def action_probabilities(
        self, state: ShuiyuState, player_id: int | None = None
    ) -> dict[int, float]:
        """Return the probability of each legal action of the seat to act.

        Raises:
            PolicyError: the policy's answer is unusable; the message names the policy.
        """
        seat = state.current_player() if player_id is None else player_id
        key = state.information_state_string(seat)
        if key not in self._known:
            legal = state.legal_actions(seat)
            mask = np.zeros((1, state.num_distinct_actions()), dtype=np.int8)
            mask[0, legal] = 1
            observation = np.array(state.information_state_tensor(seat), dtype=np.float32)[None]
            answer = checked_probabilities(self._policy, observation, mask, self._name, [seat])
            self._known[key] = {action: float(answer[0, action]) for action in legal}
        return dict(self._known[key])


class TabulatedPolicy:
    """An OpenSpiel policy as a policy of this package; for games small enough to enumerate.

    It knows the observations of one game, for its rules and number of seats, and as its dealer
    sits: other seats may deal in matches, since observations are counted from oneself.

    Args:
        game: the game.
        policy: an OpenSpiel policy for all its seats.
    """

    def __init__(self, game: ShuiyuGame, policy: Any) -> None:
        self._rows: dict[bytes, npt.NDArray[np.float64]] = {}
        for state in _decisions(game.new_initial_state()):
            observation = np.array(state.information_state_tensor(), dtype=np.float32)
            key = observation.tobytes()
            if key not in self._rows:
                row = np.zeros(game.num_distinct_actions())
                for action, probability in policy.action_probabilities(state).items():
                    row[action] = probability
                self._rows[key] = row

    def __len__(self) -> int:
        return len(self._rows)

    def probabilities(
        self, observation: npt.NDArray[np.float32], action_mask: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64]:
        """Return the probabilities ``float64[B, A]`` of observations ``float32[B, D]``.

        Raises:
            PolicyError: an observation that does not occur in the game.
        """
        rows = []
        for number, seen in enumerate(np.asarray(observation, dtype=np.float32)):
            row = self._rows.get(seen.tobytes())
            if row is None:
                raise PolicyError(
                    f"row {number}: no decision of the game that this policy was tabulated for"
                    " has this observation; are rules and number of seats the same?"
                )
            rows.append(row)
        return np.array(rows).reshape(len(rows), action_mask.shape[-1])


def _decisions(state: ShuiyuState) -> Iterator[ShuiyuState]:
    """Yield every state of a game tree in which a seat acts."""
    if state.is_terminal():
        return
    if not state.is_chance_node():
        yield state
    for action in state.legal_actions():
        yield from _decisions(state.child(action))


# Importing twice, as a reload does, must leave one game of the name.
if GAME_NAME not in pyspiel.registered_names():
    pyspiel.register_game(_game_type(zero_sum=True), ShuiyuGame)
