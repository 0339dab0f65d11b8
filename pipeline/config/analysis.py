"""The settings of verbs that look at many runs: compare, report, study, reproduce."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pipeline.config import overrides
from pipeline.config.checks import check, limited
from pipeline.config.scoring import (
    ComparisonConfig,
    RubricConfig,
    ThresholdsConfig,
    cohort_thresholds,
)
from pipeline.config.studies import StudyConfig


@dataclass
class ReportConfig:
    """What the report shows."""

    title: str | None = None  # default: the names of the data sets
    texts: bool = True  # prompts and responses go to side files; without: numbers only
    trials: int | None = limited(None, "[1, inf)")  # texts of so many of a question; null: all


@dataclass
class AnalysisConfig:
    """What to look at, how to score it, and where results go."""

    dataset: list[str] = field(default_factory=list)  # folders in `runs`; none: all of them
    model: list[str] = field(default_factory=list)  # names of run folders; none: all of a data set
    folders: list[str] = field(default_factory=list)  # run folders named outright
    runs: str = limited("runs", named=True)  # run folders are runs/DATASET/RUN
    out: str | None = limited(None, named=True)  # where results go; each verb has its own default
    scoring: ComparisonConfig = field(default_factory=ComparisonConfig)
    rubric: RubricConfig = field(default_factory=RubricConfig)
    thresholds: ThresholdsConfig = field(default_factory=cohort_thresholds)
    study: StudyConfig = field(default_factory=StudyConfig)
    report: ReportConfig = field(default_factory=ReportConfig)

    def problems(self) -> Iterator[str]:
        """Paths where names of folders belong."""
        for name in (*self.dataset, *self.model):
            if name in (".", "..") or "/" in name:
                yield (
                    f"{name}: dataset= and model= take names of folders in {self.runs}; to name a"
                    " run folder outright, write its path without a key"
                )


def load(arguments: Sequence[str]) -> AnalysisConfig:
    """Settings from the command line: KEY=VALUE, and run folders.

    Raises:
        UserError: an unknown key, a value of the wrong type or one that cannot work, or an argument
            that is neither setting nor folder.

    Example:
        >>> cfg = load(["dataset=aime24,aime25", "z=1.96", "rubric=exact-match"])
        >>> cfg.dataset, cfg.scoring.z, cfg.rubric.names
        (['aime24', 'aime25'], 1.96, ['exact-match'])
    """
    return check(overrides.fill(AnalysisConfig, arguments))
