"""Equilibria as policies and as files, and where they are found."""

from __future__ import annotations

import dataclasses
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from games import play, random_rules, random_states

from shuiyu_env.core.cards import Deck
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import CheckpointError, PolicyError
from shuiyu_env.core.game import Game
from shuiyu_env.core.rules import PRESETS, RuleSet
from shuiyu_env.evaluation import play_match
from shuiyu_env.exact import Equilibrium, equilibrium_of, load_equilibrium, solve, store
from shuiyu_env.exact.heads_up import rules_key
from shuiyu_env.observation import layout_of
from shuiyu_env.policies import available, checked_probabilities, load

SMALL = Deck(3, 4)


def small(preset: str, deck: Deck = SMALL) -> RuleSet:
    return dataclasses.replace(PRESETS[preset], deck=deck)


@pytest.fixture(scope="module", params=sorted(PRESETS))
def equilibrium(request: pytest.FixtureRequest) -> Equilibrium:
    return solve(small(request.param), 1e-3, threads=1)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of this test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("SHUIYU_CACHE_DIR", str(folder))
    return folder


# ---- as a policy ------------------------------------------------------------------------------


def test_it_plays_every_decision(equilibrium: Equilibrium) -> None:
    rng = random.Random(3)
    for rules in (equilibrium.rules, dataclasses.replace(equilibrium.rules, declare="in_turn")):
        game = Game(2, rules, rounds=2, dealer_rotation="rotate")
        phases = set()
        for number in range(60):
            for state in random_states(game, rng, special=number % 3 == 0):
                if state.is_terminal:
                    break
                seat = state.current_player
                observation = layout_of(game).encode(state.view(seat))[None]
                mask = np.zeros((1, game.num_actions), dtype=np.int8)
                mask[0, [int(a) for a in state.legal_actions()]] = 1
                checked_probabilities(equilibrium, observation, mask, "equilibrium")
                phases.add(state.view(seat).phase)
        assert phases >= {Phase.ARRANGE, Phase.DECLARE, Phase.CALL, Phase.REPLY}


def test_rows_are_answered_independently(equilibrium: Equilibrium) -> None:
    game = Game(2, equilibrium.rules)
    rng = random.Random(8)
    observations, masks = [], []
    for _ in range(20):
        for state in random_states(game, rng):
            if not state.is_terminal:
                seat = state.current_player
                observations.append(layout_of(game).encode(state.view(seat)))
                masks.append(np.isin(np.arange(23), [int(a) for a in state.legal_actions()]))
    together = equilibrium.probabilities(np.array(observations), np.array(masks))
    for row in range(0, len(masks), 5):
        alone = equilibrium.probabilities(observations[row][None], masks[row][None])
        assert (alone[0] == together[row]).all()
    empty = equilibrium.probabilities(np.zeros((0, layout_of(game).size)), np.zeros((0, 23)))
    assert empty.shape == (0, 23)


def test_other_games_are_refused() -> None:
    equilibrium = solve(small("dahua", Deck(2, 4)), 1e-2, threads=1)
    with pytest.raises(PolicyError, match="plays heads-up without stakes"):
        equilibrium.probabilities(
            np.zeros((1, layout_of(Game(3)).size), dtype=np.float32), np.ones((1, 23))
        )
    size = layout_of(Game(2)).size
    with pytest.raises(PolicyError, match="row 0 asks for a decision that its rules do not have"):
        equilibrium.probabilities(_first_observation(Game(2), declare="FORCE"), _mask(0, 1, 2))
    with pytest.raises(PolicyError, match="row 0 shows no hand of its deck"):
        equilibrium.probabilities(_first_observation(Game(2)), _mask(0, 1, 2))
    with pytest.raises(PolicyError, match="row 0 is all zero"):
        equilibrium.probabilities(np.zeros((1, size), dtype=np.float32), np.zeros((1, 23)))


def _first_observation(game: Game, declare: str | None = None) -> Any:
    """What is seen first: at a forced showdown by the dealer, or when arranging."""
    state = game.new_state(0, hands=["Ks Qd 7c 2h", "Qs Jd 9c 3h"])
    if declare:
        play(state, f"SPLIT_0 SPLIT_0 {declare}")
    return layout_of(game).encode(state.view(state.current_player))[None]


def _mask(*legal: int) -> Any:
    return np.isin(np.arange(23), legal)[None]


@pytest.mark.slow
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_against_itself_it_gets_the_value(preset: str) -> None:
    """In both roles, within the interval; and in a match of a full deck."""
    equilibrium = load("equilibrium", Game(2, preset))
    assert isinstance(equilibrium, Equilibrium)
    result = play_match([equilibrium, equilibrium], Game(2, preset), num_deals=20_000, seed=11)
    value = equilibrium.info["value"]
    entry = result.entries[0]
    # Both seats play the same, so the roles' means are the punter's value and its negative.
    for estimate, expected in ((entry.punter, value), (entry.dealer, -value), (entry.both, 0.0)):
        assert estimate.low <= expected <= estimate.high


# ---- as a file --------------------------------------------------------------------------------


def test_a_file_holds_all_of_it(equilibrium: Equilibrium, tmp_path: Path) -> None:
    path = equilibrium.save(tmp_path / "solution.npz")
    read = load_equilibrium(path)
    assert read.rules == equilibrium.rules
    assert read.info == equilibrium.info
    for name, table in equilibrium.tables.items():
        assert np.array_equal(read.tables[name], table)
    # What the solver said, computed again from the file.
    assert float(read.nashconv().nashconv) == pytest.approx(read.info["nashconv"], abs=1e-12)
    assert isinstance(load(str(path), Game(2, read.rules)), Equilibrium)
    assert isinstance(load(path), Equilibrium)
    # The same equilibrium is the same file.
    assert equilibrium.save(tmp_path / "again.npz").read_bytes() == path.read_bytes()


def test_damaged_and_foreign_files(tmp_path: Path) -> None:
    equilibrium = solve(small("dahua", Deck(2, 4)), 1e-2, threads=1)
    path = equilibrium.save(tmp_path / "solution.npz")
    whole = path.read_bytes()

    def refused(message: str, rules: RuleSet | None = None) -> None:
        with pytest.raises(CheckpointError, match=message):
            load_equilibrium(path, rules)

    refused("solves other rules, not nanning", PRESETS["nanning"])
    for cut in (0, 10, len(whole) // 2, len(whole) - 4):
        path.write_bytes(whole[:cut])
        refused("damaged")
    for position in range(60, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        try:
            read = load_equilibrium(path)
        except CheckpointError:
            continue
        # A byte that is not looked at, such as a date.
        assert read.tables.keys() == equilibrium.tables.keys()
        assert all(np.array_equal(read.tables[n], equilibrium.tables[n]) for n in read.tables)
    np.savez(path, something=np.zeros(3))
    refused("damaged, or no equilibrium")
    with pytest.raises(CheckpointError, match="there is no file"):
        load_equilibrium(tmp_path / "missing.npz")
    path.write_bytes(whole)
    broken = dataclasses.replace(equilibrium)
    broken.tables = dict(equilibrium.tables)
    broken.tables["punter.declare"] = np.full_like(broken.tables["punter.declare"], 241)
    other = broken.save(tmp_path / "broken.npz")
    with pytest.raises(CheckpointError, match=r"punter\.declare has probabilities that sum to"):
        load_equilibrium(other)
    with pytest.raises(CheckpointError, match="solves other rules, not dahua"):
        load_equilibrium(path, "dahua")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for change in ("format", "key", "table"):
        changed = dict(members)
        start = members["header.npy"].index(b"{", 100)
        header = json.loads(members["header.npy"][start:])
        if change == "format":
            header["format"] = 99
        elif change == "key":
            header["key"] = "0" * 64
        else:
            changed["dealer.split.npy"] = (
                members["punter.COVER.npy"] if False else members["dealer.COVER.npy"]
            )
        if change != "table":
            text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
            np.save(tmp_path / "header.npy", text)
            changed["header.npy"] = (tmp_path / "header.npy").read_bytes()
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in changed.items():
                archive.writestr(name, data)
        refused(
            {
                "format": "of format 99",
                "key": "another version of its rules",
                "table": r"dealer\.split, expected uint8\[70, 2\], got",
            }[change]
        )


def test_probabilities_are_sound(equilibrium: Equilibrium) -> None:
    for name in equilibrium.tables:
        table = equilibrium.table(name)
        np.testing.assert_allclose(table.sum(axis=-1), 1.0, atol=1e-12)
        assert table.min() >= 0.0
    game = equilibrium.game
    for role in ("dealer", "punter"):
        assert (equilibrium.table(f"{role}.split")[~game.classes.legal_splits] == 0.0).all()


# ---- which game -------------------------------------------------------------------------------


def test_the_key_is_of_what_matters() -> None:
    base = PRESETS["nanning"]
    same = [dataclasses.replace(base, declare="in_turn")]
    other = [
        PRESETS["dahua"],
        dataclasses.replace(base, attack_on_push=0),
        dataclasses.replace(base, force_on_push=0),
        dataclasses.replace(base, attack_accept=False),
        dataclasses.replace(base, surrender_to_open=True),
        dataclasses.replace(base, doubted_push_when_dealer_wins=2),
        dataclasses.replace(base, specials="at_showdown"),
        dataclasses.replace(base, cover_lost_to_special=2),
        dataclasses.replace(base, tie_break="next_group"),
        dataclasses.replace(base, deck=Deck(12, 4)),
        dataclasses.replace(base, deck=Deck(13, 3)),
        dataclasses.replace(base, max_stake=2),
    ]
    assert {rules_key(rules) for rules in same} == {rules_key(base)}
    keys = [rules_key(rules) for rules in [base, *other]]
    assert len(set(keys)) == len(keys)


def test_keys_of_random_rules_tell_trees_apart() -> None:
    rng = random.Random(1)
    seen: dict[str, Any] = {}
    for _ in range(300):
        rules = random_rules(rng)
        facts = dataclasses.replace(rules, declare="simultaneous").to_dict()
        seen.setdefault(rules_key(rules), []).append(facts)
    # Fields that a selection of declarations does not use may differ.
    for same in seen.values():
        assert len({json.dumps([f["declarations"], f["deck"], f["tie_break"]]) for f in same}) == 1


# ---- where it is found ------------------------------------------------------------------------


def test_it_is_solved_once_and_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = small("dahua")
    game = Game(2, rules)
    assert store.find(rules) == []
    first = load("equilibrium", game)
    assert isinstance(first, Equilibrium)
    assert first.info["nashconv"] <= 1e-4
    assert store.find(rules) == [cache / store.file_name(rules)]
    assert [path.name for path in cache.iterdir()] == [store.file_name(rules)]

    def never(*args: Any, **options: Any) -> Any:
        raise AssertionError("solved again")

    monkeypatch.setattr(store, "solve", never)
    again = load("equilibrium", game)
    assert isinstance(again, Equilibrium)
    assert again.info == first.info
    # Another order of declaring is the same game heads-up.
    turned = dataclasses.replace(rules, declare="in_turn")
    assert load("equilibrium", Game(2, turned)).rules == turned  # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match="solved again"):
        equilibrium_of(rules, 1e-9)


def test_what_could_not_be_reached_is_not_tried_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rules = small("nanning")
    first = solve(rules, 1e-12, max_iterations=2, out=cache / store.file_name(rules))

    def never(*args: Any, **options: Any) -> Any:
        raise AssertionError("solved again")

    monkeypatch.setattr(store, "solve", never)
    assert equilibrium_of(rules, 1e-11).info == first.info
    assert "no better one was found" in caplog.text


def test_a_stale_checkpoint_in_the_cache_is_no_obstacle(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = small("dahua", Deck(2, 4))
    path = cache / store.file_name(rules)
    solve(
        rules,
        1e-30,
        algorithm="cfr",
        max_iterations=2,
        checkpoint=path.with_suffix(".checkpoint.npz"),
    )
    assert len(list(cache.iterdir())) == 1
    assert equilibrium_of(rules, 1e-2, progress=False).info["nashconv"] <= 1e-2
    assert "beginning again" in caplog.text
    assert [file.name for file in cache.iterdir()] == [path.name]


def test_the_better_of_two_solutions_is_taken(cache: Path) -> None:
    rules = PRESETS["dahua_house"]
    (shipped,) = store.find(rules)
    better = load_equilibrium(shipped)
    better.info["nashconv"] /= 2
    better.save(cache / store.file_name(rules))
    assert equilibrium_of(rules).info == better.info


def test_a_damaged_file_in_the_cache_is_replaced(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = small("dahua", Deck(2, 4))
    cache.mkdir()
    path = cache / store.file_name(rules)
    path.write_bytes(b"half")
    assert equilibrium_of(rules, 1e-2, progress=False).info["nashconv"] <= 1e-2
    assert "solving again" in caplog.text
    assert load_equilibrium(path, rules).info["nashconv"] <= 1e-2


def test_a_cache_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("SHUIYU_CACHE_DIR", str(blocked))
    rules = small("dahua", Deck(2, 4))
    assert equilibrium_of(rules, 1e-2, progress=False).info["nashconv"] <= 1e-2
    assert "will not be kept" in caplog.text


def test_games_without_an_equilibrium() -> None:
    assert "equilibrium" in available()
    with pytest.raises(PolicyError, match=r"heads-up only, not for 4 seats: choose .*honest"):
        load("equilibrium", Game(4))
    (path,) = store.find(PRESETS["nanning"])
    for spec in ("equilibrium", str(path)):
        with pytest.raises(PolicyError, match="not zero-sum"):
            load(spec, Game(2, reward="drinks"))


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_presets_are_shipped(preset: str, cache: Path) -> None:
    (path,) = store.find(PRESETS[preset])
    assert path.parent == store.SHIPPED
    assert path.stat().st_size < 3 * 2**20
    equilibrium = load("equilibrium", Game(2, preset))
    assert isinstance(equilibrium, Equilibrium)
    assert equilibrium.rules == PRESETS[preset]
    assert equilibrium.info["nashconv"] <= 1e-4
    assert not cache.exists()


@pytest.mark.slow
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_shipped_files_are_as_good_as_they_say(preset: str) -> None:
    equilibrium = load("equilibrium", Game(2, preset))
    assert isinstance(equilibrium, Equilibrium)
    result = equilibrium.nashconv()
    for name in ("nashconv", "value", "dealer_gain", "punter_gain"):
        assert float(getattr(result, name)) == pytest.approx(equilibrium.info[name], abs=1e-10)
