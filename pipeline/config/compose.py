"""What Hydra composes: a verb's settings, from `configs/`, a user's own group files and overrides.

Hydra's functions are called beneath its compose API, with a search path and schemas of one's own:
so a user's `hydra.main` keeps its GlobalHydra and ConfigStore, and Hydra's own node is not made.
"""

import contextlib
import copy
import functools
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bayes_at_n.pipeline.base.errors import UserError, did_you_mean
from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.config import overrides, trust
from bayes_at_n.pipeline.config.checks import validated
from bayes_at_n.pipeline.config.overrides import parse
from bayes_at_n.pipeline.config.settings import RunConfig, VerifierConfig

if TYPE_CHECKING:
    from hydra._internal.config_repository import ConfigRepository
    from hydra.core.default_element import ResultDefault

CONFIGS = ROOT / "configs"
OWN = "BAYES_AT_N_CONFIGS"  # in the environment: a folder of group files that are the user's
_FILE = re.compile(r"(\.{1,2}|~[^/]*)?/.*|\.{1,2}|~|.*\.(csv|jsonl?|parquet)", re.I | re.S)
# The choices that take a path and a hub id, of the groups whose values may be such.
_VALUES = {"model": ("custom", "custom", "id"), "dataset": ("jsonl", "hub", "path")}

Config = TypeVar("Config")


class Composed(NamedTuple):
    """What Hydra composed, and of what."""

    node: DictConfig
    defaults: "list[ResultDefault]"
    repository: "ConfigRepository"


def load(settings: Sequence[str]) -> RunConfig:
    """Compose `configs/` into the checked configuration of a run.

    `settings`: GROUP=CHOICE and KEY=VALUE, such as ``["model=qwen3-30b", "top_p=1"]``. Raises
    UserError: for an unknown key or choice, a wrong type or an impossible combination.

    >>> cfg = load(["model=qwen3-30b", "dataset=aime25", "trials=40"])
    >>> cfg.dataset.name, cfg.sampling.trials, cfg.model.name
    ('aime25', 40, 'qwen3-30b')
    """
    return load_as(RunConfig, settings)


def load_as(kind: type[Config], arguments: Sequence[str], here: bool = True) -> Config:
    """Compose a checked instance of a dataclass; run folders go to its `folders`.

    A run has the groups of `configs/run.yaml`, others have the user's alone; `here`: whether
    `./configs` counts. Raises UserError: as `load`.

    >>> from bayes_at_n.pipeline.config.trajectory import MergeConfig
    >>> load_as(MergeConfig, ["checkpoints=a,b", "out=c"])
    MergeConfig(checkpoints=['a', 'b'], last=None, out='c')
    """
    [settings] = parted(arguments, kind)
    if kind is RunConfig and _unverified(settings):
        settings = ["verifier=none", *settings]
    made = composed(settings, kind, here)
    typed = [parse(setting).key_or_group for setting in settings]
    files = {d.package or "": _file(made, d) for d in made.defaults if d.config_path}
    try:
        values: Any = OmegaConf.to_container(made.node, resolve=True, throw_on_missing=True)
        cfg = validated(kind, values)
        if isinstance(cfg, RunConfig):
            _vouched(made, cfg, typed)
            _check_moment(cfg, typed)
            cfg.trust = "true"  # all of it is typed, or in the user's own files
        return cfg
    except (OmegaConfBaseException, ValueError) as error:
        raise _placed(
            _missing(error, made.node) or overrides.explained(error, kind), files, typed
        ) from error
    except UserError as error:
        raise _placed(error, files, typed) from error


def _missing(error: Exception, node: DictConfig) -> UserError | None:
    key = getattr(error, "full_key", None)
    for group, leaf in (("model", "id"), ("dataset", "path")):  # of which names are made
        if key == f"{group}.name" and OmegaConf.is_missing(node[group], leaf):
            key = f"{group}.{leaf}"
    if "Missing mandatory value" in str(error) and key:
        return UserError(f"{key}: no value; give one, such as {key}=VALUE")
    return None


def _placed(error: UserError, files: dict[str, str], typed: Sequence[str]) -> UserError:
    """The error of a value with the file that says it, if nobody typed it."""
    key = re.split("[=: ]", str(error))[0]
    group = key.partition(".")[0]
    if not group or group not in files or any(full.startswith(key) for full in typed):
        return error
    return type(error)(f"{files[group]}: {error}")


def _file(made: Composed, default: "ResultDefault") -> str:
    """The file of an entry of the defaults list, as one would write it."""
    from hydra.core.object_type import ObjectType

    source = made.repository._find_object_source(default.config_path or "", ObjectType.CONFIG)
    return f"{source.provider}/{default.config_path}.yaml" if source else ""


def composed(settings: Sequence[str], kind: Any = RunConfig, here: bool = True) -> Composed:
    """Compose settings with full keys, as `parted` gives them; nothing is checked but types.

    Raises UserError: no such choice, or what Hydra says of files and keys.
    """
    from hydra import version
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.errors import HydraException

    for name, resolver in {
        "folder_tag": lambda tag: f"-{tag}" if tag else "",
        "project": lambda relative: str(ROOT / relative),
        "stem": lambda path: re.sub(r"(?i)\.(jsonl?|csv|tsv|parquet)$", "", Path(path).name),
    }.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)
    base = version.VersionBase.instance()
    before = base.version_base
    version.setbase("1.3")
    try:
        repository = repository_of(kind, searchpath_of(settings), here)
        chosen = itertools.chain.from_iterable(_chosen(s, kind, repository) for s in settings)
        asked = [one for one in map(parse, chosen) if not one.is_hydra_override()]
        if many := next((one for one in asked if one.is_sweep_override()), None):
            raise UserError(f"{many.input_line}: takes one value; {overrides.HELP}")
        of_files = {
            one.input_line: one
            for one in asked
            if repository.group_exists(one.key_or_group) and not isinstance(one.value(), dict)
        }
        made = _of_files(kind, tuple(of_files), repository)
        node = copy.deepcopy(made.node)
        values = [one for one in asked if one.input_line not in of_files]
        ConfigLoaderImpl._apply_overrides_to_config(values, node)
    except RecursionError as error:
        files = f"{' '.join(settings)}: defaults: a file inherits from itself"
        raise UserError(f"{files}; give it another name") from error
    except (HydraException, OmegaConfBaseException, ValueError, yaml.YAMLError, OSError) as error:
        raise overrides.explained(error, kind) from error
    finally:
        base.version_base = before
    return made._replace(node=node)


@functools.lru_cache(maxsize=64)  # most of a composition; many runs choose the same files
def _of_files(kind: Any, chosen: tuple[str, ...], repository: "ConfigRepository") -> Composed:
    """What the files say that are chosen; not to be changed."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
    from hydra._internal.defaults_list import create_defaults_list

    name, asked = "run" if kind is RunConfig else kind.__name__, [*map(parse, chosen)]
    type(repository).load_config.cache_clear()  # type: ignore[attr-defined]
    made = create_defaults_list(repository, name, asked, False, False)
    loader = ConfigLoaderImpl(ConfigSearchPathImpl())
    node = loader._compose_config_from_defaults_list(made.defaults, repository)
    OmegaConf.set_struct(node, True)
    return Composed(node, made.defaults, repository)


def shown(
    settings: Sequence[str],
    kind: Any,
    info: str = "",
    package: str = "",
    resolve: bool = False,
    cfg: str = "",
) -> str:
    """What Hydra prints with `--cfg job`, or `--info` defaults or searchpath.

    Empty where a dataclass has no such `package`. Raises UserError: what cannot be composed.
    """
    made, full = composed(settings, kind), overrides.full_key(kind, package) if package else None
    if info == "searchpath":
        return "".join(f"{one.provider}: {one.path}\n" for one in made.repository.sources)
    if info:
        shape = "{:32} {:20} {}\n".format
        return "".join(
            shape(d.config_path or "-", d.package or "-", d.parent) for d in made.defaults
        )
    if package and full is None:
        return ""
    try:
        if resolve:
            OmegaConf.resolve(made.node)
        part = OmegaConf.select(made.node, package) if package else made.node
    except OmegaConfBaseException as error:
        raise overrides.explained(error, kind) from error
    head = f"# @package {package}\n" * bool(package)
    return head + (OmegaConf.to_yaml(part) if OmegaConf.is_config(part) else f"{part}\n")


def folders(here: bool = True) -> list[Path]:
    """Where group files are, those first that count first: the user's own, and ours.

    Raises UserError: the environment names a folder that is not there.
    """
    own = [Path(os.path.abspath(os.path.expanduser(of))) for of in [os.environ.get(OWN)] if of]
    if own and not own[0].is_dir():
        raise UserError(f"{OWN}={own[0]}: no such folder")
    trusted = [*own, CONFIGS]
    local = Path("configs")
    taken = {folder.resolve() for folder in trusted}
    counts = here and local.is_dir() and local.resolve() not in taken
    return [local, *trusted] if counts else trusted


def searchpath_of(settings: Sequence[str]) -> list[str]:
    """The folders of `hydra.searchpath=[file://FOLDER]`, all of them."""
    found = []
    for override in map(parse, settings):
        if override.key_or_group == "hydra.searchpath":
            places = override.value()
            if not isinstance(places, list) or not all(isinstance(one, str) for one in places):
                raise UserError(f"{override.input_line}: takes a list, [file://FOLDER,...]")
            found += places
    return found


def repository_of(kind: Any, searchpath: Sequence[str], here: bool = True) -> "ConfigRepository":
    """Hydra's view of the files that count for a dataclass; of ours alone, which stay, kept."""
    places = tuple(folders(here))
    if searchpath or places != (CONFIGS,):
        _sources.cache_clear()
    return _sources(kind, places, tuple(searchpath))


@functools.cache
def _sources(kind: Any, places: tuple[Path, ...], searchpath: Sequence[str]) -> "ConfigRepository":
    """Hydra's view of the files that count for a dataclass.

    A group of files that is no group of the dataclass's is not seen: else Hydra would take its key,
    as the `dataset=` of compare, for a choice.
    """
    from hydra._internal.config_repository import ConfigRepository
    from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
    from hydra._internal.core_plugins.file_config_source import FileConfigSource
    from hydra._internal.core_plugins.importlib_resources_config_source import (
        ImportlibResourcesConfigSource,
    )
    from hydra._internal.core_plugins.structured_config_source import StructuredConfigSource

    own = groups() if kind is RunConfig else []
    hidden = {"study", "paper", *(field.name for field in fields(kind))} - {*own}
    primary = "run" if kind is RunConfig else ""

    class Folder(FileConfigSource):
        def is_group(self, config_path: str) -> bool:
            return config_path.partition("/")[0] not in hidden and super().is_group(config_path)

        def is_config(self, config_path: str) -> bool:
            head, below, _ = config_path.partition("/")
            seen = head not in hidden if below else head == primary and self.path == str(CONFIGS)
            return seen and super().is_config(config_path)

    class Repository(ConfigRepository):
        load_config = functools.cache(ConfigRepository.load_config)

    schema = StructuredConfigSource("schema", "structured://")
    schema.store = _schema(kind)
    repository = Repository(ConfigSearchPathImpl())
    names = [{CONFIGS: "configs", Path("configs"): "./configs"}.get(of, str(of)) for of in places]
    repository.sources = [Folder(name, str(of)) for name, of in zip(names, places, strict=True)]
    if not primary:
        repository.sources.pop()
    for place in searchpath:
        scheme, _, _ = place.rpartition("://")
        source = {"": Folder, "file": Folder, "pkg": ImportlibResourcesConfigSource}.get(scheme)
        if source is None or not (found := source(place, place)).available():
            raise UserError(f"hydra.searchpath={place}: no such folder; write file://FOLDER")
        repository.sources.append(found)
    repository.sources.append(schema)
    return repository


@functools.cache  # half the time of a composition
def _schema(kind: Any) -> Any:
    """A ConfigStore of our own that holds a dataclass."""
    from hydra.core.config_store import ConfigStore

    store = object.__new__(ConfigStore)
    store.repo = {}
    store.store(name="settings" if kind is RunConfig else kind.__name__, node=kind)
    return store


def _chosen(setting: str, kind: Any, repository: "ConfigRepository") -> list[str]:
    """A choice of a group as it is; of a model or a data set also a path or a hub id, in its keys.

    Raises UserError: it is none of these; what was perhaps meant.
    """
    override = parse(setting)
    group = override.key_or_group
    plain = not (override.is_delete() or override.package or override.is_sweep_override())
    if not plain or not repository.group_exists(group) or isinstance(override.value(), dict):
        return [setting]
    value = override.value()
    if isinstance(value, list) and override.is_add():
        return [setting]
    name = value if isinstance(value, str) else str(override.get_value_element_as_str())
    if name and isinstance(value, str) and repository.config_exists(f"{group}/{name}"):
        return [setting]
    if isinstance(value, str) and kind is RunConfig and group in _VALUES:
        path, hub, key = _VALUES[group]
        text = overrides.quoted(os.path.expanduser(name))
        if _FILE.fullmatch(name):
            return [f"{group}={path}", f"{group}.{key}={text}"]
        if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            return [f"{group}={hub}", f"{group}.{key}={text}"]
    raise no_choice(group, name, repository.get_group_options(group))


def parted(arguments: Sequence[str], *kinds: Any) -> list[list[str]]:
    """The arguments of each dataclass, with full keys, as Hydra wants them.

    Folders go to the first that has `folders`. Raises UserError: one is nobody's.

    >>> parted(["metrics=avg", "dataset=aime25"], RunConfig)
    [['scoring.metrics=[avg]', 'dataset=aime25']]
    """
    words = [a for a in arguments if overrides.is_folder(a)]
    settings = [a for a in arguments if a not in words]
    found: list[list[str]] = [[] for _ in kinds]
    takers = [
        of for kind, of in zip(kinds, found, strict=True) if "folders" in overrides.keys(kind)
    ]
    if words and not takers:
        raise UserError(f"{words[0]}: not a setting; write KEY=VALUE, as trials=40, source=FOLDER")
    if words:
        places = [str(overrides.check_folder(word)) for word in words]
        takers[0].append(f"folders=[{','.join(map(overrides.quoted, places))}]")
    searchpath = searchpath_of(settings) if settings else []
    sources = [repository_of(kind, searchpath) for kind in kinds] if settings else []
    for override in map(parse, settings):
        key, line = override.key_or_group, override.input_line or ""
        if key == "hydra.searchpath":
            for of in found:
                of.append(line)
            continue
        if override.is_hydra_override():
            raise _no_hydra(key)
        for kind, of, repository in zip(kinds, found, sources, strict=True):
            if repository.group_exists(key):
                added = not (override.is_delete() or override.is_add()) and key not in groups()
                text: str | None = f"{'+' * added}{line}"
            else:
                text = overrides.spelt(kind, override)
            if text is not None:
                of.append(text)
                break
        else:
            raise overrides.unknown(
                f"{key}@{override.package}" if override.package else key, *kinds
            )
    return found


def _no_hydra(key: str) -> UserError:
    if key in ("hydra/launcher", "hydra/sweeper"):
        return UserError(
            f"{key}: lists, ranges and glob() make many runs here, one process after the other;"
            " `submit` starts them on a cluster, and there are no other launchers or sweepers"
        )
    return UserError(
        f"{key}: no such key; of Hydra's own there is hydra.searchpath=[file://FOLDER]"
    )


def _vouched(made: Composed, cfg: RunConfig, typed: Sequence[str]) -> None:
    """Stop at a setting of `./configs` that executes, connects or names a secret.

    Raises UserError: naming file, key and value.
    """
    here = [d for d in made.defaults if d.config_path and _file(made, d).startswith("./")]
    values = tuple(f"{key}." for key in typed if key not in groups())
    risky = trust.drop(copy.deepcopy(cfg), lambda *_: ()) if here else []
    for default in here:
        said = yaml.safe_load(Path(_file(made, default)).read_bytes())
        known = dict(overrides.flat(said, f"{default.package}." if default.package else ""))
        for text in risky:
            key = f"{text.partition('=')[0]}."
            if key.startswith(tuple(f"{k}." for k in known)) and not key.startswith(values):
                raise UserError(f"{_file(made, default)}: {text}: type it, or set {OWN}=FOLDER")


def own(group: str, name: str) -> Iterator[RunConfig]:
    """What the user's own files of a group say that may have this name, of those that are whole."""
    for choice in choices(group, here=False):
        if name.startswith(choice) or group == "engine":
            with contextlib.suppress(UserError):
                yield load_as(RunConfig, [f"{group}={choice}"], here=False)


def _unverified(settings: Sequence[str]) -> bool:
    """Whether questions are the user's own, no verifier was asked for, and none is on disk."""
    given = {one.key_or_group: one.value() for one in map(parse, settings)}
    dataset, judge = given.get("dataset"), given.get("dataset.answer") == "judge"
    if judge or "dataset.judge" in given or any(key.startswith("verifier") for key in given):
        return False
    if not isinstance(dataset, str) or dataset in {*choices("dataset")} - {*_VALUES["dataset"]}:
        return False
    from huggingface_hub import constants  # not for every --help

    folder = f"models--{str(VerifierConfig.id).replace('/', '--')}/snapshots"
    return not any(Path(constants.HF_HUB_CACHE).glob(f"{folder}/*/*.safetensors"))


def files(group: str, here: bool = True) -> dict[str, Path]:
    """The YAML files of a group by their names, the user's own before ours."""
    found = [path for of in folders(here)[::-1] for path in (of / group).glob("*.yaml")]
    return {path.stem: path for path in sorted(found, key=lambda path: path.stem)}


def choices(group: str, here: bool = True) -> list[str]:
    """The names that `group=` takes.

    >>> {"demo", "qwen3-30b"} <= set(choices("model"))
    True
    """
    return [*files(group, here)]


def groups() -> list[str]:
    """The configuration groups of a run, as `configs/run.yaml` names them."""
    return sorted(key for one in _defaults(CONFIGS) if isinstance(one, dict) for key in one)


def default(group: str) -> str | None:
    """The choice that a group has where none is made; None: it has none.

    >>> default("model"), default("rubric")
    ('demo', None)
    """
    return next((one[group] for one in _defaults(CONFIGS) if group in one and one != group), None)


@functools.cache
def _defaults(configs: Path) -> list[Any]:
    listed: list[Any] = yaml.safe_load((configs / "run.yaml").read_bytes())["defaults"]
    return listed


def no_choice(group: str, name: str, known: Sequence[str] = ()) -> UserError:
    """What to say of a name that `group=` does not take, with those that are near."""
    hint = did_you_mean(name, known or choices(group), most=3, all_are="choose from")
    path, folder = f"./{name}", name and group in _VALUES and os.path.isdir(name)
    hint += f", or the folder {group}={path}?" if folder else ""
    extra = {
        "model": "; any other model: model=HUB_ID or a folder, model=./FOLDER",
        "dataset": "; your own file: dataset=./FILE.jsonl",
        "rubric": "; your own: rubric=FILE.yaml",
    }.get(group, "")
    return UserError(f"{group}={name}: no such choice ({hint}{extra})")


def _check_moment(cfg: RunConfig, typed: Sequence[str]) -> None:
    # In a folder that it was given for before, a moment that is past stops nothing but work.
    if cfg.budget.past and "budget.until" in typed:
        raise UserError(f"budget.until={cfg.budget.until}: is past; name a later moment")
