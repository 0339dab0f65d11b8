"""The settings of verbs that look at many runs: compare, report, study, reproduce, equivalence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bayes_at_n.pipeline.config.checks import FolderName, Named, Natural, Points, Positive, Trust
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
    trials: Positive | None = None  # texts of so many of a question; null: all
    single: bool = False  # one file that can be mailed: what does not fit into 10 MB is left out


@dataclass
class SelectionConfig:
    """Which runs to look at, how to score them, and where results go."""

    dataset: list[FolderName] = field(default_factory=list)  # folders in `runs`; none: all of them
    model: list[FolderName] = field(default_factory=list)  # of run folders; none: all of a data set
    folders: list[str] = field(default_factory=list)  # run folders named outright
    runs: Named = "runs"  # run folders are runs/DATASET/RUN
    out: Named | None = None  # where results go; each verb has its own default
    scoring: ComparisonConfig = field(default_factory=ComparisonConfig)


@dataclass
class AnalysisConfig(SelectionConfig):
    """The same, and what is made of them."""

    prior: PriorConfig = field(default_factory=PriorConfig)
    rubric: RubricConfig = field(default_factory=RubricConfig)
    thresholds: ThresholdsConfig = field(default_factory=ThresholdsConfig)
    ranking: RankingConfig = field(default_factory=RankingConfig)
    study: StudyConfig = field(default_factory=StudyConfig)
    report: ReportConfig = field(default_factory=ReportConfig)


@dataclass
class EquivalenceConfig:
    """Which two runs, how much they may differ, and how many attempts are replayed.

    Without `out` results go to _equivalence/A-B beside the first run.
    """

    folders: list[str] = field(default_factory=list)  # A and B
    margin: Points = 1.0
    replay: Natural = 200  # attempts of A that B's engine is given; 0: none is loaded
    out: Named | None = None
    trust: Trust = "false"  # use what B's folder says of its engine

    def problems(self) -> Iterator[str]:
        if len(self.folders) != 2:
            shown = " ".join(self.folders) or "no folder"
            yield f"{shown}: takes two run folders, such as runs/aime25/4b runs/aime25/4b-int8"


def load(arguments: Sequence[str]) -> AnalysisConfig:
    """Compose settings from the command line. Raises UserError: one that cannot work."""
    from bayes_at_n.pipeline.config import compose  # Hydra, which `status` need not import

    return compose.load_as(AnalysisConfig, arguments)
