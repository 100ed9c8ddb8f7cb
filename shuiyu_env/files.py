"""Files that are whole or not there."""

from __future__ import annotations

__all__ = ["check_writable", "open_atomically", "write_atomically"]

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from shuiyu_env.core.errors import ConfigError


def check_writable(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that can be written; better known before an hour's work.

    Its folder is made if need be.

    Raises:
        ConfigError: it cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        problem = "it is a folder" if path.is_dir() else ""
        if path.exists() and not path.is_file() and not problem:
            # Writing goes by renaming, which would replace a device.
            problem = "it is no regular file"
        if not os.access(path.parent, os.W_OK):
            problem = f"{path.parent} cannot be written to"
    except (OSError, ValueError) as error:
        problem = str(error)
    if problem or not path.name:
        raise ConfigError(f"{path}: expected a file that can be written: {problem or 'no name'}")
    return path


def write_atomically(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write a file so that a reader, or a crash, never meets half of it."""
    with open_atomically(path) as file:
        file.write(data)
    return Path(path)


@contextmanager
def open_atomically(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Write a file bit by bit, which is there once the block has ended without an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
