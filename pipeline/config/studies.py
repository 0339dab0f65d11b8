"""Which studies are made, with which seed and how many replicates.

Presets are files in `configs/study/`; a setting of its own replaces one number of the preset.
"""

from dataclasses import dataclass

import yaml  # type: ignore[import-untyped]

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.checks import limited
from bayes_at_n.pipeline.config.compose import files
from bayes_at_n.pipeline.config.rankings import RankingConfig
from bayes_at_n.pipeline.config.scoring import RubricConfig, ThresholdsConfig

STUDIES = ("coins", "separation", "priors", "ranks", "tau", "convergence", "rubrics", "cost")
"""Names of studies, in the order in which they are made; each is a module of this folder."""
EXTRA = ("rankings",)  # made only where they are named: of another paper, with another library
SIMULATED = ("coins", "separation", "priors")
"""Those that need no runs."""


@dataclass
class StudyConfig:
    """What a user may set; None is the preset's number."""

    name: list[str] = limited([], one_of=(*STUDIES, *EXTRA))  # none: STUDIES
    preset: str = "paper"  # a file of configs/study: paper or quick
    seed: int | None = limited(None, "[0, inf)")
    matrices: int | None = limited(None, "[2, inf)")
    tau_replicates: int | None = limited(None, "[2, inf)")
    convergence_replicates: int | None = limited(None, "[2, inf)")
    subset_replicates: int | None = limited(None, "[2, inf)")
    coin_sets: int | None = limited(None, "[2, inf)")
    separation_sets: int | None = limited(None, "[2, inf)")
    separation_replicates: int | None = limited(None, "[2, inf)")
    prior_replicates: int | None = limited(None, "[2, inf)")


@dataclass(frozen=True)
class StudyPlan:
    """A study's seed and counts, all of them known; see `configs/study/paper.yaml`."""

    seed: int
    matrices: int
    tau_replicates: int
    convergence_replicates: int
    subset_replicates: int
    coin_sets: int
    separation_sets: int
    separation_replicates: int
    prior_replicates: int
    ranking_replicates: int  # ranking.replicates where that is set, as is the next
    ranking_seconds: float
    ranking: RankingConfig  # of `rankings`
    rubric: RubricConfig  # of `rubrics`, as is the next
    thresholds: ThresholdsConfig


def plan(
    cfg: StudyConfig,
    rubric: RubricConfig | None = None,
    thresholds: ThresholdsConfig | None = None,
    ranking: RankingConfig | None = None,
) -> StudyPlan:
    """The counts of a preset, with the user's own in place of some, and how rubrics are made.

    Raises UserError: an unknown preset.

    >>> plan(StudyConfig(preset="quick", matrices=7)).matrices
    7
    >>> plan(StudyConfig()).convergence_replicates
    100000
    """
    if cfg.preset not in (presets := files("study")):
        known = ", ".join(presets)
        raise UserError(f"study.preset={cfg.preset}: no such preset; choose from {known}")
    counts = yaml.safe_load(presets[cfg.preset].read_text(encoding="utf-8"))
    ranking = ranking or RankingConfig()
    own = vars(cfg) | {f"ranking_{key}": of for key, of in vars(ranking).items()}
    counts |= {key: own[key] for key in counts if own[key] is not None}
    return StudyPlan(
        **counts,
        ranking=ranking,
        rubric=rubric or RubricConfig(),
        thresholds=thresholds or ThresholdsConfig(),
    )


def named(cfg: StudyConfig) -> list[str]:
    """The studies asked for, in the order above; STUDIES when none is named."""
    return [name for name in (*STUDIES, *EXTRA) if name in (cfg.name or STUDIES)]
