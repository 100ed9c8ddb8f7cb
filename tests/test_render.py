"""Renderings: what they show, what they must not show, and that everything fits."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pygame
import pytest
from games import hands_rich_in_specials, play

from shuiyu_env import Game, RuleSet, shuiyu_v0
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import ShuiyuError
from shuiyu_env.core.game import State
from shuiyu_env.core.hands import special_of
from shuiyu_env.core.view import View
from shuiyu_env.render import (
    PICTURE_SIZE,
    Window,
    picture,
    render_ansi,
    render_rgb,
    save_picture,
    words,
)
from shuiyu_env.render.canvas import Canvas

SHAPE = (PICTURE_SIZE[1], PICTURE_SIZE[0], 3)
HANDS_4 = ["As Kd 7c 2h", "Qs 9h 8d 4c", "Js Ts 6d 5c", "Ah Kc 3d 3s"]


def states(game: Game, seed: int, special: bool = False) -> Iterator[State]:
    """Play one episode at random, yielding before each action and at the end."""
    rng = random.Random(seed)
    hands = hands_rich_in_specials(rng, game.rules.deck, game.num_players) if special else None
    state = game.new_state(seed, hands)
    while not state.is_terminal:
        yield state
        state.apply(rng.choice(state.legal_actions()))
    yield state


def walk_tables(seats: int) -> Iterator[View]:
    """Views of a table from its first decision to its end: the whole table's, and some seats'."""
    rules = RuleSet(max_stake=5, declare="in_turn" if seats % 2 else "simultaneous")
    for state in states(Game(seats, rules), seats, special=seats % 3 == 0):
        for seat in (None, 0, seats - 1):
            yield state.view(seat)


def hands_of(seats: int) -> list[list[int]]:
    """Hands without a special: the deck suit by suit, four neighbours each."""
    cards = [4 * rank + suit for suit in range(4) for rank in range(13)]
    return [cards[4 * i : 4 * i + 4] for i in range(seats)]


# Text


IN_PROGRESS = """\
Shuiyu (nanning), 4 seats, seen by player_3
player_1 replies to the dealer
a caption
   seat               head / tail                          cards    declares  call
   player_0 (dealer)  ?? ?? ?? ??
>  player_1           Q♠ 8♦ (8 points) / 9♥ 4♣ (3 points)  face up  OPEN      KILL
   player_2           ?? ?? ?? ??                                   COVER
   player_3           3♠ 3♦ (pair) / A♥ K♣ (1 point)       face up  FORCE"""

SETTLED = """\
Shuiyu (nanning), 4 seats, seen by player_3
The deal is settled
seat               head / tail                          cards    declares  call  reply  result  units
player_0 (dealer)  7♣ 2♥ (9 points) / A♠ K♦ (1 point)   face up                                 0
player_1           Q♠ 8♦ (8 points) / 9♥ 4♣ (3 points)  face up  OPEN      KILL  DOUBT  push    +2
player_2           ?? ?? ?? ??                                   COVER     FOLD         agreed  +1
player_3           3♠ 3♦ (pair) / A♥ K♣ (1 point)       face up  FORCE                  push    -3
against player_3 the dealer lays K♦ 7♣ (7 points) / A♠ 2♥ (3 points)"""  # noqa: E501

SPECIAL = """\
Shuiyu (own rules), 2 seats, whole table
The deal is settled
seat               head / tail                          cards      stake  result                  units
player_0 (dealer)  A♠ A♦ (pair) / 7♥ 7♣ (pair) Shuiyu   face up                                   +4
player_1           9♥ 8♦ (7 points) / Q♠ 4♣ (4 points)  face down  2      dealer wins by special  -4"""  # noqa: E501


def test_text_shows_the_table_as_a_seat_sees_it() -> None:
    state = Game(4).new_state(hands=HANDS_4)
    play(state, "SPLIT_0 SPLIT_1 SPLIT_2 SPLIT_0 OPEN COVER FORCE KILL")
    assert render_ansi(state.view(3), "a caption") == IN_PROGRESS
    play(state, "DOUBT FOLD SPLIT_2")
    assert render_ansi(state.view(3)) == SETTLED


def test_text_shows_stakes_specials_and_cards_not_dealt_yet() -> None:
    state = Game(2, RuleSet(max_stake=3)).new_state(hands=["As Ad 7c 7h", "Qs 9h 8d 4c"])
    for seat in (None, 0, 1):
        text = render_ansi(state.view(seat))
        assert text.count("not dealt yet") == 2
        assert not set("♠♥♣♦") & set(text)
    play(state, "STAKE_2")
    assert "A♠ A♦ 7♥ 7♣" in render_ansi(state.view(0))
    play(state, "SPLIT_0 SPLIT_2")
    assert render_ansi(state.view(None)) == SPECIAL


def test_the_head_is_the_stronger_group() -> None:
    state = Game(2).new_state(hands=["As Kd 7c 2h", "Qs 9h 8d 4c"])
    play(state, "SPLIT_0")
    view = state.view(0)
    for hand, split, head in (
        ((51, 45, 21, 2), 0, (21, 2)),
        ((51, 45, 21, 2), 1, (51, 21)),
        ((48, 4, 0, 9), 0, (0, 9)),
    ):
        hand = tuple(sorted(hand, reverse=True))
        groups = words.groups_of(view, hand, split)
        assert sorted(map(view.table.ranking.group, groups), reverse=True) == [
            view.table.ranking.group(group) for group in groups
        ]
        assert sorted(groups[0] + groups[1]) == sorted(hand)
        if hand[0] == 51:
            assert groups[0] == head


@pytest.mark.parametrize("units", [(2, "+2"), (-1.0, "-1"), (0.0, "0"), (-0.0, "0"), (0.5, "+0.5")])
def test_units_are_written_with_their_sign(units: tuple[float, str]) -> None:
    assert words.units_text(units[0]) == units[1]


# Pictures


@pytest.mark.parametrize("seats", range(2, 14))
def test_every_number_of_seats_is_drawn(seats: int) -> None:
    game = Game(seats)
    *_, middle, _ = states(game, seats)
    for state in (game.new_state(1), middle.clone(), middle):
        for seat in (None, seats - 1):
            view = state.view(seat)
            pixels = render_rgb(view, "a caption")
            assert pixels.shape == SHAPE
            assert pixels.dtype == np.uint8
            assert pixels.flags["C_CONTIGUOUS"]
            assert len(render_ansi(view).splitlines()) >= seats + 3


class Recorder(Canvas):
    """A canvas that notes where everything is drawn, in pixels of the picture."""

    marks: list[tuple[str, float, float, float, float]]

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__(size)
        self.marks = []

    def part(self, x: float, y: float, scale: float) -> Canvas:
        part = super().part(x, y, scale)
        part.__class__ = Recorder
        return part

    def note(self, what: str, x: float, y: float, width: float, height: float) -> None:
        unit = 2.0  # the canvas draws twice as large
        (left, top), scale = self._at((x, y)), self._scale / unit
        self.marks.append((what, left / unit, top / unit, width * scale, height * scale))

    def box(self, rect: Any, color: Any, radius: float = 0, line: float = 0) -> None:
        self.note("box", *rect)
        super().box(rect, color, radius, line)

    def text(  # type: ignore[override]
        self, text: str, place: Any, size: float, color: Any, at: str = "left", room: Any = None
    ) -> float:
        width = super().text(text, place, size, color, at, room)
        x = place[0] - {"left": 0, "center": width / 2, "right": width}[at]
        self.note(text, x, place[1] - size / 3, width, size / 1.5)
        return width


def overlap(a: Any, b: Any) -> bool:
    return (
        a[1] < b[1] + b[3] - 0.5
        and b[1] < a[1] + a[3] - 0.5
        and a[2] < b[2] + b[4] - 0.5
        and b[2] < a[2] + a[4] - 0.5
    )


@pytest.fixture
def canvases(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    """The canvases of the pictures drawn, in order."""
    result: list[Recorder] = []

    def record(size: tuple[int, int]) -> Recorder:
        result.append(Recorder(size))
        return result[-1]

    monkeypatch.setattr(picture, "Canvas", record)
    return result


def panels_of(seats: int) -> list[Any]:
    scale = picture._ARRANGEMENTS[seats].scale
    size = picture._PANEL_WIDTH * scale, picture._PANEL_HEIGHT * scale
    return [("panel", x, y, *size) for x, y in picture._places(seats)]


def check_marks(marks: list[Any], panels: list[Any]) -> None:
    """Each text and each label lies within one panel or clear of all, and clear of each other."""
    texts = [mark for mark in marks if mark[0] != "box"]
    for i, text in enumerate(texts):
        assert len([panel for panel in panels if overlap(text, panel)]) <= 1, text
        for other in texts[:i]:
            assert not overlap(text, other), (text, other)
    table, rest = marks[:3], marks[3:]
    assert all(mark[3] > PICTURE_SIZE[0] / 2 for mark in table)
    for mark in rest:
        for _, x, y, width, height in panels:
            if x < mark[1] < x + width and y < mark[2] < y + height:
                assert mark[1] + mark[3] <= x + width - 5, mark
                assert mark[2] + mark[4] <= y + height - 2, mark


@pytest.mark.parametrize("seats", range(2, 14))
def test_panels_lie_apart_and_within_the_picture(seats: int) -> None:
    width, height = PICTURE_SIZE
    panels = panels_of(seats)
    assert len(panels) == seats
    for i, panel in enumerate(panels):
        assert panel[1] >= 0
        assert panel[2] >= 0
        assert panel[1] + panel[3] <= width
        assert panel[2] + panel[4] <= height
        assert not any(overlap(panel, other) for other in panels[:i])


@pytest.mark.parametrize("seats", range(2, 14))
def test_nothing_overlaps_or_leaves_its_panel(seats: int, canvases: list[Recorder]) -> None:
    caption = "an illegal action ended the episode; so far " + ", ".join(
        f"player_{seat} +12" for seat in range(seats)
    )
    views = list(walk_tables(seats))
    for view in [*random.Random(seats).sample(views, 6), *views[-3:]]:
        picture.draw_table(view, caption)
        marks = canvases[-1].marks
        names = {words.seat_name(seat) for seat in range(seats)}
        assert names <= {mark[0] for mark in marks}
        check_marks(marks, panels_of(seats))


@pytest.mark.parametrize("reply", ["CONCEDE", "CONTEST"])
def test_the_longest_contest_and_a_long_caption_fit(reply: str, canvases: list[Recorder]) -> None:
    for seats in (2, 4, 9, 13):
        state = Game(seats).new_state(hands=hands_of(seats))
        play(state, "SPLIT_0 " * seats + "REQUEST_PUSH " * (seats - 1) + f"REFUSE {reply}")
        picture.draw_table(state.view(0), "a caption of many words " * 25)
        marks = canvases[-1].marks
        assert {"REQUEST PUSH", "REFUSE", reply} <= {mark[0] for mark in marks}
        check_marks(marks, panels_of(seats))


def test_the_seat_to_act_is_marked() -> None:
    state = Game(4).new_state(hands=HANDS_4)
    views = [state.view(None)]
    play(state, "SPLIT_0")
    views.append(state.view(None))
    gold = []
    for view in views:
        near = (render_rgb(view).astype(int) - picture._GOLD).__abs__().sum(axis=-1) < 30
        rows, columns = np.nonzero(near)
        gold.append((rows.mean(), columns.mean()))
    (row_0, column_0), (row_1, column_1) = gold
    assert row_0 > PICTURE_SIZE[1] * 0.6  # seat 0, at the bottom
    assert abs(column_0 - PICTURE_SIZE[0] / 2) < 60
    assert column_1 < PICTURE_SIZE[0] * 0.35  # its left neighbour
    assert row_1 < row_0


def test_the_viewer_sits_at_the_bottom() -> None:
    bottom = picture._places(5)[0]
    assert bottom[1] == max(y for _, y in picture._places(5))
    state = Game(4).new_state(hands=HANDS_4)
    play(state, "SPLIT_0 SPLIT_1 SPLIT_2 SPLIT_0")
    for seat in range(4):
        pixels = render_rgb(state.view(seat)).astype(int)
        # Only the viewer's cards lie face down and are seen.
        down = (pixels == picture._CARD_DOWN).all(axis=-1).sum(axis=-1)
        assert np.nonzero(down > 50)[0].min() > PICTURE_SIZE[1] * 0.6


@pytest.mark.parametrize("ending", [".png", ".jpg", ".bmp", ".PNG"])
def test_a_picture_is_saved_whole(ending: str, tmp_path: Path) -> None:
    view = Game(3).new_state(1).view(None)
    path = tmp_path / f"table{ending}"
    path.write_text("an older file")
    save_picture(view, path)
    assert list(tmp_path.iterdir()) == [path]
    loaded = pygame.surfarray.array3d(pygame.image.load(path)).swapaxes(0, 1)
    assert loaded.shape == SHAPE
    if ending != ".jpg":
        np.testing.assert_array_equal(loaded, render_rgb(view))


def test_a_picture_that_cannot_be_saved_is_an_error(tmp_path: Path) -> None:
    view = Game(3).new_state(1).view(None)
    with pytest.raises(ShuiyuError, match=r"ending in \.png"):
        save_picture(view, tmp_path / "table.gif")
    with pytest.raises(OSError, match="nowhere"):
        save_picture(view, tmp_path / "nowhere" / "table.png")
    folder = tmp_path / "folder.png"
    folder.mkdir()
    with pytest.raises(OSError, match="folder"):
        save_picture(view, folder)
    assert list(tmp_path.iterdir()) == [folder]


def test_pictures_need_neither_a_display_nor_a_video_driver() -> None:
    code = (
        "import os\n"
        "os.environ.pop('SDL_VIDEODRIVER', None)\n"
        "os.environ.pop('DISPLAY', None)\n"
        "from shuiyu_env import Game\n"
        "from shuiyu_env.render import render_rgb\n"
        "picture = render_rgb(Game(2).new_state(1).view(0))\n"
        "import pygame\n"
        "assert not pygame.display.get_init()\n"
        "pygame.quit()\n"
        "assert (render_rgb(Game(2).new_state(1).view(0)) == picture).all()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("mode", ["rgb_array", "human"])
def test_without_pygame_the_error_names_the_extra(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(ShuiyuError, match=r'pip install "shuiyu_env\[render\]"'):
        shuiyu_v0.env(render_mode=mode)
    with pytest.raises(ShuiyuError, match="pygame"):
        render_rgb(Game(2).new_state(1).view(0))
    env = shuiyu_v0.env(render_mode="ansi")
    env.reset()
    assert "player_0" in env.render()


# What a seat may not see


def exchange_hidden(state: State, seat: int, rng: random.Random) -> State | None:
    """Return the state with the cards that ``seat`` has not seen dealt anew, played alike.

    Every hand keeps its special status, so the same actions are legal.
    """
    hands = list(state.view(seat).hands)
    known = {card for hand in hands if hand is not None for card in hand}
    pool = [card for card in state.game.rules.deck.cards if card not in known]
    hidden = [owner for owner, hand in enumerate(hands) if hand is None]
    real = state.deal.hands
    for _ in range(200 if hidden else 0):
        cards = rng.sample(pool, 4 * len(hidden))
        for i, owner in enumerate(hidden):
            hands[owner] = tuple(sorted(cards[4 * i : 4 * i + 4], reverse=True))
        if all(
            special_of(hand) == special_of(old)
            for hand, old in zip(hands, real, strict=True)
            if hand is not None
        ):
            other = state.game.new_state(hands=hands, dealer=state.deal.dealer)
            for action in state.deal.actions:
                other.apply(action)
            return other
    return None


@pytest.mark.parametrize("rules", ["nanning", "dahua_house", RuleSet(max_stake=2)])
def test_a_seats_rendering_does_not_depend_on_hidden_cards(rules: Any) -> None:
    rng = random.Random(7)
    pictures = texts = differences = 0
    for seed in range(12):
        for state in states(Game(4, rules), seed, special=seed % 3 == 0):
            seat = rng.randrange(4)
            other = exchange_hidden(state, seat, rng)
            if other is None:
                continue
            texts += 1
            assert render_ansi(other.view(seat)) == render_ansi(state.view(seat))
            differences += render_ansi(other.view(None)) != render_ansi(state.view(None))
            if texts % 10 == 0:
                pictures += 1
                assert (render_rgb(other.view(seat)) == render_rgb(state.view(seat))).all()
    assert texts > 70
    assert pictures > 2
    assert differences > 50  # the whole table does show what was exchanged


def test_the_whole_tables_picture_shows_every_card() -> None:
    state = Game(4).new_state(hands=HANDS_4)
    play(state, "SPLIT_0 SPLIT_0 SPLIT_0 SPLIT_0")
    other = Game(4).new_state(hands=[HANDS_4[0], HANDS_4[1], HANDS_4[3], HANDS_4[2]])
    play(other, "SPLIT_0 SPLIT_0 SPLIT_0 SPLIT_0")
    for seat in (0, 1):
        assert (render_rgb(other.view(seat)) == render_rgb(state.view(seat))).all()
    for seat in (2, 3, None):
        assert (render_rgb(other.view(seat)) != render_rgb(state.view(seat))).any()


# In the environment


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shuiyu_v0.raw_env.metadata, "render_fps", 0)


def finish(env: Any, seed: int = 0) -> None:
    rng = random.Random(seed)
    while not any(env.terminations.values()):
        mask = env.observe(env.agent_selection)["action_mask"]
        env.step(rng.choice(np.flatnonzero(mask)))


@pytest.mark.parametrize("seat", [None, 0, 2])
def test_the_environment_draws_the_view_it_is_told_to(seat: int | None) -> None:
    for mode, render in (("ansi", render_ansi), ("rgb_array", render_rgb)):
        env = shuiyu_v0.env(num_players=3, render_mode=mode, render_view=seat)
        env.reset(seed=1)
        for _ in range(4):
            view = env.unwrapped.game_state.view(seat)
            np.testing.assert_array_equal(env.render(), render(view))
            env.step(int(np.flatnonzero(env.last()[0]["action_mask"])[0]))


def test_the_last_frame_shows_the_final_state() -> None:
    for mode, render in (("ansi", render_ansi), ("rgb_array", render_rgb)):
        env = shuiyu_v0.env(num_players=2, render_mode=mode)
        env.reset(seed=1)
        finish(env)
        expected = render(env.unwrapped.game_state.view(None))
        np.testing.assert_array_equal(env.render(), expected)
        while env.agents:
            env.step(None)
        np.testing.assert_array_equal(env.render(), expected)
    assert "The deal is settled" in render_ansi(env.unwrapped.game_state.view(None))


def test_the_caption_tells_deals_and_returns() -> None:
    env = shuiyu_v0.env(num_players=2, rounds=2, render_mode="ansi", render_view=1)
    env.reset(seed=1)
    assert env.render().splitlines()[2] == "deal 1 of 2"
    finish(env)
    units = [words.units_text(units) for units in env.unwrapped.game_state.returns()]
    assert (
        env.render().splitlines()[2]
        == f"deal 2 of 2; so far player_0 {units[0]}, player_1 {units[1]}"
    )


@pytest.mark.usefixtures("no_waiting")
def test_human_draws_every_step_and_shows_how_each_deal_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[tuple[View, str]] = []
    monkeypatch.setattr(Window, "show", lambda self, *arguments: shown.append(arguments))
    env = shuiyu_v0.env(num_players=2, rounds=2, render_mode="human")
    env.reset(seed=1)
    assert len(shown) == 1
    finish(env)
    steps = len(env.unwrapped.game_state.history)
    settled = [(view, caption) for view, caption in shown if view.phase == Phase.OVER]
    assert len(shown) == 1 + steps + 1  # the first deal's end comes on top
    assert [caption[:11] for _, caption in settled] == ["deal 1 of 2", "deal 2 of 2"]
    assert shown[-1][0].phase == Phase.OVER
    assert [view.rewards for view, _ in settled] == [
        deal.rewards for deal in env.unwrapped.game_state.finished
    ]


@pytest.mark.usefixtures("no_waiting")
def test_human_returns_none_and_closes_twice() -> None:
    env = shuiyu_v0.env(num_players=2, render_mode="human")
    env.reset(seed=1)
    assert env.render() is None
    screen = pygame.display.get_surface()
    assert screen.get_size() == PICTURE_SIZE
    pixels = pygame.surfarray.array3d(screen).swapaxes(0, 1)
    np.testing.assert_array_equal(pixels, render_rgb(env.unwrapped.game_state.view(None)))
    env.close()
    assert not pygame.display.get_init()
    env.close()
    env.render()  # opens again
    assert pygame.display.get_init()
    env.close()
    shuiyu_v0.env(render_mode="human").close()  # never opened


@pytest.mark.usefixtures("no_waiting")
def test_two_windows_do_not_break_each_other() -> None:
    one, two = (shuiyu_v0.env(num_players=2, render_mode="human") for _ in range(2))
    one.reset(seed=1)
    two.reset(seed=2)
    one.render()
    two.close()
    one.render()
    pygame.quit()
    one.render()
    two.render()
    two.close()
    one.close()
    one.close()
    assert not pygame.display.get_init()


@pytest.mark.usefixtures("no_waiting")
def test_a_window_its_user_closes_stays_closed_and_play_goes_on() -> None:
    env = shuiyu_v0.env(num_players=2, render_mode="human")
    env.reset(seed=1)
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    env.step(0)
    assert not pygame.display.get_init()
    finish(env)
    assert not pygame.display.get_init()
    env.close()
