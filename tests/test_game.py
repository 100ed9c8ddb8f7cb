"""Games and states: clone, undo, records, replay, copies, and what users get wrong."""

from __future__ import annotations

import copy
import json
import pickle
import random
from typing import Any

import numpy as np
import pytest
from games import deal_some, examples, games, play, rngs
from hypothesis import given

from shuiyu_env.core.actions import Action
from shuiyu_env.core.cards import Deck
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import CardError, DealError, RecordError, RulesError, ShuiyuError
from shuiyu_env.core.game import Game, State
from shuiyu_env.core.rules import RuleSet


def begin(game: Game, rng: random.Random) -> State:
    """A new state, with hands and a dealer given or not."""
    hands = deal_some(rng, game) if rng.random() < 0.7 else None
    dealer = rng.randrange(game.num_players) if rng.random() < 0.5 else None
    return game.new_state(
        rng.getrandbits(64), hands, dealer, stream=rng.randrange(5), index=rng.randrange(1000)
    )


def step(state: State, rng: random.Random) -> int:
    action = rng.choice(state.legal_actions())
    state.apply(action)
    return action


OPEN = (
    "dealer hands phase seat contest legal stakes splits declarations calls replies"
    " force_splits decided exposed outcomes rewards actions seats"
)


def snapshot(state: State) -> dict[str, Any]:
    """Everything that can be asked of a state."""
    deal = state.deal
    seats = range(state.game.num_players)
    return {
        "deal": [copy.copy(getattr(deal, name)) for name in OPEN.split()],
        "views": [
            [
                getattr(view, name)
                for name in type(view).__slots__  # type: ignore[attr-defined]
                if name != "table"
            ]
            for view in [*map(state.view, seats), state.view(None)]
        ],
        "finished": len(state.finished),
        "terminal": state.is_terminal,
        "player": state.current_player,
        "phase": state.phase,
        "legal": state.legal_actions(),
        "rewards": state.rewards(),
        "returns": state.returns(),
        "history": state.history,
        "observed": [state.observed_history(seat) for seat in seats],
        "record": state.to_record(),
        "text": repr(state),
    }


@given(games(max_rounds=3), rngs)
@examples(40)
def test_clone_undo_copy_and_replay_agree_at_every_node(game: Game, rng: random.Random) -> None:
    state = begin(game, rng)
    snapshots = [snapshot(state)]
    while not state.is_terminal:
        clone = state.clone()
        assert clone == state
        step(clone, rng)
        # What a clone does is nothing to the state, and undoing it comes back.
        assert snapshot(state) == snapshots[-1]
        assert clone != state
        clone.undo()
        assert clone == state
        assert snapshot(clone) == snapshots[-1]
        step(state, rng)
        snapshots.append(snapshot(state))
    for before in reversed(snapshots):
        assert snapshot(state) == before
        record = json.loads(json.dumps(state.to_record(), allow_nan=False))
        replayed = Game.replay(record)
        assert replayed == state
        assert snapshot(replayed) == before
        if before is not snapshots[0]:
            state.undo()
    with pytest.raises(IndexError, match="no action has been taken"):
        state.undo()


@given(games(max_rounds=3), rngs)
@examples(40)
def test_copies_and_replays_go_on_as_the_original_does(game: Game, rng: random.Random) -> None:
    state = begin(game, rng)
    for _ in range(rng.randrange(60)):
        if state.is_terminal:
            break
        step(state, rng)
    copies = {
        "deepcopy": copy.deepcopy(state),
        "pickle": pickle.loads(pickle.dumps(state)),
        "clone": state.clone(),
        "replay": Game.replay(json.loads(json.dumps(state.to_record()))),
    }
    # A replay may take back even what it did not see done.
    for _ in range(rng.randrange(30)):
        if state.history:
            for one in [state, *copies.values()]:
                one.undo()
    for name, one in copies.items():
        assert one == state, name
        assert snapshot(one) == snapshot(state), name
    while not state.is_terminal:
        action = step(state, rng)
        for name, one in copies.items():
            assert one != state, name
            one.apply(action)
            assert snapshot(one) == snapshot(state), name


@given(games(), rngs)
@examples(30)
def test_views_pickle_and_copy(game: Game, rng: random.Random) -> None:
    state = begin(game, rng)
    while not state.is_terminal:
        step(state, rng)
        if rng.random() < 0.2:
            view = state.view(rng.choice([None, *range(game.num_players)]))
            for other in (pickle.loads(pickle.dumps(view)), copy.deepcopy(view)):
                for name in type(view).__slots__:  # type: ignore[attr-defined]
                    if name != "table":
                        assert getattr(other, name) == getattr(view, name)
                assert other.table.rules == game.rules


def test_a_view_is_a_snapshot() -> None:
    rng = random.Random(1)
    state = Game(3, RuleSet(max_stake=2)).new_state(8)
    while not state.is_terminal:
        views = [state.view(seat) for seat in (0, 1, 2, None)]
        before = pickle.dumps([[getattr(v, n) for n in PUBLIC.split()] for v in views])
        step(state, rng)
        assert pickle.dumps([[getattr(v, n) for n in PUBLIC.split()] for v in views]) == before


PUBLIC = (
    "phase to_act contest hands splits exposed declarations calls replies stakes decided"
    " force_splits outcomes rewards"
)


@given(games(max_rounds=3), rngs)
@examples(40)
def test_history_tells_who_did_what(game: Game, rng: random.Random) -> None:
    state = begin(game, rng)
    turns = []
    while not state.is_terminal:
        number, seat = len(state.finished), state.current_player
        turns.append((number, seat, step(state, rng)))
        assert state.history == turns
        for viewer in range(game.num_players):
            observed = state.observed_history(viewer)
            assert [turn[:2] for turn in observed] == [turn[:2] for turn in turns]
            for seen, turn in zip(observed, turns, strict=True):
                assert seen.action in (None, turn[2])
                if turn[1] == viewer:
                    assert seen.action is not None


def test_observed_history_hides_what_is_hidden() -> None:
    """Four seats, simultaneous declarations: what seat 3 knows, phase by phase."""
    hands = ["Kd 8c 9h 2s", "Qd 2c 5h 6s", "As 8s Kh 9s", "3d 3c Ac 5d"]
    state = Game(4).new_state(0, hands=hands, dealer=0)

    def known(seat: int) -> str:
        turns = state.observed_history(seat)
        return " ".join("?" if t.action is None else t.action.name for t in turns)

    play(state, "SPLIT_0 SPLIT_1 SPLIT_2 SPLIT_1")
    assert known(3) == "? ? ? SPLIT_1"
    play(state, "FORCE COVER")
    assert known(3) == "? ? ? SPLIT_1 ? ?"
    assert known(1) == "? SPLIT_1 ? ? FORCE ?"
    play(state, "OPEN")
    # Seats 1 and 3 lie face up now; the dealer and seat 2 do not.
    assert known(3) == "? SPLIT_1 ? SPLIT_1 FORCE COVER OPEN"
    assert known(2) == "? SPLIT_1 SPLIT_2 SPLIT_1 FORCE COVER OPEN"
    play(state, "PUSH BELIEVE FOLD")
    assert state.phase is Phase.REARRANGE
    state.apply(Action.SPLIT_2)
    # The showdown with seat 1 opens the dealer's hand and both his splits, but not seat 2's.
    assert known(3) == ("SPLIT_0 SPLIT_1 ? SPLIT_1 FORCE COVER OPEN PUSH BELIEVE FOLD SPLIT_2")


def test_the_dealers_new_split_is_hidden_until_the_reveal() -> None:
    hands = ["Kd 8c 9h 2s", "Qd 2c 5h 6s", "As 8s Kh 9s"]
    state = Game(3).new_state(0, hands=hands, dealer=0)
    play(state, "SPLIT_0 SPLIT_1 SPLIT_2 FORCE FORCE SPLIT_1")
    assert state.observed_history(1)[-1].action is None
    assert state.observed_history(0)[-1].action is Action.SPLIT_1
    play(state, "SPLIT_2")
    assert [turn.action for turn in state.observed_history(1)[-2:]] == [1, 2]


# ---- sessions -------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [None, 0, 2])
def test_rotation_of_the_dealer(first: int | None) -> None:
    rng = random.Random(0)
    dealers: dict[str, list[int]] = {}
    for rotation in ("fixed", "rotate", "random"):
        game = Game(4, rounds=6, dealer_rotation=rotation)  # type: ignore[arg-type]
        state = game.new_state(5, dealer=first)
        while not state.is_terminal:
            step(state, rng)
        dealers[rotation] = [deal.dealer for deal in state.finished]
    start = first or 0
    assert dealers["fixed"] == [start] * 6
    assert dealers["rotate"] == [(start + i) % 4 for i in range(6)]
    assert len(set(dealers["random"])) > 1
    if first is not None:
        assert dealers["random"][0] == first


@given(games(max_rounds=3), rngs)
@examples(40)
def test_rewards_are_paid_at_the_end_of_each_deal(game: Game, rng: random.Random) -> None:
    state = begin(game, rng)
    n = game.num_players
    assert state.rewards() == state.returns() == [0.0] * n
    totals = [0.0] * n
    while not state.is_terminal:
        deals = len(state.finished)
        step(state, rng)
        rewards = state.rewards()
        if len(state.finished) == deals:
            assert rewards == [0.0] * n
        else:
            assert rewards == state.finished[-1].rewards
        totals = [a + b for a, b in zip(totals, rewards, strict=True)]
        assert state.returns() == totals
        if game.reward == "transfer":
            assert sum(rewards) == 0
    assert len(state.finished) == game.rounds
    assert state.current_player is None
    assert state.legal_actions() == ()
    assert state.phase is Phase.OVER


def test_given_hands_are_the_first_deals_only() -> None:
    game = Game(2, rounds=2)
    hands = ["As Kd 7c 2h", "Qs Qd 9c 3h"]
    state = game.new_state(4, hands=hands)
    other = game.new_state(4)
    rng = random.Random(0)
    while not state.finished:
        step(state, rng)
    while not other.finished:
        step(other, rng)
    assert state.finished[0].hands != other.finished[0].hands
    assert state.deal.hands == other.deal.hands


def test_seeds() -> None:
    game = Game(4)

    def hands(seed: int | None, **where: int) -> Any:
        return game.new_state(seed, **where).deal.hands

    assert hands(0) == hands(0)
    assert hands(0) != hands(1)
    assert hands(0, stream=1) != hands(0) != hands(0, index=1)
    # Without a seed, one is drawn from the system, and kept in the record.
    state = game.new_state()
    assert state.deal.hands != game.new_state().deal.hands
    assert game.new_state(state.seed).deal.hands == state.deal.hands
    # Any integer is a seed and any natural number an index; both count modulo 2**64.
    assert hands(-1) == hands(2**64 - 1)
    assert hands(3, index=2**70 + 1) == hands(3, index=1)


def test_deals_neither_read_nor_disturb_global_generators() -> None:
    game = Game(4, rounds=2, dealer_rotation="random")
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002
    first = game.new_state(3)
    rng = random.Random(2)
    while not first.is_terminal:
        step(first, rng)
    game.new_state()
    after = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002
    assert after == before
    random.seed(99)
    assert game.new_state(3).deal.hands == first.finished[0].hands


# ---- games ----------------------------------------------------------------------------------


def test_a_game_is_a_value() -> None:
    game = Game(3, "dahua", rounds=2, dealer_rotation="rotate", reward="drinks")
    for other in (pickle.loads(pickle.dumps(game)), copy.deepcopy(game), Game(**game.settings())):
        assert other == game
        assert hash(other) == hash(game)
    assert json.loads(json.dumps(game.settings())) == game.settings()
    for changed in (
        {"num_players": 2},
        {"rules": "nanning"},
        {"rounds": 1},
        {"dealer_rotation": "fixed"},
        {"reward": "transfer"},
    ):
        assert Game(**{**game.settings(), **changed}) != game
    assert game != "game"
    assert repr(Game(2)) == (
        "Game(num_players=2, rules='nanning', rounds=1, dealer_rotation='fixed', reward='transfer')"
    )


def test_numpy_integers_are_integers() -> None:
    game = Game(np.int64(3), rounds=np.int32(2))  # type: ignore[arg-type]
    assert game == Game(3, rounds=2)
    assert type(game.num_players) is int
    state = game.new_state(
        np.int64(5),
        dealer=np.int8(1),
        stream=np.uint64(2),
        index=np.int16(3),  # type: ignore[arg-type]
    )
    other = game.new_state(5, dealer=1, stream=2, index=3)
    assert state == other
    state.apply(np.int64(0))  # type: ignore[arg-type]
    other.apply(Action.SPLIT_0)
    assert state == other
    assert {type(action) for action in state.deal.actions + other.deal.actions} == {int}
    assert json.loads(json.dumps(state.to_record())) == json.loads(json.dumps(other.to_record()))
    hands = np.arange(12, dtype=np.int64).reshape(3, 4)
    assert game.new_state(0, hands=hands).deal.hands == ((3, 2, 1, 0), (7, 6, 5, 4), (11, 10, 9, 8))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_players": 1}, "num_players: expected a whole number from 2 to 13, got 1"),
        ({"num_players": 14}, "num_players: expected a whole number from 2 to 13, got 14"),
        ({"num_players": 4.0}, "num_players: expected a whole number .* got 4.0"),
        ({"num_players": True}, "num_players: expected a whole number .* got True"),
        ({"num_players": "4"}, "num_players: expected a whole number .* got '4'"),
        ({"num_players": None}, "num_players: expected a whole number .* got None"),
        (
            {"num_players": 3, "rules": {"deck": {"ranks": 5, "suits": 2}}},
            "num_players: a deck of 5 ranks and 2 suits seats at most 2, got 3",
        ),
        ({"rules": "nannig"}, "did you mean 'nanning'"),
        ({"rounds": 0}, "rounds: expected a whole number from 1 to 1000000000000, got 0"),
        ({"rounds": 1.5}, "rounds: expected a whole number from 1 to 1000000000000, got 1.5"),
        ({"rounds": False}, "rounds: expected a whole number from 1 to 1000000000000, got False"),
        ({"dealer_rotation": "rotated"}, "dealer_rotation: .*got 'rotated'; did you mean 'rotate'"),
        ({"dealer_rotation": None}, "dealer_rotation: expected one of 'fixed', 'rotate', 'random'"),
        ({"reward": "transfers"}, "reward: .*got 'transfers'; did you mean 'transfer'"),
        ({"reward": ["transfer"]}, "reward: expected one of 'transfer', 'drinks'"),
        ({"reward": np.zeros(2)}, "reward: expected one of 'transfer', 'drinks'"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RulesError, match=message):
        Game(**settings)


GOOD = ["As Kd 7c 2h", "Qs Qd 9c 3h"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"hands": GOOD[:1]}, DealError, "hands: expected 2 hands, one per seat, got 1"),
        ({"hands": [*GOOD, "2d 2c 3d 3c"]}, DealError, "hands: expected 2 hands.* got 3"),
        ({"hands": []}, DealError, "hands: expected 2 hands.* got 0"),
        ({"hands": "As Kd 7c 2h"}, DealError, "hands: expected a list of one hand per seat"),
        ({"hands": b"As"}, DealError, "hands: expected a list of one hand per seat"),
        ({"hands": 7}, DealError, "hands: expected a list of one hand per seat, got 7"),
        ({"hands": [GOOD[0], "Qs Qd 9c"]}, DealError, r"hands\[1\]: expected 4 cards, got 3"),
        ({"hands": [GOOD[0], "Qs Qs 9c 3h"]}, DealError, r"hands\[1\]: expected 4 different cards"),
        (
            {"hands": [GOOD[0], "As Qd 9c 3h"]},
            DealError,
            r"hands\[1\]: As is already in hands\[0\]",
        ),
        (
            {"hands": [GOOD[0], [51, 1, 2, 3]]},
            DealError,
            r"hands\[1\]: As is already in hands\[0\]",
        ),
        ({"hands": [GOOD[0], "Xs Qd 9c 3h"]}, CardError, r"hands\[1\]: expected a card .*'Xs'"),
        ({"hands": [[0, 1, 2, 52], GOOD[1]]}, CardError, r"hands\[0\]: .* from 0 to 51, got 52"),
        ({"hands": [[0, 1, 2, 3.0], GOOD[1]]}, CardError, r"hands\[0\]: .*got 3.0"),
        ({"hands": [None, GOOD[1]]}, DealError, r"hands\[0\]: expected four cards .*got None"),
        ({"dealer": 2}, DealError, "dealer: expected a seat from 0 to 1, got 2"),
        ({"dealer": -1}, DealError, "dealer: expected a seat from 0 to 1, got -1"),
        ({"dealer": 1.0}, DealError, "dealer: expected an integer, got 1.0"),
        ({"dealer": True}, DealError, "dealer: expected an integer, got True"),
        ({"dealer": "0"}, DealError, "dealer: expected an integer, got '0'"),
        ({"seed": 1.5}, DealError, "seed: expected an integer, got 1.5"),
        ({"seed": "7"}, DealError, "seed: expected an integer, got '7'"),
        ({"seed": True}, DealError, "seed: expected an integer, got True"),
        ({"stream": None}, DealError, "stream: expected an integer, got None"),
        ({"index": -1}, DealError, "index: expected 0 or more, got -1"),
        ({"index": 0.0}, DealError, "index: expected an integer, got 0.0"),
    ],
)
def test_wrong_deals(arguments: dict[str, Any], error: type[ShuiyuError], message: str) -> None:
    with pytest.raises(error, match=message):
        Game(2).new_state(**arguments)


def test_cards_that_a_small_deck_does_not_have() -> None:
    game = Game(2, RuleSet(deck=Deck(4, 4)))
    with pytest.raises(DealError, match=r"hands\[1\]: 5s is not in a deck of 4 ranks and 4 suits"):
        game.new_state(hands=["As 2s 3s 4s", "Ah 2h 3h 5s"])


# ---- records --------------------------------------------------------------------------------


def a_record(rounds: int = 2) -> dict[str, Any]:
    """A record of one finished deal and a second in progress."""
    state = Game(2, rounds=rounds).new_state(7)
    rng = random.Random(3)
    while not state.finished or len(state.deal.actions) < 3:
        step(state, rng)
    assert not state.is_terminal
    return json.loads(json.dumps(state.to_record()))  # type: ignore[no-any-return]


def test_a_record_is_plain_and_complete() -> None:
    record = a_record()
    assert record["format"] == "shuiyu-record"
    assert {"version", "num_players", "rules", "rounds", "dealer_rotation", "reward"} < set(record)
    assert {"seed", "stream", "index", "deals", "returns"} < set(record)
    assert record["rules"] == RuleSet().to_dict()
    assert [set(deal) for deal in record["deals"]] == [{"dealer", "hands", "actions"}] * 2
    for name in record["deals"][0]["actions"]:
        assert Action[name].name == name
    assert record["returns"] == Game.replay(record).returns()


def test_a_record_may_name_a_preset_and_may_stop_between_deals() -> None:
    record = a_record()
    assert Game.replay({**record, "rules": "nanning"}) == Game.replay(record)
    cut = Game.replay({**record, "deals": record["deals"][:1]})
    assert len(cut.finished) == 1
    for name in record["deals"][1]["actions"]:
        cut.apply(Action[name])
    assert cut == Game.replay(record)


@pytest.mark.parametrize("key", list(a_record()))
def test_a_record_without_one_of_its_keys(key: str) -> None:
    record = a_record()
    del record[key]
    with pytest.raises(RecordError, match=f"the record has no '{key}'"):
        Game.replay(record)


# For every key, values that it cannot have.
WRONG_KEYS: dict[str, list[Any]] = {
    "format": ["other", None, 3],
    "version": [0, 2, "1", None],
    "num_players": [1, 14, 3, "2", None, 2.0],
    "rules": ["nannin", None, [], 4, {"max_stakes": 1}, {"max_stake": 9}],
    "rounds": [0, "2", None, 1.0, True, 1],
    "dealer_rotation": ["rotated", None, []],
    "reward": ["transfers", None, {}],
    "seed": [None, "7", 1.5, True, []],
    "stream": [None, "0", 0.5],
    "index": [None, -1, "0", 0.5],
    "deals": [[], None, "deals", {}, 5, [None], ["x"], [{}], [[]]],
    "returns": [None, 5, "", [], [0.0], [99.0, -99.0], {}, [None, None], [0, 0, 0]],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in WRONG_KEYS.items() for value in values]
)
def test_a_record_with_a_wrong_value(key: str, value: object) -> None:
    with pytest.raises(RecordError) as caught:
        Game.replay({**a_record(), key: value})
    assert str(caught.value)


WRONG_DEAL: dict[str, list[Any]] = {
    "dealer": [None, -1, 2, "0", True, 0.0, []],
    "hands": [
        None,
        [],
        "As Kd 7c 2h",
        5,
        [None, None],
        ["As Kd 7c 2h"],
        ["As Kd 7c 2h"] * 2,
        ["As Kd 7c 2h", "Xs Qd 9c 3h"],
        ["As Kd 7c 2h", "Qs Qd 9c"],
        ["As Kd 7c 2h", [0, 1, 2, 99]],
        {"0": "As Kd 7c 2h", "1": "Qs Qd 9c 3h"},
    ],
    "actions": [
        None,
        5,
        "SPLIT_0",
        ["SPLIT_9"],
        ["KILL"],
        [0],
        [None],
        [["SPLIT_0"]],
        ["SPLIT_0"] * 9,
        {},
        {"SPLIT_0": 1},
    ],
}


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in WRONG_DEAL.items() for value in values]
)
def test_a_record_with_a_wrong_deal(key: str, value: object, which: int) -> None:
    record = a_record()
    record["deals"][which][key] = value
    with pytest.raises(RecordError):
        Game.replay(record)
    del record["deals"][which][key]
    with pytest.raises(RecordError, match=rf"deals\[{which}\]: expected dealer, hands and actions"):
        Game.replay(record)


def test_a_record_that_does_not_add_up() -> None:
    record = a_record()
    first, second = record["deals"]
    with pytest.raises(RecordError, match="the deal before it is not finished"):
        Game.replay({**record, "deals": [second, first]})
    with pytest.raises(RecordError, match="expected at most 2"):
        Game.replay({**record, "deals": [first, first, first]})
    longer = {**first, "actions": [*first["actions"], "SPLIT_0"]}
    with pytest.raises(RecordError, match=r"deals\[0\]: 'SPLIT_0' comes after the deal's end"):
        Game.replay({**record, "deals": [longer]})
    with pytest.raises(RecordError, match="returns: the record says"):
        Game.replay({**record, "returns": [1.0, -1.0] if record["returns"][0] != 1 else [0, 0]})
    shuffled = {**first, "actions": first["actions"][::-1]}
    with pytest.raises(RecordError, match="illegal action"):
        Game.replay({**record, "deals": [shuffled]})


JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2,
    99,
    2**70,
    0.5,
    float("nan"),
    float("inf"),
    "",
    "KILL",
    "SPLIT_0",
    "As Kd 7c 2h",
    "nanning",
    [],
    [[]],
    ["OPEN"],
    [1, 2, 3, 4],
    {},
    {"ranks": 4, "suits": 4},
    {"preset": "dahua"},
]


def mangled(rng: random.Random, value: Any) -> Any:
    """A copy with one thing in it replaced, left out or repeated."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {name: kept for name, kept in value.items() if name != key}
        return {**value, key: mangled(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        i = rng.randrange(len(value))
        how = rng.random()
        if how < 0.1:
            return value[:i] + value[i + 1 :]
        if how < 0.2:
            return [*value[:i], value[i], *value[i:]]
        return [*value[:i], mangled(rng, value[i]), *value[i + 1 :]]
    return copy.deepcopy(rng.choice(JUNK))


@given(games(max_rounds=2), rngs)
@examples(40)
def test_a_mangled_record_is_refused_or_plays(game: Game, rng: random.Random) -> None:
    """Nothing but a :class:`RecordError`, whatever is in it."""
    state = begin(game, rng)
    for _ in range(rng.randrange(40)):
        if not state.is_terminal:
            step(state, rng)
    record = json.loads(json.dumps(state.to_record()))
    for _ in range(25):
        other = mangled(rng, record)
        try:
            replayed = Game.replay(other)
        except RecordError:
            continue
        # What was accepted is a whole state, and its own record says the same.
        assert Game.replay(json.loads(json.dumps(replayed.to_record()))) == replayed
        assert replayed.returns() == other["returns"]
        while not replayed.is_terminal and len(replayed.finished) < 3:
            step(replayed, rng)


@pytest.mark.parametrize("value", [None, [], "record", 5, [("format", "shuiyu-record")]])
def test_a_record_is_a_mapping(value: object) -> None:
    with pytest.raises(RecordError, match="expected a record"):
        Game.replay(value)  # type: ignore[arg-type]


def test_replay_refuses_later_deals_that_do_not_follow_from_the_first() -> None:
    game = Game(2, rounds=2, dealer_rotation="rotate")
    state = game.new_state(5)
    while not state.is_terminal:
        state.apply(state.legal_actions()[0])
    record = state.to_record()
    for key, value in (("dealer", 0), ("hands", record["deals"][0]["hands"])):
        later = record["deals"][1] | {key: value, "actions": []}
        changed = record | {"deals": [record["deals"][0], later]}
        with pytest.raises(RecordError, match=r"deals\[1\]: hands or dealer are not those"):
            Game.replay(changed)


def test_states_that_go_on_differently_are_not_equal() -> None:
    hands = ["As Kd 7c 2h", "Qs 9h 8d 4c"]
    one, two = Game(2), Game(2, rounds=2)
    assert one.new_state(1, hands) == one.new_state(2, hands)
    assert two.new_state(1, hands) != two.new_state(2, hands)
    assert two.new_state(1, hands) == two.new_state(1, hands)


def test_a_shallow_copy_is_independent_too() -> None:
    state = Game(2, rounds=2).new_state(3)
    other = copy.copy(state)
    other.apply(other.legal_actions()[0])
    assert not state.deal.actions
    assert copy.copy(other.deal) == other.deal


def test_hands_without_an_order_are_refused() -> None:
    for hands in ({"As Kd 7c 2h", "Qs 9h 8d 4c"}, {0: "As Kd 7c 2h", 1: "Qs 9h 8d 4c"}):
        with pytest.raises(DealError, match="expected a list of one hand per seat"):
            Game(2).new_state(hands=hands)  # type: ignore[arg-type]
