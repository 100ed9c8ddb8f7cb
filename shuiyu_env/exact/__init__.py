"""Exact game theory of the heads-up game: best responses, NashConv, equilibria.

``solve(rules)`` solves a rule set, ``nashconv(policy, rules)`` says how exploitable a
policy is, ``tabulate(policy, rules)`` makes the tables that it is computed from and
``expected_value(dealer, punter)`` plays two tabulated policies against each other, or
``expected_values`` one against several. All values are units per deal, over all deals.
"""

from __future__ import annotations

from shuiyu_env.exact.best_response import (
    Bound,
    NashConv,
    expected_value,
    expected_values,
    nashconv,
)
from shuiyu_env.exact.equilibrium import Equilibrium, load_equilibrium
from shuiyu_env.exact.heads_up import PolicyTables
from shuiyu_env.exact.solving import solve
from shuiyu_env.exact.store import equilibrium_of
from shuiyu_env.exact.tabulation import tabulate

__all__ = [
    "Bound",
    "Equilibrium",
    "NashConv",
    "PolicyTables",
    "equilibrium_of",
    "expected_value",
    "expected_values",
    "load_equilibrium",
    "nashconv",
    "solve",
    "tabulate",
]
