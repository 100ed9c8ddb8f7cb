"""Use the installed wheel, which must come without torch and without the checkout."""

from __future__ import annotations

import sys
from pathlib import Path

import shuiyu_env
from shuiyu_env import PRESETS, Game, shuiyu_v0

home = Path(shuiyu_env.__file__).parent
if "site-packages" not in home.parts or not (home / "py.typed").exists():
    sys.exit(f"expected the installed package with py.typed, got {home}")

env = shuiyu_v0.env(num_players=4)
env.reset(seed=1)
for agent in env.agent_iter():
    observation, _, termination, truncation, _ = env.last()
    mask = observation["action_mask"]
    env.step(None if termination or truncation else env.action_space(agent).sample(mask))
for heavy in ("torch", "numba"):
    if heavy in sys.modules:
        sys.exit(f"the environment imported {heavy}")

from shuiyu_env.evaluation import play_match  # noqa: E402
from shuiyu_env.exact.store import SHIPPED, find  # noqa: E402
from shuiyu_env.policies import available  # noqa: E402

for name, rules in PRESETS.items():
    if SHIPPED not in (path.parent for path in find(rules)):
        sys.exit(f"the equilibrium of {name} is not in the wheel")
if not any(name.startswith("nash_pg-") for name in available()):
    sys.exit("the trained policies are not in the wheel")
result = play_match([*available()[:1], "equilibrium"], Game(2, "dahua"), num_deals=2, seed=0)
print(result.table())
print(f"shuiyu_env {shuiyu_env.__version__}: the wheel plays")
