"""Which studies are made, with which seed and how many replicates.

Presets are files in `configs/study/`; a setting of its own replaces one number of the preset.
"""

from dataclasses import dataclass, fields

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.base.errors import UserError
from pipeline.config import overrides
from pipeline.config.checks import check, limited
from pipeline.config.compose import CONFIGS, choices
from pipeline.config.scoring import RubricConfig, ThresholdsConfig, cohort_thresholds

STUDIES = ("coins", "separation", "priors", "ranks", "tau", "convergence", "rubrics", "cost")
"""Names of studies, in the order in which they are made; each is a module of this folder."""
SIMULATED = ("coins", "separation", "priors")
"""Those that need no runs."""


@dataclass
class StudyConfig:
    """What a user may set; None is the preset's number."""

    name: list[str] = limited([], one_of=STUDIES)  # none: all of them
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
    rubric: RubricConfig  # of `rubrics`, as is the next
    thresholds: ThresholdsConfig


def plan(
    cfg: StudyConfig,
    rubric: RubricConfig | None = None,
    thresholds: ThresholdsConfig | None = None,
) -> StudyPlan:
    """The counts of a preset, with the user's own in place of some, and how rubrics are made.

    Raises:
        UserError: an unknown preset or study, a damaged preset, a count that cannot work.

    >>> plan(StudyConfig(preset="quick", matrices=7)).matrices
    7
    >>> plan(StudyConfig()).convergence_replicates
    100000
    """
    path = CONFIGS / "study" / f"{cfg.preset}.yaml"
    if cfg.preset not in choices("study"):
        raise UserError(
            f"study.preset={cfg.preset}: no such preset; choose from {', '.join(choices('study'))}"
        )
    preset: DictConfig = OmegaConf.structured(StudyConfig)
    try:
        preset.merge_with(OmegaConf.load(path))
        counts = vars(check(overrides.typed(preset, StudyConfig)))
    except (OmegaConfBaseException, yaml.YAMLError, UserError) as error:
        raise UserError(f"{path}: {overrides.one_line(error)}") from error
    counts |= {key: value for key, value in vars(cfg).items() if value is not None}
    numbers = [f.name for f in fields(StudyPlan) if f.name not in ("rubric", "thresholds")]
    if lacking := [key for key in numbers if counts[key] is None]:
        raise UserError(f"{path}: lacks {', '.join(lacking)}")
    return StudyPlan(
        **{key: counts[key] for key in numbers},
        rubric=rubric or RubricConfig(),
        thresholds=thresholds or cohort_thresholds(),
    )


def wanted(cfg: StudyConfig) -> list[str]:
    """The studies asked for, in the order of STUDIES; all when none is named."""
    return [name for name in STUDIES if name in (cfg.name or STUDIES)]
