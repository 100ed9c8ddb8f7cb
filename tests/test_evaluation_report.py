"""Reports: what they say is what is computed elsewhere, for every kind of policy."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shuiyu_env import PRESETS, Deck, Game
from shuiyu_env.core.actions import Action
from shuiyu_env.core.errors import ConfigError, DealError, PolicyError, RulesError
from shuiyu_env.evaluation import match_against
from shuiyu_env.evaluation.bluffing import claims, opened, profile
from shuiyu_env.evaluation.hands import false_claims, play_hands, sampled_rates
from shuiyu_env.evaluation.report import evaluate
from shuiyu_env.evaluation.text import call_tables, claims_table, percent
from shuiyu_env.exact import nashconv, tabulate
from shuiyu_env.policies.reference import Bluffer, Uniform

SMALL = replace(PRESETS["nanning"], deck=Deck(ranks=4, suits=3))
PNG = b"\x89PNG"


class Opaque(Bluffer):
    """The bluffer, without any promise."""

    outcomes_only = False


def test_a_report_says_what_is_computed(tmp_path: Path) -> None:
    report = evaluate("honest", SMALL, opponents=["uniform", "bluffer"], num_deals=60, seed=2)
    rows = match_against("honest", ["uniform", "bluffer"], Game(2, SMALL), 60, 2)
    for row in rows:
        assert f"| `{row.opponent}` | {row.result.dealer} | {row.result.punter}" in report.markdown
    truth = nashconv(tabulate(Bluffer(), SMALL)), nashconv(tabulate(_honest(), SMALL))
    assert f"| NashConv, both together | {float(truth[1].nashconv):.4f} |" in report.markdown
    assert "Computed exactly" in report.markdown
    assert "lower bound" not in report.markdown
    assert len(re.findall("^### Deal", report.markdown, re.MULTILINE)) == 12
    page = report.save(tmp_path / "deep" / "report")
    names = {file.name for file in page.parent.iterdir()}
    assert names == {"report.md", "report.html", "report.json", "strength.png", "bluffing.png"}
    for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", report.markdown):
        assert (page.parent / name).read_bytes()[:4] == PNG
    html = page.read_text(encoding="utf-8")
    # One file: nothing is loaded from elsewhere.
    assert re.findall(r'(?:src|href)="(?!data:image/png;base64,|#)', html) == []
    assert html.count("data:image/png;base64,") == 2
    assert html.count("<h3") == 12
    data = json.loads((page.parent / "report.json").read_text())
    assert data["nashconv"]["nashconv"]["low"] == pytest.approx(float(truth[1].nashconv))
    assert data["matches"][0]["both"]["mean"] == rows[0].result.both.mean
    assert data["bluffing"]["honest"]["claims"]
    assert report.summary().count("##") == 2


def _honest() -> Any:
    from shuiyu_env.policies import load

    return load("honest")


def test_the_equilibrium_stands_beside(tmp_path: Path) -> None:
    report = evaluate("uniform", "dahua_house", num_deals=20, opponents=["equilibrium"], hands=3)
    assert set(report.data["bluffing"]) == {"uniform", "equilibrium"}
    assert "| `OPEN` → `KILL` | `equilibrium` |" in report.markdown
    assert "in the equilibrium" in report.markdown
    assert set(report.pictures) == {"strength.png", "bluffing.png", "bluffing-equilibrium.png"}
    assert "by control variates" in report.markdown.replace("out by", "by")


@pytest.mark.parametrize(
    "game", [Game(3, "dahua"), Game(2, SMALL, reward="drinks"), Game(2, {"max_stake": 2})]
)
def test_where_nothing_is_exact_there_is_a_lower_bound(game: Game) -> None:
    report = evaluate(Uniform(), game, opponents=["honest"], num_deals=12, hands=2, name="mine")
    assert "# `mine` on" in report.markdown
    assert "lower bound" in report.markdown
    assert "| Exact |" not in report.markdown
    assert "nashconv" not in report.data
    assert report.data["lower_bound"]["nashconv"] >= 0.0
    assert "counted in 2000 deals" in report.markdown
    assert set(report.pictures) == {"strength.png"}
    with pytest.raises(ConfigError, match="computed heads-up only"):
        evaluate(Uniform(), game, exact="yes")


def test_a_slow_policy_is_not_asked_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Opaque):
        def probabilities(self, observation: Any, action_mask: Any) -> Any:
            self.asked = getattr(self, "asked", 0) + len(action_mask)
            return super().probabilities(observation, action_mask)

    ticks = iter(np.arange(0.0, 1e6, 7.0))
    # A clock by which every look takes seven seconds.
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    policy = Slow()
    report = evaluate(policy, SMALL, opponents=["uniform"], num_deals=8, hands=1)
    assert "Asking the policy everything would take" in report.markdown
    assert "lower_bound" in report.data
    exact = evaluate(policy, SMALL, opponents=["uniform"], num_deals=8, hands=1, exact="yes")
    assert "nashconv" in exact.data
    never = evaluate("honest", SMALL, opponents=["uniform"], num_deals=8, hands=1, exact="no")
    assert "was not to be computed" in never.markdown


def test_what_is_random_or_remembers_is_not_called_exact() -> None:
    class Dice(Opaque):
        def __init__(self) -> None:
            super().__init__()
            self.rng = np.random.default_rng(0)

        def probabilities(self, observation: Any, action_mask: Any) -> Any:
            weights = np.asarray(action_mask) * self.rng.uniform(0.1, 1.0, np.shape(action_mask))
            return weights / weights.sum(axis=1, keepdims=True)

    report = evaluate(Dice(), SMALL, opponents=["uniform"], num_deals=8, hands=1)
    assert "Asked twice about the same it answers differently" in report.markdown
    assert "nashconv" not in report.data
    with pytest.raises(PolicyError, match="asked twice about the same hands"):
        evaluate(Dice(), SMALL, opponents=["uniform"], num_deals=8, exact="yes")


@pytest.mark.parametrize(
    "name", ["a` <img src=x> `b", "</title><script>alert(1)</script>", "x|y\nz"]
)
def test_no_name_breaks_the_page(name: str) -> None:
    report = evaluate(Uniform(), SMALL, name=name, opponents=["uniform"], num_deals=4, hands=1)
    page = report.html()
    assert "<script" not in page
    assert "<img src=x" not in page
    assert page.count("<title>") == page.count("</title>") == 1
    heads = [line for line in report.markdown.splitlines() if line.startswith("# ")]
    assert len(heads) == 1


def test_a_policy_of_that_name_is_not_the_equilibrium() -> None:
    report = evaluate(
        Uniform(), "dahua_house", name="equilibrium", opponents=["uniform"], num_deals=4, hands=0
    )
    mine = report.data["bluffing"]["equilibrium"]["claims"]
    theirs = report.data["bluffing"]["the equilibrium"]["claims"]
    assert mine != theirs


def test_an_older_reports_pictures_go(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"opponents": ["uniform"], "num_deals": 4, "hands": 0}
    evaluate("honest", SMALL, **settings).save(tmp_path)
    assert (tmp_path / "bluffing.png").exists()
    evaluate("honest", SMALL, exact="no", **settings).save(tmp_path)
    assert not (tmp_path / "bluffing.png").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"exact": "perhaps"}, RulesError, "exact"),
        ({"num_deals": 1}, DealError, "num_deals"),
        ({"hands": -1}, DealError, "hands"),
        ({"opponents": []}, PolicyError, "opponents: expected at least one"),
        ({"patience": float("nan")}, ConfigError, "patience"),
        ({"opponents": ["honset"]}, PolicyError, "did you mean 'honest'"),
        ({"policy": "nobody:nothing"}, PolicyError, "no module 'nobody'"),
    ],
)
def test_bad_arguments_are_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        evaluate(**({"policy": "honest", "game": SMALL, "opponents": ["uniform"]} | arguments))


class Nan(Uniform):
    def probabilities(self, observation: Any, action_mask: Any) -> Any:
        return super().probabilities(observation, action_mask) * np.nan


class Illegal(Uniform):
    def probabilities(self, observation: Any, action_mask: Any) -> Any:
        return np.full(np.shape(action_mask), 1.0 / np.shape(action_mask)[1])


class Raising(Uniform):
    def probabilities(self, observation: Any, action_mask: Any) -> Any:
        raise ZeroDivisionError("oh")


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (Nan(), "the probabilities are not finite"),
        (Illegal(), "an illegal action has a probability"),
        (Raising(), "it failed with ZeroDivisionError: oh"),
    ],
)
def test_an_unusable_policy_is_told_at_once(policy: Any, problem: str) -> None:
    with pytest.raises(PolicyError, match=f"policy 'mine', row 0.*{problem}"):
        evaluate(policy, SMALL, name="mine", opponents=["uniform"])


# ---- What is counted in hands ------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["nanning", "dahua_house"])
def test_counted_rates_are_the_exact_ones_up_to_chance(preset: str) -> None:
    rules = replace(PRESETS[preset], deck=Deck(ranks=4, suits=3))
    count = 4000
    counted = sampled_rates(play_hands(Bluffer(), Game(2, rules), count, 3, "bluffer"))
    exact = profile(tabulate(Bluffer(), rules))
    assert set(counted.leaves) == set(exact.leaves)
    seen = 0
    for path, values in exact.leaves.items():
        error = np.sqrt(values * (1.0 - values) / count)
        assert (np.abs(counted.leaves[path] - values) <= 4.5 * error + 1e-12).all(), path
        seen += int((values > 0.01).sum())
    assert seen >= 5
    for mine, true in zip(counted.claim_rates(), exact.claim_rates(), strict=True):
        assert mine.path == true.path
        assert mine.made == pytest.approx(true.made, abs=0.05)


def test_hands_are_those_of_a_match(tmp_path: Path) -> None:
    from shuiyu_env.evaluation import play_match

    game = Game(3, "dahua")
    hands = play_hands(Bluffer(), game, 40, 5, "bluffer")
    units = play_match([Bluffer()] * 3, game, 40, 5).units
    for i, hand in enumerate(hands):
        assert hand.state.is_terminal
        np.testing.assert_array_equal(hand.state.returns(), units[i, 0])
        assert [d.action for d in hand.decisions] == [t.action for t in hand.state.history]
        for decision in hand.decisions:
            assert decision.mask[decision.action]
            assert decision.chances[decision.action] > 0.0


def test_a_false_claim_is_one_that_a_challenge_would_beat() -> None:
    """From the rules' own words: a kill is a bluff unless the dealer wins both groups."""
    hands = play_hands(Bluffer(), Game(2, "dahua"), 400, 1, "bluffer")
    bluffs = 0
    for hand in hands:
        deal = hand.state.deal
        for punter, false in false_claims(hand).items():
            kill = (Action.OPEN, Action.KILL)
            if deal.calls[punter] == Action.KILL and deal.replies[punter] == Action.DOUBT:
                # Compared: the outcome is there to be seen.
                assert (kill in false) == (deal.outcomes[punter] != 0)
                bluffs += kill in false
    assert bluffs > 3


def test_texts() -> None:
    tables = profile(tabulate(Bluffer(), SMALL))
    assert "policy" not in claims_table(tables).splitlines()[0]
    assert "policy" in claims_table({"a": tables, "b": tables}).splitlines()[0]
    assert len(call_tables(tables)) == len(opened(tables.tree)) == 1
    assert len(list(claims(tables.tree))) == len(tables.claim_rates())
    assert [percent(x) for x in (None, 0.0, 1e-9, 0.5)] == ["–", "0", "<0.01%", "50.00%"]
