"""Many games at once, behind arrays."""

from __future__ import annotations

from shuiyu_env.batch.env import BatchEnv

__all__ = ["BatchEnv"]
