"""Which studies are made, with which seed and how many replicates: presets in `configs/study/`."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Annotated

import yaml  # type: ignore[import-untyped]
from pydantic import Field

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.checks import Natural, one_of
from bayes_at_n.pipeline.config.rankings import RankingConfig
from bayes_at_n.pipeline.config.scoring import RubricConfig, ThresholdsConfig

STUDIES = ("coins", "separation", "priors", "ranks", "tau", "convergence", "rubrics", "cost")
EXTRA = ("rankings",)  # made only where they are named: of another paper, with another library
SIMULATED = ("coins", "separation", "priors")  # these need no runs
Count = Annotated[int, Field(ge=2)]


@dataclass
class StudyConfig:
    """What a user may set; None is the preset's number."""

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


class StudyPlan(SimpleNamespace):
    """A study's `seed` and its counts, all known; and `ranking`, `rubric`, `thresholds`."""


def plan(
    cfg: StudyConfig,
    rubric: RubricConfig | None = None,
    thresholds: ThresholdsConfig | None = None,
    ranking: RankingConfig | None = None,
) -> StudyPlan:
    """Return the counts of a preset, or the user's own in their place. Raises UserError: no such.

    >>> plan(StudyConfig(preset="quick", matrices=7)).matrices
    7
    """
    from bayes_at_n.pipeline.config.compose import files  # Hydra: only for studies

    if cfg.preset not in (presets := files("study")):
        raise UserError(f"study.preset={cfg.preset}: no such preset: {', '.join(presets)}")
    counts = yaml.safe_load(presets[cfg.preset].read_text(encoding="utf-8"))
    ranking = ranking or RankingConfig()
    own = vars(cfg) | {f"ranking_{key}": of for key, of in vars(ranking).items()}
    counts |= {key: value for key in counts if (value := own[key]) is not None}
    rubrics = {"rubric": rubric or RubricConfig(), "thresholds": thresholds or ThresholdsConfig()}
    return StudyPlan(**counts, ranking=ranking, **rubrics)


def named(cfg: StudyConfig) -> list[str]:
    """Return the studies asked for, in the order above; STUDIES when none is named."""
    return [name for name in (*STUDIES, *EXTRA) if name in (cfg.name or STUDIES)]
