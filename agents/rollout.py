"""Self-play experience from a batch of environments, credited seat by seat.

One network plays all seats. In every time step each environment takes one
decision, of whichever seat is to act, so experience lies in tensors
``[time, environment]``. A decision is credited with what its own seat is paid
from then on until the deal is settled: never with an opponent's reward, and
never with a later deal's, which no decision of this one can change.
"""

from __future__ import annotations

__all__ = ["Batch", "Rollout", "exploration_weights", "longest_deal", "seat_advantages"]

import time
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agents.critic import Critic
from shuiyu_env.core.actions import Action
from shuiyu_env.core.contest import ContestTree, Phase
from shuiyu_env.core.game import Game
from shuiyu_env.observation import Layout
from shuiyu_env.policies.network import ActorCritic, MaskedCategorical

_OPEN = int(Action.OPEN)


class Environments(Protocol):
    """What is needed of :class:`shuiyu_env.batch.BatchEnv`."""

    game: Game
    num_envs: int
    layout: Layout
    observation: npt.NDArray[np.float32]
    action_mask: npt.NDArray[np.int8]
    seat: npt.NDArray[np.int64]
    reward: npt.NDArray[np.float32]
    settled: npt.NDArray[np.bool_]

    def step(self, actions: npt.ArrayLike) -> None:
        """Take one action in every environment."""

    def observe(self, seats: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return what some seat sees in every environment."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on exactly."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""


@dataclass
class Batch:
    """Decisions of settled deals, K rows.

    Attributes:
        features: ``float32[K, F]``, what the network reads of the observations.
        hidden: ``float32[K, H]``, what the critic reads besides; no columns without one.
        action_mask: ``bool[K, A]``.
        action: ``int64[K]``.
        log_prob: ``float32[K]``, of the action under the network that took it.
        value: ``float32[K]``, of the critic, or else of that network.
        advantage: ``float32[K]``, units.
        weight: ``float32[K]``, what the decision counts: 1 but for exploration.
        returns: ``float32[K]``, what the value should have been, units.
        deals: how many deals they make up.
    """

    features: Tensor
    hidden: Tensor
    action_mask: Tensor
    action: Tensor
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    weight: Tensor
    returns: Tensor
    deals: int

    def __len__(self) -> int:
        return len(self.action)

    def shuffled(self, generator: torch.Generator) -> Batch:
        """Return the same rows in a random order."""
        order = torch.randperm(len(self), generator=generator, device=self.action.device)
        columns: dict[str, Any] = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        deals = columns.pop("deals")
        return Batch(**{name: column[order] for name, column in columns.items()}, deals=deals)


def longest_deal(game: Game) -> int:
    """Return the largest number of decisions that a deal can take."""
    punters = game.num_players - 1
    stakes = punters if game.rules.max_stake > 1 else 0
    return stakes + game.num_players + punters * _height(game.tree, 0)


def _height(tree: ContestTree, node: int) -> int:
    """Return the number of decisions on the longest way from a node to a leaf."""
    children = set(tree.nodes[node].children.values())
    return 1 + max(_height(tree, child) for child in children) if children else 0


def seat_advantages(
    seat: Tensor, value: Tensor, reward: Tensor, settled: Tensor, gae_lambda: float
) -> tuple[Tensor, Tensor]:
    """Return advantages ``[T, N]`` and which of them are known, ``bool[T, N]``.

    Generalised advantage estimation (Schulman et al., "High-dimensional
    continuous control using generalized advantage estimation", 2016) without
    discount, along each seat's own decisions: from one of them to its next,
    or to the end of the deal, whichever comes first. Decisions of a deal that
    does not settle within the T steps are not known yet.

    Args:
        seat: ``int64[T, N]``, who decided.
        value: ``[T, N]``, the network's estimate for that seat.
        reward: ``[T, N, num_players]``, what the decision paid each seat.
        settled: ``bool[T, N]``, whether it settled the deal.
        gae_lambda: 0 (one step) to 1 (Monte-Carlo returns).
    """
    steps, size, players = reward.shape
    rows = torch.arange(size, device=value.device)
    # By environment and seat: what it was paid since, its next estimate and its next advantage.
    paid, next_value, next_advantage = value.new_zeros(3, size, players)
    known = torch.zeros(size, dtype=torch.bool, device=value.device)
    advantages = torch.zeros_like(value)
    complete = torch.zeros_like(settled)
    for t in range(steps - 1, -1, -1):
        over = settled[t]
        known = known | over
        going_on = (~over).unsqueeze(1)
        paid = paid * going_on + reward[t]
        next_value = next_value * going_on
        next_advantage = next_advantage * going_on
        who = (rows, seat[t])
        delta = paid[who] + next_value[who] - value[t]
        advantages[t] = delta + gae_lambda * next_advantage[who]
        complete[t] = known
        paid[who] = 0.0
        next_value[who] = value[t]
        next_advantage[who] = advantages[t]
    return advantages, complete


def exploration_weights(
    seat: Tensor,
    ratio: Tensor,
    exposes: Tensor,
    covered: Tensor,
    settled: Tensor,
    num_players: int,
) -> Tensor:
    """Return what each decision counts, ``[T, N]``.

    A decision counts as much likelier as the policy was to make the deal's explored
    decisions than whoever made them; those of a seat whose hand has been laid open before no
    longer matter. Where punters declare at the same time, hands are laid open after all of them.

    Args:
        seat: ``int64[T, N]``, who decided.
        ratio: ``[T, N]``, the probability of the action under the policy, divided by
            that with which it was chosen.
        exposes: ``bool[T, N]``, whether the decision laid a hand open.
        covered: ``bool[T, N]``, whether what the deal's decisions before laid open did not
            yet show.
        settled: ``bool[T, N]``, whether it settled the deal.
        num_players: seats at the table.
    """
    steps, size = ratio.shape
    rows = torch.arange(size, device=ratio.device)
    running, product = ratio.new_ones(2, size, num_players)
    # By seat: the product of its ratios up to each step, and whether its hand lies open before it.
    so_far = ratio.new_empty(steps, size, num_players)
    exposed = torch.zeros(steps, size, num_players, dtype=torch.bool, device=ratio.device)
    open_now = torch.zeros_like(exposed[0])
    for t in range(steps):
        exposed[t] = open_now & ~covered[t][:, None]
        running[rows, seat[t]] *= ratio[t]
        open_now[rows, seat[t]] |= exposes[t]
        so_far[t] = running
        over = settled[t]
        running = torch.where(over[:, None], 1.0, running)
        open_now &= ~over[:, None]
    weights = torch.empty_like(ratio)
    for t in range(steps - 1, -1, -1):
        product = torch.where(settled[t][:, None], so_far[t], product)
        weights[t] = torch.where(exposed[t], 1.0, product).prod(dim=1)
    return weights


@dataclass
class _Steps:
    """Experience by time and environment; ``[T, N]`` and more dimensions."""

    features: Tensor
    hidden: Tensor
    action_mask: Tensor
    seat: Tensor
    action: Tensor
    log_prob: Tensor
    value: Tensor
    ratio: Tensor
    exposes: Tensor
    covered: Tensor
    reward: Tensor
    settled: Tensor
    #: Not yet handed out in a batch (rows before the first step are empty).
    pending: Tensor

    def tensors(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


class Rollout:
    """Plays windows of time steps and hands out the decisions of all settled deals.

    A deal that a window cuts off is neither dropped, which would favour short
    deals, nor given an estimated end: its decisions wait, with their old
    log-probabilities, for the window in which it is settled. So every deal is
    handed out exactly once.

    Args:
        env: the environments.
        window: time steps of a window, T.
        num_features: F, what the network reads of an observation.
        device: where the experience is kept and the networks are.
        critic: estimates values; if ``None``, the network that plays does.

    Attributes:
        environment_seconds, network_seconds: time spent so far in each.
    """

    def __init__(
        self,
        env: Environments,
        window: int,
        num_features: int,
        device: torch.device | str = "cpu",
        critic: Critic | None = None,
    ) -> None:
        self.env = env
        self.window = window
        self.critic = critic
        self.device = torch.device(device)
        # The decisions of an unsettled deal all lie within the last so many steps.
        self.carried = longest_deal(env.game) - 1
        lead = (self.carried + window, env.num_envs)

        def empty(dtype: torch.dtype, *shape: int) -> Tensor:
            return torch.zeros(*lead, *shape, dtype=dtype, device=self.device)

        self.steps = _Steps(
            features=empty(torch.float32, num_features),
            hidden=empty(torch.float32, 0 if critic is None else critic.num_hidden),
            action_mask=empty(torch.bool, env.game.num_actions),
            seat=empty(torch.int64),
            action=empty(torch.int64),
            log_prob=empty(torch.float32),
            value=empty(torch.float32),
            ratio=torch.ones(lead, device=self.device),
            exposes=empty(torch.bool),
            covered=empty(torch.bool),
            reward=empty(torch.float32, env.game.num_players),
            settled=empty(torch.bool),
            pending=empty(torch.bool),
        )
        place = env.layout.views(np.arange(env.layout.size))
        self._exposes = torch.zeros(env.game.num_actions, dtype=torch.bool, device=self.device)
        self._exposes[list(env.game.tree.exposes)] = True
        self._declaring = int(place["phase"][Phase.DECLARE])
        self._at_once = env.game.rules.declare == "simultaneous"
        self.environment_seconds = 0.0
        self.network_seconds = 0.0

    @property
    def waiting(self) -> int:
        """How many decisions wait for their deals to be settled, between two windows."""
        return int(self.steps.pending[: self.carried].sum())

    def collect(
        self,
        network: ActorCritic,
        generator: torch.Generator,
        gae_lambda: float,
        exploration: float = 0.0,
    ) -> Batch:
        """Play one window and return the decisions of all deals settled in it.

        Args:
            network: plays all seats.
            generator: where actions are drawn from, on the rollout's device.
            gae_lambda: see :func:`seat_advantages`.
            exploration: the probability with which a punter opens whatever the network
                says; shared by all punters.
        """
        env, steps = self.env, self.steps
        # These share the environments' memory.
        observation = torch.from_numpy(env.observation)
        mask = torch.from_numpy(env.action_mask)
        seat = torch.from_numpy(env.seat)
        reward, settled = torch.from_numpy(env.reward), torch.from_numpy(env.settled)
        clock = time.perf_counter
        for t in range(self.carried, self.carried + self.window):
            began = clock()
            steps.action_mask[t] = mask != 0
            steps.seat[t] = seat
            with torch.no_grad():
                # Kept instead of observations: smaller, and not to be made again.
                features = network.features(observation.to(self.device))
                logits, steps.value[t] = network.heads(features)
                if self.critic is not None:
                    opposite = env.observe(self.critic.opposite(env.observation, env.seat))
                    steps.hidden[t] = self.critic.hidden(
                        observation.to(self.device), torch.from_numpy(opposite).to(self.device)
                    )
                    steps.value[t] = self.critic(features, steps.hidden[t])
                policy = MaskedCategorical(logits, steps.action_mask[t])
                action = policy.sample(generator)
                steps.ratio[t] = 1.0
                declaring = observation[:, self._declaring].to(self.device) != 0
                steps.covered[t] = declaring & self._at_once
                if exploration:
                    share = exploration / (env.game.num_players - 1)
                    action, steps.ratio[t] = self._explore(
                        policy, action, declaring, generator, share
                    )
                steps.exposes[t] = self._exposes[action]
                steps.log_prob[t] = policy.log_prob(action)
            steps.features[t] = features
            steps.action[t] = action
            chosen = action.cpu().numpy()
            acted = clock()
            env.step(chosen)
            self.environment_seconds += clock() - acted
            steps.reward[t] = reward
            steps.settled[t] = settled
            self.network_seconds += acted - began
        steps.pending[self.carried :] = True
        batch = self._take_settled(gae_lambda)
        self._carry()
        return batch

    def _explore(
        self,
        policy: MaskedCategorical,
        action: Tensor,
        declaring: Tensor,
        generator: torch.Generator,
        share: float,
    ) -> tuple[Tensor, Tensor]:
        """Replace some declarations; return all actions, and the ratios of their probabilities."""
        may = declaring & ~policy.illegal[:, _OPEN]
        draws = torch.rand(len(action), generator=generator, device=self.device)
        action = action.masked_fill(may & (draws < share), _OPEN)
        wanted = policy.log_prob(action).exp()
        ratio = wanted / ((1.0 - share) * wanted + share * (action == _OPEN))
        return action, torch.where(may, ratio, 1.0)

    def _take_settled(self, gae_lambda: float) -> Batch:
        steps = self.steps
        advantages, complete = seat_advantages(
            steps.seat, steps.value, steps.reward, steps.settled, gae_lambda
        )
        take = complete & steps.pending
        steps.pending &= ~complete
        weights = exploration_weights(
            steps.seat,
            steps.ratio,
            steps.exposes,
            steps.covered,
            steps.settled,
            self.env.game.num_players,
        )
        value, advantage = steps.value[take], advantages[take]
        return Batch(
            features=steps.features[take],
            hidden=steps.hidden[take],
            action_mask=steps.action_mask[take],
            action=steps.action[take],
            log_prob=steps.log_prob[take],
            value=value,
            advantage=advantage,
            weight=weights[take],
            returns=advantage + value,
            deals=int((steps.settled & take).sum()),
        )

    def _carry(self) -> None:
        """Move the last steps, among them all of unsettled deals, to the front."""
        for tensor in self.steps.tensors().values():
            tensor[: self.carried] = tensor[self.window :].clone()

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on exactly, after a :meth:`collect`."""
        carried = {
            name: tensor[: self.carried].clone() for name, tensor in self.steps.tensors().items()
        }
        return {"environments": self.env.state_dict(), "carried": carried}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.env.load_state_dict(state["environments"])
        for name, tensor in self.steps.tensors().items():
            tensor[: self.carried] = state["carried"][name]
