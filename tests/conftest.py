"""Settings that must stand before anything is imported."""

import hashlib
import os
import tempfile
from pathlib import Path

# Windows without a screen; pygame reads these when it is imported.
os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["SDL_AUDIODRIVER"] = "dummy"
os.environ["PYGAME_HIDE_SUPPORT_PROMPT"] = "1"

# Numba's cache notices changes of a kernel's own file only. Here compiled kernels are kept for
# exactly the sources they were compiled from.
_sources = sorted((Path(__file__).parents[1] / "shuiyu_env").rglob("*.py"))
_digest = hashlib.sha256(b"".join(path.read_bytes() for path in _sources)).hexdigest()[:16]
os.environ["NUMBA_CACHE_DIR"] = str(Path(tempfile.gettempdir()) / f"shuiyu_env-kernels-{_digest}")
