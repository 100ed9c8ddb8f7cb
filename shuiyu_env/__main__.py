"""``python -m shuiyu_env``: the ``shuiyu`` command."""

from __future__ import annotations

import sys

from shuiyu_env.cli import main

if __name__ == "__main__":
    sys.exit(main())
