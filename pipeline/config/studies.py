"""Which studies are made, with which seed and how many replicates.

Presets are files in `configs/study/`; a setting of its own replaces one number of the preset.
"""

from dataclasses import asdict, dataclass, field, fields
from typing import Any

import yaml  # type: ignore[import-untyped]

from pipeline.base.errors import UserError
from pipeline.config.compose import CONFIGS, choices
from pipeline.config.settings import RubricConfig, ThresholdsConfig

STUDIES = ("coins", "separation", "priors", "ranks", "tau", "convergence", "rubrics", "cost")
"""Names of studies, in the order in which they are made; each is a module of this folder."""
SIMULATED = ("coins", "separation", "priors")
"""Those that need no runs."""


@dataclass
class StudyConfig:
    """What a user may set; None is the preset's number."""

    name: list[str] = field(default_factory=list)  # none: all of STUDIES
    preset: str = "paper"  # a file of configs/study: paper or quick
    seed: int | None = None
    matrices: int | None = None
    tau_replicates: int | None = None
    convergence_replicates: int | None = None
    subset_replicates: int | None = None
    coin_sets: int | None = None
    separation_sets: int | None = None
    separation_replicates: int | None = None
    prior_replicates: int | None = None


@dataclass(frozen=True)
class Plan:
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
) -> Plan:
    """The counts of a preset, with the user's own in place of some, and how rubrics are made.

    Raises:
        UserError: an unknown preset or study, a damaged preset, a count that cannot work.

    >>> plan(StudyConfig(preset="quick", matrices=7)).matrices
    7
    >>> plan(StudyConfig()).convergence_replicates
    100000
    """
    for name in cfg.name:
        if name not in STUDIES:
            raise UserError(f"study.name={name}: no such study; choose from {', '.join(STUDIES)}")
    counts = {**_preset(cfg.preset), **{k: v for k, v in asdict(cfg).items() if v is not None}}
    counts = {key: counts[key] for key in _keys()}
    for key, value in counts.items():
        least = 0 if key == "seed" else 2
        if not isinstance(value, int) or value < least:
            raise UserError(f"study.{key}={value}: give a whole number of at least {least}")
    return Plan(
        **counts,
        rubric=rubric or RubricConfig(),
        thresholds=thresholds or ThresholdsConfig(scope="cohort"),
    )


def wanted(cfg: StudyConfig) -> list[str]:
    """The studies asked for, in the order of STUDIES; all when none is named."""
    return [name for name in STUDIES if name in (cfg.name or STUDIES)]


def _keys() -> list[str]:
    return [f.name for f in fields(Plan) if f.name not in ("rubric", "thresholds")]


def _preset(name: str) -> dict[str, Any]:
    if name not in choices("study"):
        raise UserError(
            f"study.preset={name}: no such preset; choose from {', '.join(choices('study'))}"
        )
    path = CONFIGS / "study" / f"{name}.yaml"
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise UserError(f"{path}: cannot be read ({error}); restore it") from error
    if not isinstance(found, dict) or set(found) != set(_keys()):
        raise UserError(f"{path}: must hold exactly {', '.join(_keys())}")
    return found
