"""What the benchmarks share: the description of the machine, and the page they report on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from shuiyu_env.evaluation.text import markdown_table as markdown
from shuiyu_env.files import write_atomically

__all__ = ["PAGE", "ROOT", "describe_machine", "markdown", "read_section", "write_section"]

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"


def describe_machine(*packages: str) -> str:
    """Return one line on the machine, the code that was measured, and some packages' versions.

    Its last word is the commit, with ``-dirty`` if files other than documents were changed since.
    """
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    versions = [f"Python {platform.python_version()}"]
    for package in packages:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {package}")
    git = ["git", "-C", str(ROOT)]
    head = [*git, "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip()
    changed = [*git, "diff", "--quiet", "HEAD", "--", ":(exclude)docs"]
    if commit and subprocess.run(changed, check=False).returncode:
        commit += "-dirty"
    return (
        f"{os.cpu_count()} cores of {model}, {platform.system()}; {', '.join(versions)}; commit"
        f" {commit or 'unknown'}"
    )


def read_section(name: str, page: Path = PAGE) -> str:
    """Return what a page has between a section's marks."""
    return _cut(name, page)[1].strip()


def write_section(name: str, text: str, page: Path = PAGE) -> None:
    """Replace one section of a page; the rest of it stays."""
    before, _, after = _cut(name, page)
    write_atomically(page, f"{before}\n\n{text.strip()}\n\n{after}".encode())
    print(f"wrote {page.relative_to(ROOT)}, {name}", flush=True)


def _cut(name: str, page: Path) -> tuple[str, str, str]:
    """Return a page up to the end of a section's first mark, the section, and the rest."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    section, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{page}: expected the marks {begin} and {end}")
    return before + begin, section, end + after
