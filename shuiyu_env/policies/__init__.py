"""Policies: the protocol, loading by name or file, and reference policies without learning.

Importing this package imports neither torch nor anything compiled.
"""

from __future__ import annotations

from shuiyu_env.core.errors import PolicyError
from shuiyu_env.policies.loading import available, load
from shuiyu_env.policy import Policy, checked_probabilities, sample_actions

__all__ = [
    "Policy",
    "PolicyError",
    "available",
    "checked_probabilities",
    "load",
    "sample_actions",
]
