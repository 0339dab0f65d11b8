"""The settings of a run folder: `config.yaml`, plain values in YAML below a keyed mark."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from bayes_at_n.pipeline.base import untrusted
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.config import compose, trust
from bayes_at_n.pipeline.config.checks import validated
from bayes_at_n.pipeline.config.settings import RunConfig

_MOST, _DEEPEST = 1 << 17, 16  # bytes (usually 4,000) and nesting of a folder's settings


_RETIRED = {  # settings that older folders have and nothing reads
    "engine": ("batch_invariant", "allow_missing"),
    "scoring": ("headline", "plots"),
}


def load_folder(folder: Path, settings: Sequence[str], verb: str = "") -> RunConfig:
    """Read the settings of a run folder and change single keys of them.

    `verb`: what will use the settings; without one they are only shown. Raises UserError: the
    folder holds no run, or a setting is not valid or cannot be trusted (`trust.check`).
    """
    path = folder / "config.yaml"
    try:
        text = untrusted.read_text(path, _MOST)
        values = _plain(text)
    except FileNotFoundError:
        inside = sorted(folder.glob("*/config.yaml"))
        hint = f"; name a run in it, such as {inside[0].parent}" if inside else ""
        raise UserError(f"{folder} is not a run folder: it has no config.yaml{hint}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {one_line(error)}") from error
    values |= {"run_dir": str(folder), "trust": "false"}
    for group, names in _RETIRED.items():
        if isinstance(of := values.get(group), dict):
            for name in names:
                of.pop(name, None)
    typed = _change(values, settings) if settings else []
    try:
        cfg = validated(RunConfig, values)
    except UserError as error:
        by_user = str(error).startswith(tuple(typed))
        raise UserError(str(error) if by_user else f"{path}: {error}") from error
    if "budget.until" in typed and cfg.budget.past:  # a stored one must not block `score`
        raise UserError(f"budget.until={cfg.budget.until}: is in the past; give a later time")
    mark, _, rest = text.partition("\n")
    if trust.is_own(rest, mark.removeprefix("# ")):
        cfg.trust = "true"
    elif verb:
        trust.check(cfg, path, compose.trusted, verb, typed)
    return cfg


def configured(words: Sequence[str], verb: str = "") -> RunConfig:
    """Compose settings, or load a run folder's and change them, for a verb. Raises UserError."""
    folders, settings = compose.folders_of(words)
    if len(folders) > 1:
        raise UserError(f"{' '.join(folders)}: name one run folder, or KEY=VALUE settings")
    return load_folder(Path(folders[0]), settings, verb) if folders else compose.load(settings)


def _plain(text: str) -> dict[str, Any]:
    """Parse a file. Raises ValueError or YAMLError: `dump` cannot have written it."""
    depth = 0
    for event in yaml.parse(text, yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or depth > _DEEPEST or getattr(event, "tag", None):
            line = event.start_mark.line + 1
            raise ValueError(f"line {line}: has an alias, a tag, or too many levels")
    if isinstance(values := yaml.load(text, yaml.CSafeLoader), dict):
        return {str(key): value for key, value in values.items()}
    raise ValueError("has no settings")


def _change(values: dict[str, Any], settings: Sequence[str]) -> list[str]:
    """Change values by KEY=VALUE settings in Hydra's grammar; return their full keys.

    Of all groups only the verifier may be replaced as a whole: it is no part of what a run is.
    """
    from omegaconf import OmegaConf  # it takes time, as Hydra does, and may not be needed

    typed = []
    overrides = [*map(compose.parse, compose.split(settings, RunConfig)[0])]
    for override in sorted(overrides, key=lambda one: one.key_or_group != "verifier"):
        full, node = override.key_or_group, values
        if full == "verifier" and not (override.is_sweep_override() or override.is_delete()):
            values[full] = asdict(compose.load([str(override.input_line)]).verifier)
            typed.append(full)
            continue
        fixed = full in {*compose.GROUPS, "tag", "run_dir"} or override.is_delete()
        if fixed or override.is_sweep_override():
            raise UserError(
                f"{override.input_line}: cannot be changed in a run folder; change single keys such"
                " as sampling.trials=N, or leave the folder out and name model=... dataset=..."
            )
        with compose.explaining(RunConfig):
            plain: Any = OmegaConf.to_container(OmegaConf.create([override.value()]), resolve=True)
        *groups, name = full.split(".")
        for group in groups:
            if not isinstance(node := node.setdefault(group, {}), dict):
                raise UserError(f"{full}: config.yaml has no group {group}")
        merged = isinstance(node.get(name), dict) and isinstance(plain[0], dict)
        node[name] = node[name] | plain[0] if merged else plain[0]
        typed.append(full)
    return typed


def dump(cfg: RunConfig) -> str:
    """Return all settings as YAML; `load_folder` reads the same back."""
    values = {key: value for key, value in asdict(cfg).items() if key != "trust"}
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    odd = re.search("[\x85\u2028\u2029]", text)  # line breaks in YAML 1.1
    return str(yaml.safe_dump(values, sort_keys=False) if odd else text)
