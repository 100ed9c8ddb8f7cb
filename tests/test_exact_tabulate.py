"""Tables of policies: what is asked is what is really seen, and every way gives the same tables."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from games import DECKS, random_rules

from shuiyu_env.core.actions import Action
from shuiyu_env.core.cards import Deck
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import DealError, PolicyError, RulesError
from shuiyu_env.core.game import Game, State
from shuiyu_env.core.hands import NUM_SPLITS, Outcome, compare, legal_splits, special_of
from shuiyu_env.core.rules import PRESETS, RuleSet
from shuiyu_env.exact.heads_up import DealerTables, HeadsUpGame, PolicyTables, heads_up_game
from shuiyu_env.exact.rearrange import outcome_triples
from shuiyu_env.exact.tabulation import (
    _Questions,
    _Rows,
    _Spot,
    _Spots,
    count_questions,
    tabulate,
)
from shuiyu_env.observation import infer_layout, layout_of
from shuiyu_env.policies.network import ActorCritic, NetworkConfig, NetworkPolicy
from shuiyu_env.policies.reference import Bluffer, Cautious, Honest, Uniform

# The package lends the function under the module's name.
MODULE = sys.modules["shuiyu_env.exact.tabulation"]

Answer = npt.NDArray[np.float64]


@pytest.fixture(autouse=True)
def _one_torch_thread() -> Iterator[None]:
    """Many small batches: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Hashed:
    """Answers with a function of every bit of what it is asked, and promises nothing."""

    def probabilities(self, observation: npt.NDArray[np.float32], mask: npt.NDArray[Any]) -> Answer:
        """Return probabilities, none of them small."""
        rng = np.random.default_rng(5)
        asked = np.concatenate([observation * 2.0**20, mask], axis=1).astype(np.int64)
        factors = rng.integers(-(2**62), 2**62, (asked.shape[1], mask.shape[1]))
        # Integers wrap round, so that the sums are the same in any order.
        chances = 64.0 + ((asked @ factors) >> 40 & 0xFF)
        chances *= mask != 0
        return chances / chances.sum(axis=1, keepdims=True)


class Blind(Hashed):
    """The same, but it looks at an open hand through outcomes only, and promises that."""

    outcomes_only = True

    def probabilities(self, observation: npt.NDArray[np.float32], mask: npt.NDArray[Any]) -> Answer:
        """Return probabilities."""
        seen, legal = observation.copy(), mask.copy()
        layout = infer_layout(seen.shape[1], mask.shape[1])
        fields = layout.views(seen)
        exposed = fields["seats.exposed"][:, 1, 0] > 0
        calling = exposed & (fields["phase"][:, Phase.CALL] > 0)
        arranging = exposed & (fields["phase"][:, Phase.REARRANGE] > 0)
        outcomes = fields["seats.outcomes"][:, 1]
        split = fields["split"].argmax(axis=1)
        outcomes[calling] = outcomes[calling, split[calling]][:, None]
        for name in ("hand", "strengths", "split"):
            fields[name][calling | arranging] = 0.0
        legal[arranging, :NUM_SPLITS] = 1
        answer = super().probabilities(seen, legal)
        # All splits of a hand with a single legal one are the same.
        single = arranging & (mask[:, 1] == 0)
        answer[single] = mask[single]
        return answer


class Plain:
    """A policy without its promise."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def probabilities(self, observation: npt.NDArray[np.float32], mask: npt.NDArray[Any]) -> Answer:
        """Return the policy's answer."""
        answer: Answer = self.policy.probabilities(observation, mask)
        return answer


def network(rules: RuleSet, seats: int = 2, **config: Any) -> NetworkPolicy:
    """A network whose answers are far from uniform."""
    net = ActorCritic(
        layout_of(Game(seats, rules)),
        NetworkConfig(hidden=(16,), **config),
        torch.Generator().manual_seed(3),
    )
    with torch.no_grad():
        net.policy_head.weight *= 200.0
    return NetworkPolicy(net)


POLICIES: dict[str, Callable[[RuleSet], Any]] = {
    "uniform": lambda rules: Uniform(),
    "honest": lambda rules: Honest(),
    "cautious": lambda rules: Cautious(),
    "bluffer": lambda rules: Bluffer(),
    "blind": lambda rules: Blind(),
    "network": network,
    "network with cards": lambda rules: network(rules, cards=True),
}

RULES: dict[str, RuleSet] = {
    "nanning": RuleSet(deck=Deck(3, 3)),
    "dahua": replace(PRESETS["dahua"], deck=Deck(3, 3)),
    "dahua_house": replace(PRESETS["dahua_house"], deck=Deck(3, 3)),
    "specials": RuleSet(
        deck=Deck(2, 4), specials="at_showdown", surrender_to_open=True, force_on_push=0
    ),
    "ties": RuleSet(deck=Deck(3, 3), tie_break="next_group", force_on_push=0, attack_accept=False),
    "ties and specials": RuleSet(
        deck=Deck(2, 4),
        tie_break="next_group",
        specials="at_showdown",
        doubted_push_when_dealer_wins=2,
        declare="in_turn",
    ),
}
LARGER: dict[str, RuleSet] = {
    f"{tie_break} {specials}": RuleSet(
        deck=Deck(4, 3), tie_break=tie_break, specials=specials, surrender_to_open=True
    )
    for tie_break in ("card", "next_group")
    for specials in ("declared", "at_showdown")
}


def hands_of(game: HeadsUpGame) -> list[tuple[int, ...]]:
    return [tuple(cards) for cards in game.classes.table.cards[:-1].tolist()]


def all_spots(spots: _Spots) -> list[_Spot]:
    return [
        spots.dealer_arranges,
        spots.punter_arranges,
        spots.declare,
        *spots.calls.values(),
        *spots.opened.values(),
        *spots.forced.values(),
        *spots.replies.values(),
    ]


def reach(table: Game, spot: _Spot, hands: Any, splits: Any) -> State:
    """Play a deal to a decision."""
    state = table.new_state(hands=hands)
    arranged = 2 if spot.phase is not Phase.ARRANGE else spot.seat
    for split in splits[:arranged]:
        state.apply(split)
    for action in spot.after:
        state.apply(action)
    return state


def random_deals(game: HeadsUpGame, rng: random.Random, number: int) -> list[Any]:
    """Hands and legal splits of some deals that come to declarations."""
    deck, deals = game.rules.deck, []
    while len(deals) < number:
        cards = rng.sample(deck.cards, 8)
        hands = [tuple(sorted(part, reverse=True)) for part in (cards[:4], cards[4:])]
        if game.rules.specials == "at_showdown" or not any(map(special_of, hands)):
            deals.append((hands, [rng.choice(legal_splits(hand)) for hand in hands]))
    return deals


def variants() -> list[RuleSet]:
    rng = random.Random(11)
    rules = [*PRESETS.values(), *RULES.values(), *LARGER.values()]
    rules += [replace(random_rules(rng, DECKS), max_stake=1) for _ in range(20)]
    return rules


@pytest.mark.parametrize("rules", variants())
def test_what_is_asked_is_what_is_seen(rules: RuleSet) -> None:
    game = heads_up_game(rules, False)
    spots = _Spots(game)
    table, layout = spots.game, layout_of(spots.game)
    questions = _Questions(Uniform(), game, 64, "x")
    rng = random.Random(3)
    reached = set()
    for spot in all_spots(spots):
        deals = random_deals(game, rng, 12)
        index = game.classes.table.index(np.array([hands for hands, _ in deals]))
        splits = np.array([splits for _, splits in deals])
        me = spot.seat
        committed = splits[:, me] if spot.phase is not Phase.ARRANGE else None
        open_to_dealer = bool(spot.after) and spot.after[0] in game.tree.exposes and me == 0
        rows = _Rows(index[:, me], committed)
        if open_to_dealer:
            rows = _Rows(index[:, 0], splits[:, 0], index[:, 1], splits[:, 1])
        observation, mask = questions.observe(spot, rows)
        seen, allowed = observation.copy(), mask.copy()
        outcomes = []
        for row, (hands, laid) in enumerate(deals):
            state = reach(table, spot, hands, laid)
            assert (state.current_player, state.phase) == (me, spot.phase)
            vector = layout.encode(state.view(me))
            assert seen[row].tobytes() == vector.tobytes()
            assert tuple(np.flatnonzero(allowed[row])) == state.legal_actions()
            assert set(state.legal_actions()) <= set(spot.actions)
            rank = state.deal.table.ranking
            outcomes.append(
                [
                    int(compare(rank.strengths(hands[0], i), rank.strengths(hands[1], laid[1])))
                    for i in range(NUM_SPLITS)
                ]
            )
        reached.add((spot.seat, spot.phase, spot.after))
        if not open_to_dealer:
            continue
        # The same with the dealer's own cards hidden: only outcomes are left of them.
        told = np.array(outcomes)
        if spot.phase is Phase.CALL:
            told = np.repeat(told[np.arange(len(told)), splits[:, 0]][:, None], NUM_SPLITS, axis=1)
        blank, everything = questions.observe(spot, _Rows.hidden(index[:, 1], splits[:, 1], told))
        fields = layout.views(seen)
        fields["hand"][...] = fields["strengths"][...] = 0.0
        fields["split"][...] = [1.0, 0.0, 0.0]
        fields["seats.outcomes"][:, 1] = np.eye(3)[told]
        assert blank.tobytes() == seen.tobytes()
        assert (everything.sum(axis=1) == len(spot.actions)).all()
    # Every decision of the tree is there.
    decisions = {node.path for node in game.tree.nodes if not node.is_leaf}
    assert {path for _, _, path in reached} == decisions
    assert len(reached) == len(decisions) + 2


def assert_valid(tables: PolicyTables) -> None:
    game = tables.game
    shape = (game.classes.size, NUM_SPLITS)
    nodes = game.tree.nodes
    dealer, punter = tables.dealer, tables.punter
    assert dealer.split.shape == punter.split.shape == shape
    assert punter.declare.shape == (*shape, len(game.declarations))
    assert set(dealer.calls) == {node.id for node in game.hidden}
    assert set(dealer.opened) == {contest.node.id for contest in game.opened}
    assert set(dealer.forced) == {node.id for node in game.forced}
    assert set(punter.replies) == set(game.reply_nodes)
    for node, table in [*dealer.calls.items(), *punter.replies.items()]:
        assert table.shape == (*shape, len(nodes[node].children))
    strategies = [dealer.split, punter.split, punter.declare]
    for table in [*strategies, *dealer.calls.values(), *punter.replies.values()]:
        np.testing.assert_allclose(table.sum(axis=-1), 1.0, atol=1e-12)
        assert (table >= 0.0).all()
    # Whatever the calls, all hands that can be dealt are there.
    plan = game.plan(dealer.split)
    none = np.zeros((*shape, 0))
    hands = game.sums(none, none, plan[..., None], "punter").total * game.legal
    for node, masses in dealer.opened.items():
        assert masses.shape == (*shape, len(nodes[node].children), len(Outcome))
        np.testing.assert_allclose(masses.sum(axis=(-1, -2)), hands, rtol=1e-9, atol=1e-9)
    for masses in dealer.forced.values():
        assert masses.shape == (*shape, len(Outcome))
        np.testing.assert_allclose(masses.sum(axis=-1), hands, rtol=1e-9, atol=1e-9)


def assert_same(a: PolicyTables, b: PolicyTables, tolerance: float = 1e-9) -> None:
    def close(x: Any, y: Any) -> None:
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)

    close(a.dealer.split, b.dealer.split)
    close(a.punter.split, b.punter.split)
    close(a.punter.declare, b.punter.declare)
    for mine, others in (
        (a.dealer.calls, b.dealer.calls),
        (a.dealer.opened, b.dealer.opened),
        (a.dealer.forced, b.dealer.forced),
        (a.punter.replies, b.punter.replies),
    ):
        assert mine.keys() == others.keys()
        for node in mine:
            close(mine[node], others[node])


def check_outcomes_against_pairs(rules: RuleSet, name: str) -> None:
    policy = POLICIES[name](rules)
    assert policy.outcomes_only
    by_outcomes, by_pairs = tabulate(policy, rules), tabulate(Plain(policy), rules)
    assert by_outcomes.halves is None
    assert by_pairs.halves is None
    assert_valid(by_outcomes)
    assert_valid(by_pairs)
    # A network rounds, and not the same in every batch.
    assert_same(by_outcomes, by_pairs, 1e-4 if "network" in name else 1e-9)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("rules", RULES)
def test_outcomes_and_pairs_agree(rules: str, name: str) -> None:
    check_outcomes_against_pairs(RULES[rules], name)


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("rules", LARGER)
def test_outcomes_and_pairs_agree_on_a_larger_deck(rules: str, name: str) -> None:
    check_outcomes_against_pairs(LARGER[rules], name)


@pytest.mark.parametrize("rules", RULES)
def test_against_playing_every_deal(rules: str) -> None:
    """Plain Python: every deal is played to every decision, and the policy asked there."""
    policy = Hashed()
    tables = tabulate(policy, RULES[rules], batch_size=100)
    game = tables.game
    spots, table = _Spots(game), Game(2, game.rules)
    layout, rank = layout_of(table), table.table.ranking
    hands = hands_of(game)

    def answers(spot: _Spot, pairs: list[Any]) -> Answer:
        states = [reach(table, spot, deal, splits) for deal, splits in pairs]
        seen = np.array([layout.encode(state.view(spot.seat)) for state in states])
        masks = np.zeros((len(states), layout.num_actions), dtype=np.int8)
        for mask, state in zip(masks, states, strict=True):
            mask[list(state.legal_actions())] = 1
        return policy.probabilities(seen, masks)[:, list(spot.actions)]

    deals = [
        (a, b)
        for a in range(len(hands))
        for b in range(len(hands))
        if not {*hands[a]} & {*hands[b]}
    ]
    for spot, expected in (
        (spots.dealer_arranges, tables.dealer.split),
        (spots.punter_arranges, tables.punter.split),
    ):
        chosen = answers(
            spot, [((hands[a], hands[b]), [legal_splits(hands[a])[0]]) for a, b in deals]
        )
        np.testing.assert_allclose(chosen, expected[[deal[spot.seat] for deal in deals]], 1e-12)
    if game.rules.specials == "declared":
        deals = [(a, b) for a, b in deals if not special_of(hands[a]) and not special_of(hands[b])]
    laid = [
        (a, i, b, j)
        for a, b in deals
        for i in legal_splits(hands[a])
        for j in legal_splits(hands[b])
    ]
    pairs = [((hands[a], hands[b]), (i, j)) for a, i, b, j in laid]
    for spot, expected in (
        (spots.declare, tables.punter.declare),
        *((spot, tables.dealer.calls[node]) for node, spot in spots.calls.items()),
        *((spot, tables.punter.replies[node]) for node, spot in spots.replies.items()),
    ):
        chosen = answers(spot, pairs)
        own = [(a, i) if spot.seat == 0 else (b, j) for a, i, b, j in laid]
        np.testing.assert_allclose(chosen, expected[tuple(np.array(own).T)], 1e-12)
    for node, spot in (*spots.opened.items(), *spots.forced.items()):
        chosen = answers(spot, pairs)
        called = spot.phase is Phase.CALL
        result = tables.dealer.opened[node] if called else tables.dealer.forced[node]
        expected = np.zeros_like(result)
        for (a, i, b, j), answer in zip(laid, chosen, strict=True):
            shown = rank.strengths(hands[b], j)
            for k, chance in enumerate(answer):
                outcome = compare(rank.strengths(hands[a], i if called else k), shown)
                place = (b, j, k, outcome) if called else (b, j, outcome)
                expected[place] += tables.dealer.split[a, i] * chance
        np.testing.assert_allclose(result, expected, atol=1e-12)
    assert_valid(tables)


def test_hands_that_are_never_asked() -> None:
    tables = tabulate(Hashed(), RULES["nanning"])
    game = tables.game
    off = ~game.legal
    assert off.any()
    assert (tables.punter.declare[off] == 0.2).all()
    for table in [*tables.dealer.calls.values(), *tables.punter.replies.values()]:
        assert np.unique(table[off]).size == 1
    for masses in [*tables.dealer.opened.values(), *tables.dealer.forced.values()]:
        assert (masses[off] == 0.0).all()


def test_answers_are_scaled_to_sum_to_one() -> None:
    class Rounding(Hashed):
        def probabilities(self, observation: Any, mask: Any) -> Answer:
            return super().probabilities(observation, mask) * 1.00005

    assert_same(tabulate(Rounding(), RULES["nanning"]), tabulate(Hashed(), RULES["nanning"]))


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "MOST_PAIRS", 0)


def flat(tables: Any) -> Answer:
    parts = [*tables.opened.values(), *tables.forced.values()]
    return np.concatenate([part.ravel() for part in parts])


@pytest.mark.parametrize("rules", ["nanning", "ties", "specials"])
def test_samples_are_unbiased(rules: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = tabulate(Hashed(), RULES[rules])
    truth = flat(exact.dealer)
    monkeypatch.setattr(MODULE, "MOST_PAIRS", 0)
    seeds = 16
    estimates = []
    for seed in range(seeds):
        tables = tabulate(Hashed(), RULES[rules], samples=32, seed=seed)
        assert tables.halves is not None
        first, second = map(flat, tables.halves)
        np.testing.assert_allclose(flat(tables.dealer), (first + second) / 2, atol=1e-12)
        assert (first != second).any()
        estimates += [first, second]
        np.testing.assert_array_equal(tables.dealer.split, exact.dealer.split)
        np.testing.assert_array_equal(tables.punter.declare, exact.punter.declare)
    errors = np.array(estimates) - truth
    mean, spread = errors.mean(axis=0), errors.std(axis=0, ddof=1)
    # Where all dealer's hands give the same, there is no error but rounding.
    moving = spread > 1e-9
    assert np.abs(mean[~moving]).max() < 1e-9
    assert moving.sum() > 100
    z = mean[moving] / spread[moving] * np.sqrt(len(errors))
    assert np.abs(z).max() < 6.0
    # Over all places together: squares are as large as they should be, and no more.
    assert 0.75 < np.square(z).mean() < 1.4
    # Halves are independent of each other.
    a, b = errors[0::2][:, moving], errors[1::2][:, moving]
    correlation = (a * b).mean() / np.sqrt((a * a).mean() * (b * b).mean())
    assert abs(correlation) < 0.05


@pytest.mark.usefixtures("sampled")
def test_samples_are_reproducible_whatever_the_batch() -> None:
    rules = RULES["nanning"]

    def run(**options: Any) -> bytes:
        tables = tabulate(Hashed(), rules, samples=4, **options)
        assert tables.halves is not None
        return b"".join(flat(part).tobytes() for part in (tables.dealer, *tables.halves))

    assert run(seed=7) == run(seed=7) == run(seed=7, batch_size=13) == run(seed=7, threads=1)
    assert len({run(seed=seed) for seed in (0, 7, -7, 2**63)}) == 4


def test_every_row_has_samples_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_BLOCK", 1)
    game = heads_up_game(RULES["nanning"], False)
    split = np.where(game.legal, 1 / 3, 0.0)
    halves = [list(MODULE._drawn_deals(game, split, 40, 3, half)) for half in range(2)]
    drawn: dict[int, set[bytes]] = {}
    for deals in (*halves[0], *halves[1]):
        assert np.unique(deals.shown_hands).size == 1
        drawn.setdefault(int(deals.shown_hands[0]), set()).add(deals.hands.tobytes())
    # Three splits and two halves: the same hand meets others every time.
    assert {len(others) for others in drawn.values()} == {6}


@pytest.mark.usefixtures("sampled")
def test_a_promise_is_used_where_pairs_are_too_many() -> None:
    assert tabulate(Blind(), RULES["nanning"]).halves is None
    assert tabulate(Hashed(), RULES["nanning"]).halves is not None


def test_a_game_without_open_hands_needs_no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "MOST_PAIRS", 0)
    rules = RuleSet(declarations=("COVER", "REQUEST_PUSH"), deck=Deck(3, 3))
    tables = tabulate(Hashed(), rules)
    assert tables.halves is None
    assert tables.dealer.opened == tables.dealer.forced == {}
    assert_valid(tables)


@pytest.mark.parametrize("policy", [Blind(), Hashed(), Honest(), Plain(Honest())])
@pytest.mark.parametrize("most", [0, 10**7])
def test_the_bar_ends_where_it_should(
    policy: Any, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []

    class Bar:
        def __init__(self, total: int, wanted: bool, **options: Any) -> None:
            self.total = total
            self.wanted = wanted
            self.count = 0

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *error: object) -> None:
            if self.wanted:
                done.append((self.count, self.total))

        def update(self, count: int) -> None:
            assert count <= 50
            self.count += count

    monkeypatch.setattr(MODULE, "progress_bar", Bar)
    monkeypatch.setattr(MODULE, "MOST_PAIRS", most)
    tabulate(policy, RULES["nanning"], batch_size=50, progress=True)
    ((count, total),) = done
    assert count == total > 1000


class Broken(Honest):
    """Answers wrongly in one phase."""

    def __init__(self, phase: Phase, fault: str, promise: bool) -> None:
        super().__init__()
        self.phase, self.fault, self.outcomes_only = phase, fault, promise

    def probabilities(self, observation: npt.NDArray[np.float32], mask: npt.NDArray[Any]) -> Answer:
        """Return probabilities that are none in a row of the phase."""
        answer = super().probabilities(observation, mask)
        if observation[0, self.phase] > 0:
            if self.fault == "nan":
                answer[-1, 0] = np.nan
            else:
                answer[-1] = 0.0
                answer[-1, Action.SURRENDER] = 1.0
        return answer


@pytest.mark.parametrize("promise", [False, True])
@pytest.mark.parametrize("fault", ["nan", "illegal"])
@pytest.mark.parametrize("phase", list(Phase)[1:-1])
def test_broken_answers_are_refused(phase: Phase, fault: str, promise: bool) -> None:
    text = "not finite" if fault == "nan" else "illegal action has a probability"
    with pytest.raises(PolicyError, match=f"'mine'.*phase {phase.name}: .*{text}"):
        tabulate(Broken(phase, fault, promise), RULES["nanning"], name="mine")


def test_a_broken_promise_is_noticed() -> None:
    policy = Hashed()
    policy.outcomes_only = True  # type: ignore[attr-defined]
    for declaration, phase in (("OPEN", "CALL"), ("FORCE", "REARRANGE")):
        rules = RuleSet(declarations=(declaration,), deck=Deck(3, 3))
        with pytest.raises(
            PolicyError, match=f"'Hashed'.*{phase} after {declaration}.*outcomes_only"
        ):
            tabulate(policy, rules)


def test_who_promises() -> None:
    rules = RULES["nanning"]
    for name, make in POLICIES.items():
        assert make(rules).outcomes_only is True, name
    assert network(rules, outcomes_only=False).outcomes_only is False
    assert network(RuleSet(), seats=3).outcomes_only is False
    # Only a network that keeps the promise says so: this one would break it.
    peeking = network(rules, outcomes_only=False)
    monkey = Plain(peeking)
    monkey.outcomes_only = True  # type: ignore[attr-defined]
    with pytest.raises(PolicyError, match="outcomes_only"):
        tabulate(monkey, rules)


def test_errors() -> None:
    rules = RULES["nanning"]
    with pytest.raises(PolicyError, match=r"expected a policy.*'honest'"):
        tabulate("honest", rules)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="this network is for 4 seats"):
        tabulate(network(RuleSet(), seats=4), rules)
    with pytest.raises(PolicyError, match="2 seats and 26 actions"):
        tabulate(network(RuleSet(max_stake=3)), rules)
    with pytest.raises(RulesError, match="max_stake=1"):
        tabulate(Uniform(), replace(rules, max_stake=2))
    with pytest.raises(RulesError, match="expected a preset"):
        tabulate(Uniform(), Game(3))  # type: ignore[arg-type]
    for options, text in (
        ({"samples": 3}, "samples: expected an even number"),
        ({"samples": 0}, "samples: expected an integer of 2 or more"),
        ({"batch_size": 0}, "batch_size: expected an integer of 1 or more"),
        ({"seed": 1.5}, "seed: expected an integer"),
    ):
        with pytest.raises(DealError, match=text):
            tabulate(Uniform(), rules, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("rules", [*RULES, *LARGER])
def test_triples_of_single_hands(rules: str) -> None:
    """Where hands of the same ranks are alike, single hands have their counts."""
    game = heads_up_game((RULES | LARGER)[rules], False)
    hands, legal = hands_of(game), game.legal
    counts = outcome_triples(game.classes, game.active)
    rng = random.Random(1)
    strengths = game.classes.strengths.tolist()
    for b in rng.sample(range(len(hands)), min(len(hands), 30)):
        for j in range(NUM_SPLITS):
            expected = np.zeros(27)
            for a, cards in enumerate(hands):
                if game.active[a] and not {*cards} & {*hands[b]}:
                    places = [
                        compare(tuple(strengths[a][i]), tuple(strengths[b][j]))
                        for i in range(NUM_SPLITS)
                    ]
                    expected[places[0] * 9 + places[1] * 3 + places[2]] += 1
            if legal[b, j]:
                np.testing.assert_array_equal(counts[b, j], expected)


@pytest.mark.slow
def test_the_full_deck() -> None:
    """Samples and outcomes give the same, of a policy that may be asked both ways."""
    rules = PRESETS["dahua"]
    exact = tabulate(Bluffer(), rules)
    assert_valid(exact)
    tables = tabulate(Plain(Bluffer()), rules, samples=2, seed=1)
    assert tables.halves is not None
    game = exact.game
    reply = next(iter(game.reply_nodes))

    def worth(dealer: DealerTables) -> Answer:
        values: Answer = game.punter_values(dealer).replies[reply][..., 1].sum(axis=-1)
        return values

    first, second = map(worth, tables.halves)
    error = float(np.sqrt(np.square(first - second).sum())) / 2 / game.num_deals
    difference = game.per_deal(worth(tables.dealer)) - game.per_deal(worth(exact.dealer))
    assert 0.0 < error < 0.01
    assert abs(difference) < 4 * error


@pytest.mark.parametrize("deck", [Deck(ranks=3, suits=4), Deck(ranks=5, suits=4)])
@pytest.mark.parametrize("preset", ["nanning", "dahua_house"])
def test_questions_are_counted_before_they_are_asked(preset: str, deck: Deck) -> None:
    class Counting(Bluffer):
        asked = 0

        def probabilities(self, observation: Any, action_mask: Any) -> Any:
            self.asked += len(action_mask)
            return super().probabilities(observation, action_mask)

    rules = replace(PRESETS[preset], deck=deck)
    for outcomes_only in (True, False):
        policy = Counting()
        policy.outcomes_only = outcomes_only  # type: ignore[misc]
        tabulate(policy, rules, samples=4)
        counted = count_questions(policy, rules, samples=4)
        # Some are asked again, to see whether promises are kept.
        assert policy.asked - 10_000 <= counted <= policy.asked * 3.2 + 5000
