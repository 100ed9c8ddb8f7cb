"""What a policy is, and how its answers are checked and sampled."""

from __future__ import annotations

__all__ = ["Policy", "check_inputs", "checked_probabilities", "is_policy", "sample_actions"]

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shuiyu_env.core.actions import Action
from shuiyu_env.core.contest import Phase
from shuiyu_env.core.errors import PolicyError, ShuiyuError
from shuiyu_env.observation import infer_layout

#: How far a row's sum may be from 1: room for single precision, not for a forgotten softmax.
SUM_TOLERANCE = 1e-4


class Policy(Protocol):
    """Anything that maps what a seat sees to probabilities of its legal actions.

    A policy may have an attribute ``outcomes_only``. If it is true, the policy promises
    that heads-up, at a call on an opened hand and at a forced showdown, its answer depends
    on its own cards only through outcomes, besides all that is public: at the call through
    ``seats.outcomes`` of its committed split, at the rearrangement through those of its
    three splits, where it may prefer any of several splits of the same outcome. Then its
    exact evaluation needs to ask it about outcomes only, with its own hand left blank.

    Another such attribute is ``strengths_only``: the policy reads no card, that is neither
    ``hand`` nor ``seats.shown_hand``; hands that differ in nothing else get the same answer.
    Then one of them is asked about for all, which makes exact evaluation much faster.
    """

    def probabilities(
        self, observation: npt.NDArray[np.float32], action_mask: npt.NDArray[Any]
    ) -> npt.NDArray[np.floating[Any]]:
        """Return the probability of every action in every row.

        Args:
            observation: ``float32[B, D]``, each of the seat to act.
            action_mask: ``[B, A]``, integers or booleans, non-zero where an
                action is legal; every row has a legal action.

        Returns:
            ``float[B, A]``: not negative, rows sum to 1, zero on illegal actions.
        """
        ...


def is_policy(value: object) -> bool:
    """Return whether an object can answer as a policy (a class of such objects cannot)."""
    return callable(getattr(value, "probabilities", None)) and not isinstance(value, type)


def check_inputs(
    observation: npt.ArrayLike, action_mask: npt.ArrayLike
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Return what a policy is asked, checked: ``float32[B, D]`` and ``bool[B, A]``.

    Raises:
        PolicyError: not two-dimensional, different numbers of rows, an observation that is
            not finite, or a row without a legal action.
    """
    try:
        seen = np.asarray(observation, dtype=np.float32)
        legal = np.asarray(action_mask) != 0
    except (TypeError, ValueError) as error:
        raise PolicyError(f"expected arrays of observations and masks: {error}") from None
    if seen.ndim != 2 or legal.ndim != 2 or len(seen) != len(legal):
        raise PolicyError(
            f"expected observations [B, D] and masks [B, A] (one observation is a batch of one:"
            f" observation[None]), got shapes {list(seen.shape)} and {list(legal.shape)}"
        )
    for good, problem in (
        (np.isfinite(seen).all(axis=1), "observation: row {} is not finite"),
        (legal.any(axis=1), "action_mask: row {} is all zero"),
    ):
        if not good.all():
            raise PolicyError(problem.format(int(np.argmin(good))))
    return seen, legal


def checked_probabilities(
    policy: Policy,
    observation: npt.NDArray[np.float32],
    action_mask: npt.NDArray[Any],
    name: str,
    seats: npt.ArrayLike | None = None,
) -> npt.NDArray[np.float64]:
    """Ask a policy and check its answer.

    Args:
        policy: the policy.
        observation: ``float32[B, D]``.
        action_mask: ``[B, A]``, non-zero where legal.
        name: how an error message names the policy.
        seats: ``[B]``, the seat of each row, only for error messages.

    Returns:
        ``float64[B, A]``.

    Raises:
        PolicyError: the answer has the wrong shape, is not finite, negative,
            does not sum to 1 or gives an illegal action a probability, or the
            policy raised something; the message names the policy, the first bad
            row, its seat and phase.
    """
    legal = np.asarray(action_mask) != 0
    _check(legal.any(axis=1), "there is no legal action", name, observation, legal, seats)
    try:
        answer = policy.probabilities(observation, action_mask)
    except ShuiyuError:
        raise
    except (Exception, SystemExit) as error:
        what = " ".join(str(error).split())
        _check(
            np.zeros(len(legal), dtype=np.bool_),
            f"it failed with {type(error).__name__}: {what}",
            name,
            observation,
            legal,
            seats,
            cause=error,
        )
        raise  # no rows to be asked about
    try:
        if np.iscomplexobj(answer):
            raise TypeError("complex numbers")
        result = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise PolicyError(
            f"policy {name!r}: expected probabilities of shape {legal.shape}, got"
            f" {type(answer).__name__}: {error}"
        ) from error
    if result.shape != legal.shape:
        raise PolicyError(
            f"policy {name!r}: expected probabilities of shape {legal.shape} (rows, actions), got"
            f" {result.shape}"
        )
    error_of_sum = np.abs(result.sum(axis=1) - 1.0)
    for good, problem in (
        (np.all(np.isfinite(result), axis=1), "the probabilities are not finite"),
        (np.all(result >= 0.0, axis=1), "a probability is negative"),
        (np.all((result <= 0.0) | legal, axis=1), "an illegal action has a probability"),
        (
            np.less_equal(error_of_sum, SUM_TOLERANCE),
            f"the probabilities do not sum to 1 (within {SUM_TOLERANCE}; half precision is too"
            " coarse)",
        ),
    ):
        _check(good, problem, name, observation, legal, seats, result)
    return result


def sample_actions(
    probabilities: npt.NDArray[np.floating[Any]],
    action_mask: npt.NDArray[Any],
    uniforms: npt.ArrayLike,
) -> npt.NDArray[np.int64]:
    """Draw one action for every row by the inverse of its distribution function.

    An action that is illegal, or has probability zero, is never drawn,
    whatever the rounding. Actions are taken in the order of their ids.

    Args:
        probabilities: ``float[B, A]``, rows summing to about 1.
        action_mask: ``[B, A]``, non-zero where legal.
        uniforms: ``float[B]`` in [0, 1].

    Returns:
        ``int64[B]``.

    Raises:
        PolicyError: a uniform out of range, or a row without probability on its legal actions.
    """
    u = np.asarray(uniforms, dtype=np.float64)
    legal = np.asarray(action_mask) != 0
    if u.shape != legal.shape[:1] or not ((u >= 0.0) & (u <= 1.0)).all():
        raise PolicyError(
            f"uniforms: expected {legal.shape[0]} numbers from 0 to 1, one for each row, got"
            f" an array of shape {u.shape}: {u}"
        )
    cumulative = np.cumsum(np.where(legal, probabilities, 0.0), axis=1, dtype=np.float64)
    total = cumulative[:, -1]
    if not (np.isfinite(total) & (total > 0.0)).all():
        row = int(np.argmin(np.isfinite(total) & (total > 0.0)))
        raise PolicyError(
            f"row {row}: expected probabilities with a positive sum over the legal actions, got"
            f" {np.asarray(probabilities)[row]}"
        )
    # Below the total, even where the product rounds up to it: then the first entry above the
    # target is where the distribution function steps up, so that action has a probability.
    target = np.minimum(u * total, np.nextafter(total, 0.0))
    first_above: npt.NDArray[np.intp] = np.argmax(cumulative > target[:, None], axis=1)
    return first_above.astype(np.int64)


def _check(
    good: npt.NDArray[np.bool_],
    problem: str,
    name: str,
    observation: npt.NDArray[Any],
    legal: npt.NDArray[np.bool_],
    seats: npt.ArrayLike | None,
    answer: npt.NDArray[np.float64] | None = None,
    cause: BaseException | None = None,
) -> None:
    """Raise a :class:`PolicyError` about the first row that is not good, if there is one."""
    if good.all():
        return
    row = int(np.argmin(good))
    where = [f"row {row}"]
    if seats is not None:
        where.append(f"seat {np.asarray(seats)[row]}")
    try:
        fields = infer_layout(observation.shape[-1], legal.shape[-1]).views(observation[row])
        where.append(f"phase {Phase(int(np.argmax(fields['phase']))).name}")
    except ShuiyuError:
        pass  # An observation of the caller's own making has no phase to name.
    legal_names = [_name(a) for a in np.flatnonzero(legal[row]).tolist()]
    text = f"policy {name!r}, {', '.join(where)}: {problem}; legal: {', '.join(legal_names)}"
    if answer is not None:
        shown = [a for a in range(legal.shape[1]) if legal[row, a] or abs(answer[row, a]) > 0.0]
        text += "; got " + ", ".join(f"{_name(a)} {answer[row, a]:.6g}" for a in shown)
        text += f", sum {answer[row].sum():.6g}"
    raise PolicyError(text) from cause


def _name(action: int) -> str:
    return Action(action).name if action in list(Action) else str(action)
