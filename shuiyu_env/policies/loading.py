"""Policies by name, file or import path."""

from __future__ import annotations

__all__ = ["available", "load", "rules_of"]

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shuiyu_env.core.errors import PolicyError, closest
from shuiyu_env.core.game import Game
from shuiyu_env.core.rules import RuleSet
from shuiyu_env.policies.reference import Bluffer, Cautious, Honest, Uniform
from shuiyu_env.policy import Policy, is_policy


def _checkpoint(path: Path, game: Game | None) -> Policy:
    try:
        from shuiyu_env.policies.checkpoint import load_policy
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("shuiyu_env"):
            raise
        raise PolicyError(
            f"{path}: reading a checkpoint needs {error.name}, which is not installed: install"
            " shuiyu_env[train]"
        ) from error
    return load_policy(path, game=game)


def _equilibrium(game: Game | None) -> Policy:
    # Solving, and reading a solution, is compiled code that no other policy needs.
    from shuiyu_env.exact.store import equilibrium_of

    game = Game(2) if game is None else game
    _check_zero_sum(game)
    return equilibrium_of(game.rules)


def _equilibrium_file(path: Path, game: Game | None) -> Policy:
    from shuiyu_env.exact.equilibrium import load_equilibrium

    if game is None:
        return load_equilibrium(path)
    _check_zero_sum(game)
    return load_equilibrium(path, game.rules)


def _onnx(path: Path, game: Game | None) -> Policy:
    try:
        from shuiyu_env.policies.onnx import load_onnx
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("shuiyu_env"):
            raise
        raise PolicyError(
            f"{path}: reading an ONNX file needs {error.name}, which is not installed: install"
            " shuiyu_env[onnx]"
        ) from error
    return load_onnx(path, game)


def _check_zero_sum(game: Game) -> None:
    """Refuse a game of which no equilibrium is known."""
    if game.num_players != 2:
        raise PolicyError(
            f"an equilibrium is known heads-up only, not for {game.num_players} seats: choose"
            f" another policy ({', '.join(name for name in _NAMES if name != 'equilibrium')})"
        )
    if game.reward != "transfer":
        raise PolicyError(
            f"an equilibrium is known for reward='transfer' only: with {game.reward!r} the game is"
            " not zero-sum"
        )


#: Policies by name; each is made for a game, which may be ``None``.
_NAMES: dict[str, Callable[[Game | None], Policy]] = {
    "uniform": lambda game: Uniform(),
    "cautious": lambda game: Cautious(),
    "honest": lambda game: Honest(),
    "bluffer": lambda game: Bluffer(),
    "equilibrium": _equilibrium,
}

#: Readers of files, by the end of the file's name.
_SUFFIXES: dict[str, Callable[[Path, Game | None], Policy]] = {
    ".safetensors": _checkpoint,
    ".npz": _equilibrium_file,
    ".onnx": _onnx,
}


#: Trained policies that come with the package: ``<algorithm>-<preset>-<seats>``.
_TRAINED = Path(__file__).with_name("trained")


def _trained() -> dict[str, Path]:
    """Return the trained policies by name."""
    return {file.stem: file for file in sorted(_TRAINED.glob("*.safetensors"))}


def available() -> tuple[str, ...]:
    """Return the names that :func:`load` knows."""
    return (*_NAMES, *_trained())


def rules_of(spec: str) -> RuleSet | None:
    """Return the rules that a checkpoint was made for; ``None`` for what has none of its own.

    Args:
        spec: as for :func:`load`.

    Raises:
        CheckpointError: the checkpoint is damaged.
    """
    path = _trained().get(spec, Path(spec))
    if path.suffix != ".safetensors" or not path.is_file():
        return None
    try:
        from shuiyu_env.policies.checkpoint import read_header
    except ModuleNotFoundError:
        # Loading the policy will say what is missing.
        return None
    return RuleSet.from_dict(read_header(path)["rules"])


#: Longer than any path that a system takes for one name of a file.
_LONGEST_SPEC = 4096


def load(spec: str | os.PathLike[str] | Policy, game: Game | None = None) -> Policy:
    """Return the policy that a specification names.

    Args:
        spec: one of

            * a name of :func:`available`, such as ``"honest"``; ``"equilibrium"`` is one
              of the heads-up game: shipped for the presets, otherwise solved, once;
              ``"ppo-nanning-2"`` and the like were trained by that algorithm, on that
              preset, for so many seats, and come with the package (they need torch);
            * the path of a checkpoint, ``*.safetensors``, of an equilibrium, ``*.npz``, or of
              an ONNX file of whatever origin, ``*.onnx``: :mod:`shuiyu_env.policies.onnx`;
            * ``"module:attribute"``: an object with a method ``probabilities``,
              or a class or function that makes one when called without arguments;
            * a policy, which is returned as it is.
        game: the game it is to play, heads-up ``nanning`` where it matters; a policy
            made for another game is refused.

    Raises:
        PolicyError: there is no such policy, file, module or attribute, or what
            was found is no policy.
        CheckpointError: a checkpoint is damaged or was made for another game.
    """
    if isinstance(spec, os.PathLike):
        return _load_file(Path(spec), game)
    if not isinstance(spec, str):
        if is_policy(spec):
            return spec
        raise PolicyError(
            f"expected a policy's name, a file, 'module:attribute' or an object with a method"
            f" probabilities(observation, action_mask), got {spec!r}"
        )
    if spec in _NAMES:
        return _NAMES[spec](game)
    trained = _trained()
    if spec in trained:
        return _checkpoint(trained[spec], game)
    if len(spec) > _LONGEST_SPEC or "\0" in spec:
        raise PolicyError(
            f"expected a policy's name, a file or 'module:attribute', got {spec[:40]!r}…"
        )
    if Path(spec).suffix in _SUFFIXES:
        return _load_file(Path(spec), game)
    module, colon, attribute = spec.rpartition(":")
    if colon and module and attribute:
        return _load_attribute(spec, module, attribute)
    if spec and Path(spec).exists():
        return _load_file(Path(spec), game)
    raise PolicyError(
        f"unknown policy {spec!r}{closest(spec, [*_NAMES, *trained]) or '.'} Expected one of"
        f" {', '.join([*_NAMES, *trained])}, a file (*{', *'.join(_SUFFIXES)}) or"
        " 'module:attribute'"
    )


def _load_file(path: Path, game: Game | None) -> Policy:
    if path.suffix not in _SUFFIXES:
        raise PolicyError(
            f"{path}: expected the path of a file ending in {' or '.join(_SUFFIXES)}"
            + (", got a folder" if path.is_dir() else "")
        )
    if path.is_dir():
        raise PolicyError(f"{path}: expected a file, got a folder")
    if not path.is_file():
        folder = path.parent
        names = (
            [f.name for f in folder.iterdir() if f.suffix in _SUFFIXES] if folder.is_dir() else []
        )
        where = "" if folder.is_dir() else f" (there is no folder {folder})"
        raise PolicyError(f"there is no file {path}{where}{closest(path.name, names)}")
    return _SUFFIXES[path.suffix](path, game)


def _load_attribute(spec: str, module_name: str, attribute: str) -> Policy:
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that exists but lacks one of its own imports is another fault.
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise PolicyError(
                f"policy {spec!r}: there is no module {error.name!r} on the import path (current"
                " folder, PYTHONPATH, installed packages)"
            ) from error
        raise PolicyError(f"policy {spec!r}: importing {module_name} failed: {error}") from error
    except (Exception, SystemExit) as error:
        raise PolicyError(
            f"policy {spec!r}: importing {module_name} failed: {type(error).__name__}: {error}"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise PolicyError(
                f"policy {spec!r}: {found!r} has no attribute {part!r}{closest(part, dir(found))}"
            )
        found = getattr(found, part)
    if is_policy(found):
        return found  # type: ignore[no-any-return]
    if not callable(found):
        raise PolicyError(
            f"policy {spec!r}: expected an object with a method probabilities, or a class or"
            f" function that makes one, got {found!r}"
        )
    try:
        made = found()
    except Exception as error:
        raise PolicyError(
            f"policy {spec!r}: calling it without arguments failed: {type(error).__name__}: {error}"
        ) from error
    if not is_policy(made):
        raise PolicyError(
            f"policy {spec!r}: calling it gave {made!r}, which has no method"
            " probabilities(observation, action_mask)"
        )
    return made  # type: ignore[no-any-return]
