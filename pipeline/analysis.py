"""The settings of verbs that look at many runs: compare, study, reproduce, report, import.

They have no model and no engine to choose, so Hydra's groups are not needed: one dataclass, filled
from KEY=VALUE arguments with the same checks of keys and types as a run's settings.
"""

import difflib
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.errors import UserError
from pipeline.imports.settings import ImportConfig
from pipeline.report.settings import ReportConfig
from pipeline.schema import SchemaConfig, ThresholdsConfig
from pipeline.studies.settings import StudyConfig
from scoring.ranking import Method, Rule

# `source=PATH` is short for `source.path=PATH`: what a group is mostly set for.
_HEADS = {"source": "path", "thresholds": "file", "schema": "names", "study": "name"}


@dataclass
class ComparisonConfig:
    """How models are scored, and when two of them share a rank."""

    confidence: float = 0.95  # of the intervals, two-sided
    z: float = 1.645  # neighbours below it share a rank; 1.645 is one-sided 95 %
    rule: str = "consecutive_z"  # or "overlap": intervals of z sigma touch
    method: str = "dense"  # ranks 1, 2, 2, 3; or "competition": 1, 2, 2, 4
    pass_k: list[int] = field(default_factory=lambda: [1, 2, 4, 8])


@dataclass
class AnalysisConfig:
    """What to look at, how to score it, and where results go."""

    dataset: list[str] = field(default_factory=list)  # folders in `runs`; none: all of them
    model: list[str] = field(default_factory=list)  # names of run folders; none: all of a data set
    folders: list[str] = field(default_factory=list)  # run folders named outright
    runs: str = "runs"  # run folders are runs/DATASET/RUN
    out: str | None = None  # where results go; each verb has its own default
    scoring: ComparisonConfig = field(default_factory=ComparisonConfig)
    schema: SchemaConfig = field(default_factory=SchemaConfig)
    thresholds: ThresholdsConfig = field(default_factory=lambda: ThresholdsConfig(scope="cohort"))
    study: StudyConfig = field(default_factory=StudyConfig)
    report: ReportConfig = field(default_factory=ReportConfig)
    source: ImportConfig = field(default_factory=ImportConfig)


def load(arguments: list[str]) -> AnalysisConfig:
    """Settings from the command line: KEY=VALUE, and run folders.

    Args:
        arguments: `dataset=a,b` and `dataset=[a,b]` are both lists; a key of a group may be
            written without the group where only one group has it (`kind=csv` for
            `source.kind=csv`), and `source=`, `thresholds=`, `schema=`, `study=` set the key that
            the group is mostly set for.

    Raises:
        UserError: an unknown key (with the nearest known ones), a value of the wrong type, a
            combination that cannot work, or an argument that is neither setting nor folder.

    Example:
        >>> cfg = load(["dataset=aime24,aime25", "scoring.z=1.96", "schema=exact-match"])
        >>> cfg.dataset, cfg.scoring.z, cfg.schema.names
        (['aime24', 'aime25'], 1.96, ['exact-match'])
    """
    node: DictConfig = OmegaConf.structured(AnalysisConfig)
    folders = []
    for argument in arguments:
        if "=" not in argument:
            folders.append(_folder(argument))
            continue
        key, _, text = argument.partition("=")
        full = _full_key(key.strip())
        try:
            OmegaConf.update(node, full, _value(full, text), force_add=_free(full))
        except (OmegaConfBaseException, ValueError, yaml.YAMLError) as error:
            why = " ".join(str(error).split(" full_key:")[0].split())
            raise UserError(f"{full}={text}: {why}; see `python -m pipeline --help`") from error
    cfg: object = OmegaConf.to_object(node)
    assert isinstance(cfg, AnalysisConfig)
    cfg.folders += folders
    for message in _problems(cfg):
        raise UserError(message)
    return cfg


def _folder(argument: str) -> str:
    if not Path(argument).expanduser().is_dir():
        raise UserError(
            f"{argument}: neither a folder nor a setting; settings are KEY=VALUE, such as"
            " dataset=aime25"
        )
    return argument


def _full_key(key: str) -> str:
    """A key as the dataclasses spell it."""
    kinds = dict(_keys(AnalysisConfig))
    if key in _HEADS:
        return f"{key}.{_HEADS[key]}"
    if (key in kinds and not is_dataclass(kinds[key])) or _free(key):
        return key
    if "." not in key:
        of = [known for known in kinds if known.rpartition(".")[2] == key and "." in known]
        if len(of) == 1:
            return of[0]
    leaves = {known.rpartition(".")[2]: known for known in kinds}
    close = difflib.get_close_matches(key, [*kinds, *leaves], n=3)
    near = list(dict.fromkeys(name if name in kinds else leaves[name] for name in close))
    if key in kinds:
        near = [known for known in kinds if known.startswith(f"{key}.")]
    near += [known for known in kinds if known.endswith(f".{key}") and known not in near]
    known_keys = ", ".join(f.name for f in fields(AnalysisConfig) if f.name != "folders")
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {known_keys}"
    raise UserError(f"{key}: no such key ({hint})")


def _free(key: str) -> bool:
    """Whether a key is one of a mapping that takes any."""
    return key.startswith("schema.weights.")


def _keys(kind: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, hint in get_type_hints(kind).items():
        yield f"{prefix}{name}", hint
        if is_dataclass(hint):
            yield from _keys(hint, f"{prefix}{name}.")


def _value(key: str, text: str) -> Any:
    """The value of a setting; OmegaConf turns texts into numbers where the field is one."""
    if _free(key):
        return yaml.safe_load(text)
    kind = dict(_keys(AnalysisConfig))[key]
    optional = get_origin(kind) in (UnionType, typing.Union) and type(None) in get_args(kind)
    if optional and text in ("null", "None", ""):
        return None
    if get_origin(kind) is list:
        return [_plain(part) for part in text.strip("[] ").split(",") if part.strip()]
    if get_origin(kind) is dict:
        return yaml.safe_load(text)
    return _plain(text)


def _plain(text: str) -> str:
    """A text without quotes around it, in which ``${`` is no interpolation."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    return text.replace("${", "\\${")


def _problems(cfg: AnalysisConfig) -> Iterator[str]:
    s, t = cfg.scoring, cfg.thresholds
    if not 0 < s.confidence < 1:
        yield f"scoring.confidence={s.confidence}: must lie between 0 and 1"
    if not 0 < s.z <= 8:
        yield f"scoring.z={s.z}: must be above 0 and at most 8; 1.645 is one-sided 95 %"
    for key, value, known in (
        ("scoring.rule", s.rule, get_args(Rule)),
        ("scoring.method", s.method, get_args(Method)),
        ("thresholds.scope", t.scope, ("model", "cohort")),
    ):
        if value not in known:
            yield f"{key}={value}: must be {' or '.join(known)}"
    if any(k < 1 for k in s.pass_k):
        yield f"scoring.pass_k={s.pass_k}: every k must be at least 1"
    for name in (*cfg.dataset, *cfg.model):
        if name in (".", "..") or "/" in name:
            yield (
                f"{name}: dataset= and model= take names of folders in {cfg.runs}; to name a run"
                " folder outright, write its path without a key"
            )
    if not cfg.runs.strip() or (cfg.out is not None and not cfg.out.strip()):
        yield "runs and out: must name a folder"
