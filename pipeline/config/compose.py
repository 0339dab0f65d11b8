"""The configuration of a run: Hydra composes `configs/`, single keys change it, it is checked."""

import contextlib
import copy
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf._utils import get_omega_conf_dumper, get_yaml_loader
from omegaconf.errors import OmegaConfBaseException

from bayes_at_n.pipeline.base import foreign
from bayes_at_n.pipeline.base.errors import UserError, did_you_mean
from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.config import overrides, trust
from bayes_at_n.pipeline.config.checks import check
from bayes_at_n.pipeline.config.settings import RunConfig, VerifierConfig

CONFIGS = ROOT / "configs"
_MOST, _DEEPEST = 1 << 17, 16  # bytes of a folder's settings, which have 4,000; lists in lists
_OWN = ("jsonl", "hub")  # data sets of the user's


def load(settings: Sequence[str]) -> RunConfig:
    """Compose `configs/` into a checked, typed configuration.

    `settings`: GROUP=CHOICE and KEY=VALUE, such as ``["model=qwen3-30b", "top_p=1"]``. Raises
    UserError: for an unknown key or choice, a wrong type or an impossible combination.

    Example:
        >>> cfg = load(["model=qwen3-30b", "dataset=aime25", "sampling.trials=40"])
        >>> cfg.dataset.name, cfg.sampling.trials, cfg.model.name
        ('aime25', 40, 'qwen3-30b')
    """
    chosen, single = [], []
    for setting in settings:
        key, text = overrides.split(setting)
        if key in groups() and key != "rubric":
            if text not in choices(key):
                raise no_choice(key, text)
            chosen.append(f"{key}={text}")
        else:
            single.append(setting)
    if _unverified(settings):
        chosen.append("verifier=none")
    node, names = copy.deepcopy(_composed(CONFIGS, tuple(chosen)))
    files = {group: f"configs/{group}/{name}.yaml" for group, name in names.items()}
    cfg = _finished(node, single, lambda group: files.get(group, "configs/config.yaml"))
    cfg.trust = "true"  # all of it is typed, or in the user's own files
    return cfg


def own(group: str, name: str) -> Iterator[RunConfig]:
    """What the user's own files of a group say that may have this name, of those that are whole."""
    for choice in choices(group):
        if name.startswith(choice) or group == "engine":
            with contextlib.suppress(UserError):
                yield load([f"{group}={choice}"])


def _unverified(settings: Sequence[str]) -> bool:
    """Whether questions are the user's own, no verifier was asked for, and none is on disk."""
    given = {overrides.full_key(RunConfig, k) or k: v for k, v in map(overrides.split, settings)}
    judge = given.get("dataset.answer") == "judge" or "dataset.judge" in given
    if given.get("dataset") not in _OWN or judge or any(k.startswith("verifier") for k in given):
        return False
    from huggingface_hub import constants  # not for every --help

    folder = f"models--{str(VerifierConfig.id).replace('/', '--')}/snapshots"
    return not any(Path(constants.HF_HUB_CACHE).glob(f"{folder}/*/*.safetensors"))


@functools.lru_cache(maxsize=512)  # nine tenths of a load; plans of many runs choose the same again
def _composed(configs: Path, chosen: tuple[str, ...]) -> tuple[DictConfig, dict[str, str]]:
    """What Hydra makes of the files that are chosen, and their names by group."""
    from hydra import compose, initialize_config_dir  # a run folder needs none of it
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException

    ConfigStore.instance().store(name="settings", node=RunConfig)
    for name, resolver in {
        "folder_tag": lambda tag: f"-{tag}" if tag else "",
        "project": lambda relative: str(ROOT / relative),
        "stem": lambda path: re.sub(r"(?i)\.(jsonl?|csv|tsv|parquet)$", "", Path(path).name),
    }.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(configs), version_base="1.3"):
            node = compose("config", overrides=list(chosen), return_hydra_config=True)
    except (HydraException, OmegaConfBaseException, ValueError, yaml.YAMLError) as error:
        raise overrides.explained(error, RunConfig) from error
    with open_dict(node):
        return node, dict(node.pop("hydra").runtime.choices)


def load_folder(folder: Path, settings: Sequence[str], verb: str = "") -> RunConfig:
    """Read the configuration a run folder was made with, and change single keys of it.

    `verb`: what will use the settings; without one they are only shown. Raises UserError: when the
    folder holds no run, or a setting does not fit or cannot be trusted (`trust.check`).
    """
    path = folder / "config.yaml"
    try:
        text = foreign.read_text(path, _MOST)
    except FileNotFoundError:
        message = f"{folder} is no run folder: it holds no config.yaml"
        if inside := sorted(folder.glob("*/config.yaml")):
            message += f", but runs: name those, such as {inside[0].parent}"
        raise UserError(message) from None
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    fixed = {*groups(), "tag", "run_dir"} - {"rubric"}
    for setting in settings:
        if overrides.split(setting)[0] in fixed:
            raise UserError(
                f"{setting}: not where a run folder is named, which takes keys such as"
                " sampling.trials=N; leave the folder out and name model=... dataset=..."
            )
    cfg = copy.deepcopy(_read(path, text, tuple(settings)))
    mark, _, rest = text.partition("\n")
    if trust.is_own(rest, mark.removeprefix("# ")):
        cfg.trust = "true"
    elif verb:
        typed = {overrides.full_key(RunConfig, overrides.split(s)[0]) or "" for s in settings}
        trust.check(cfg, path, own, verb, typed)
    return cfg


class _Loader(yaml.cyaml.CParser, get_yaml_loader()):  # type: ignore[misc]
    """What OmegaConf reads YAML with, on a parser in C: a twentieth of the time."""

    def __init__(self, text: str) -> None:
        yaml.cyaml.CParser.__init__(self, text)
        yaml.constructor.SafeConstructor.__init__(self)
        yaml.resolver.Resolver.__init__(self)


@functools.lru_cache(maxsize=512)  # verbs over many runs read each of them more than once
def _read(path: Path, text: str, settings: tuple[str, ...]) -> RunConfig:
    if not settings and (like := _like_another(path, text)):
        return like
    try:
        _check_plain(path, text)
        written = yaml.load(text, _Loader)
        node = OmegaConf.merge(_empty(), OmegaConf.create(written or {}))
    except (OmegaConfBaseException, ValueError, OSError, TypeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {overrides.explained(error, RunConfig)}") from error
    assert isinstance(node, DictConfig)
    node.run_dir, node.trust = overrides.literal(str(path.parent)), "false"
    cfg = _finished(node, settings, lambda _: str(path))
    if not settings:
        _ANOTHER[:] = [(_BETWEEN_GROUPS.split(text), written, copy.deepcopy(cfg))]
    return cfg


_BETWEEN_GROUPS = re.compile(r"\n(?=\w)")
_ANOTHER: list[tuple[list[str], Any, RunConfig]] = []  # the settings of a folder, and its text


def _like_another(path: Path, text: str) -> RunConfig | None:
    """Read settings that are another folder's but for plain values in some groups, such as names.

    A tenth of the work of OmegaConf. None: more differs, or a value cannot work.
    """
    for texts, written, known in _ANOTHER:
        cfg, now = copy.deepcopy(known), _BETWEEN_GROUPS.split(text)
        with contextlib.suppress(UserError, ValueError, TypeError, yaml.YAMLError):
            for one, other in zip(texts, now, strict=True):
                if one == other:
                    continue
                _check_plain(path, other)
                before, after = (yaml.load(part, _Loader) for part in (one, other))
                if not _changed(before, after, cfg):
                    return None
                if any(repr(written[key]) != repr(before[key]) for key in before):
                    return None
            cfg.run_dir, cfg.trust = str(path.parent), "false"  # whatever the file says of it
            return check(cfg)
    return None


def _changed(before: Any, now: Any, cfg: Any) -> bool:
    """Set the values that differ between two mappings in the settings `cfg` of the first.

    False where others differ than those of one plain type that OmegaConf keeps as they are.
    """
    if not (
        is_dataclass(cfg) and type(before) is type(now) is dict and before.keys() == now.keys()
    ):
        return False
    for key, value in now.items():
        was, has = before[key], getattr(cfg, key)
        plain = type(value) is type(was) and type(value) in (str, int, float)
        kept = plain and (repr(has) == repr(was) or key == "run_dir")
        if isinstance(was, dict) and repr(value) != repr(was):
            if not _changed(was, value, has):
                return False
        elif kept and not re.search(r"\$|\?{3}", str(value)):
            setattr(cfg, key, value)
        elif repr(value) != repr(was):
            return False
    return True


@functools.cache  # half the time of reading a folder's settings
def _empty() -> DictConfig:
    """The settings of a run before any are set; not to be changed."""
    node: DictConfig = OmegaConf.structured(RunConfig)
    return node


def _check_plain(path: Path, text: str) -> None:
    """Refuse what `dump` never writes: it could read a reader's environment, or take any memory."""
    depth = 0
    starts, ends = yaml.CollectionStartEvent, yaml.CollectionEndEvent
    for event in yaml.parse(text, yaml.CSafeLoader):
        depth += isinstance(event, starts) - isinstance(event, ends)
        if isinstance(event, yaml.AliasEvent) or depth > _DEEPEST:
            what = "an alias, or lists in lists without end"
        elif overrides.INTERPOLATION.search(getattr(event, "value", "")):
            what = "an interpolation, ${...} (of text, \\${)"
        else:
            continue
        place = f"{path}, line {event.start_mark.line + 1}"
        raise UserError(f"{place}: {what}; in a run folder write the value itself")


def _finished(
    node: DictConfig, settings: Sequence[str], file_of: Callable[[str], str]
) -> RunConfig:
    """With the values of single keys, complete and checked; `file_of` a group is what said it."""
    overrides.apply(node, settings)
    changed = [overrides.full_key(RunConfig, overrides.split(s)[0]) or "" for s in settings]
    try:
        for group, key in (("model", "id"), ("dataset", "path")):
            if OmegaConf.is_missing(node[group], key):
                raise UserError(f"{group}.{key}: no value; give one, such as {group}.{key}=VALUE")
        cfg = check(overrides.typed(node, RunConfig))
        # In a folder that it was given for before, a moment that is past stops nothing but work.
        if cfg.budget.past and "budget.until" in changed:
            raise UserError(f"budget.until={cfg.budget.until}: is past; name a later moment")
        return cfg
    except UserError as error:
        key = re.split("[=: ]", str(error))[0]
        if any(full.startswith(key) for full in changed):
            raise
        raise UserError(f"{file_of(key.partition('.')[0])}: {error}") from error


def dump(cfg: RunConfig) -> str:
    """The configuration as YAML, every value spelt out; `load_folder` reads the same back."""
    dumper = get_omega_conf_dumper()  # puts quotes around what OmegaConf reads otherwise
    values = {key: value for key, value in asdict(cfg).items() if key != "trust"}
    return str(yaml.dump(_literal(values), Dumper=dumper, sort_keys=False, allow_unicode=True))


def _literal(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _literal(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_literal(part) for part in value]
    return overrides.literal(value) if isinstance(value, str) else value


def choices(group: str) -> list[str]:
    """The names that `group=` takes: the YAML files of its folder.

    >>> {"demo", "qwen3-30b"} <= set(choices("model"))
    True
    """
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


def groups() -> list[str]:
    """The configuration groups of a run: folders of `configs/`."""
    known = {f.name for f in fields(RunConfig)}
    return sorted(p.name for p in CONFIGS.iterdir() if p.name in known and any(p.glob("*.yaml")))


def default(group: str) -> str | None:
    """The choice that a group has where none is made; None: it has none.

    >>> default("model"), default("rubric")
    ('demo', None)
    """
    listed = yaml.safe_load((CONFIGS / "config.yaml").read_bytes())["defaults"]
    return next((one[group] for one in listed if group in one and one != group), None)


def no_choice(group: str, name: str) -> UserError:
    """What to say of a name that `group=` does not take, with those that are near."""
    hint = did_you_mean(name, choices(group), most=3, all_are="choose from")
    extra = {
        "model": "; any other model: model=custom model.id=HUB_ID_OR_FOLDER",
        "dataset": "; your own file: dataset=jsonl dataset.path=FILE",
        "rubric": "; your own: rubric=FILE.yaml",
    }.get(group, "")
    return UserError(f"{group}={name}: no such choice ({hint}{extra})")
