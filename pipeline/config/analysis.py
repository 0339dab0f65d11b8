"""The settings of verbs that look at many runs: compare, report, study, reproduce, equivalence."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple

import yaml  # type: ignore[import-untyped]
from pydantic import Field

from bayes_at_n.pipeline.base.errors import UserError, install
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.checks import (
    FolderName,
    Named,
    Natural,
    Points,
    Positive,
    Trust,
    one_of,
)
from bayes_at_n.pipeline.config.scoring import (
    ComparisonConfig,
    PriorConfig,
    RubricConfig,
    ThresholdsConfig,
)

STUDIES = ("coins", "separation", "priors", "ranks", "tau", "convergence", "rubrics", "cost")
EXTRA = ("rankings",)  # made only where they are named: of another paper, with another library
SIMULATED = ("coins", "separation", "priors")  # these need no runs
SEED = 0  # of methods of ranking that draw, and of replicates


class Method(NamedTuple):
    """A function of `scorio.rank`. All take complete outcomes, 0 or 1, of two models or more."""

    grows: str  # its time, with L models, M questions, N trials of each
    error: float = 0  # of its scores, as a share: what an optimiser leaves open
    parameters: Mapping[str, Any] = {}  # that are not its defaults
    telling: bool = False  # refuses questions that all attempts got right, or all wrong


_LONG = {"max_iter": 5000}
_METHODS = {
    "inverse_difficulty borda majority_judgment rasch_mml rasch_mml_credible": Method("L M N"),
    "thompson": Method("L M N + 10,000 L", 0, {"seed": SEED}),
    "copeland win_rate minimax schulze ranked_pairs nanson baldwin": Method("L M N + L⁴"),
    "kemeny_young": Method("2^L at worst"),
    "elo glicko trueskill": Method("L² M N"),
    "plackett_luce_map bradley_terry_luce_map": Method("L² M N", 1e-5),
    "bradley_terry_map bradley_terry_davidson_map rao_kupper_map": Method("L² M N", 1e-5),
    "pagerank spectral rank_centrality alpharank nash serial_rank hodge_rank": Method("L² M N"),
    "bradley_terry bradley_terry_davidson rao_kupper": Method("L² M N", 1e-5),
    "plackett_luce bradley_terry_luce": Method("L² M N", 1e-5),
    "bayesian_mcmc": Method("L² M N + 6,000 L²", 0, {"seed": SEED}),
    "rasch rasch_2pl rasch_3pl dynamic_irt": Method("L M N", 1e-5, _LONG, True),
    "rasch_map rasch_2pl_map rasch_3pl_map mirt": Method("L M N", 1e-5, _LONG, True),
    "davidson_luce davidson_luce_map": Method("L⁴ M N", 1e-5),
}
# All of scorio.rank 0.2.3 but avg, bayes, pass_at_k and its kin, which are scores here.
METHODS = {name: method for names, method in _METHODS.items() for name in names.split()}


@dataclass
class RankingConfig:
    """Rankings by other methods beside the default."""

    # Such as bradley_terry,rasch,borda; all: every one. Scores, as avg or pass@8, are of scoring.
    methods: list[Annotated[str, one_of("all", *METHODS)]] = field(default_factory=list)
    replicates: Annotated[int, Field(ge=2, le=10**6)] | None = None  # of trials: ranks' intervals
    seconds: Annotated[float, Field(gt=0, le=1e9)] | None = None  # a method may take; compare: 60

    def problems(self) -> Iterator[str]:
        if self.methods and find_spec("scorio") is None:
            yield f"methods: scorio is not installed: {install('rank')}"

    def chosen(self) -> list[str]:
        return [*METHODS] if "all" in self.methods else [*dict.fromkeys(self.methods)]


Count = Annotated[int, Field(ge=2)]


@dataclass
class StudyConfig:
    """Which studies are made, with which seed and how many replicates; None: the preset's."""

    name: list[Annotated[str, one_of(*STUDIES, *EXTRA)]] = field(default_factory=list)  # or STUDIES
    preset: str = "paper"  # a file of configs/study: paper or quick
    seed: Natural | None = None
    matrices: Count | None = None
    tau_replicates: Count | None = None
    convergence_replicates: Count | None = None
    subset_replicates: Count | None = None
    coin_sets: Count | None = None
    separation_sets: Count | None = None
    separation_replicates: Count | None = None
    prior_replicates: Count | None = None

    def names(self) -> list[str]:
        """Return the studies asked for, in the order above; STUDIES when none is named."""
        return [name for name in (*STUDIES, *EXTRA) if name in (self.name or STUDIES)]


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


load = functools.partial(compose.load_as, AnalysisConfig)


class StudyPlan(SimpleNamespace):
    """A study's `seed` and its counts, all known; and `ranking`, `rubric`, `thresholds`."""


def study_plan(cfg: AnalysisConfig) -> StudyPlan:
    """Return the counts of a preset, or the user's own in their place. Raises UserError: no such.

    >>> study_plan(AnalysisConfig(study=StudyConfig(preset="quick", matrices=7))).matrices
    7
    """
    if cfg.study.preset not in (presets := compose.files("study")):
        names = ", ".join(presets)
        raise UserError(f"study.preset={cfg.study.preset}: no such preset: {names}")
    counts = yaml.safe_load(presets[cfg.study.preset].read_text(encoding="utf-8"))
    own = vars(cfg.study) | {f"ranking_{key}": of for key, of in vars(cfg.ranking).items()}
    counts |= {key: own[key] for key in counts if own[key] is not None}
    return StudyPlan(**counts, ranking=cfg.ranking, rubric=cfg.rubric, thresholds=cfg.thresholds)


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
