"""The actor-critic network that all seats share, masked distributions, and the policy around it.

Needs torch (the ``train`` extra); nothing in the package imports this module
before a network is asked for.
"""

from __future__ import annotations

__all__ = ["ActorCritic", "MaskedCategorical", "NetworkConfig", "NetworkPolicy", "field_columns"]

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from shuiyu_env.core.checks import as_integer
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import ConfigError, PolicyError, closest
from shuiyu_env.observation import Layout

#: One-hot fields of 52 cards each; strengths and outcomes say what the rules make of them.
CARD_FIELDS = ("hand", "seats.shown_hand")

#: Large, but finite: infinities turn into NaN in entropies and gradients.
ILLEGAL_LOGIT = -1e9

_MAX_WIDTH = 65536
_MAX_BINS = 1024
#: Below a threshold, so far an action's probability goes down to none.
_SLOPE = 0.003
#: Names of the phases that an observation can be of.
_PHASES = tuple(phase.name.lower() for phase in Phase if phase is not Phase.OVER)


@dataclass(frozen=True)
class NetworkConfig:
    """What a network looks like; stored in its checkpoint.

    Args:
        hidden: widths of the hidden layers.
        cards: read the one-hot card fields too, not only strengths, outcomes
            and what is public. Larger and slower.
        bins: besides as a number, each strength is read in a piecewise linear encoding of
            so many bins, so that sharp thresholds are easy to learn: Gorishniy et al., "On
            embeddings for numerical features in tabular deep learning" (2022). 0 for none.
        outcomes_only: heads-up, at a call on an opened hand and at a forced
            showdown, see the outcomes and what is public but not one's own
            cards. Payoffs there depend on the cards only through the outcome,
            so nothing is lost, and the policy's best response becomes exactly
            computable. Without effect with more than two seats.
        thresholds: by phase (stake, arrange, declare, call, reply, rearrange), the
            probability below which an action is not played, except the likeliest (less within
            0.003 of it, not at all further down). Only what the policy plays changes, not what
            the network learns. A network never quite gives up an action, and small mistakes add
            up: Ganzfried, Sandholm and Waugh, "Strategy purification and thresholding" (2012).
            Calls had better go without: a dealer's bluffs are rare ones.

    Raises:
        ConfigError: a value out of range.
    """

    hidden: tuple[int, ...] = (128, 128)
    cards: bool = False
    bins: int = 16
    outcomes_only: bool = True
    thresholds: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("cards", "outcomes_only"):
            if type(getattr(self, name)) is not bool:
                raise ConfigError(
                    f"network.{name}: expected true or false, got {getattr(self, name)!r}"
                )
        if type(self.bins) is not int or not 0 <= self.bins <= _MAX_BINS:
            raise ConfigError(
                f"network.bins: expected a whole number from 0 to {_MAX_BINS}, got {self.bins!r}"
            )
        hidden: Any = self.hidden
        if isinstance(hidden, str) or not isinstance(hidden, Iterable):
            raise ConfigError(f"network.hidden: expected a list of widths, got {hidden!r}")
        object.__setattr__(self, "hidden", tuple(self.hidden))
        for width in self.hidden:
            if isinstance(width, bool) or not isinstance(width, int) or not 0 < width <= _MAX_WIDTH:
                raise ConfigError(
                    f"network.hidden: expected whole numbers from 1 to {_MAX_WIDTH}, got {width!r}"
                )
        self._check_thresholds()

    def _check_thresholds(self) -> None:
        thresholds: Any = self.thresholds
        if not isinstance(thresholds, Mapping):
            raise ConfigError(
                "network.thresholds: expected phases and probabilities, such as {arrange: 0.2},"
                f" got {thresholds!r}"
            )
        for name, value in thresholds.items():
            if name not in _PHASES:
                raise ConfigError(
                    f"network.thresholds: expected phases, of {', '.join(_PHASES)}, got"
                    f" {name!r}{closest(str(name), _PHASES)}"
                )
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise ConfigError(
                    f"network.thresholds.{name}: expected a probability from 0 to 1, got {value!r}"
                )
        object.__setattr__(self, "thresholds", dict(thresholds))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; :meth:`from_dict` reverses it."""
        return asdict(self) | {"hidden": list(self.hidden)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> NetworkConfig:
        """Build one from plain values; missing ones take their defaults.

        Raises:
            ConfigError: an unknown key or a bad value.
        """
        valid = [field.name for field in fields(cls)]
        for key in data:
            if key not in valid:
                raise ConfigError(f"network: unknown key {key!r}{closest(key, valid)}")
        return cls(**data)


def field_columns(layout: Layout, names: Sequence[str]) -> list[int]:
    """Return the positions in the observation of some named fields, ascending.

    Raises:
        ConfigError: the layout has no such field.
    """
    places = layout.views(np.arange(layout.size))
    columns: list[int] = []
    for name in names:
        if name not in places:
            raise ConfigError(f"no field {name!r} in the observation{closest(name, places)}")
        columns += places[name].ravel().tolist()
    return sorted(columns)


class MaskedCategorical:
    """A distribution over the legal actions of each row.

    Illegal actions have probability exactly 0 and are never sampled; entropies
    and log-probabilities of legal actions are finite and have finite
    gradients, whatever finite logits come in.

    Args:
        logits: ``float32[B, A]``.
        mask: ``[B, A]``, non-zero where legal; at least one in every row.
    """

    def __init__(self, logits: Tensor, mask: Tensor) -> None:
        self.illegal = mask == 0
        # Counted from the best legal logit, so that a legal one can never fall below an illegal.
        top = logits.detach().masked_fill(self.illegal, -torch.inf).amax(dim=-1, keepdim=True)
        shifted = (logits - top).clamp(min=ILLEGAL_LOGIT / 2)
        self.log_probs = torch.log_softmax(shifted.masked_fill(self.illegal, ILLEGAL_LOGIT), -1)

    @property
    def probs(self) -> Tensor:
        """Probabilities ``float32[B, A]``; exactly 0 where illegal."""
        return self.log_probs.exp().masked_fill(self.illegal, 0.0)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw one legal action a row, ``int64[B]``."""
        # An exponential race: the smallest of e_a / p_a is a with probability p_a.
        noise = torch.empty_like(self.log_probs).exponential_(generator=generator)
        score = self.log_probs.detach() - noise.log()
        # Masked after adding the noise, which is unbounded.
        return score.masked_fill(self.illegal, -torch.inf).argmax(dim=-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probabilities ``[B]`` of actions ``int64[B]``."""
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """Entropies ``[B]`` in nats; 0 in rows with a single legal action."""
        return -(self.probs * self.log_probs).sum(dim=-1)

    def surprise(self) -> Tensor:
        """Means ``[B]`` of -log(probability), in nats, over the legal actions of each row."""
        total = self.log_probs.masked_fill(self.illegal, 0.0).sum(dim=-1)
        return -total / (~self.illegal).sum(dim=-1)

    def divergence(self, log_probs: Tensor) -> Tensor:
        """Kullback-Leibler divergences ``[B]`` in nats from another distribution to this one.

        Args:
            log_probs: of the other distribution, with the same mask, ``float32[B, A]``.
        """
        return (self.probs * (self.log_probs - log_probs)).sum(dim=-1)


class ActorCritic(nn.Module):
    """A multi-layer perceptron with a policy and a value head; all seats share it.

    It reads the fields of the observation that its configuration names, and
    two products of them that decisions after arranging turn on: strengths and
    outcomes of the split that one has committed to.

    Args:
        layout: the observation's layout.
        config: the shape of the network.
        generator: where initial weights are drawn from; torch's global one if ``None``.

    Attributes:
        input_fields: names of the observation fields it reads.
    """

    _columns: Tensor
    _scalars: Tensor
    _edges: Tensor
    _outcomes: Tensor
    _hidden_at_call: Tensor
    _hidden_at_rearranging: Tensor
    _thresholds: Tensor

    def __init__(
        self,
        layout: Layout,
        config: NetworkConfig | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.layout = layout
        self.config = NetworkConfig() if config is None else config
        self.input_fields = tuple(
            field.name
            for field in layout.fields
            if field.size and (self.config.cards or field.name not in CARD_FIELDS)
        )
        self._declare_features()
        widths = [self.num_features, *self.config.hidden]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [linear(inputs, outputs, math.sqrt(2), generator), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        # Nearly uniform to begin with.
        self.policy_head = linear(widths[-1], layout.num_actions, 0.01, generator)
        self.value_head = linear(widths[-1], 1, 1.0, generator)

    def _declare_features(self) -> None:
        """Find where in the observation everything lies that :meth:`features` reads."""
        layout = self.layout
        place = layout.views(np.arange(layout.size))
        columns = field_columns(layout, self.input_fields)
        self._split = _span(place["split"])
        self._strengths = _span(place["strengths"])
        self._phase = _span(place["phase"])
        self._at_call = int(place["phase"][Phase.CALL])
        self._at_rearranging = int(place["phase"][Phase.REARRANGE])
        self._opponent_exposed = int(place["seats.exposed"][1, 0])
        self._hides = self.config.outcomes_only and layout.num_players == 2

        results = 3 * layout.num_players
        # Which of the features are strengths: some columns, and the committed ones after them.
        strengths = field_columns(layout, ("strengths", "seats.shown_strengths"))
        scalars = [i for i, c in enumerate(columns) if c in strengths]
        scalars += [len(columns), len(columns) + 1]
        self.num_features = len(columns) + 2 + results + len(scalars) * self.config.bins
        own = set(field_columns(layout, ("hand", "split", "strengths")))
        outcomes = set(field_columns(layout, ("seats.outcomes",)))
        # Whether each feature is left out: columns, then committed strengths, then their outcomes.
        called = [c in own | outcomes for c in columns] + [True] * 2 + [False] * results
        forced = [c in own for c in columns] + [True] * (2 + results)
        for name, values in (
            ("_columns", columns),
            ("_scalars", scalars),
            ("_edges", list(range(self.config.bins))),
            ("_outcomes", place["seats.outcomes"].ravel().tolist()),
            ("_hidden_at_call", called),
            ("_hidden_at_rearranging", forced),
            ("_thresholds", [self.config.thresholds.get(p.name.lower(), 0.0) for p in Phase]),
        ):
            self.register_buffer(name, torch.tensor(values), persistent=False)

    def features(self, observation: Tensor) -> Tensor:
        """Return what the first layer reads, ``[B, num_features]``."""
        split = observation[:, self._split]
        strengths = observation[:, self._strengths].reshape(-1, 3, 2)
        results = observation.index_select(1, self._outcomes)
        results = results.reshape(-1, self.layout.num_players, 3, 3)
        features = torch.cat(
            [
                observation.index_select(1, self._columns),
                (split[:, :, None] * strengths).sum(1),
                (split[:, None, :, None] * results).sum(2).flatten(1),
            ],
            dim=1,
        )
        if self._hides:
            exposed = observation[:, self._opponent_exposed]
            at_call = (observation[:, self._at_call] * exposed)[:, None] != 0
            at_rearranging = (observation[:, self._at_rearranging] * exposed)[:, None] != 0
            hidden = at_call & self._hidden_at_call | at_rearranging & self._hidden_at_rearranging
            features = features.masked_fill(hidden, 0.0)
        if not self.config.bins:
            return features
        # Each bin goes from 0 to 1 while the strength crosses it.
        scaled = features.index_select(1, self._scalars)[:, :, None] * self.config.bins
        bins = (scaled - self._edges).clamp(0.0, 1.0)
        return torch.cat([features, bins.flatten(1)], dim=1)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Return raw logits ``[B, A]`` and values ``[B]`` (units to the seat to act, this deal).

        Args:
            observation: ``float32[B, D]``.
        """
        return self.heads(self.features(observation))

    def heads(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits ``[B, A]`` and values ``[B]`` from features ``[B, num_features]``."""
        hidden = self.body(features)
        return self.policy_head(hidden), self.value_head(hidden).squeeze(-1)

    def played(self, observation: Tensor, probs: Tensor) -> Tensor:
        """Return what is played of a distribution ``[B, A]``: nothing below the thresholds."""
        if not any(self.config.thresholds.values()):
            return probs
        least = observation[:, self._phase] @ self._thresholds
        least = torch.minimum(least, probs.amax(dim=-1))[:, None]
        # A short slope: at a step, rounding would decide, and batches of other sizes round
        # differently.
        kept = probs * ((probs - least) / _SLOPE + 1.0).clamp(0.0, 1.0)
        return kept / kept.sum(dim=-1, keepdim=True)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.policy_head.weight.device


def _span(places: npt.NDArray[Any]) -> slice:
    return slice(int(places.min()), int(places.max()) + 1)


def linear(inputs: int, outputs: int, gain: float, generator: torch.Generator | None) -> nn.Linear:
    # Drawing the default weights as well would disturb torch's global generator.
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call]
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


class NetworkPolicy:
    """A network as a policy: observations and masks in, probabilities out.

    Args:
        network: set to evaluation mode here; its weights are shared, not copied.
        chunk: rows evaluated at once, which bounds the memory used.
        info: what its checkpoint says about it.

    Raises:
        PolicyError: a chunk below 1.
    """

    def __init__(
        self, network: ActorCritic, chunk: int = 16384, info: Mapping[str, Any] | None = None
    ) -> None:
        rows = as_integer(chunk)
        if rows is None or rows < 1:
            raise PolicyError(f"chunk: expected a whole number of 1 or more, got {chunk!r}")
        self.network = network.eval()
        self.chunk = rows
        self.info = dict(info or {})

    @property
    def outcomes_only(self) -> bool:
        """Whether it keeps the promise of that name of :class:`~shuiyu_env.policy.Policy`."""
        return self.network.config.outcomes_only and self.network.layout.num_players == 2

    @property
    def strengths_only(self) -> bool:
        """Whether it keeps the promise of that name of :class:`~shuiyu_env.policy.Policy`."""
        return not self.network.config.cards

    def with_thresholds(self, thresholds: Mapping[str, float]) -> NetworkPolicy:
        """Return the same network, weights shared, played with other thresholds.

        Args:
            thresholds: as in :class:`NetworkConfig`; ``{}`` for the network as it is.

        Raises:
            ConfigError: an unknown phase, or no probability.
        """
        config = replace(self.network.config, thresholds=thresholds)
        # The weights drawn here are replaced; drawing them must not disturb the global generator.
        network = ActorCritic(self.network.layout, config, torch.Generator().manual_seed(0))
        network.to(self.network.device).load_state_dict(self.network.state_dict(), assign=True)
        # The digest was of the file.
        info = {name: entry for name, entry in self.info.items() if name != "sha256"}
        info |= {"network": config.to_dict()} if info else {}
        return NetworkPolicy(network, self.chunk, info)

    def probabilities(
        self, observation: npt.NDArray[np.float32], action_mask: npt.NDArray[Any]
    ) -> npt.NDArray[np.float32]:
        """Return the probability of each action.

        Args:
            observation: ``float32[B, D]``.
            action_mask: ``[B, A]``, non-zero where legal; at least one in every row.

        Returns:
            ``float32[B, A]``; rows sum to 1, illegal actions have exactly 0.

        Raises:
            PolicyError: a shape that is not this network's, a row without a
                legal action, or weights that give no finite answer.
        """
        observation = np.asarray(observation, dtype=np.float32)
        action_mask = np.asarray(action_mask)
        layout = self.network.layout
        rows = len(observation) if observation.ndim == 2 else -1
        for name, array, width in (
            ("observation", observation, layout.size),
            ("action_mask", action_mask, layout.num_actions),
        ):
            if array.shape != (rows, width):
                raise PolicyError(
                    f"{name}: expected shape [B, {width}] (this network is for"
                    f" {layout.num_players} seats and {layout.num_actions} actions), got"
                    f" {list(array.shape)}"
                )
        legal = action_mask != 0
        if not legal.any(axis=1).all():
            raise PolicyError(f"action_mask: row {int(np.argmin(legal.any(axis=1)))} is all zero")
        result = np.empty(action_mask.shape, dtype=np.float32)
        device = self.network.device
        with torch.inference_mode():
            for start in range(0, rows, self.chunk):
                part = slice(start, start + self.chunk)
                x = torch.tensor(observation[part], device=device)
                mask = torch.tensor(legal[part], device=device)
                logits, _ = self.network(x)
                # In double, so that rounded rows sum to 1 within float32's precision.
                probs = MaskedCategorical(logits.double(), mask).probs
                result[part] = self.network.played(x, probs).float().cpu().numpy()
        if not np.isfinite(result).all():
            raise PolicyError("the network's weights give probabilities that are not finite")
        return result
