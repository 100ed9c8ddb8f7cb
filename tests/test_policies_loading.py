"""The protocol's helpers, and policies by name, file and import path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from games import examples
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shuiyu_env import Game, policies
from shuiyu_env.core.errors import ConfigError, PolicyError
from shuiyu_env.evaluation import match_against
from shuiyu_env.files import check_writable
from shuiyu_env.observation import layout_of
from shuiyu_env.policies import available, checked_probabilities, load, sample_actions
from shuiyu_env.policies.reference import Honest, Uniform

GAME = Game(2)


class Fixed:
    """A policy that always gives one answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def probabilities(self, observation: Any, action_mask: Any) -> Any:
        return self.answer


def two_rows() -> tuple[np.ndarray, np.ndarray]:
    """Return the observations and masks of a dealer arranging and a punter declaring."""
    layout = layout_of(GAME)
    state = GAME.new_state(hands=["As Kd 7c 2h", "Ad Ks 8c 3h"])
    observation, mask = [], np.zeros((2, GAME.num_actions), dtype=np.int8)
    for row in range(2):
        observation.append(layout.encode(state.view(state.current_player)))
        mask[row, list(state.legal_actions())] = 1
        if row == 0:
            state.apply(0)
            state.apply(0)
    return np.stack(observation), mask


def good_answer() -> np.ndarray:
    answer = np.zeros((2, GAME.num_actions), dtype=np.float32)
    answer[0, 0] = answer[1, 3] = 1.0
    return answer


def test_a_good_answer_passes() -> None:
    observation, mask = two_rows()
    result = checked_probabilities(Fixed(good_answer()), observation, mask, "good")
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, good_answer())
    # Single precision and lists are good enough.
    third = np.where(mask, 1 / mask.sum(axis=1, keepdims=True), 0.0).astype(np.float32)
    checked_probabilities(Fixed(third), observation, mask.astype(bool), "good")
    checked_probabilities(Fixed(third.tolist()), observation, mask, "good")


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        ((1, 3), np.nan, r"row 1, seat 1, phase DECLARE: the probabilities are not finite"),
        ((1, 4), np.inf, r"row 1, seat 1, phase DECLARE: the probabilities are not finite"),
        ((0, 1), -0.1, r"row 0, seat 0, phase ARRANGE: a probability is negative"),
        ((1, 4), 0.001, r"row 1, seat 1, phase DECLARE: .* do not sum to 1.*sum 1.001"),
        ((0, 0), 0.0, r"row 0, seat 0, phase ARRANGE: .* do not sum to 1"),
        ((0, 3), 1e-9, r"row 0, .*an illegal action has a probability; legal: SPLIT_0, SPLIT_1,"),
    ],
)
def test_a_bad_answer_names_policy_row_seat_and_phase(
    at: tuple[int, int], value: float, message: str
) -> None:
    observation, mask = two_rows()
    answer = good_answer()
    answer[at] = value
    with pytest.raises(PolicyError, match=r"policy 'bad bot', " + message):
        checked_probabilities(Fixed(answer), observation, mask, "bad bot", seats=[0, 1])
    with pytest.raises(PolicyError, match=r"policy 'bad bot', row \d, phase [A-Z]+: "):
        checked_probabilities(Fixed(answer), observation, mask, "bad bot")


@pytest.mark.parametrize("answer", [None, "x", np.ones(23), np.ones((2, 22)), [[1.0], [1.0, 2.0]]])
def test_an_answer_of_the_wrong_shape_is_refused(answer: Any) -> None:
    with pytest.raises(PolicyError, match=r"policy 'bad': expected probabilities of shape \(2, 23"):
        checked_probabilities(Fixed(answer), *two_rows(), "bad")


def test_a_row_without_legal_actions_is_refused() -> None:
    observation, mask = two_rows()
    mask[1] = 0
    with pytest.raises(PolicyError, match=r"row 1.*there is no legal action"):
        checked_probabilities(Uniform(), observation, mask, "uniform")


def test_observations_of_an_unknown_size_still_give_the_message() -> None:
    with pytest.raises(PolicyError, match="policy 'bad', row 0: a probability is negative"):
        checked_probabilities(Fixed([[2.0, -1.0]]), np.zeros((1, 3)), np.ones((1, 2)), "bad")


EDGES = [0.0, 5e-324, 2.0**-53, 0.5, 1.0 - 2.0**-53, 1.0]


@examples(200)
@given(
    weights=hnp.arrays(
        np.float32, (4, 7), elements=st.sampled_from([0.0, 1e-30, 1e-7, 0.1, 1 / 3, 0.7, 1.0])
    ),
    legal=hnp.arrays(np.bool_, (4, 7)),
    uniforms=st.lists(st.sampled_from(EDGES) | st.floats(0.0, 1.0), min_size=4, max_size=4),
)
def test_sampling_never_draws_an_impossible_action(
    weights: np.ndarray, legal: np.ndarray, uniforms: list[float]
) -> None:
    legal[:, 3] = True
    weights[~(weights * legal).any(axis=1), 3] = 1.0
    # Whatever lies on illegal actions is ignored.
    actions = sample_actions(weights, legal, uniforms)
    assert actions.dtype == np.int64
    assert legal[np.arange(4), actions].all()
    assert (weights[np.arange(4), actions] > 0.0).all()


@pytest.mark.parametrize("only", [0, 3, 6])
@pytest.mark.parametrize("total", [1.0, 0.5000001, 1 / 3, 1.0001, 1e-20])
@pytest.mark.parametrize("u", EDGES)
def test_a_single_legal_action_is_drawn(only: int, total: float, u: float) -> None:
    mask = np.zeros((1, 7), dtype=np.int8)
    mask[0, only] = 1
    assert sample_actions(mask * total, mask, [u]) == [only]


def test_sampling_inverts_the_distribution_function() -> None:
    probabilities = np.array([[0.2, 0.0, 0.3, 0.5]])
    expected = {0.0: 0, 0.1999: 0, 0.2001: 2, 0.4999: 2, 0.5001: 3, 1.0: 3}
    rows = np.repeat(probabilities, len(expected), axis=0)
    actions = sample_actions(rows, np.ones_like(rows), list(expected))
    assert actions.tolist() == list(expected.values())
    u = (np.arange(1000) + 0.5) / 1000
    rows = np.repeat(probabilities, 1000, axis=0)
    counts = np.bincount(sample_actions(rows, np.ones_like(rows), u), minlength=4)
    np.testing.assert_array_equal(counts, [200, 0, 300, 500])


@pytest.mark.parametrize("uniforms", [[-0.1], [1.1], [np.nan], [0.5, 0.5], 0.5])
def test_bad_uniforms_are_refused(uniforms: Any) -> None:
    with pytest.raises(PolicyError, match="uniforms: expected 1 numbers from 0 to 1"):
        sample_actions(np.ones((1, 2)), np.ones((1, 2)), uniforms)


@pytest.mark.parametrize("row", [[0.0, 0.0, 1.0], [np.nan, 0.0, 0.0], [np.inf, 0.0, 0.0]])
def test_sampling_from_nothing_is_refused(row: list[float]) -> None:
    with pytest.raises(PolicyError, match="row 1: expected probabilities with a positive sum"):
        sample_actions(np.array([[1.0, 0.0, 0.0], row]), np.array([[1, 1, 0]] * 2), [0.5, 0.5])


def test_names() -> None:
    assert set(available()) >= {"uniform", "honest", "cautious", "bluffer"}
    for name in available():
        assert callable(load(name).probabilities)
    assert isinstance(load("honest"), Honest)
    assert type(load("cautious")) is not Honest


def test_a_policy_is_returned_as_it_is() -> None:
    policy = Uniform()
    assert load(policy) is policy


@pytest.mark.parametrize("bad", [None, 3, Uniform, object()])
def test_what_is_no_specification_is_refused(bad: Any) -> None:
    with pytest.raises(PolicyError, match="expected a policy's name, a file, 'module:attribute'"):
        load(bad)


@pytest.mark.parametrize("name", ["honset", "", "Uniform2", "no/such/thing", ":x", "x:"])
def test_an_unknown_name_lists_all_names(name: str) -> None:
    with pytest.raises(PolicyError) as caught:
        load(name)
    for known in available():
        assert known in str(caught.value)
    assert ("did you mean 'honest'" in str(caught.value)) == (name == "honset")


MODULE = """
class Bot:
    def probabilities(self, observation, action_mask):
        return action_mask / action_mask.sum(axis=1, keepdims=True)

class NeedsMore(Bot):
    def __init__(self, size):
        pass

class Space:
    inner = Bot()

bot = Bot()
number = 3

def make():
    return bot

def make_nothing():
    return None

def fail():
    raise OSError("the disk is full")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "my_bots.py").write_text(MODULE)
    (tmp_path / "bad_bots.py").write_text("import no_such_library\n")
    (tmp_path / "worse_bots.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield sys.modules
    for name in ("my_bots", "bad_bots", "worse_bots"):
        sys.modules.pop(name, None)


def test_module_and_attribute(module: dict[str, Any]) -> None:
    instance = load("my_bots:bot")
    assert instance is module["my_bots"].bot
    assert isinstance(load("my_bots:Bot"), module["my_bots"].Bot)
    assert load("my_bots:make") is instance
    assert load("my_bots:Space.inner") is module["my_bots"].Space.inner
    checked_probabilities(instance, *two_rows(), "bot")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no_bots:bot", "there is no module 'no_bots'"),
        ("my_bots.sub:bot", "importing my_bots.sub failed|there is no module 'my_bots.sub'"),
        ("my_bots:bott", "has no attribute 'bott'; did you mean 'bot'"),
        ("my_bots:number", "expected an object with a method probabilities.*got 3"),
        ("my_bots:NeedsMore", "calling it without arguments failed: TypeError.*size"),
        ("my_bots:make_nothing", "calling it gave None, which has no method"),
        ("my_bots:fail", "calling it without arguments failed: OSError: the disk is full"),
        ("bad_bots:bot", "importing bad_bots failed: .*no_such_library"),
        ("worse_bots:bot", "importing worse_bots failed: ZeroDivisionError"),
        (".relative:bot", "importing .relative failed"),
    ],
)
def test_bad_import_paths(module: Any, spec: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message) as caught:
        load(spec)
    assert spec in str(caught.value)


def test_files(tmp_path: Path) -> None:
    (tmp_path / "policy.safetensors").touch()
    with pytest.raises(PolicyError, match=r"there is no file .*mean 'policy\.safetensors'"):
        load(str(tmp_path / "polcy.safetensors"))
    with pytest.raises(PolicyError, match="there is no folder"):
        load(tmp_path / "nowhere" / "policy.safetensors")
    other = tmp_path / "policy.pt"
    other.touch()
    for spec in (other, str(other)):
        with pytest.raises(PolicyError, match=r"expected the path of a file ending in \.safe"):
            load(spec)
    with pytest.raises(PolicyError, match="got a folder"):
        load(tmp_path)


def test_a_checkpoint_is_read_for_the_game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = pytest.importorskip("shuiyu_env.policies.checkpoint")
    path = tmp_path / "run:1" / "policy.safetensors"
    path.parent.mkdir()
    path.touch()
    asked = []

    def load_policy(path: Path, game: Game | None = None) -> Uniform:
        asked.append((path, game))
        return Uniform()

    monkeypatch.setattr(checkpoint, "load_policy", load_policy)
    load(str(path), GAME)
    load(path)
    assert asked == [(path, GAME), (path, None)]


def test_torch_is_imported_for_checkpoints_only_and_its_absence_explained(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    path.touch()
    code = f"""
import sys
from shuiyu_env import evaluation, policies
for name in ("uniform", "honest", "cautious", "bluffer", "equilibrium"):
    policies.load(name)
assert "torch" not in sys.modules, "torch was imported"
assert "tqdm" not in sys.modules, "tqdm was imported"
sys.modules["torch"] = None
sys.modules["safetensors"] = None
try:
    policies.load({str(path)!r})
except policies.PolicyError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(policies.__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert "not installed: install shuiyu_env[train]" in done.stdout


SHIPPED = sorted((Path(policies.__file__).parent / "trained").glob("*.safetensors"))


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_trained_policies_ship_and_are_found_by_name(file: Path) -> None:
    assert file.stat().st_size < 2**20
    algorithm, preset, seats = file.stem.rsplit("-", 2)
    game = Game(int(seats), preset)
    policy: Any = load(file.stem, game)
    assert file.stem in available()
    assert policy.info["algorithm"] == algorithm
    assert policy.info["rules"] == game.rules.to_dict()
    # It has learned something: the best reference does not beat it.
    result = match_against(policy, ["uniform", "honest"], game, 400)
    assert all(row.result.both.high > 0.0 for row in result)
    assert result[0].result.both.low > 0.3


def test_a_policy_cannot_end_the_program() -> None:
    class Leaving(Uniform):
        def probabilities(self, observation: Any, action_mask: Any) -> Any:
            sys.exit("two\nlines")

    mask = np.ones((1, 3))
    with pytest.raises(PolicyError, match=r"it failed with SystemExit: two lines; legal") as found:
        checked_probabilities(Leaving(), np.zeros((1, 3), dtype=np.float32), mask, "leaving")
    assert "\n" not in str(found.value)


def test_half_precision_is_told_to_be_too_coarse() -> None:
    class Half(Uniform):
        def probabilities(self, observation: Any, action_mask: Any) -> Any:
            return np.full((1, 23), 1 / 23, dtype=np.float16)

    with pytest.raises(PolicyError, match=r"do not sum to 1.*half precision"):
        checked_probabilities(Half(), np.zeros((1, 3), dtype=np.float32), np.ones((1, 23)), "half")


@pytest.mark.skipif(os.name != "posix", reason="there are devices in the file system")
def test_a_device_is_not_replaced() -> None:
    with pytest.raises(ConfigError, match="it is no regular file"):
        check_writable("/dev/null")
