"""The configuration of a training run: dataclasses, YAML files and the command line."""

from __future__ import annotations

__all__ = ["EvaluationConfig", "GameConfig", "TrainConfig", "make_parser", "parse", "to_dict"]

import dataclasses
import re
from argparse import ArgumentError
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import torch
import yaml  # type: ignore[import-untyped]
from jsonargparse import ArgumentParser, Namespace

from agents.algorithms import AlgorithmName
from agents.deep_cfr import DeepCFRConfig
from agents.mccfr import MCCFRConfig
from agents.mmd import MMDConfig
from agents.nash_pg import NashPGConfig
from agents.nfsp import NFSPConfig
from agents.ppo import PPOConfig
from shuiyu_env.core.errors import ConfigError, RulesError, closest
from shuiyu_env.core.game import DealerRotation, Game
from shuiyu_env.core.play import RewardMode
from shuiyu_env.core.rules import resolve_rules
from shuiyu_env.policies.network import NetworkConfig

_MAX_THREADS = 1024
#: Settings that are mappings of their own, by name, with an example of each.
_MAPPINGS = {
    "game.rules": "{preset: dahua, max_stake: 3}",
    "network.thresholds": "{arrange: 0.4, reply: 0.15}",
}
# A folder's name that no shell, and no YAML, reads as anything else.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")


def _bad_name(name: str) -> str:
    return (
        "name: expected the name of a folder: a letter, then letters, digits, '.', '_' or '-',"
        f" got {name!r}"
    )


@dataclass(frozen=True)
class GameConfig:
    """The game to learn.

    Args:
        num_players: seats, 2 to 13.
        rules: a preset's name (nanning, dahua, dahua_house) or a mapping of
            rule fields; its key ``preset`` names the preset that the others change.
        rounds: deals in an episode.
        dealer_rotation: who deals: fixed, rotate or random.
        reward: transfer (zero-sum) or drinks (only losers are charged).
    """

    num_players: int = 2
    rules: str | dict[str, Any] = "nanning"
    rounds: int = 1
    dealer_rotation: DealerRotation = "fixed"
    reward: RewardMode = "transfer"

    def make(self, rounds: int | None = None) -> Game:
        """Return the game, with another number of rounds if given.

        Raises:
            ConfigError: a setting out of range.
        """
        try:
            rules = resolve_rules(self.rules)
        except RulesError as error:
            raise ConfigError(f"game.rules: {str(error).removeprefix('rules: ')}") from None
        rounds = self.rounds if rounds is None else rounds
        try:
            return Game(self.num_players, rules, rounds, self.dealer_rotation, self.reward)
        except RulesError as error:
            raise ConfigError(f"game.{error}") from None


@dataclass(frozen=True)
class EvaluationConfig:
    """How what is being learned is measured on the way and at the end.

    Args:
        interval: iterations between two matches against the reference policies;
            0 for none before the end.
        deals: deals of such a match, each played in all rotations of the seats.
        final_deals: deals of the match at the end; 0 for none.
        nashconv_points: how often NashConv is computed exactly: at the end, and at a half, a
            quarter and so on of the iterations; 0 for never. Heads-up, with reward transfer
            and without stakes; elsewhere there is none. Not counted as training time. On a
            full deck each takes ten to thirty seconds for each policy.

    Raises:
        ConfigError: a value out of range.
    """

    interval: int = 100
    deals: int = 1000
    final_deals: int = 10_000
    nashconv_points: int = 4

    def __post_init__(self) -> None:
        if self.nashconv_points < 0:
            raise ConfigError(
                f"evaluation.nashconv_points: expected 0 or more, got {self.nashconv_points}"
            )
        if self.interval < 0:
            raise ConfigError(f"evaluation.interval: expected 0 or more, got {self.interval}")
        if self.deals < 2:
            raise ConfigError(f"evaluation.deals: expected 2 or more, got {self.deals}")
        if self.final_deals < 2 and self.final_deals != 0:
            raise ConfigError(
                f"evaluation.final_deals: expected 2 or more, or 0, got {self.final_deals}"
            )


@dataclass(frozen=True)
class TrainConfig:
    """A training run.

    Args:
        algorithm: how to learn; the section of its name has its settings.
        game: the game to learn.
        network: the network that all seats share.
        ppo: settings of proximal policy optimisation.
        mmd: settings of magnetic mirror descent.
        nash_pg: settings of the policy gradient with a moving magnet.
        nfsp: settings of neural fictitious self-play.
        deep_cfr: settings of deep counterfactual regret minimisation.
        mccfr: settings of Monte-Carlo counterfactual regret minimisation in tables.
        evaluation: how what is being learned is measured.
        seed: decides everything (on the CPU, bit for bit).
        name: the run's folder under ``runs_dir``; made up if not given.
        runs_dir: the folder of all runs.
        device: cpu or cuda: where the network learns; the games are always on the CPU.
        threads: threads for the network on the CPU. One is the fastest for
            small networks, above all on a busy machine.
        checkpoint_interval: iterations between two checkpoints.

    Raises:
        ConfigError: a value out of range, a game that cannot be played, settings of
            another algorithm, or a device that is not there.
    """

    algorithm: AlgorithmName = "nash_pg"
    game: GameConfig = field(default_factory=GameConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    mmd: MMDConfig = field(default_factory=MMDConfig)
    nash_pg: NashPGConfig = field(default_factory=NashPGConfig)
    nfsp: NFSPConfig = field(default_factory=NFSPConfig)
    deep_cfr: DeepCFRConfig = field(default_factory=DeepCFRConfig)
    mccfr: MCCFRConfig = field(default_factory=MCCFRConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    seed: int = 0
    name: str | None = None
    runs_dir: str = "runs"
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = 1
    checkpoint_interval: int = 100

    def __post_init__(self) -> None:
        if self.checkpoint_interval < 1:
            raise ConfigError(
                f"checkpoint_interval: expected 1 or more, got {self.checkpoint_interval}"
            )
        if not 1 <= self.threads <= _MAX_THREADS:
            raise ConfigError(f"threads: expected 1 to {_MAX_THREADS}, got {self.threads}")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed: expected 0 to 2**63 - 1, got {self.seed}")
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise ConfigError(_bad_name(self.name))
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ConfigError("device: got 'cuda', but torch finds no CUDA device; use 'cpu'")
        for name in get_args(AlgorithmName):
            unused = getattr(self, name)
            if name != self.algorithm and unused != type(unused)():
                raise ConfigError(
                    f"{name}: has no effect on algorithm {self.algorithm!r}; choose"
                    f" --algorithm {name}, or leave it out"
                )
        if self.algorithm == "mccfr":
            # Tables, on the CPU.
            nothing = {
                "network.thresholds": (self.network.thresholds, {}),
                "device": (self.device, "cpu"),
            }
            for name, (given, default) in nothing.items():
                if given != default:
                    raise ConfigError(
                        f"{name}: has no effect on algorithm 'mccfr'; begin with --config"
                        f" configs/mccfr.yaml, or set --{name} '{default}'"
                    )
        self.game.make()

    @property
    def learner(self) -> Any:
        """The settings of the algorithm that was chosen."""
        return getattr(self, self.algorithm)


def make_parser() -> ArgumentParser:
    """Return the command line's parser."""
    parser = ArgumentParser(
        prog="train.py",
        description="Train a policy by self-play, and match it against the reference policies.",
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config", action="config", help="YAML file of settings (default: configs/nash_pg.yaml)"
    )
    parser.add_argument(
        "--resume", type=str | None, help="folder of a run to go on with; takes no other option"
    )
    parser.add_class_arguments(TrainConfig)
    return parser


def parse(argv: Sequence[str], default_file: Path | None = None) -> tuple[TrainConfig, str | None]:
    """Read the command line.

    Args:
        argv: its words.
        default_file: read first if no ``--config`` is given.

    Returns:
        The configuration, and the folder to resume, if one was named: then the
        configuration is the one found there.

    Raises:
        ConfigError: an unknown key, a wrong type or a value out of range. The
            message is one line, names the key and, if there is one, the
            nearest valid key.
    """
    words = list(argv)
    _check_options(words)
    if default_file is not None and not list(_values(words, "--config")):
        words = ["--config", str(default_file), *words]
    words = _files_first(words)
    for group in ("", *_groups()):
        for file in _values(words, f"--{group or 'config'}"):
            _check_file(Path(file), group)
    parser = make_parser()
    try:
        namespace = parser.parse_args(words)
    except ArgumentError as error:
        raise ConfigError(_one_line(str(error))) from None
    if namespace.resume is None:
        return _build(TrainConfig, namespace), None
    if len(argv) > 2 - ("=" in argv[0]):
        raise ConfigError(
            "--resume: a run goes on with its own settings; give no other option with it"
        )
    saved = Path(namespace.resume) / "config.yaml"
    if not saved.is_file():
        raise ConfigError(f"--resume: expected the folder of a run, but there is no {saved}")
    return parse(["--config", str(saved)])[0], namespace.resume


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Return the configuration as plain values for YAML, with the rules written out."""
    result = dataclasses.asdict(config)
    result["game"]["rules"] = config.game.make().rules.to_dict()
    result["network"] = config.network.to_dict()
    for name in get_args(AlgorithmName):
        if name != config.algorithm:
            del result[name]
    return result


def _keys(kind: Any = TrainConfig, prefix: str = "") -> Iterator[str]:
    """Yield all keys, dotted: those of groups, too."""
    for entry in dataclasses.fields(kind):
        yield prefix + entry.name
        group: Any = entry.default_factory
        if dataclasses.is_dataclass(group):
            yield from _keys(group, f"{prefix}{entry.name}.")


def _groups() -> list[str]:
    """Return the keys that have keys of their own."""
    return list(dict.fromkeys(key.split(".")[0] for key in _keys() if "." in key))


def _check_options(words: Sequence[str]) -> None:
    valid = ["--config", "--resume", "--help", "--print_config"]
    valid += [f"--{key}" for key in _keys()]
    for name in _values(words, "--runs_dir"):
        if name in ("", "null"):
            raise ConfigError(f"--runs_dir: expected a folder, got {name!r}")
    for name in _values(words, "--name"):
        # Before the parser makes something else of it: a number, or null.
        if not _NAME.fullmatch(name) or name.lower() == "null":
            raise ConfigError(_bad_name(name))
    if "null" in _values(words, "--resume"):
        raise ConfigError("--resume: expected the folder of a run, got 'null'")
    for word in words:
        if not word.startswith("--"):
            continue
        option = word.partition("=")[0]
        for name, example in _MAPPINGS.items():
            if option.startswith(f"--{name}."):
                raise ConfigError(
                    f"{option}: expected the {name.partition('.')[2]} in one mapping, such as"
                    f" --{name} '{example}'"
                )
        if option not in valid:
            raise ConfigError(f"{option}: unknown option{closest(option, valid)}")


def _files_first(words: Sequence[str]) -> list[str]:
    """Move ``--config`` to the front, so that all other words change what it says."""
    files: list[str] = []
    rest: list[str] = []
    for i, word in enumerate(words):
        is_value = i > 0 and words[i - 1] == "--config"
        is_file = is_value or word == "--config" or word.startswith("--config=")
        (files if is_file else rest).append(word)
    return files + rest


def _values(words: Sequence[str], option: str) -> Iterator[str]:
    """Yield the values given to an option."""
    for i, word in enumerate(words):
        if word == option and i + 1 < len(words):
            yield words[i + 1]
        elif word.startswith(f"{option}="):
            yield word.partition("=")[2]


def _check_file(path: Path, group: str = "") -> None:
    """Check the keys of a file of settings, all or one group's."""
    data: object
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the configuration: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: expected YAML: {_one_line(str(error))}") from None
    if data is None:
        raise ConfigError(f"{path}: expected keys and values, got an empty file")
    if group:
        data = {group: data}
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path}: expected keys and values, got {data!r}")
    valid, groups = list(_keys()), _groups()
    for key, value in data.items():
        if key == "resume" and value is None:
            continue  # what --print_config writes
        if key not in valid or "." in str(key):
            names = [name for name in valid if "." not in name]
            raise ConfigError(f"{path}: unknown key {key!r}{closest(key, names)}")
        if key not in groups:
            continue
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path}: {key}: expected keys and values, got {value!r}")
        for name in value:
            dotted = f"{key}.{name}"
            if dotted not in valid:
                raise ConfigError(f"{path}: unknown key {dotted!r}{closest(dotted, valid)}")


def _build(kind: Any, values: Namespace, prefix: str = "") -> Any:
    arguments = {}
    hints = get_type_hints(kind)
    for entry in dataclasses.fields(kind):
        key, value = prefix + entry.name, getattr(values, entry.name)
        group: Any = entry.default_factory
        if dataclasses.is_dataclass(group):
            value = _build(group, value, f"{key}.")
        # The parser lets null pass where a default is not.
        elif value is None and type(None) not in get_args(hints[entry.name]):
            raise ConfigError(f"{key}: expected a value, got null; leave it out for the default")
        arguments[entry.name] = value
    return kind(**arguments)


def _one_line(message: str) -> str:
    """Return a parser's message as one line, in the words of ours."""
    text = " ".join(message.split())
    text = re.sub(r"^Parser key \"([^\"]+)\": ", r"\1: ", text)
    text = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", text)
    text = re.sub(
        r"Does not validate against any of the Union subtypes Subtypes: \[(.*?)\] Errors: .*"
        r" Given value type: \w+ Given value: (.*)$",
        lambda match: f"expected {_either(match[1])}, got {match[2]}",
        text,
    )
    text = text.replace("Expected a Mapping", "Expected keys and values")
    text = re.sub(r"typing\.Literal\[(.*?)\]", r"one of \1", text)
    return re.sub(r"Expected (?:an? )?(.*?)\. Got value: (.*)$", r"expected \1, got \2", text)


def _either(types: str) -> str:
    return types.replace("NoneType", "null").replace(", ", " or ")
