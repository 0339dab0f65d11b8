"""The paper's experiments, one module each: from runs where it used runs, else simulated."""

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from bayes_at_n.pipeline.display.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bayes_at_n.pipeline.compare.cohort import Cohort
    from bayes_at_n.pipeline.config.analysis import StudyPlan


@dataclass
class Result:
    """What a study finds, as it goes. Names of tables and figures are the stems of their files."""

    tables: dict[str, Table] = field(default_factory=dict)
    figures: dict[str, "Figure"] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    """By the ids of configs/paper/printed.yaml; NaN where no replicate converged. Where known,
    ID.low and ID.high are a spread, and ID.other is what another reading of the paper gives."""
    notes: list[str] = field(default_factory=list)
    """What a reader must know: choices where the paper is open, what is left out."""


def run(name: str, plan: "StudyPlan", cohorts: "list[Cohort]") -> Result:
    """Make one study.

    `name` is one of `analysis.STUDIES`, and `cohorts` are one per data set; `settings.SIMULATED`
    look at none. Raises UserError: the cohorts do not hold what the study needs.
    """
    result: Result = import_module(f"{__name__}.{name}").study(plan, cohorts)
    return result
