"""Imports run one way, and importing the package is light."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shuiyu_env

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "shuiyu_env"

# From the ground up; a module may import from its own layer and from those below.
LAYERS = [
    ["shuiyu_env.core", "shuiyu_env.compiling", "shuiyu_env.files", "shuiyu_env.progress"],
    ["shuiyu_env.tables", "shuiyu_env.observation", "shuiyu_env.policy"],
    ["shuiyu_env.batch", "shuiyu_env.exact", "shuiyu_env.render"],
    [
        "shuiyu_env.shuiyu_v0",
        "shuiyu_env.policies",
        "shuiyu_env.evaluation",
        "shuiyu_env.integrations",
    ],
    ["shuiyu_env.cli", "shuiyu_env.__main__"],
    ["agents", "train"],
]
TOP = 4  # from here on, modules are users of the package like any other
# Within a layer too, some stand on others; what is not named here does not matter.
WITHIN = {
    "shuiyu_env.tables": {"shuiyu_env.observation"},
    "shuiyu_env.policies": {"shuiyu_env.evaluation", "shuiyu_env.integrations"},
}


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted(PACKAGE.rglob("*.py")) + sorted((ROOT / "agents").rglob("*.py"))
if (ROOT / "train.py").exists():
    FILES.append(ROOT / "train.py")
MODULES = {module_name(path): path for path in FILES}


def type_checking_only(tree: ast.Module) -> set[ast.AST]:
    """All nodes under ``if TYPE_CHECKING:``."""
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }


def inside_functions(tree: ast.Module) -> set[ast.AST]:
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for inner in ast.walk(node)
    }


def imports(name: str, *, at_import: bool = False) -> Iterator[str]:
    """All modules that a module imports, by full name; ``at_import``: as soon as it is imported."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    skipped = type_checking_only(tree) | inside_functions(tree) if at_import else set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively (line {node.lineno})"
            assert node.module is not None
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                # Names that the package itself lends are told apart from its modules.
                lent = node.module == "shuiyu_env"
                yield whole if lent or whole in MODULES else node.module


def layer_of(name: str) -> tuple[int, str]:
    """The layer of a module, and the entry of it that it belongs to."""
    for number, layer in enumerate(LAYERS):
        for entry in layer:
            if name == entry or name.startswith(f"{entry}."):
                return number, entry
    pytest.fail(f"{name} belongs to no layer: add it to LAYERS")


OURS = [name for name in MODULES if name != "shuiyu_env"]


def test_every_module_has_a_layer() -> None:
    for name in OURS:
        layer_of(name)
    assert {"shuiyu_env.core.game", "shuiyu_env.observation", "shuiyu_env.tables"} <= set(OURS)


@pytest.mark.parametrize("name", OURS)
def test_imports_run_downwards(name: str) -> None:
    number, entry = layer_of(name)
    for imported in imports(name):
        if imported.split(".")[0] not in ("shuiyu_env", "agents", "train"):
            continue
        if imported.startswith("shuiyu_env") and imported not in OURS:
            # Names that the package lends have homes below; only its version has none.
            assert imported == "shuiyu_env.__version__" or number >= TOP, (
                f"{name} imports {imported} through the package: import it from its own module"
            )
            continue
        below, other = layer_of(imported)
        assert below <= number, f"{name} (layer {number}) imports {imported} (layer {below})"
        assert other not in WITHIN.get(entry, set()), f"{name} imports {imported}"


@pytest.mark.parametrize("name", [n for n in OURS if n.startswith("shuiyu_env.core")])
def test_the_core_knows_nobody(name: str) -> None:
    for imported in imports(name):
        top = imported.split(".")[0]
        assert top in sys.stdlib_module_names or imported.startswith("shuiyu_env.core"), (
            f"{name} imports {imported}"
        )


def test_no_cycles() -> None:
    graph = {
        name: {other for other in imports(name, at_import=True) if other in MODULES}
        for name in OURS
    }
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"imports go round: {' -> '.join((*path, name))}"
        if name not in done:
            for other in graph.get(name, ()):
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def loaded_by(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after some code."""
    script = f"{code}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


HEAVY = {"torch", "numba", "gymnasium", "pettingzoo", "pygame", "jax", "matplotlib", "scipy"}


def test_importing_the_package_is_light() -> None:
    assert not loaded_by("import shuiyu_env") & (HEAVY | {"numpy"})


def test_the_core_needs_no_numpy() -> None:
    code = (
        "from shuiyu_env import Action, Deck, Game, PRESETS, RuleSet, ShuiyuError, State\n"
        "import shuiyu_env.core.view\n"
        "state = Game(3).new_state(1)\n"
        "while not state.is_terminal: state.apply(state.legal_actions()[0])"
    )
    assert not loaded_by(code) & (HEAVY | {"numpy"})


@pytest.mark.parametrize("name", ["tables", "observation"])
def test_the_encoder_needs_numpy_only(name: str) -> None:
    assert not loaded_by(f"import shuiyu_env.{name}") & HEAVY


def test_public_names_are_found_lazily() -> None:
    for name in shuiyu_env.__all__:
        assert name in dir(shuiyu_env)
        assert getattr(shuiyu_env, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Gane'"):
        shuiyu_env.Gane  # noqa: B018


@pytest.mark.parametrize("name", [n for n in OURS if n.startswith("shuiyu_env.core")])
def test_what_a_core_module_exports_exists(name: str) -> None:
    module = importlib.import_module(name)
    for exported in getattr(module, "__all__", []):
        assert hasattr(module, exported)
