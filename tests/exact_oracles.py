"""Plain, slow ways to the numbers of ``shuiyu_env.exact``: brute force, trees, linear programmes.

Nothing here comes from that package. Outcomes are the core's ``compare``, payoffs and the
order of decisions are the contest tree's and the sequential core's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.sparse

from shuiyu_env.core.actions import Action
from shuiyu_env.core.cards import Deck
from shuiyu_env.core.contest import Node, Payoffs, Phase, compile_tree
from shuiyu_env.core.game import Game, State
from shuiyu_env.core.hands import Outcome, TieBreak, compare, legal_splits, ranking, special_of
from shuiyu_env.core.rules import RuleSet
from shuiyu_env.observation import layout_of
from shuiyu_env.tables import hand_table

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]

_PRECISE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


class Values(NamedTuple):
    """What a policy is worth, in units to the punter per deal."""

    value: float  #: when it plays both roles
    dealer_best: float  #: against a dealer who answers it best
    punter_best: float  #: of a punter who answers it best

    @property
    def gains(self) -> tuple[float, float]:
        """What dealer and punter gain by answering best."""
        return self.value - self.dealer_best, self.punter_best - self.value


# ---- Hands against hands ---------------------------------------------------------------------


class Matrix(NamedTuple):
    """All hands of a small deck against all, in the order of the hand table.

    Attributes:
        hands: the H hands.
        special: ``int[H]``.
        legal: ``bool[H, 3]``, the splits each may be laid in.
        disjoint: ``bool[H, H]``, whether two hands can be dealt together.
        outcomes: ``int8[H, 3, H, 3]``, by the dealer's hand and split and the punter's.
    """

    hands: list[tuple[int, ...]]
    special: Integers
    legal: npt.NDArray[np.bool_]
    disjoint: npt.NDArray[np.bool_]
    outcomes: npt.NDArray[np.int8]


@lru_cache(maxsize=4)
def matrix_of(deck: Deck, tie_break: TieBreak) -> Matrix:
    """Compare all hands of a deck by the core."""
    hands = [tuple(hand) for hand in hand_table(deck, tie_break).cards[:-1].tolist()]
    order = ranking(deck, tie_break)
    points = [order.strengths(hand, split) for hand in hands for split in range(3)]
    # There are far fewer pairs of strengths than hands, so each two are compared once.
    kinds = sorted(set(points))
    compared = np.array([[compare(mine, theirs) for theirs in kinds] for mine in kinds], np.int8)
    number = {kind: n for n, kind in enumerate(kinds)}
    place = np.array([number[point] for point in points])
    size = len(hands)
    bits = np.array([sum(1 << card for card in hand) for hand in hands])
    return Matrix(
        hands=hands,
        special=np.array([special_of(hand) for hand in hands]),
        legal=np.array([[k in legal_splits(hand) for k in range(3)] for hand in hands]),
        disjoint=(bits[:, None] & bits[None, :]) == 0,
        outcomes=compared[place[:, None], place[None, :]].reshape(size, 3, size, 3),
    )


# ---- Any strategy, by brute force over all deals ---------------------------------------------


class RandomStrategy:
    """A policy that mixes at random everywhere, and can be asked in two ways.

    As a policy it is asked with observations. :func:`evaluate` asks the same
    probabilities by hands and splits. Every decision depends on all that its seat knows,
    so on open hands on both hands and splits, unless it reads outcomes only.

    Args:
        rules: the rules.
        seed: of everything.
        outcomes_only: whether, on open hands, it keeps the promise of that name.
    """

    def __init__(self, rules: RuleSet, seed: int, outcomes_only: bool = False) -> None:
        self.rules, self.seed, self.outcomes_only = rules, seed, outcomes_only
        self.tree = compile_tree(rules)
        self.table = hand_table(rules.deck, rules.tie_break)
        self._layout = layout_of(Game(2, rules))
        self._tables: dict[tuple[Any, ...], Floats] = {}

    def _random(self, *key: Any, shape: tuple[int, ...]) -> Floats:
        """A table of random weights, the same whenever it is asked for."""
        if key not in self._tables:
            number = [self.seed, *(int(part) for part in key)]
            # Some are near zero, none is.
            self._tables[key] = 0.001 + np.random.default_rng(number).random(shape) ** 3
        return self._tables[key]

    def arrange(self, role: int) -> Floats:
        """Probabilities of splits, ``[H, 3]``; role 0 deals."""
        legal = self.table.legal_splits[:-1]
        weights = self._random(0, role, shape=legal.shape) * legal
        return weights / weights.sum(axis=1, keepdims=True)

    def hidden(self, node: Node) -> Floats:
        """Probabilities of a decision on one's own hand and split, ``[H, 3, actions]``."""
        shape = (self.table.num_hands, 3, len(node.children))
        weights = self._random(1, node.id, shape=shape)
        return weights / weights.sum(axis=-1, keepdims=True)

    def opened(
        self, node: Node, a: Integers, i: Integers, b: Integers, j: Integers, results: Integers
    ) -> Floats:
        """Probabilities of a decision on an open hand, ``[..., actions]``.

        Args:
            node: where a dealer calls, or arranges anew.
            a, i: the dealer's hands and splits; these and the following broadcast.
            b, j: the punter's.
            results: ``[..., 3]``, outcomes of the dealer's three splits.
        """
        arranging = node.phase == Phase.REARRANGE
        actions = 3 if arranging else len(node.children)
        legal = np.ones((*a.shape, actions), dtype=bool)
        if arranging:
            # A hand that is left blank may be any.
            legal = self.table.legal_splits[a] | (a < 0)[..., None]
        if self.outcomes_only:
            if arranging:
                known = 9 * results[..., 0] + 3 * results[..., 1] + results[..., 2]
            else:
                known = np.take_along_axis(results, i[..., None], axis=-1)[..., 0]
            shape = (self.table.num_hands, 3, 27 if arranging else 3, actions)
            weights = self._random(2, node.id, shape=shape)[b, j, known]
        else:
            seen = ((a * 3 + i) * np.int64(1009) + b * 3 + j) * 31 + self.seed + node.id
            mixed = (seen[..., None] * 4 + np.arange(actions)) * np.int64(2654435761)
            weights = 1.0 + ((mixed >> 13) & 255) * ((mixed >> 25) & 3)
        weights = weights * legal
        return weights / weights.sum(axis=-1, keepdims=True)

    def probabilities(self, observation: Floats, action_mask: npt.NDArray[Any]) -> Floats:
        """Answer observations; see :class:`shuiyu_env.policy.Policy`."""
        fields = self._layout.views(observation)
        result = np.zeros(action_mask.shape)
        phase = fields["phase"].argmax(axis=1)
        dealing = fields["role"][:, 0] > 0
        block = np.where(dealing, 1, 0)
        rows = np.arange(len(observation))
        path = np.stack(
            [
                np.where(flags.any(axis=1), flags.argmax(axis=1) + first, -1)
                for name, first in (("declaration", Action.OPEN), ("call", Action.KILL))
                for flags in [fields[f"seats.{name}"][rows, block]]
            ]
        )
        own, shown = self._hands(fields["hand"]), self._hands(fields["seats.shown_hand"][:, 1])
        split = fields["split"].argmax(axis=1)
        shown_split = fields["seats.shown_split"][:, 1].argmax(axis=1)
        results = fields["seats.outcomes"][:, 1].argmax(axis=-1)  # to a dealer: won, pushed, lost
        for role in (0, 1):
            at = np.flatnonzero((phase == Phase.ARRANGE) & (dealing == (role == 0)))
            result[at[:, None], range(3)] = self.arrange(role)[own[at]]
        for node in self.tree.nodes:
            steps = (*map(int, node.path), -1, -1)[:2]
            at = np.flatnonzero((phase == node.phase) & (steps == path.T).all(axis=1))
            if node.is_leaf or not len(at):
                continue
            exposed = node.phase.by_dealer and node.path[0] in self.tree.exposes
            if exposed:
                answer = self.opened(
                    node, own[at], split[at], shown[at], shown_split[at], results[at]
                )
            else:
                answer = self.hidden(node)[own[at], split[at]]
            result[at[:, None], [int(action) for action in node.children]] = answer
        # A hand that is left blank may still say which splits are legal.
        result[action_mask == 0] = 0.0
        return result / result.sum(axis=1, keepdims=True)

    def _hands(self, flags: Floats) -> Integers:
        """Indices of hands from card flags; -1, the padding row, where there are none."""
        hands = np.full(len(flags), -1, dtype=np.int64)
        there = (flags > 0).sum(axis=1) == 4
        cards = np.nonzero(flags[there] > 0)[1].reshape(-1, 4)[:, ::-1]
        hands[there] = self.table.index(cards)
        return hands


class _Block:
    """Some of the punter's hands b against all the dealer's a, with all their splits j and i."""

    def __init__(self, strategy: RandomStrategy, hands: Matrix, b: Integers) -> None:
        self.strategy, self.tree, self.hands, self.b = strategy, strategy.tree, hands, b
        self.outcomes = hands.outcomes[:, :, b, :]
        self._at = np.ix_(np.arange(len(hands.hands)), np.arange(3), b, np.arange(3))
        #: ``[a, 1, b, j, 3]``, of all the dealer's splits, whichever he committed to.
        self.results = np.moveaxis(self.outcomes, 1, -1)[:, None]

    def units(self, payoffs: Payoffs, outcomes: Integers) -> Floats:
        """What a leaf pays by the outcome, and the dealer's hand."""
        paid = np.array(payoffs[:3], dtype=float)[outcomes]
        special = (self.hands.special > 0).reshape(-1, *[1] * (outcomes.ndim - 1))
        won_by_special = special & (outcomes == Outcome.DEALER_WINS)
        return np.where(won_by_special, float(payoffs.dealer_wins_by_special), paid)

    def rearranged(self, node: Node) -> Floats:
        """What a forced showdown pays by the dealer's new split, ``[a, b, j, 3]``."""
        payoffs = self.tree.nodes[node.children[Action.SPLIT_0]].payoffs
        assert payoffs is not None
        return self.units(payoffs, self.results[:, 0])

    def dealer_acts(self, node: Node) -> Floats:
        """Probabilities ``[a, i, b, j, actions]`` of what the dealer does."""
        if node.path[0] not in self.tree.exposes:
            return self.strategy.hidden(node)[:, :, None, None, :]
        shape = self.outcomes.shape
        return self.strategy.opened(
            node,
            *(np.broadcast_to(index, shape) for index in self._at),
            np.broadcast_to(self.results, (*shape, 3)),
        )

    def punter_gets(self, node: Node, mass: Floats, best: bool) -> Floats:
        """What the punter gets, ``[b, j]``, if he answers best or follows the strategy.

        ``mass[a, i, b, j]`` is the probability, times deals, that the dealer comes here.
        """
        if node.payoffs is not None:
            return (mass * self.units(node.payoffs, self.outcomes)).sum(axis=(0, 1))
        if node.phase == Phase.REARRANGE:
            acts = (mass[..., None] * self.dealer_acts(node)).sum(axis=1)
            return (acts * self.rearranged(node)).sum(axis=(0, 3))
        children = [self.tree.nodes[child] for child in node.children.values()]
        if node.phase.by_dealer:
            acts = self.dealer_acts(node)
            parts = [
                self.punter_gets(child, mass * acts[..., k], best)
                for k, child in enumerate(children)
            ]
            return np.sum(parts, axis=0)
        gets = np.stack([self.punter_gets(child, mass, best) for child in children], axis=-1)
        if best:
            return gets.max(axis=-1)
        return (gets * self.strategy.hidden(node)[self.b]).sum(axis=-1)

    def call_costs(self, call: Node, mass: Floats) -> Floats:
        """What a call costs the dealer, ``[a, i, b, j]``, against the strategy's replies."""
        if call.payoffs is not None:
            return mass * self.units(call.payoffs, self.outcomes)
        replies = self.strategy.hidden(call)[self.b]
        leaves = [self.tree.nodes[child] for child in call.children.values()]
        parts = [self.call_costs(leaf, mass * replies[..., k]) for k, leaf in enumerate(leaves)]
        return np.sum(parts, axis=0)


def evaluate(rules: RuleSet, strategy: RandomStrategy, chunk: int = 48) -> Values:
    """Walk the contest tree for all deals and all splits at once."""
    tree = compile_tree(rules)
    hands = matrix_of(rules.deck, rules.tie_break)
    size = len(hands.hands)
    dealer_plan, punter_plan = strategy.arrange(0), strategy.arrange(1)
    declare = strategy.hidden(tree.root)
    decided = np.zeros((size, size), dtype=bool)
    constant = 0.0
    for a, mine in enumerate(hands.special.tolist()):
        for theirs in range(3):
            payoffs = tree.special_payoffs[mine][theirs]
            if payoffs is None:
                continue
            these = (hands.special == theirs) & hands.disjoint[a]
            decided[a] |= these
            # Whatever the splits are, a special's outcome is the same.
            constant += sum(payoffs[o] for o in hands.outcomes[a, 0, these, 0].tolist())
    live = hands.disjoint & ~decided

    value = punter_best = 0.0
    open_costs = np.zeros((size, 3))
    costs_of_calls: dict[int, Floats] = {}
    for start in range(0, size, chunk):
        b = np.arange(start, min(start + chunk, size))
        block = _Block(strategy, hands, b)
        mass = live[:, None, b, None] * dealer_plan[:, :, None, None]
        gets = block.punter_gets(tree.root, mass, best=True)
        punter_best += np.where(hands.legal[b], gets, -np.inf).max(axis=1).sum()
        value += (block.punter_gets(tree.root, mass, best=False) * punter_plan[b]).sum()
        for k, child in enumerate(tree.root.children.values()):
            node = tree.nodes[child]
            mass = live[:, None, b, None] * (punter_plan[b, :, None] * declare[b])[..., k]
            mass = np.broadcast_to(mass, block.outcomes.shape)
            if node.phase == Phase.REARRANGE:
                # He sees both hands, so every deal is decided by itself.
                costs = mass[..., None] * block.rearranged(node)[:, None]
                costs = np.where(hands.legal[:, None, None, None, :], costs, np.inf)
                open_costs += costs.min(axis=-1).sum(axis=(2, 3))
                continue
            calls = [tree.nodes[call] for call in node.children.values()]
            costs = np.stack([block.call_costs(call, mass) for call in calls], axis=-1)
            if node.path[0] in tree.exposes:
                open_costs += costs.min(axis=-1).sum(axis=(2, 3))
            else:
                # He knows his own hand and split, and must call the same way against all.
                costs_of_calls[node.id] = costs_of_calls.get(node.id, 0.0) + costs.sum(axis=(2, 3))
    costs = open_costs + sum(calls.min(axis=-1) for calls in costs_of_calls.values())
    dealer_best = np.where(hands.legal, costs, np.inf).min(axis=1).sum()
    deals = int(hands.disjoint.sum())
    return Values(
        float(value + constant) / deals,
        float(dealer_best + constant) / deals,
        float(punter_best + constant) / deals,
    )


# ---- The whole game tree, played by the core --------------------------------------------------


class _Decision(NamedTuple):
    parent: int  #: the seat's sequence before it
    first: int  #: the sequence of the first action; the others follow
    actions: tuple[int, ...]


class GameTree:
    """Every line of play of every deal, in sequence form (Koller, Megiddo and von Stengel 1996).

    Made by playing a :class:`State`. A seat's *sequence* is what it did on the way, number 0
    nothing. Information sets are told apart by what :class:`View` shows.
    """

    def __init__(self, rules: RuleSet) -> None:
        self.game = Game(2, rules)
        self._layout = layout_of(self.game)
        self.decisions: list[list[_Decision]] = [[], []]
        self.observations: list[list[Floats]] = [[], []]
        self._known: list[dict[Any, int]] = [{}, {}]
        self.sizes = [1, 1]
        leaves: dict[tuple[int, int], float] = {}
        self._leaves = leaves
        hands = hand_table(rules.deck, rules.tie_break).cards[:-1].tolist()
        deals = [(a, b) for a in hands for b in hands if not set(a) & set(b)]
        for dealt in deals:
            self._play(self.game.new_state(hands=dealt), [0, 0])
        rows, columns = np.array(list(leaves)).T
        #: ``[dealer's sequences, punter's]``, units to the punter times their probability.
        self.payoffs = scipy.sparse.csr_matrix(
            (np.array(list(leaves.values())) / len(deals), (rows, columns)), shape=self.sizes
        )

    def _play(self, state: State, at: list[int]) -> None:
        seat = state.current_player
        if seat is None:
            key = (at[0], at[1])
            self._leaves[key] = self._leaves.get(key, 0.0) + state.returns()[1]
            return
        view = state.view(seat)
        seen = (
            view.phase,
            *(
                tuple(values)
                for values in (
                    view.hands,
                    view.splits,
                    view.exposed,
                    view.declarations,
                    view.calls,
                    view.replies,
                    view.force_splits,
                )
            ),
        )
        number = self._known[seat].get(seen)
        legal = state.legal_actions()
        if number is None:
            number = self._known[seat][seen] = len(self.decisions[seat])
            self.decisions[seat].append(_Decision(at[seat], self.sizes[seat], legal))
            self.observations[seat].append(self._layout.encode(view))
            self.sizes[seat] += len(legal)
        decision = self.decisions[seat][number]
        # Perfect recall: one way to come here.
        assert (decision.parent, decision.actions) == (at[seat], legal)
        for k, action in enumerate(legal):
            child = state.clone()
            child.apply(action)
            after = at[:]
            after[seat] = decision.first + k
            self._play(child, after)

    def plans(self, policy: Any) -> list[Floats]:
        """Probabilities with which a policy plays each sequence, dealer's and punter's."""
        plans = []
        for seat in (0, 1):
            masks = np.zeros((len(self.decisions[seat]), self.game.num_actions), dtype=np.int8)
            for row, decision in enumerate(self.decisions[seat]):
                masks[row, list(decision.actions)] = 1
            answers = policy.probabilities(np.stack(self.observations[seat]), masks)
            plan = np.ones(self.sizes[seat])
            for decision, answer in zip(self.decisions[seat], answers, strict=True):
                part = slice(decision.first, decision.first + len(decision.actions))
                plan[part] = plan[decision.parent] * answer[list(decision.actions)]
            plans.append(plan)
        return plans

    def values(self, policy: Any) -> Values:
        """Evaluate a policy."""
        dealer, punter = self.plans(policy)
        return Values(
            float(dealer @ (self.payoffs @ punter)),
            self._best(0, self.payoffs @ punter, min),
            self._best(1, self.payoffs.T @ dealer, max),
        )

    def _best(self, seat: int, values: Floats, choose: Callable[[Sequence[float]], float]) -> float:
        worth = values.tolist()
        for decision in reversed(self.decisions[seat]):
            part = worth[decision.first : decision.first + len(decision.actions)]
            worth[decision.parent] += choose(part)
        return worth[0]

    def game_value(self) -> float:
        """The value of the game to the punter, by a linear programme.

        The punter chooses the probabilities x of his sequences, and every information set
        of the dealer is worth no more than any of its actions leaves.
        """
        dealer = self.decisions[0]
        owner = np.repeat(np.arange(len(dealer)), [len(d.actions) for d in dealer])
        gains = self.payoffs.tocsr()
        # What a dealer's last decisions are worth depends on the numbers in their rows alone:
        # those with the same numbers, as on an open hand all with the same outcome, share one
        # unknown.
        parents = {decision.parent for decision in dealer}
        unknown: dict[Any, int] = {}
        variable = np.empty(len(dealer), dtype=int)
        for number, decision in enumerate(dealer):
            last = decision.first + len(decision.actions)
            key: Any = number
            if not parents & set(range(decision.first, last)):
                part = gains[decision.first : last].copy()
                part.sort_indices()
                key = (part.indptr.tobytes(), part.indices.tobytes(), part.data.tobytes())
            variable[number] = unknown.setdefault(key, len(unknown))
        first_of = {int(v): n for n, v in reversed(list(enumerate(variable)))}
        kept = np.array(
            [0]
            + [
                decision.first + k
                for number, decision in enumerate(dealer)
                if first_of[int(variable[number])] == number
                for k in range(len(decision.actions))
            ]
        )
        # w[sequence, unknown]: a decision counts against its own actions, for the one before it.
        after = scipy.sparse.csr_matrix(
            (np.ones(len(dealer)), ([d.parent for d in dealer], variable)),
            shape=(self.sizes[0], len(unknown)),
        )
        own = scipy.sparse.csr_matrix(
            (np.ones(len(owner)), (np.arange(1, self.sizes[0]), variable[owner])),
            shape=after.shape,
        )
        root = scipy.sparse.csr_matrix(([1.0], ([0], [0])), shape=(self.sizes[0], 1))
        less = scipy.sparse.hstack([-gains, own - after, root]).tocsr()[kept]
        # Probabilities of sequences: those of an information set sum to that before it.
        punter = self.decisions[1]
        rows, columns, numbers = [0], [0], [1.0]
        for number, decision in enumerate(punter):
            rows += [number + 1] * (1 + len(decision.actions))
            columns += [
                decision.parent,
                *range(decision.first, decision.first + len(decision.actions)),
            ]
            numbers += [-1.0] + [1.0] * len(decision.actions)
        equal = scipy.sparse.csr_matrix(
            (numbers, (rows, columns)), shape=(len(punter) + 1, less.shape[1])
        )
        right = np.zeros(len(punter) + 1)
        right[0] = 1.0
        costs = np.zeros(less.shape[1])
        costs[-1] = -1.0
        free = (None, None)
        solution = scipy.optimize.linprog(
            costs,
            A_ub=less,
            b_ub=np.zeros(less.shape[0]),
            A_eq=equal,
            b_eq=right,
            bounds=[(0, None)] * self.sizes[1] + [free] * (len(unknown) + 1),
            method="highs",
            options=_PRECISE,
        )
        assert solution.status == 0, solution.message
        return float(-solution.fun)


# ---- An open hand, by a linear programme ------------------------------------------------------


def open_contest_value(rules: RuleSet, masses: Sequence[float]) -> float:
    """What ``OPEN`` is worth if so many dealer's hands win, push and lose, units times hands.

    The dealer's linear programme: each of his types divides its mass among the calls, then
    every call costs what the best reply to it makes.
    """
    tree = compile_tree(rules)
    node = tree.nodes[tree.root.children[Action.OPEN]]
    calls = [tree.nodes[child] for child in node.children.values()]
    size = len(calls)
    types = len(Outcome)
    rows = []
    for c, call in enumerate(calls):
        leaves = [call] if call.is_leaf else [tree.nodes[n] for n in call.children.values()]
        for leaf in leaves:
            assert leaf.payoffs is not None
            row = np.zeros(types * size + size)
            for outcome in Outcome:
                row[outcome * size + c] = leaf.payoffs[outcome]
            row[types * size + c] = -1.0
            rows.append(row)
    divided = np.zeros((types, types * size + size))
    for outcome in range(types):
        divided[outcome, outcome * size : (outcome + 1) * size] = 1.0
    scale = float(np.sum(masses)) or 1.0
    solution = scipy.optimize.linprog(
        np.repeat([0.0, 1.0], [types * size, size]),
        A_ub=np.array(rows),
        b_ub=np.zeros(len(rows)),
        A_eq=divided,
        b_eq=np.asarray(masses, dtype=float) / scale,
        bounds=[(0, None)] * (types * size) + [(None, None)] * size,
        method="highs",
        options=_PRECISE,
    )
    assert solution.status == 0, solution.message
    return float(solution.fun) * scale
