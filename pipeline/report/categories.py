"""Categories of those runs of a cohort that have signals: a damaged one costs the others none."""

from bayes_at_n.pipeline.base.console import collected
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import rubrics as cohort_rubrics
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.report.attempts import Categories
from bayes_at_n.pipeline.rubrics import categories


def labelled(cohort: Cohort, cfg: AnalysisConfig, notices: list[str]) -> tuple[Cohort, Categories]:
    """The runs that categories can be made of, and their categories under common thresholds.

    `notices`: why a run, or all of them, or a rubric is left out is added. Returns the part of the
    cohort that has categories, and for it what :func:`pipeline.compare.rubrics.categories` returns.
    """
    part = cohort
    if not cohort.members:
        return part, {}
    try:
        with collected() as said:
            try:
                labels = cohort_rubrics.categories(part, cfg)
            except UserError:
                part = _with_signals(cohort, notices)
                if not 0 < len(part.members) < len(cohort.members):
                    raise
                labels = cohort_rubrics.categories(part, cfg)
    except UserError as error:
        notices.append(f"No categories: {error}")
        return part, {}
    notices += said
    return part, labels


def _with_signals(cohort: Cohort, notices: list[str]) -> Cohort:
    """The part of a cohort whose runs have current signals; the others are named."""
    places = []
    for place, member in enumerate(cohort.members):
        try:
            categories.scored(member.run)
            places.append(place)
        except UserError as error:
            notices.append(f"{member.name} has no categories: {error}")
    return cohort.select(places)
