"""The settings of verbs that look at many runs: compare, report, study, reproduce, export."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.checks import limited
from bayes_at_n.pipeline.config.rankings import RankingConfig
from bayes_at_n.pipeline.config.scoring import (
    ComparisonConfig,
    PriorConfig,
    RubricConfig,
    ThresholdsConfig,
)
from bayes_at_n.pipeline.config.studies import StudyConfig


@dataclass
class ReportConfig:
    """What the report shows."""

    title: str | None = None  # default: the names of the data sets
    texts: bool = True  # prompts and responses go to side files; without: numbers only
    trials: int | None = limited(None, "[1, inf)")  # texts of so many of a question; null: all
    single: bool = False  # one file that can be mailed: what does not fit into 10 MB is left out


@dataclass
class SelectionConfig:
    """Which runs to look at, how to score them, and where results go."""

    dataset: list[str] = field(default_factory=list)  # folders in `runs`; none: all of them
    model: list[str] = field(default_factory=list)  # names of run folders; none: all of a data set
    folders: list[str] = field(default_factory=list)  # run folders named outright
    runs: str = limited("runs", named=True)  # run folders are runs/DATASET/RUN
    out: str | None = limited(None, named=True)  # where results go; each verb has its own default
    scoring: ComparisonConfig = field(default_factory=ComparisonConfig)

    def problems(self) -> Iterator[str]:
        """Paths where names of folders belong."""
        for name in (*self.dataset, *self.model):
            if name in (".", "..") or "/" in name:
                where = f"names of folders in {self.runs}"
                yield f"{name}: dataset= and model= take {where}; write a path without a key"


@dataclass
class AnalysisConfig(SelectionConfig):
    """The same, and what is made of them."""

    prior: PriorConfig = field(default_factory=PriorConfig)
    rubric: RubricConfig = field(default_factory=RubricConfig)
    thresholds: ThresholdsConfig = field(default_factory=ThresholdsConfig)
    ranking: RankingConfig = field(default_factory=RankingConfig)
    study: StudyConfig = field(default_factory=StudyConfig)
    report: ReportConfig = field(default_factory=ReportConfig)


def load(arguments: Sequence[str]) -> AnalysisConfig:
    """Settings from the command line. Raises UserError: one that cannot work."""
    return compose.load_as(AnalysisConfig, arguments)
