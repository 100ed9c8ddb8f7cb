"""The one action space of all seats and presets (rules, section "Actions")."""

from __future__ import annotations

__all__ = ["MAX_STAKE", "NUM_BASE_ACTIONS", "Action", "num_actions", "parse_action"]

from enum import IntEnum

from shuiyu_env.core.errors import IllegalActionError, closest

MAX_STAKE = 5


class Action(IntEnum):
    """Everything a seat can do; the value is the action id."""

    SPLIT_0 = 0
    SPLIT_1 = 1
    SPLIT_2 = 2
    OPEN = 3
    COVER = 4
    FORCE = 5
    ATTACK = 6
    REQUEST_PUSH = 7
    KILL = 8
    PUSH = 9
    SURRENDER = 10
    LOOK = 11
    FOLD = 12
    DECLINE = 13
    ACCEPT = 14
    DEMAND = 15
    GRANT = 16
    REFUSE = 17
    BELIEVE = 18
    DOUBT = 19
    PAY = 20
    CONTEST = 21
    CONCEDE = 22
    STAKE_1 = 23
    STAKE_2 = 24
    STAKE_3 = 25
    STAKE_4 = 26
    STAKE_5 = 27


#: Number of actions without stakes.
NUM_BASE_ACTIONS = Action.STAKE_1.value


def num_actions(max_stake: int) -> int:
    """Return the size of the action space of a rule set."""
    return NUM_BASE_ACTIONS + (max_stake if max_stake > 1 else 0)


def parse_action(name: str) -> Action:
    """Return the action of a name such as ``"KILL"``.

    Raises:
        IllegalActionError: there is no such action.
    """
    try:
        return Action[name]
    except (KeyError, TypeError):
        raise IllegalActionError(
            f"expected the name of an action such as 'KILL', got {name!r}"
            f"{closest(name, Action.__members__)}"
        ) from None
