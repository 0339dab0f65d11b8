"""What several studies need: complete matrices, the models of the paper, and the estimators."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.base.errors import UserError
from pipeline.cohorts.cohort import Cohort
from pipeline.display.table import Column
from pipeline.research.studies import paper
from scoring.metrics import table as metrics
from scoring.metrics.forms import Estimator
from scoring.studies.convergence import Convergence

Bits = npt.NDArray[np.uint8]
KS = (2, 4, 8)
BAYES = metrics.parse("bayes").estimator
NAIVE = (
    'Naive Pass@k: section 2.7 writes "naive Pass^k" as 1 - (1 - p)^k, p being the share of correct'
    " trials of a question. That is Pass@k with p put in (a plug-in), not the unbiased Pass@k, and"
    " not Pass^k (all k correct), which it cites; all three are drawn under these names."
)


class Group(NamedTuple):
    """Models of a cohort that are ranked together, and which version of the paper ranks them."""

    label: str
    version: str | None  # 000: its eleven models, 001: its twenty; None: other models
    models: list[int]  # positions in the cohort


def showcase(trials: int) -> list[Estimator]:
    """Bayes@N and Pass@2/4/8, as far as there are trials for them."""
    return _estimators(["bayes", "pass@"], trials)


def judged(trials: int) -> list[Estimator]:
    """The estimators of the tau figures, as far as there are trials for them; see `NAIVE`."""
    families = ["bayes", "pass@", "naive-pass@", "pass^", "g-pass@{}:0.5", "mg-pass@"]
    return _estimators(families, trials)


def _estimators(families: Sequence[str], trials: int) -> list[Estimator]:
    names = [(f if "{}" in f or f == "bayes" else f + "{}").format(k) for f in families for k in KS]
    every = [metric.estimator for metric in metrics.parse_all(names)]
    return [estimator for estimator in every if estimator.first <= trials]


def groups(cohort: Cohort) -> list[Group]:
    """All models of a cohort and, where there are more, the paper's twenty and its first eleven.

    >>> names = [*paper.short_names().values(), "another"]
    >>> from pipeline.cohorts.cohort import from_arrays
    >>> [(g.label, g.version) for g in groups(from_arrays("d", names, ["q"], [[[1, 0]]] * 21))]
    [('21 models', None), ("the paper's 20", '001'), ("the paper's first 11", '000')]
    """
    numbers = paper_numbers(cohort)
    pools = {"the paper's 20": ("001", paper.TWENTY), "the paper's first 11": ("000", paper.ELEVEN)}
    version = next((v for v, pool in pools.values() if {n or 0 for n in numbers} == {*pool}), None)
    whole = Group(f"{len(numbers)} models", version, list(range(len(numbers))))
    return [whole] + [
        Group(label, version, [numbers.index(n) for n in pool])
        for label, (version, pool) in pools.items()
        if {*pool} < {*numbers}  # None is the number of another model
    ]


def paper_numbers(cohort: Cohort) -> list[int | None]:
    """Each model's number in Table 6, by its folder's or its model's name; None for others."""
    if not cohort.members:
        return paper.numbers_of([[name] for name in cohort.names])
    models = [(member.name, member.run.cfg.model) for member in cohort.members]
    return paper.numbers_of([[name, model.name, model.id] for name, model in models])


def complete(cohort: Cohort) -> tuple[Bits, list[str]]:
    """Outcomes without gaps: the trials that no model owes for any question.

    Args:
        cohort: models on one data set.

    Returns:
        Outcomes 0 and 1, uint8, shape (L, M, n), and a note where trials were left out.

    Raises:
        UserError: fewer than two models, or fewer than two such trials.
    """
    if len(cohort.names) < 2:
        raise UserError(f"{cohort.dataset}: holds one model; a ranking needs two or more")
    matrix = cohort.matrix()
    whole = ~np.ma.getmaskarray(matrix).any(axis=(0, 1))  # type: ignore[no-untyped-call]
    kept = int(whole.sum())
    if kept < 2:
        raise UserError(
            f"{cohort.dataset}: {kept} trials are complete for all questions and models; this"
            f" needs 2 or more: generate and grade the rest, or name fewer models"
        )
    data = np.asarray(matrix.data)[..., whole].astype(np.uint8)
    if kept == matrix.shape[-1]:
        return data, []
    return data, [
        f"{cohort.dataset}: {kept} of {matrix.shape[-1]} trials are complete for all questions and"
        " models; the others are left out"
    ]


def each_sound(cohorts: Iterable[Cohort]) -> tuple[list[tuple[Cohort, Bits]], list[str]]:
    """Cohorts with their complete outcomes; those that lack them are left out with a note.

    Raises:
        UserError: none is left.
    """
    sound, notes, faults = [], [], []
    for cohort in cohorts:
        try:
            data, gaps = complete(cohort)
        except UserError as error:
            faults.append(str(error))
            continue
        sound.append((cohort, data))
        notes += gaps
    if not sound:
        raise UserError("; ".join(faults) or "no runs found")
    return sound, [*(f"left out: {fault}" for fault in faults), *notes]


def text(key: str, title: str) -> Column:
    """A column of words."""
    return Column(key, title, align="left")


def fixed(key: str, title: str, digits: int = 3, group: str = "") -> Column:
    """A column of numbers with a fixed number of digits."""
    return Column(key, title, format=f"{{:.{digits}f}}", group=group)


def spread(values: npt.ArrayLike, name: str, where: dict[str, float]) -> None:
    """Put mean and the central 95 % of values over reconstructions under ID, ID.low, ID.high."""
    array = np.asarray(values, dtype=np.float64)
    low, high = np.quantile(array, [0.025, 0.975])
    where |= {name: float(array.mean()), f"{name}.low": float(low), f"{name}.high": float(high)}


def value(masked: Any) -> float | None:
    """A number of a masked array, None where masked."""
    return None if masked is np.ma.masked else float(masked)


def capped_mean(of: Convergence) -> float:
    """Mean convergence@n over all replicates, where one that did not converge counts as N.

    >>> import numpy as np
    >>> capped_mean(Convergence("Bayes@N", np.array([0, 2, 0, 0]), 2, 0, 1))  # twice 2, twice 4
    3.0
    """
    trials = of.counts.size
    settled = int(of.counts @ np.arange(1, trials + 1))
    return (settled + trials * of.failed) / of.replicates


def at(curve: Sequence[Any], n: int) -> float | None:
    """The value of a curve over 1..N at n, None where it has none."""
    return value(curve[n - 1]) if 1 <= n <= len(curve) else None
