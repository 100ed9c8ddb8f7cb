r"""# Shuiyu

| Import | `from shuiyu_env import shuiyu_v0` |
|---|---|
| Actions | Discrete |
| Parallel API | No |
| Manual control | No |
| Agents | `agents = ["player_0", ..., "player_12"]` |
| Number of agents | 2 to 13 (default 4) |
| Action shape | `()` |
| Action values | `Discrete(23)`, with stakes `Discrete(23 + max_stake)` |
| Observation shape | `(D,)`: 262 for two seats, 454 for four (without stakes) |
| Observation values | `[0, 1]` |
| State shape | `(D,)` |
| State values | `[0, 1]` |

## Description

Shuiyu (水鱼) is a card game of bluff from southern China. One seat deals, the
banker; every other seat, a punter, plays its own contest against the dealer.
Each seat splits four cards into two groups of two, in secret and for good.
A punter then says something about its cards, by a declaration that may be a
lie; the dealer believes it or not, and so, often, does the punter in return.
Only some contests end with cards on the table.

```python
from shuiyu_env import shuiyu_v0

env = shuiyu_v0.env(num_players=4, rules="nanning")
env.reset(seed=7)
for agent in env.agent_iter():
    observation, reward, termination, truncation, info = env.last()
    if termination or truncation:
        action = None
    else:
        action = env.action_space(agent).sample(observation["action_mask"])
    env.step(action)
env.close()
```

With PettingZoo 1.27 or later, `pettingzoo.make("aec", "shuiyu-v0")` makes the
same environment once this module has been imported.

### The game in short

1. **Stake** (only if the rules have stakes): each punter picks its stake, before seeing cards.
2. **Arrange**: the dealer, then each punter, picks one of the splits of its hand. A group counts
   its points modulo ten, as in baccarat; two cards of one rank are a pair, which beats points.
3. **Specials**: two pairs (a Shuiyu) or four of a kind (a Supreme) settle their contests at once.
4. **Declare**: each other punter says `OPEN`, `COVER`, `FORCE`, `ATTACK` or `REQUEST_PUSH`.
   Nobody sees a declaration before the last is made (or each at once, as the rules say).
5. **Contests**, one after another: the dealer calls, and the punter may have to reply.
6. **Rearrange**: the dealer may lay his hand anew against each `FORCE`.
7. **Reveal and settle**: hands that were compared are shown, and everything is paid.

The dealer may act many times running. Every decision is asked, also one with a single legal action.

## Observation

A dictionary with

* `observation`: `float32[D]`, everything that the seat has seen of the current deal, every number
  from 0 to 1. The seats come in table order counted from oneself, so one network can play them all.
* `action_mask`: `int8[A]`, 1 for each legal action of the seat to act. It is all zeros for every
  other seat, and for all when the episode is over.

`observe()` answers for every seat at any time after `reset()`, with fresh arrays. `state()` is the
whole table, all cards open, in the same layout counted from `player_0`: for a centralised critic,
never for a player. The fields and their places are in `docs/environment.md`; in code,
`env.unwrapped.layout.views(vector)` gives them by name.

## Action

One discrete space for all seats; an action's number is the same in every preset, and its name is
that of `shuiyu_env.Action`. The table of numbers, names and who may take them when is in
`docs/environment.md`.

## Rewards

Units won or lost, paid to all seats at the end of each deal, and 0 at every other step.

| `reward` | Meaning |
|---|---|
| `"transfer"` | what a punter wins the dealer pays: zero-sum at every step |
| `"drinks"` | the loser of a contest pays its units and nobody gains |

All seats terminate together, at the step that settles the last deal. Nothing is ever truncated.

## Arguments

* `num_players` (int, 4): seats, 2 to 13, as many as the deck can deal to.
* `rules` (str, `RuleSet` or mapping, `"nanning"`): a preset (`nanning`, `dahua`, `dahua_house`), a
  rule set, or a mapping of its fields.
* `rounds` (int, 1): deals in an episode. With more than one, `infos[agent]["last_deal"]` holds the
  last settled deal as that seat saw its reveal; see `raw_env`.
* `dealer_rotation` (str, `"fixed"`): `"fixed"`, `"rotate"` or `"random"`: who deals the next deal.
* `reward` (str, `"transfer"`): `"transfer"` or `"drinks"`.
* `illegal_action` (str, `"raise"`): what an action outside the mask does. `"raise"`: an
  `IllegalActionError`, and nothing has changed. `"terminate"`: the deal in progress is cancelled
  and the episode ends; see `raw_env`.
* `render_mode` (str, `None`): `"ansi"`, `"rgb_array"` (`uint8[800, 1280, 3]`) or `"human"`. The
  last two need `pip install "shuiyu_env[render]"`.
* `render_view` (int, `None`): the seat through whose eyes it is drawn; `None` is the whole table,
  all cards open.

`reset(seed, options)`: a seed starts its stream of deals from the first; without one the next deals
of the same stream follow, so no deal comes twice. `options["hands"]` (one hand a seat, such as
`"As Kd 7c 2h"`) and `options["dealer"]` (a seat) set up the first deal; other keys are ignored.

## Version history

* v0: first version
"""

from __future__ import annotations

__all__ = ["env", "raw_env"]

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from pettingzoo import AECEnv
from pettingzoo.utils import OrderEnforcingWrapper

from shuiyu_env.core.actions import Action
from shuiyu_env.core.cards import card_text
from shuiyu_env.core.checks import as_integer, check_choice
from shuiyu_env.core.errors import DealError, IllegalActionError, RulesError, ShuiyuError, closest
from shuiyu_env.core.game import DealerRotation, Game, State
from shuiyu_env.core.hands import Outcome
from shuiyu_env.core.play import NONE, Deal, Decided, RewardMode
from shuiyu_env.core.rules import RuleSet
from shuiyu_env.core.view import View, view_of
from shuiyu_env.observation import Layout, layout_of
from shuiyu_env.render import Window, check_pygame, render_ansi, render_rgb, seat_name, units_text

IllegalAction = Literal["raise", "terminate"]
RenderMode = Literal["ansi", "rgb_array", "human"]


def env(*args: Any, **kwargs: Any) -> OrderEnforcingWrapper:
    """Return the environment, guarded against calls in the wrong order.

    Arguments are those of :class:`raw_env`.
    """
    return _OrderEnforcing(raw_env(*args, **kwargs))


class _OrderEnforcing(OrderEnforcingWrapper):  # type: ignore[misc]
    """PettingZoo's wrapper, with shorter ways to what every step asks for.

    The wrapper finds each attribute of the environment through two fallbacks, and
    looks up five for one ``last()``: more work than the game itself.
    """

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        had_reset: bool = self._has_reset  # type: ignore[has-type]
        try:
            super().reset(seed=seed, options=options)
        except ShuiyuError:
            # Nothing has begun, so the order of calls is still to be watched.
            self._has_reset = had_reset
            raise

    # Before reset() the wrapper knows what to say.

    @property
    def agents(self) -> Any:
        return self.env.agents if self._has_reset else self.__getattr__("agents")

    @property
    def agent_selection(self) -> Any:
        name = "agent_selection"
        return self.env.agent_selection if self._has_reset else self.__getattr__(name)

    def last(self, observe: bool = True) -> Any:
        return self.env.last(observe) if self._has_reset else super().last(observe)

    def __str__(self) -> str:
        return str(self.env)


class raw_env(AECEnv):  # type: ignore[misc] # noqa: N801 (PettingZoo's name)
    """The environment itself; :func:`env` adds checks of the order of calls.

    Args:
        num_players: seats, 2 to 13, as many as the deck can deal four cards to.
        rules: a preset's name, a :class:`~shuiyu_env.RuleSet` or a mapping of its fields.
        rounds: deals in an episode, at least 1.
        dealer_rotation: ``"fixed"``, ``"rotate"`` or ``"random"``.
        reward: ``"transfer"`` (zero-sum) or ``"drinks"`` (only losers are charged).
        illegal_action: ``"raise"``: an illegal action raises
            :class:`~shuiyu_env.core.errors.IllegalActionError` and changes
            nothing. ``"terminate"``: the deal in progress is cancelled, the
            offender gets -1 and every other seat 1/(n-1) (under ``"drinks"``:
            0), and all seats terminate, none is truncated; deals settled before
            stay paid. Only the offender's ``infos`` say why, as
            ``"illegal_action"``. What is no integer at all raises in both modes.
        render_mode: ``"ansi"``, ``"rgb_array"``, ``"human"`` or ``None``.
        render_view: the seat whose view is drawn, or ``None`` for the whole table.

    With several rounds, ``infos[agent]["last_deal"]`` is, from the step that
    settled a deal until the next one settles or the environment is reset, a
    plain dictionary of what that seat knows of it. Lists are by seat, ``None``
    for what there was not or the seat has not seen: ``dealer``, ``seat`` (whose
    view it is), ``hands`` (card texts), ``splits``, ``declarations``, ``calls``,
    ``replies`` (names of actions; calls stand at the punter's seat), ``stakes``,
    ``force_splits`` (by punter), ``decided`` and ``outcomes`` (names of
    :class:`~shuiyu_env.core.play.Decided` and
    :class:`~shuiyu_env.core.hands.Outcome`, by punter) and ``rewards``.

    Raises:
        RulesError: an argument that does not exist or is out of range.
        ShuiyuError: a picture is asked for and pygame is not installed.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (PettingZoo's shape)
        "name": "shuiyu_v0",
        "render_modes": list(get_args(RenderMode)),
        "is_parallelizable": False,
        "render_fps": 2,
    }

    def __init__(
        self,
        num_players: int = 4,
        rules: str | RuleSet | Mapping[str, Any] = "nanning",
        rounds: int = 1,
        dealer_rotation: DealerRotation = "fixed",
        reward: RewardMode = "transfer",
        illegal_action: IllegalAction = "raise",
        render_mode: RenderMode | None = None,
        render_view: int | None = None,
    ) -> None:
        super().__init__()
        self._game = Game(num_players, rules, rounds, dealer_rotation, reward)
        self._layout = layout_of(self._game)
        self._terminate_illegal = (
            check_choice("illegal_action", illegal_action, get_args(IllegalAction)) == "terminate"
        )
        self.render_mode = render_mode
        if render_mode is not None:
            check_choice("render_mode", render_mode, get_args(RenderMode))
            if render_mode != "ansi":
                check_pygame()
        self.render_view = _check_render_view(render_view, num_players)
        self._window: Window | None = None

        size, num_actions = self._layout.size, self._game.num_actions
        self.possible_agents = [seat_name(seat) for seat in range(num_players)]
        self.agents: list[str] = []
        self._seats = {agent: seat for seat, agent in enumerate(self.possible_agents)}
        self.observation_spaces = {
            agent: spaces.Dict(
                # A plain dict would be sorted by key, before Gymnasium 1.1 any mapping.
                [
                    ("observation", spaces.Box(0.0, 1.0, (size,), np.float32)),
                    ("action_mask", spaces.Box(0, 1, (num_actions,), np.int8)),
                ]
            )
            for agent in self.possible_agents
        }
        self.action_spaces = {agent: spaces.Discrete(num_actions) for agent in self.possible_agents}
        self.state_space = spaces.Box(0.0, 1.0, (size,), np.float32)

        self._seed: int | None = None
        self._state: State | None = None
        self._paid = False  # whether `rewards` holds anything but zeros
        self._cancelled = False  # whether an illegal action ended the episode
        self._zeros = dict.fromkeys(self.possible_agents, 0.0)
        # Which actions are legal takes few values, so masks are copied, not built.
        self._masks: dict[tuple[int, ...], npt.NDArray[np.int8]] = {}

    @property
    def game(self) -> Game:
        """The settings of the table."""
        return self._game

    @property
    def layout(self) -> Layout:
        """The layout of observations and of :meth:`state`."""
        return self._layout

    @property
    def game_state(self) -> State:
        """The game behind the environment, everything open; read it, or ``clone()`` it to play on.

        ``game_state.to_record()`` is the hand history of the episode. An illegal
        action that ended the episode is not in it.

        Raises:
            ShuiyuError: before the first ``reset()``.
        """
        if self._state is None:
            raise ShuiyuError("there is no game yet: call reset() first")
        return self._state

    def observation_space(self, agent: str) -> spaces.Dict:
        """Return the observation space of a seat; always the same object."""
        return self.observation_spaces[self.possible_agents[self._seat(agent)]]

    def action_space(self, agent: str) -> spaces.Discrete:
        """Return the action space of a seat; always the same object."""
        return self.action_spaces[self.possible_agents[self._seat(agent)]]

    def _seat(self, agent: str) -> int:
        try:
            return self._seats[agent]
        except (KeyError, TypeError):
            raise ShuiyuError(
                f"expected an agent, 'player_0' to {self.possible_agents[-1]!r}, got"
                f" {agent!r}{closest(agent, self.possible_agents)}"
            ) from None

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Begin an episode.

        Args:
            seed: start the stream of deals of this seed from its first deal. Without
                one, the next deals of the current stream follow (a deal begun
                counts as used); the first stream is drawn from the system.
            options: ``"hands"``: the first deal's hands, one per seat, each
                ``"As Kd 7c 2h"`` or four card texts or codes; ``"dealer"``: its
                dealer's seat. Both optional; other keys are ignored.

        Raises:
            DealError: seed, hands or dealer cannot be dealt. Nothing has changed.
            CardError: a text or code that is no card.
        """
        if options is None:
            options = {}
        elif not isinstance(options, Mapping):
            raise DealError(
                "options: expected a dictionary with any of the keys 'hands' and 'dealer', got"
                f" {options!r}"
            )
        index = 0
        last = self._state
        if seed is None:
            seed = self._seed
            if last is not None:
                index = last.index + len(last.finished) + (not last.is_terminal)
        state = self._game.new_state(seed, options.get("hands"), options.get("dealer"), index=index)
        self._state = state
        self._seed = state.seed
        self._cancelled = self._paid = False
        agents = self.possible_agents
        self.agents = agents[:]
        self.rewards = self._zeros.copy()
        self._cumulative_rewards = self._zeros.copy()
        self.terminations = dict.fromkeys(agents, False)
        self.truncations = dict.fromkeys(agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in agents}
        self.agent_selection = agents[state.deal.seat]
        if self.render_mode == "human":
            self.render()

    def observe(self, agent: str) -> dict[str, npt.NDArray[Any]]:
        """Return a seat's ``{"observation": float32[D], "action_mask": int8[A]}``, fresh arrays."""
        seat = self._seat(agent)
        deal = self.game_state.deal
        legal = deal.legal if seat == deal.seat and not self._cancelled else ()
        mask = self._masks.get(legal)
        if mask is None:
            mask = np.zeros(self._game.num_actions, dtype=np.int8)
            mask[list(legal)] = 1
            self._masks[legal] = mask
        return {
            "observation": self._layout.encode(self._view(seat)),
            "action_mask": mask.copy(),
        }

    def _view(self, seat: int | None, deal: Deal | None = None) -> View:
        view = view_of(self.game_state.deal if deal is None else deal, seat)
        # After an illegal action ended the episode nobody is to act any more.
        return replace(view, to_act=NONE) if self._cancelled else view

    def state(self) -> npt.NDArray[np.float32]:
        """Return the whole table ``float32[D]``, all cards open, counted from ``player_0``."""
        return self._layout.encode(self._view(None))

    def step(self, action: int | None) -> None:
        """Take an action for ``agent_selection``; ``None`` for a seat that has terminated.

        Raises:
            IllegalActionError: not legal (under ``illegal_action="raise"``), or no
                integer; nothing has changed.
            ShuiyuError: the episode is over, or has not begun.
        """
        if not self.agents:
            raise ShuiyuError("the episode is over or has not begun: call reset() first")
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        state = self.game_state
        try:
            state.apply(action)  # type: ignore[arg-type]
        except IllegalActionError as error:
            if not self._terminate_illegal or as_integer(action) is None:
                raise
            self._clear_acting(agent)
            self._cancel(agent, str(error))
        else:
            self._clear_acting(agent)
            deal = state.deal
            if deal.seat == NONE or not deal.actions:
                self._settle(state)
            if deal.seat != NONE:
                self.agent_selection = self.possible_agents[deal.seat]
        if self.render_mode == "human":
            self.render()

    def _clear_acting(self, agent: str) -> None:
        """Forget what was paid before this step, and what the acting seat has already been told."""
        self._cumulative_rewards[agent] = 0.0
        if self._paid:
            # A new dictionary, so that one handed out keeps what it said.
            self.rewards = self._zeros.copy()
            self._paid = False

    def _pay(self, rewards: list[float]) -> None:
        self.rewards = dict(zip(self.possible_agents, rewards, strict=True))
        self._paid = True
        self._accumulate_rewards()

    def _end(self) -> None:
        self.terminations = dict.fromkeys(self.possible_agents, True)
        self._deads_step_first()

    def _settle(self, state: State) -> None:
        """Pay a deal, show it to the seats, and end the episode after the last."""
        deal = state.finished[-1]
        self._pay(deal.rewards)
        if self._game.rounds > 1:
            self.infos = {
                agent: {"last_deal": _last_deal(view_of(deal, seat))}
                for seat, agent in enumerate(self.possible_agents)
            }
        if state.is_terminal:
            self._end()
        elif self.render_mode == "human":
            # The next deal has begun already: show how this one ended.
            self._show(deal)

    def _cancel(self, offender: str, reason: str) -> None:
        """End the episode for an illegal action."""
        transfer = self._game.reward == "transfer"
        others = 1.0 / (self._game.num_players - 1) if transfer else 0.0
        self._cancelled = True
        self._pay([-1.0 if agent == offender else others for agent in self.possible_agents])
        # The reason lists the offender's legal actions, which may tell of its hand.
        self.infos[offender] = {**self.infos[offender], "illegal_action": reason}
        self._end()

    def render(self) -> str | npt.NDArray[np.uint8] | None:
        """Draw the table as ``render_mode`` says.

        Returns:
            ``"ansi"``: text; ``"rgb_array"``: ``uint8[800, 1280, 3]``; ``"human"``: ``None``.
        """
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render() was called, but the environment was made without a render_mode;"
                f" choose one of {', '.join(get_args(RenderMode))}"
            )
            return None
        return self._show(self.game_state.deal)

    def _show(self, deal: Deal) -> str | npt.NDArray[np.uint8] | None:
        view = self._view(self.render_view, deal)
        caption = self._caption(deal)
        if self.render_mode == "ansi":
            return render_ansi(view, caption)
        if self.render_mode == "rgb_array":
            return render_rgb(view, caption)
        if self._window is None:
            self._window = Window(self.metadata["name"], self.metadata["render_fps"])
        self._window.show(view, caption)
        return None

    def _caption(self, deal: Deal) -> str:
        """Say where in the episode a deal stands; only what every seat knows."""
        state = self.game_state
        parts = []
        if self._game.rounds > 1:
            settled = len(state.finished)
            number = settled + (not settled or deal is not state.finished[-1])
            parts.append(f"deal {number} of {self._game.rounds}")
            returns = (
                f"{agent} {units_text(units)}"
                for agent, units in zip(self.possible_agents, state.returns(), strict=True)
            )
            if settled:
                parts.append(f"so far {', '.join(returns)}")
        if self._cancelled:
            parts.append("an illegal action ended the episode")
        return "; ".join(parts)

    def close(self) -> None:
        """Close the window, if there is one; safe to call twice."""
        if self._window is not None:
            self._window.close()
            self._window = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy draws in a window of its own.
        return {**self.__dict__, "_window": None}


def _last_deal(view: View) -> dict[str, Any]:
    """Return a settled deal, as a seat saw it, as plain values; see :class:`raw_env`."""

    def numbers(values: list[int]) -> list[int | None]:
        return [None if value == NONE else value for value in values]

    def actions(values: list[int]) -> list[str | None]:
        return [None if value == NONE else Action(value).name for value in values]

    return {
        "seat": view.seat,
        "dealer": view.dealer,
        "hands": [None if hand is None else " ".join(map(card_text, hand)) for hand in view.hands],
        "splits": numbers(view.splits),
        "declarations": actions(view.declarations),
        "calls": actions(view.calls),
        "replies": actions(view.replies),
        "stakes": numbers(view.stakes),
        "force_splits": numbers(view.force_splits),
        "decided": [Decided(value).name if value else None for value in view.decided],
        "outcomes": [None if value == NONE else Outcome(value).name for value in view.outcomes],
        "rewards": view.rewards[:],
    }


def _check_render_view(value: Any, num_players: int) -> int | None:
    if value is None:
        return None
    seat = as_integer(value)
    if seat is None or not 0 <= seat < num_players:
        raise RulesError(
            "render_view: expected None (the whole table) or a seat from 0 to"
            f" {num_players - 1}, got {value!r}"
        )
    return seat


# What help() and editors show: the arguments that env() hands on.
env.__signature__ = inspect.signature(raw_env)  # type: ignore[attr-defined]


def _register() -> None:
    """Make the environment known to PettingZoo's registry, where it has one (from 1.27)."""
    try:
        from pettingzoo import aec_registry, register
    except ImportError:
        return
    if "shuiyu-v0" not in aec_registry:
        register("aec", "shuiyu-v0", entry_point=f"{__name__}:env")


_register()
