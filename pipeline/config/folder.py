"""A run folder's settings: `config.yaml`, plain values in YAML below a keyed mark."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from bayes_at_n.pipeline.base import foreign
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.config import trust
from bayes_at_n.pipeline.config.checks import validated
from bayes_at_n.pipeline.config.settings import RunConfig

_MOST, _DEEPEST = 1 << 17, 16  # bytes of a folder's settings, which have 4,000; lists in lists


def load_folder(folder: Path, settings: Sequence[str], verb: str = "") -> RunConfig:
    """Read the settings that a run folder was made with, and change single keys of them.

    `verb`: what will use the settings; without one they are only shown. Raises UserError: when the
    folder holds no run, or a setting does not fit or cannot be trusted (`trust.check`).
    """
    path = folder / "config.yaml"
    try:
        text = foreign.read_text(path, _MOST)
        values = _plain(text)
    except FileNotFoundError:
        inside = sorted(folder.glob("*/config.yaml"))
        hint = f", but runs: name those, such as {inside[0].parent}" if inside else ""
        raise UserError(f"{folder} is no run folder: it holds no config.yaml{hint}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {one_line(error)}") from error
    values |= {"run_dir": str(folder), "trust": "false"}
    typed = _change(values, settings) if settings else []
    try:
        cfg = validated(RunConfig, values)
    except UserError as error:
        if typed and str(error).startswith(tuple(typed)):
            raise
        raise UserError(f"{path}: {error}") from error
    if "budget.until" in typed and cfg.budget.past:  # one of the file stops nothing but work
        raise UserError(f"budget.until={cfg.budget.until}: is past; name a later moment")
    mark, _, rest = text.partition("\n")
    if trust.is_own(rest, mark.removeprefix("# ")):
        cfg.trust = "true"
    elif verb:
        from bayes_at_n.pipeline.config import compose  # Hydra, which folders of one's own need not

        trust.check(cfg, path, compose.own, verb, typed)
    return cfg


def _plain(text: str) -> dict[str, Any]:
    """Parse a file. Raises ValueError and YAMLError: it is not as `dump` writes one."""
    depth = 0
    for event in yaml.parse(text, yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or depth > _DEEPEST or getattr(event, "tag", None):
            line = event.start_mark.line + 1
            raise ValueError(f"line {line}: an alias, a tag, or lists in lists without end")
    values = yaml.load(text, yaml.CSafeLoader)
    if not isinstance(values, dict):
        raise ValueError("holds no settings")
    return {str(key): value for key, value in values.items()}


def _change(values: dict[str, Any], settings: Sequence[str]) -> list[str]:
    """Set what KEY=VALUE settings say, as Hydra reads them; returns their full keys."""
    from omegaconf import OmegaConf  # not imported, nor Hydra, where nothing is changed
    from omegaconf.errors import OmegaConfBaseException

    from bayes_at_n.pipeline.config import compose, overrides

    typed = []
    for setting in compose.parted(settings, RunConfig)[0]:
        override = overrides.parse(setting)
        full = override.key_or_group
        if full in {*compose.groups(), "tag", "run_dir"} or override.is_delete():
            raise UserError(
                f"{setting}: not where a run folder is named, which takes keys such as"
                " sampling.trials=N; leave the folder out and name model=... dataset=..."
            )
        if override.is_sweep_override():
            raise UserError(f"{setting}: takes one value")
        try:
            given = OmegaConf.create({"": override.value()})
            plain: Any = OmegaConf.to_container(given, resolve=True)
        except (OmegaConfBaseException, ValueError) as error:
            raise overrides.explained(error, RunConfig) from error
        _set(values, full, plain[""])
        typed.append(full)
    return typed


def _set(values: dict[str, Any], full: str, value: Any) -> None:
    *groups, name = full.split(".")
    for group in groups:
        values = values.setdefault(group, {})
        if not isinstance(values, dict):
            raise UserError(f"{full}={value}: config.yaml has no group {group}")
    there = values.get(name)
    values[name] = there | value if isinstance(there, dict) and isinstance(value, dict) else value


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """A dumper that spells out line ends which readers of YAML would take for others."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if re.search("[\x85\u2028\u2029]", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)


def dump(cfg: RunConfig) -> str:
    """The settings as YAML, every value spelt out; `load_folder` reads the same back."""
    values = {key: value for key, value in asdict(cfg).items() if key != "trust"}
    return str(yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True))
