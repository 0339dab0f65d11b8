"""The settings of verbs that look at many runs: compare, study, reproduce, report, import.

They have no model and no engine to choose, so Hydra's groups are not needed: one dataclass, filled
from KEY=VALUE arguments with the same checks of keys and types as a run's settings.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import get_args

from pipeline.base.errors import UserError
from pipeline.config import overrides
from pipeline.config.imports import ImportConfig
from pipeline.config.report import ReportConfig
from pipeline.config.settings import RubricConfig, ThresholdsConfig
from pipeline.config.studies import StudyConfig
from scoring.ranking.ranks import Method, Rule


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
    rubric: RubricConfig = field(default_factory=RubricConfig)
    thresholds: ThresholdsConfig = field(default_factory=lambda: ThresholdsConfig(scope="cohort"))
    study: StudyConfig = field(default_factory=StudyConfig)
    report: ReportConfig = field(default_factory=ReportConfig)
    source: ImportConfig = field(default_factory=ImportConfig)


def load(arguments: list[str]) -> AnalysisConfig:
    """Settings from the command line: KEY=VALUE, and run folders.

    Args:
        arguments: `dataset=a,b` and `dataset=[a,b]` are both lists; a key of a group may be
            written without the group where only one group has it (`kind=csv` for
            `source.kind=csv`), and `source=`, `thresholds=`, `rubric=`, `study=` set the key that
            the group is mostly set for.

    Raises:
        UserError: an unknown key (with the nearest known ones), a value of the wrong type, a
            combination that cannot work, or an argument that is neither setting nor folder.

    Example:
        >>> cfg = load(["dataset=aime24,aime25", "scoring.z=1.96", "rubric=exact-match"])
        >>> cfg.dataset, cfg.scoring.z, cfg.rubric.names
        (['aime24', 'aime25'], 1.96, ['exact-match'])
    """
    cfg = overrides.fill(AnalysisConfig, arguments)
    for message in _problems(cfg):
        raise UserError(message)
    return cfg


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
