"""From YAML files and overrides to a checked, typed configuration.

Hydra composes `configs/` against the dataclasses of `pipeline.config.settings`; this module
turns every failure into one readable line that names the key, what was found and what to do.
"""

import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.base.errors import UserError
from pipeline.base.places import ROOT
from pipeline.config.problems import problems
from pipeline.config.renamed import refuse, refuse_any
from pipeline.config.settings import RunConfig

CONFIGS = ROOT / "configs"


ConfigStore.instance().store(name="settings", node=RunConfig)


def _folder_tag(tag: str | None) -> str:
    return f"-{tag}" if tag else ""


def _project(relative: str) -> str:
    return str(ROOT / relative)


def _stem(path: str) -> str:
    return Path(path).stem if path.endswith((".jsonl", ".json")) else Path(path).name


OmegaConf.register_new_resolver("folder_tag", _folder_tag, replace=True)
OmegaConf.register_new_resolver("project", _project, replace=True)
OmegaConf.register_new_resolver("stem", _stem, replace=True)


def load(overrides: list[str]) -> RunConfig:
    """Compose `configs/` with Hydra overrides into a checked, typed configuration.

    Args:
        overrides: Hydra overrides such as ``["model=qwen3-30b", "sampling.trials=40"]``;
            ``prior=RUN`` is short for ``prior.run=RUN``, ``thresholds=FILE`` for
            ``thresholds.file=FILE`` and ``rubric=NAME,FILE`` for ``rubric.names=[NAME, FILE]``.

    Raises:
        UserError: for an unknown key or choice, a wrong type or an impossible combination.

    Example:
        >>> cfg = load(["model=qwen3-30b", "dataset=aime25", "sampling.trials=40"])
        >>> cfg.dataset.name, cfg.sampling.trials, cfg.model.name
        ('aime25', 40, 'qwen3-30b')
    """
    for override in overrides:
        _check_override(override)
    overrides = [spell_out(o) for o in overrides]
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            node = compose("config", overrides=overrides)
        return check(_to_typed(node))
    except (HydraException, OmegaConfBaseException, ValueError, yaml.YAMLError) as error:
        raise UserError(_explain(error, overrides)) from error


def load_folder(folder: Path, overrides: list[str]) -> RunConfig:
    """Read the configuration a run folder was made with, and apply plain key=value overrides.

    Raises:
        UserError: when the folder holds no run, or an override does not fit.
    """
    path = folder / "config.yaml"
    if not path.is_file():
        raise UserError(f"{folder} is no run folder: it holds no config.yaml")
    for override in overrides:
        _check_override(override)
        key = override.split("=")[0].lstrip("+")
        if key in {*groups(), "tag", "run_dir"} - {"rubric"}:
            raise UserError(
                f"{override}: {key} cannot be chosen where a run folder is named; leave the folder"
                " out and name model=... dataset=..., or set single keys such as sampling.trials=N"
            )
    plain = [spell_out(override).lstrip("+") for override in overrides]
    try:
        written = OmegaConf.load(path)
        if isinstance(read := OmegaConf.to_container(written), dict):
            refuse_any(read, f"{path}: ")
        base = OmegaConf.merge(OmegaConf.structured(RunConfig), written)
        node = OmegaConf.merge(base, OmegaConf.from_dotlist(plain))
        assert isinstance(node, DictConfig)
        node.run_dir = str(folder)
        return check(_to_typed(node))
    except (OmegaConfBaseException, ValueError, OSError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {_explain(error, overrides)}") from error


def dump(cfg: RunConfig) -> str:
    """The configuration as YAML, every value spelt out; `load_folder` reads the same back."""
    return OmegaConf.to_yaml(OmegaConf.create(_literal(asdict(cfg))))


def _literal(value: Any) -> Any:
    r"""Escape what OmegaConf would take for an interpolation: in LaTeX ``${`` is common.

    >>> print(_literal("give ${x}$ in \\boxed{}"))
    give \${x}$ in \boxed{}
    """
    if isinstance(value, dict):
        return {key: _literal(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_literal(part) for part in value]
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    return value


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


def check(cfg: RunConfig) -> RunConfig:
    """Refuse values that cannot work, before anything is loaded; returns `cfg` itself."""
    for message in problems(cfg):
        raise UserError(message)
    return cfg


def _check_override(override: str) -> None:
    """Refuse what Hydra would take but this program has no use for, or explain badly."""
    shape = re.fullmatch(r"\+{0,2}([A-Za-z_][\w.@/-]*)=(.*)", override, re.DOTALL)
    if not shape:
        raise UserError(
            f"{override}: not a setting; write KEY=VALUE or GROUP=CHOICE, such as"
            " sampling.trials=40 or model=qwen3-30b"
        )
    key, value = shape.groups()
    refuse(key)
    if re.split(r"[.@/]", key)[0] not in {f.name for f in fields(RunConfig)}:
        raise UserError(_unknown_key(key))
    if key in groups() and key != "rubric" and value not in choices(key):
        raise UserError(_no_choice(key, value))


def spell_out(override: str) -> str:
    """An override as Hydra takes it, from what may be written for short.

    >>> spell_out("rubric=exact-match,mine.yaml"), spell_out("prior=runs/x")
    ('rubric.names=["exact-match", "mine.yaml"]', 'prior.run=runs/x')
    """
    override = override.lstrip("+")  # adding unknown keys by force would defeat the check
    free = r"(model\.chat_template_kwargs|model\.engine_args|engine\.args|rubric\.weights)[.=]"
    if re.match(free, override):
        return f"++{override}"  # free-form mappings: a new key is no mistake
    if shape := re.fullmatch(r"rubric=(.*)", override, re.DOTALL):
        names = ", ".join(json.dumps(name.strip()) for name in shape[1].strip("[]").split(","))
        return f"rubric.names=[{names}]"
    override = re.sub(r"^thresholds=", "thresholds.file=", override)
    return re.sub(r"^prior=", "prior.run=", override)


def _to_typed(node: DictConfig) -> RunConfig:
    for key in ("model.id", "dataset.path"):
        if OmegaConf.is_missing(node[key.split(".")[0]], key.split(".")[1]):
            raise UserError(f"{key}: no value; give one, such as {key}=VALUE")
    typed: object = OmegaConf.to_object(node)
    assert isinstance(typed, RunConfig)
    return typed


def _explain(error: Exception, overrides: list[str]) -> str:
    """One line for a Hydra or OmegaConf error: the key, what was found, what to do."""
    text = _one_line(error)
    group = re.search(r"(?:Could not find|In .*: Could not find) '(\w+)/([^']+)'", text)
    if group and group[1] in groups():
        return _no_choice(group[1], group[2])
    key = re.search(r"Key '([^']+)' (?:is not in struct|not in '\w+')", text)
    full = re.search(r"full_key: (\S+)", text)
    if key:
        return _unknown_key(full[1] if full else key[1])
    if override := re.search(r"Could not override '([^']+)'", text):
        return _unknown_key(override[1])
    if error.__cause__ is not None and text.startswith("Error merging override"):
        cause = _one_line(error.__cause__)
        full, text = re.search(r"full_key: (\S+)", cause), cause
    remedy = "see `python -m pipeline --help` for keys and examples"
    if "nterpolation" in text:
        remedy = "write \\${ where ${ is meant as text"
    if full:
        what = text.split(" full_key:")[0]
        return f"{full[1]}: {what}; {remedy}"
    if any(word in text for word in ("missing EQUAL", "input", "parsing", "Lexer", "Ambiguous")):
        text = re.sub(r"^LexerNoViableAltException: |See https://hydra\S+ for details", "", text)
        return (
            f"setting not understood: {text.strip()}; write KEY=VALUE, one value each, and quote"
            " values with special characters, as in 'KEY=\"value\"'"
        )
    return f"{text or type(error).__name__} (in {' '.join(overrides) or 'a YAML file'}); {remedy}"


def _one_line(error: BaseException) -> str:
    return " ".join(part.strip() for part in str(error).splitlines() if part.strip())


def _no_choice(group: str, name: str) -> str:
    found = choices(group)
    close = difflib.get_close_matches(name, found, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"choose from {', '.join(found)}"
    extra = {
        "model": "; any other model: model=custom model.id=HUB_ID_OR_FOLDER",
        "dataset": "; your own file: dataset=jsonl dataset.path=FILE",
    }.get(group, "")
    return f"{group}={name}: no such choice ({hint}{extra})"


def _unknown_key(full_key: str) -> str:
    known = sorted(_keys(OmegaConf.structured(RunConfig)))
    leaf = full_key.rsplit(".", 1)[-1]
    close = difflib.get_close_matches(full_key, known, n=2, cutoff=0.6)
    close += [k for k in known if k.rsplit(".", 1)[-1] == leaf and k not in close]
    parent = full_key.rsplit(".", 1)[0]
    siblings = [k for k in known if k.startswith(parent + ".")] or [
        k for k in known if "." not in k
    ]
    hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(siblings)}"
    return f"{full_key}: no such key ({hint})"


def _keys(node: DictConfig, prefix: str = "") -> Iterator[str]:
    for key in node:
        yield f"{prefix}{key!s}"
        value = node._get_node(key)
        if isinstance(value, DictConfig):
            yield from _keys(value, f"{prefix}{key!s}.")
