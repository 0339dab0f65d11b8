"""Cohorts made of random outcomes, also under the names of the paper's models."""

from typing import Any

import numpy as np

from bayes_at_n.pipeline.compare.cohort import Cohort, from_arrays
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.config.analysis import AnalysisConfig, StudyConfig
from bayes_at_n.pipeline.paper import studies

TINY = {
    "matrices": 20,
    "tau_replicates": 40,
    "convergence_replicates": 200,
    "subset_replicates": 50,
    "coin_sets": 20,
    "separation_sets": 5,
    "separation_replicates": 200,
    "prior_replicates": 300,
}


def tiny(**more: Any) -> analysis.StudyPlan:
    return analysis.study_plan(AnalysisConfig(study=StudyConfig(preset="quick", **(TINY | more))))


def made(models: int = 3, trials: int = 12, seed: int = 0, dataset: str = "sums") -> Cohort:
    """Models whose chances differ a little, on ten questions."""
    rng = np.random.default_rng(seed)
    p = np.clip(
        rng.random((1, 10, 1)) + np.linspace(-0.25, 0.25, models)[:, None, None], 0.02, 0.98
    )
    names = [f"m{i}" for i in range(models)]
    outcomes = (rng.random((models, 10, trials)) < p).astype(int)
    return from_arrays(dataset, names, [f"q{i}" for i in range(10)], outcomes)


def the_papers(task: str, models: int = 20, trials: int = 12) -> Cohort:
    """A made-up cohort under the names of the paper's models, the last first."""
    cohort = made(models, trials, seed=len(task) + sum(map(ord, task)), dataset=task)
    names = [studies.short_names()[models - i] for i in range(models)]
    ids = [f"q{i}" for i in range(10)]
    return from_arrays(task, names, ids, np.asarray(cohort.matrix().data))
