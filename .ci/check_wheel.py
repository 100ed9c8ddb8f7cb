"""Play one episode with the installed wheel, which must come without torch or the checkout."""

from __future__ import annotations

import sys
from pathlib import Path

import shuiyu_env
from shuiyu_env import shuiyu_v0

assert "site-packages" in Path(shuiyu_env.__file__).parts, shuiyu_env.__file__
assert (Path(shuiyu_env.__file__).parent / "py.typed").exists()

env = shuiyu_v0.env(num_players=4)
env.reset(seed=1)
for agent in env.agent_iter():
    observation, _, termination, truncation, _ = env.last()
    mask = observation["action_mask"]
    env.step(None if termination or truncation else env.action_space(agent).sample(mask))
assert "torch" not in sys.modules
print(f"shuiyu_env {shuiyu_env.__version__}: the wheel plays")
