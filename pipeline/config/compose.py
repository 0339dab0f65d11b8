"""What Hydra composes: a verb's settings, from `configs/`, a user's own group files and overrides.

Hydra's functions are called beneath its compose API, with a search path and schemas of one's own:
so a user's `hydra.main` keeps its GlobalHydra and ConfigStore, and Hydra's own node is not made.
"""

import contextlib
import copy
import functools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bayes_at_n.pipeline.base.errors import UserError, did_you_mean
from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.config import overrides, trust
from bayes_at_n.pipeline.config.checks import keys, unknown, validated
from bayes_at_n.pipeline.config.overrides import parse
from bayes_at_n.pipeline.config.settings import RunConfig

CONFIGS = ROOT / "configs"
OWN = "BAYES_AT_N_CONFIGS"  # in the environment: a folder of group files that are the user's
_FILE = re.compile(r"(\.{1,2}|~[^/]*)?/.*|\.{1,2}|~|.*\.(csv|jsonl?|parquet)", re.I | re.S)
# The choices that take a path and a hub id, of the groups whose values may be such.
_VALUES = {"model": ("custom", "custom", "id"), "dataset": ("jsonl", "hub", "path")}
_JUDGED = ("verifier", "dataset.judge", "dataset.answer=judge")  # ask for a verifier
_PRIMARY: dict[str, Any] = yaml.safe_load((CONFIGS / "run.yaml").read_bytes())
Config = TypeVar("Config")
Repository = Any  # Hydra's ConfigRepository, which `--help` does without

for _name, _resolver in {
    "folder_tag": lambda tag: f"-{tag}" if tag else "",
    "project": lambda relative: str(ROOT / relative),
    "stem": lambda path: re.sub(r"(?i)\.(jsonl?|csv|tsv|parquet)$", "", Path(path).name),
}.items():
    OmegaConf.register_new_resolver(_name, _resolver, replace=True)


class Composed(NamedTuple):
    """What Hydra composed, and of what."""

    node: DictConfig
    sources: list[Any]
    defaults: list[Any]
    typed: list[str]  # full keys of the overrides

    def files(self) -> list[tuple[str, str]]:
        """Return packages and the files that set them, those that count most last."""
        return [
            (default.package or "", f"{place.provider}/{default.config_path}.yaml")
            for default in self.defaults
            for place in self.sources[-2:0:-1]
            if default.config_path and place.is_config(default.config_path)
        ]


def load(settings: Sequence[str]) -> RunConfig:
    """Compose the checked configuration of a run, of GROUP=CHOICE and KEY=VALUE.

    Raises UserError: for an unknown key or choice, a wrong type or an impossible combination.

    >>> cfg = load(["model=qwen3-30b", "dataset=aime25", "trials=40"])
    >>> cfg.dataset.name, cfg.sampling.trials, cfg.model.name
    ('aime25', 40, 'qwen3-30b')
    """
    return load_as(RunConfig, settings)


def load_as(kind: type[Config], words: Sequence[str], here: bool = True) -> Config:
    """Compose a checked instance of a dataclass; run folders go to its `folders`.

    A run has the groups of `configs/run.yaml`, others have the user's alone; `here`: whether
    `./configs` counts. Raises UserError: as `load`.
    """
    made = composed(words, kind, here)
    try:
        with _explaining(kind):
            values: Any = OmegaConf.to_container(made.node, resolve=True, throw_on_missing=True)
            cfg = validated(kind, values)
    except UserError as error:
        key = re.split("[=: ]", str(error))[0]
        file = dict(made.files()).get(key.partition(".")[0])  # that says it, if nobody typed it
        if not file or any(full.startswith(key) for full in made.typed):
            raise
        raise UserError(f"{file}: {error}") from error
    if isinstance(cfg, RunConfig):
        _vouched(made, cfg)
        if cfg.budget.past and "budget.until" in made.typed:  # else it stops nothing but work
            raise UserError(f"budget.until={cfg.budget.until}: is past; name a later moment")
        cfg.trust = "true"  # all of it is typed, or in the user's own files
    return cfg


@contextlib.contextmanager
def _explaining(kind: Any, words: Sequence[str] = ()) -> Iterator[None]:
    """Work as Hydra's version 1.3 does, and say its errors in one line. Raises UserError."""
    from hydra import version
    from hydra.errors import HydraException

    base = version.VersionBase.instance()
    before = base.version_base
    version.setbase("1.3")
    try:
        yield
    except RecursionError as error:
        text = f"{' '.join(words)}: defaults: a file inherits from itself; give it another name"
        raise UserError(text) from error
    except (HydraException, OmegaConfBaseException, ValueError, yaml.YAMLError, OSError) as error:
        raise overrides.explained(error, kind) from error
    finally:
        base.version_base = before


def composed(words: Sequence[str], kind: Any = RunConfig, here: bool = True) -> Composed:
    """Compose settings; nothing is checked but types.

    Raises UserError: no such choice, or what Hydra says of files and keys.
    """
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
    from hydra._internal.defaults_list import create_defaults_list

    with _explaining(kind, words):
        [settings] = parted(words, kind)
        of_user = kind is RunConfig and {"dataset=jsonl", "dataset=hub"} & {*settings}
        if of_user and not any(setting.startswith(_JUDGED) for setting in settings):
            settings = ["verifier=none", *settings]
        repository = repository_of(kind, settings, here)
        asked = [one for one in map(parse, settings) if not one.is_hydra_override()]
        if many := next((one for one in asked if one.is_sweep_override()), None):
            raise UserError(f"{many.input_line}: takes one value; {overrides.HELP}")
        of_files = [one for one in asked if _is_choice(kind, one.key_or_group, repository)]
        defaults = create_defaults_list(repository, "primary", of_files, False, False).defaults
        loader = ConfigLoaderImpl(ConfigSearchPathImpl())
        node = loader._compose_config_from_defaults_list(defaults, repository)
        OmegaConf.set_struct(node, True)
        loader._apply_overrides_to_config([one for one in asked if one not in of_files], node)
    typed = [one.key_or_group for one in asked]
    return Composed(node, repository.get_sources(), defaults, typed)


def shown(words: Sequence[str], kind: Any, flags: dict[str, Any]) -> str:
    """What Hydra prints with `--info`, or with `--cfg`, `--package` and `--resolve`.

    Empty where a dataclass has no such `package`. Raises UserError: what cannot be composed.
    """
    made, package = composed(words, kind), flags.get("package", "")
    if flags.get("info") == "defaults":
        return "".join(f"{d.config_path or '-':32} {d.package or '-'}\n" for d in made.defaults)
    if flags.get("info"):
        return "".join(f"{one.provider}: {one.path}\n" for one in made.sources[1:-1])
    with _explaining(kind):
        if flags.get("resolve"):
            OmegaConf.resolve(made.node)
        part = OmegaConf.select(made.node, package) if package else made.node
    text = OmegaConf.to_yaml(part) if OmegaConf.is_config(part) else f"{part}\n"
    return (f"# @package {package}\n" * bool(package) + text) * (part is not None)


def folders(here: bool = True) -> dict[str, Path]:
    """Where group files are, those first that count first: the user's own, and ours.

    Raises UserError: the environment names a folder that is not there.
    """
    found = {"configs": CONFIGS}
    if of_user := os.environ.get(OWN):
        path = os.path.abspath(os.path.expanduser(of_user))
        if not os.path.isdir(path):
            raise UserError(f"{OWN}={path}: no such folder")
        found = {path: Path(path), **found}
    local, known = Path("configs"), [path.resolve() for path in found.values()]
    counts = here and local.is_dir() and local.resolve() not in known
    return {"./configs": local, **found} if counts else found


def repository_of(kind: Any, settings: Sequence[str] = (), here: bool = True) -> Repository:
    """Hydra's view of the files that count for a dataclass.

    Raises UserError: `hydra.searchpath=` among the settings names a folder that is not there.
    """
    from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
    from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
    from hydra._internal.core_plugins.file_config_source import FileConfigSource

    places = [FileConfigSource(name, str(path)) for name, path in folders(here).items()]
    places = places if kind is RunConfig else places[:-1]
    for override in map(parse, settings):
        if override.key_or_group == "hydra.searchpath":
            value: Any = override.value()
            for path in map(str, value if isinstance(value, list) else [value]):
                if not os.path.isdir(path.removeprefix("file://")):
                    raise UserError(f"hydra.searchpath={path}: no such folder; [file://FOLDER]")
                places.append(FileConfigSource(path, path))
    repository: Repository = CachingConfigRepository(ConfigRepository(ConfigSearchPathImpl()))
    repository.delegate.sources = [_schema(kind), *places, _schema(kind)]
    return repository


@functools.cache  # half the time of a composition
def _schema(kind: Any) -> Any:
    """A dataclass and its primary config, in a ConfigStore of our own: the user has the other."""
    from hydra._internal.core_plugins.structured_config_source import StructuredConfigSource
    from hydra.core.config_store import ConfigStore

    schema = StructuredConfigSource("schema", "structured://")
    schema.store = object.__new__(ConfigStore)
    schema.store.repo = {}
    schema.store.store(name="settings", node=kind)
    primary = _PRIMARY if kind is RunConfig else {"defaults": ["settings", "_self_"]}
    schema.store.store(name="primary", node=OmegaConf.create(primary))
    return schema


def _is_choice(kind: Any, key: str, repository: Repository) -> bool:
    """Whether a key chooses a file: where it is a field, too, of a run's own groups alone."""
    named = key not in keys(kind) or (kind is RunConfig and key in groups())
    return named and key != "" and bool(repository.group_exists(key))


def parted(words: Sequence[str], *kinds: Any) -> list[list[str]]:
    """The settings of each dataclass, with full keys, as Hydra wants them.

    Folders go to the first that has `folders`. Raises UserError: one is nobody's.

    >>> parted(["metrics=avg", "dataset=aime25"], RunConfig)
    [['scoring.metrics=[avg]', 'dataset=aime25']]
    """
    named, settings = overrides.folders_of(words)
    found: list[list[str]] = [[] for _ in kinds]
    if named:
        takers = [of for kind, of in zip(kinds, found, strict=True) if "folders" in keys(kind)]
        if not takers:
            raise UserError(f"{named[0]}: not a setting; write KEY=VALUE, as source=FOLDER")
        takers[0].append(f"folders=[{','.join(map(overrides.quoted, named))}]")
    sources = [repository_of(kind, settings) for kind in kinds] if settings else []
    for setting in settings:
        if parse(setting).key_or_group == "hydra.searchpath":
            for of in found:
                of.append(setting)
            continue
        for kind, of, repository in zip(kinds, found, sources, strict=True):
            if spelt := _spelt(setting, kind, repository):
                of += spelt
                break
        else:
            raise unknown(setting.partition("=")[0].lstrip("+~") or setting, *kinds)
    return found


def _spelt(setting: str, kind: Any, repository: Repository) -> list[str]:
    """A setting with its full key, or the choice of a file; nothing if the dataclass has none.

    A model or a data set may also be a path or a hub id. Raises UserError: it is none of these.
    """
    override = parse(setting)
    group, value = override.key_or_group, override.value()
    if override.is_hydra_override():
        raise UserError(
            f"{group}: no such key; there is hydra.searchpath=[file://FOLDER]. Lists, ranges and"
            " glob() make many runs, one process after the other; `submit` uses a cluster"
        )
    if not _is_choice(kind, group, repository):
        text = overrides.spelt(kind, setting)
        return [] if text is None else [text]
    if override.is_delete() or override.package or override.is_sweep_override():
        return [setting]
    if isinstance(value, str) and value:
        if repository.config_exists(f"{group}/{value}"):
            return ["+" * (group not in groups() and not override.is_add()) + setting]
        path, hub, key = _VALUES.get(group, ("", "", "")) if kind is RunConfig else ("", "", "")
        is_path = _FILE.fullmatch(value)
        if key and (is_path or re.fullmatch(r"[\w.-]+/[\w.-]+", value)):
            text = overrides.quoted(os.path.expanduser(value))
            return [f"{group}={path if is_path else hub}", f"{group}.{key}={text}"]
    raise no_choice(group, setting.partition("=")[2], repository.get_group_options(group))


def _vouched(made: Composed, cfg: RunConfig) -> None:
    """Stop at a setting of `./configs` that executes, connects or names a secret.

    Raises UserError: naming file, key and value.
    """
    here = [(package, file) for package, file in made.files() if file.startswith("./")]
    typed = tuple(f"{key}." for key in made.typed if key not in groups())
    for text in trust.drop(copy.deepcopy(cfg), lambda *_: ()) if here else ():
        key = text.partition("=")[0]
        for package, file in here if not f"{key}.".startswith(typed) else ():
            part = key.removeprefix(f"{package}.")
            said = OmegaConf.select(OmegaConf.load(file), part, throw_on_resolution_failure=False)
            if said is not None:
                raise UserError(f"{file}: {text}: type it, or set {OWN}=FOLDER")


def own(group: str, name: str) -> Iterator[RunConfig]:
    """What the user's own files of a group say that may have this name, of those that are whole."""
    for choice in choices(group, here=False):
        if name.startswith(choice) or group == "engine":
            with contextlib.suppress(UserError):
                yield load_as(RunConfig, [f"{group}={choice}"], here=False)


def files(group: str, here: bool = True) -> dict[str, Path]:
    """The YAML files of a group by their names, the user's own before ours."""
    found = [path for of in [*folders(here).values()][::-1] for path in (of / group).glob("*.yaml")]
    return {path.stem: path for path in sorted(found, key=lambda path: path.stem)}


def choices(group: str, here: bool = True) -> list[str]:
    """The names that `group=` takes."""
    return [*files(group, here)]


def groups() -> dict[str, str]:
    """The configuration groups of a run, and their choices where none is made."""
    return {key: one[key] for one in _PRIMARY["defaults"] if isinstance(one, dict) for key in one}


def no_choice(group: str, name: str, known: Sequence[str] = ()) -> UserError:
    """What to say of a name that `group=` does not take, with those that are near."""
    hint = did_you_mean(name, known or choices(group), most=3, all_are="choose from")
    if group in (*_VALUES, "rubric"):
        hint += f"; your own by its path: {group}=./{name if os.path.isdir(name) else 'PATH'}"
    return UserError(f"{group}={name}: no such choice ({hint})")
