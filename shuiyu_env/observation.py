"""The observation: one declared list of named fields, encoded and viewed back.

A :class:`Layout` declares the fields of a seat's observation and where they
lie in the vector; it depends only on the number of seats and the size of the
action space. :meth:`Layout.encode` writes one view, :meth:`Layout.encode_many`
many at once from a :class:`ViewBatch`, and :meth:`Layout.views` gives the
fields back by name, sharing memory with the vector.
"""

from __future__ import annotations

__all__ = [
    "CALLS",
    "LAYOUT_VERSION",
    "REPLIES",
    "Field",
    "Layout",
    "Offsets",
    "ViewBatch",
    "infer_layout",
    "layout_of",
]

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.actions import MAX_STAKE, NUM_BASE_ACTIONS, Action, num_actions
from shuiyu_env.core.cards import NUM_CARDS
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import ShuiyuError
from shuiyu_env.core.game import MAX_SEATS, Game
from shuiyu_env.core.hands import NUM_SPLITS, compare
from shuiyu_env.core.play import NONE, Decided
from shuiyu_env.core.rules import DECLARATIONS
from shuiyu_env.core.view import View
from shuiyu_env.tables import OUTCOMES, HandTable

FloatArray = npt.NDArray[np.float32]

#: Raised whenever the meaning of any number in the vector changes.
LAYOUT_VERSION = 1

#: The dealer's calls and the punter's replies, in the order of their flags.
CALLS: tuple[Action, ...] = tuple(Action(a) for a in range(Action.KILL, Action.REFUSE + 1))
REPLIES: tuple[Action, ...] = tuple(Action(a) for a in range(Action.BELIEVE, Action.CONCEDE + 1))

# The sizes that an action space can have.
_ACTION_SPACES = tuple(num_actions(stake) for stake in range(1, MAX_STAKE + 1))

_FIRST_DECLARATION = int(Action.OPEN)
_FIRST_CALL = int(CALLS[0])
_FIRST_REPLY = int(REPLIES[0])


@dataclass(frozen=True)
class Field:
    """One named part of the observation.

    Attributes:
        name: the name, as :meth:`Layout.views` has it.
        shape: shape of the field (of one seat's, if ``per_seat``).
        meaning: what its numbers say; the documentation's table is made from it.
        per_seat: whether there is one for every seat, in table order counted
            from oneself (oneself first).
    """

    name: str
    shape: tuple[int, ...]
    meaning: str
    per_seat: bool = False

    @property
    def size(self) -> int:
        """Numbers in the field (of one seat's, if ``per_seat``)."""
        return int(np.prod(self.shape))


def _names(items: Sequence[Any]) -> str:
    return ", ".join(f"`{item.name if hasattr(item, 'name') else item}`" for item in items)


def _declare(stakes: int) -> tuple[Field, ...]:
    """Return all fields in the order of the vector: first one's own, then each seat's."""
    own = (
        Field("phase", (len(Phase),), f"what is decided now, one-hot: {_names(list(Phase))}"),
        Field("role", (2,), "own role, one-hot: dealer, punter"),
        Field("hand", (NUM_CARDS,), "own cards by card code; zeros before the last stake"),
        Field("split", (NUM_SPLITS,), "own committed split, one-hot; zeros before it is chosen"),
        Field(
            "strengths",
            (NUM_SPLITS, 2),
            "tail and head strength of each of one's own splits, scaled to [0, 1]; a split that"
            " a Shuiyu may not be laid in counts as its split 0",
        ),
    )
    seats = (
        Field("dealer", (1,), "this seat deals"),
        Field("to_act", (1,), "it is this seat's turn"),
        Field("contested", (1,), "this punter's contest is being decided"),
        Field("stake", (stakes,), "stake chosen, one-hot from 1 up; only with stakes"),
        Field(
            "declaration",
            (len(DECLARATIONS),),
            f"declaration, one-hot: {_names(DECLARATIONS)}; zeros while it is hidden",
        ),
        Field("call", (len(CALLS),), f"dealer's call in this contest, one-hot: {_names(CALLS)}"),
        Field("reply", (len(REPLIES),), f"this punter's reply, one-hot: {_names(REPLIES)}"),
        Field(
            "decided",
            (len(Decided) - 1,),
            f"how this contest was decided, one-hot: {_names(list(Decided)[1:])}; zeros before",
        ),
        Field(
            "force_split",
            (NUM_SPLITS,),
            "the dealer's split for this forced showdown, one-hot; known to the dealer at once,"
            " to others at the reveal",
        ),
        Field("exposed", (1,), "hand and split lie face up"),
        Field("shown_hand", (NUM_CARDS,), "the cards, if exposed, by card code"),
        Field("shown_split", (NUM_SPLITS,), "the split, if exposed, one-hot"),
        Field(
            "shown_strengths",
            (2,),
            "tail and head strength of that split, if exposed, scaled to [0, 1]",
        ),
        Field(
            "outcomes",
            (NUM_SPLITS, 3),
            "result of each of one's own splits against this exposed hand, one-hot: win, push,"
            " lose; zeros between two punters",
        ),
    )
    return own + tuple(
        Field(f"seats.{field.name}", field.shape, field.meaning, per_seat=True) for field in seats
    )


class Offsets(NamedTuple):
    """Where fields begin, for the encoders: in the vector, or in one seat's block.

    A one-hot field whose codes do not begin at 0 is moved back by its first
    code, so that offset plus code is the place.
    """

    role: int
    hand: int
    split: int
    strengths: int
    seats: int  #: the first seat's block
    seat_size: int  #: length of a block
    dealer: int
    to_act: int
    contested: int
    stake: int
    declaration: int
    call: int
    reply: int
    decided: int
    force_split: int
    exposed: int
    shown_hand: int
    shown_split: int
    shown_strengths: int
    outcomes: int


class Layout:
    """Where everything lies in the observation of a game with so many seats and actions.

    Args:
        num_players: seats, 2 to 13.
        num_actions: size of the action space, which says whether there are stakes.

    Raises:
        ShuiyuError: no game has so many seats or actions.

    Attributes:
        fields: the declared fields, in order.
        size: D, the length of the vector.
        at: the offsets that encoders write at.
    """

    def __init__(self, num_players: int, num_actions: int) -> None:
        if not 2 <= num_players <= MAX_SEATS or num_actions not in _ACTION_SPACES:
            raise ShuiyuError(
                f"expected 2 to {MAX_SEATS} seats and {', '.join(map(str, _ACTION_SPACES))}"
                f" actions, got {num_players} seats and {num_actions} actions"
            )
        self.num_players = num_players
        self.num_actions = num_actions
        self.fields = _declare(num_actions - NUM_BASE_ACTIONS)
        #: Where each field begins; a per-seat one, within its seat's block.
        self.offsets: dict[str, int] = {}
        own, block = 0, 0
        for field in self.fields:
            if field.per_seat:
                self.offsets[field.name] = block
                block += field.size
            else:
                self.offsets[field.name] = own
                own += field.size
        self.seats_start = own
        self.seat_size = block
        self.size = own + num_players * block

        def seat(name: str) -> int:
            return self.offsets[f"seats.{name}"]

        self.at = Offsets(
            role=self.offsets["role"],
            hand=self.offsets["hand"],
            split=self.offsets["split"],
            strengths=self.offsets["strengths"],
            seats=own,
            seat_size=block,
            dealer=seat("dealer"),
            to_act=seat("to_act"),
            contested=seat("contested"),
            stake=seat("stake") - 1,
            declaration=seat("declaration") - _FIRST_DECLARATION,
            call=seat("call") - _FIRST_CALL,
            reply=seat("reply") - _FIRST_REPLY,
            decided=seat("decided") - 1,
            force_split=seat("force_split"),
            exposed=seat("exposed"),
            shown_hand=seat("shown_hand"),
            shown_split=seat("shown_split"),
            shown_strengths=seat("shown_strengths"),
            outcomes=seat("outcomes"),
        )

    def views(self, vector: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """Return the fields by name, without a copy: writing to one writes to the vector.

        Args:
            vector: ``[..., D]``.

        Returns:
            Arrays ``[..., *shape]``; per-seat fields ``[..., num_players, *shape]``.

        Raises:
            ShuiyuError: the last dimension is not D.
        """
        shape = getattr(vector, "shape", ())
        if not isinstance(vector, np.ndarray) or shape[-1:] != (self.size,):
            raise ShuiyuError(
                f"expected an array [..., {self.size}] for {self.num_players} seats and"
                f" {self.num_actions} actions, got {type(vector).__name__} of shape {shape}"
            )
        lead = vector.shape[:-1]
        seats = vector[..., self.seats_start :]
        # Splitting the last axis never copies.
        seats = seats.reshape(*lead, self.num_players, self.seat_size)
        result = {}
        for field in self.fields:
            start = self.offsets[field.name]
            source = seats if field.per_seat else vector
            part = source[..., start : start + field.size]
            result[field.name] = part.reshape(*part.shape[:-1], *field.shape)
        return result

    def encode(self, view: View) -> FloatArray:
        """Return the observation ``float32[D]`` of one view; a fresh array.

        The whole table's view is encoded from seat 0, with every hand exposed.

        Raises:
            ShuiyuError: the view is of a game with another number of seats.
        """
        if len(view.hands) != self.num_players:
            raise ShuiyuError(
                f"expected a view of {self.num_players} seats, got one of {len(view.hands)}"
            )
        at, seat_size = self.at, self.at.seat_size
        me = 0 if view.seat is None else view.seat
        n = self.num_players
        dealer = view.dealer
        hands, splits = view.hands, view.splits
        own = hands[me]
        dealing = me == dealer
        vector = np.zeros(self.size, dtype=np.float32)
        # Single numbers are written several times faster through a memoryview.
        out: Any = vector.data
        out[view.phase] = 1.0
        out[at.role if dealing else at.role + 1] = 1.0
        out[at.seats + at.dealer + (dealer - me) % n * seat_size] = 1.0
        if view.to_act != NONE:
            out[at.seats + at.to_act + (view.to_act - me) % n * seat_size] = 1.0
        if view.contest != NONE:
            out[at.seats + at.contested + (view.contest - me) % n * seat_size] = 1.0
        ranking = view.table.ranking
        scale = ranking.max_strength
        if own is not None:
            for card in own:
                out[at.hand + card] = 1.0
            if splits[me] != NONE:
                out[at.split + splits[me]] = 1.0
            own_profile = ranking.profile(own)
            first = at.strengths
            for tail, head in own_profile:
                out[first] = tail / scale
                out[first + 1] = head / scale
                first += 2
        stakes = view.stakes if self.num_actions > NUM_BASE_ACTIONS else None
        declarations, calls, replies = view.declarations, view.calls, view.replies
        decided, force_splits, exposed = view.decided, view.force_splits, view.exposed
        everything = view.seat is None
        block = at.seats
        for seat in (*range(me, n), *range(me)):
            if stakes is not None and stakes[seat] != NONE:
                out[block + at.stake + stakes[seat]] = 1.0
            if declarations[seat] != NONE:
                out[block + at.declaration + declarations[seat]] = 1.0
                if calls[seat] != NONE:
                    out[block + at.call + calls[seat]] = 1.0
                    if replies[seat] != NONE:
                        out[block + at.reply + replies[seat]] = 1.0
                if force_splits[seat] != NONE:
                    out[block + at.force_split + force_splits[seat]] = 1.0
            if decided[seat]:
                out[block + at.decided + decided[seat]] = 1.0
            if exposed[seat] or everything:
                out[block + at.exposed] = 1.0
                hand = hands[seat]
                split = splits[seat]
                if hand is not None:
                    first = block + at.shown_hand
                    for card in hand:
                        out[first + card] = 1.0
                    if split != NONE:
                        out[block + at.shown_split + split] = 1.0
                        shown = ranking.profile(hand)[split]
                        first = block + at.shown_strengths
                        out[first] = shown[0] / scale
                        out[first + 1] = shown[1] / scale
                        first = block + at.outcomes
                        if dealing and seat != me:
                            for strengths in own_profile:
                                out[first + compare(strengths, shown)] = 1.0
                                first += 3
                        elif seat == dealer and not dealing:
                            for strengths in own_profile:
                                out[first + 2 - compare(shown, strengths)] = 1.0
                                first += 3
            block += seat_size
        return vector

    def encode_many(
        self, batch: ViewBatch, hand_table: HandTable, out: FloatArray | None = None
    ) -> FloatArray:
        """Return the observations ``float32[B, D]`` of many views; equal to :meth:`encode`'s.

        Args:
            batch: the views.
            hand_table: the table of the game's deck and tie rule.
            out: where to write them; a new array if ``None``.
        """
        size = len(batch.phase)
        if out is None:
            out = np.zeros((size, self.size), dtype=np.float32)
        else:
            out[...] = 0.0
        view = self.views(out)
        rows = np.arange(size)

        def set_flags(field: str, codes: npt.NDArray[Any], first: int = 0) -> None:
            """Write a one-hot field from codes ``[B]`` or ``[B, n]``; below ``first`` is none."""
            where: tuple[Any, ...] = np.nonzero(codes >= first)
            view[field][(*where, codes[where] - first)] = 1.0

        def set_cards(target: npt.NDArray[Any], hands: npt.NDArray[Any]) -> None:
            where: tuple[Any, ...] = np.nonzero(hands >= 0)
            cards = hand_table.cards[hands[where]]
            for i in range(cards.shape[-1]):
                target[(*where, cards[:, i])] = 1.0

        def set_seat(field: str, seats: npt.NDArray[Any]) -> None:
            where: tuple[Any, ...] = np.nonzero(seats >= 0)
            view[field][(*where, seats[where], 0)] = 1.0

        dealing = batch.dealer == 0
        set_flags("phase", batch.phase)
        view["role"][rows, np.where(dealing, 0, 1)] = 1.0
        set_seat("seats.dealer", batch.dealer)
        set_seat("seats.to_act", batch.to_act)
        set_seat("seats.contested", batch.contest)
        own = batch.hands[:, 0]
        set_cards(view["hand"], own)
        set_flags("split", batch.splits[:, 0])
        own_strengths = hand_table.strengths[own]
        # In double, then rounded: the same numbers as the sequential encoder's.
        view["strengths"][...] = own_strengths / hand_table.max_strength
        if self.num_actions > NUM_BASE_ACTIONS:
            set_flags("seats.stake", batch.stakes, 1)
        set_flags("seats.declaration", batch.declarations, _FIRST_DECLARATION)
        set_flags("seats.call", batch.calls, _FIRST_CALL)
        set_flags("seats.reply", batch.replies, _FIRST_REPLY)
        set_flags("seats.decided", batch.decided, 1)
        set_flags("seats.force_split", batch.force_splits)
        exposed = batch.exposed != 0
        view["seats.exposed"][exposed, 0] = 1.0
        shown_hands = np.where(exposed, batch.hands, NONE)
        shown_splits = np.where(exposed, batch.splits, NONE)
        set_cards(view["seats.shown_hand"], shown_hands)
        set_flags("seats.shown_split", shown_splits)
        at, seat = np.nonzero(shown_splits >= 0)
        shown = hand_table.strengths[shown_hands[at, seat], shown_splits[at, seat]]
        view["seats.shown_strengths"][at, seat] = shown / hand_table.max_strength
        compared = np.where(dealing[at], seat != 0, seat == batch.dealer[at]) & (own[at] >= 0)
        at, seat, shown = at[compared], seat[compared], shown[compared]
        if len(at):
            outcomes = _compare_many(own_strengths[at], shown[:, None, :], dealing[at, None])
            pick = np.arange(NUM_SPLITS)
            view["seats.outcomes"][at[:, None], seat[:, None], pick, outcomes] = 1.0
        return out


def _compare_many(
    mine: npt.NDArray[Any], theirs: npt.NDArray[Any], dealing: npt.NDArray[np.bool_]
) -> npt.NDArray[np.intp]:
    """Return 0, 1, 2 where ``mine`` wins, pushes, loses: :func:`compare` on arrays ``[..., 2]``."""
    signs = np.sign(mine.astype(np.int32) - theirs)
    as_dealer = OUTCOMES[1 + signs[..., 0], 1 + signs[..., 1]]
    as_punter = 2 - OUTCOMES[1 - signs[..., 0], 1 - signs[..., 1]]
    outcomes: npt.NDArray[np.intp] = np.where(dealing, as_dealer, as_punter).astype(np.intp)
    return outcomes


@dataclass
class ViewBatch:
    """Many views as arrays, each turned so that its own seat is number 0.

    Attributes are as those of :class:`~shuiyu_env.core.view.View`, with -1 for
    what is absent or hidden. ``[B]``: ``phase``, ``dealer``, ``to_act``,
    ``contest``. ``[B, n]``: the others. ``hands`` are indices of the game's
    :class:`~shuiyu_env.tables.HandTable`.
    """

    phase: npt.NDArray[Any]
    dealer: npt.NDArray[Any]
    to_act: npt.NDArray[Any]
    contest: npt.NDArray[Any]
    hands: npt.NDArray[Any]
    splits: npt.NDArray[Any]
    exposed: npt.NDArray[Any]
    declarations: npt.NDArray[Any]
    calls: npt.NDArray[Any]
    replies: npt.NDArray[Any]
    stakes: npt.NDArray[Any]
    decided: npt.NDArray[Any]
    force_splits: npt.NDArray[Any]

    @classmethod
    def from_views(cls, views: Sequence[View], hand_table: HandTable) -> ViewBatch:
        """Collect views of one game, each of a seat or of the whole table."""
        n = views[0].table.num_players
        rows = []
        hands: list[tuple[int, ...]] = []
        no_hand = (0, 0, 0, 0)
        for v in views:
            me = v.seat or 0
            order = (*range(me, n), *range(me))
            row = [
                v.phase,
                (v.dealer - me) % n,
                (v.to_act - me) % n if v.to_act != NONE else NONE,
                (v.contest - me) % n if v.contest != NONE else NONE,
            ]
            exposed: Sequence[bool] = v.exposed if v.seat is not None else [True] * n
            for values in (
                [hand is not None for hand in v.hands],
                v.splits,
                exposed,
                v.declarations,
                v.calls,
                v.replies,
                v.stakes,
                v.decided,
                v.force_splits,
            ):
                row += values[me:]
                row += values[:me]
            rows.append(row)
            hands += [v.hands[seat] or no_hand for seat in order]
        table = np.array(rows, dtype=np.int32)
        index = hand_table.index(hands).reshape(len(views), n)
        heads = [table[:, i] for i in range(4)]
        blocks = [table[:, 4 + i * n : 4 + (i + 1) * n] for i in range(len(fields(cls)) - 4)]
        blocks[0] = np.where(blocks[0] == 1, index, NONE)
        return cls(*heads, *blocks)


@lru_cache(maxsize=64)
def _layout(num_players: int, actions: int) -> Layout:
    return Layout(num_players, actions)


def layout_of(game: Game) -> Layout:
    """Return the (cached) layout of a game's observations."""
    return _layout(game.num_players, game.num_actions)


def infer_layout(observation_size: int, action_size: int) -> Layout:
    """Return the layout that has these sizes: what a policy knows from its inputs alone.

    Raises:
        ShuiyuError: no game has them.
    """
    if action_size in _ACTION_SPACES:
        for num_players in range(2, MAX_SEATS + 1):
            layout = _layout(num_players, action_size)
            if layout.size == observation_size:
                return layout
    raise ShuiyuError(
        f"no game has observations of {observation_size} numbers and {action_size} actions"
        f" (layout version {LAYOUT_VERSION})"
    )
