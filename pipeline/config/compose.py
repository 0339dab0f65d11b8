"""The configuration of a run: Hydra composes `configs/`, single keys change it, it is checked."""

import contextlib
import copy
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from bayes_at_n.pipeline.base.errors import UserError, did_you_mean
from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.config import overrides
from bayes_at_n.pipeline.config.settings import RunConfig, VerifierConfig

CONFIGS = ROOT / "configs"
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
        cfg = overrides.typed(node, RunConfig)
        # In a folder that it was given for before, a moment that is past stops nothing but work.
        if cfg.budget.past and "budget.until" in changed:
            raise UserError(f"budget.until={cfg.budget.until}: is past; name a later moment")
        return cfg
    except UserError as error:
        key = re.split("[=: ]", str(error))[0]
        if any(full.startswith(key) for full in changed):
            raise
        raise UserError(f"{file_of(key.partition('.')[0])}: {error}") from error


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
