"""What several studies need: complete matrices, the models of the paper, and the estimators."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.base.errors import UserError
from pipeline.cohorts.cohort import Cohort
from pipeline.display.table import Column
from pipeline.research.studies import paper
from scoring.studies import estimators
from scoring.studies.convergence import Convergence
from scoring.studies.estimators import Estimator

Bits = npt.NDArray[np.uint8]
KS = (2, 4, 8)
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
    judged = [estimators.bayes(), *(estimators.pass_at_k(k) for k in KS)]
    return [one for one in judged if one.first <= trials]


def judged(trials: int) -> list[Estimator]:
    """The estimators of the tau figures, as far as there are trials for them.

    The paper's "naive Pass^k" and Pass^k are both drawn; see `NAIVE`.
    """
    made = [estimators.bayes()]
    kinds = (
        estimators.pass_at_k,
        estimators.naive_pass_at_k,
        estimators.pass_hat_k,
        lambda k: estimators.g_pass_at_k_tau(k, 0.5),
        estimators.mg_pass_at_k,
    )
    made += [kind(k) for kind in kinds for k in KS]
    return [one for one in made if one.first <= trials]


def groups(cohort: Cohort) -> list[Group]:
    """All models of a cohort and, where there are more, the paper's twenty and its first eleven.

    >>> names = [*paper.short_names().values(), "another"]
    >>> from pipeline.cohorts.cohort import from_arrays
    >>> [(g.label, g.version) for g in groups(from_arrays("d", names, ["q"], [[[1, 0]]] * 21))]
    [('21 models', None), ("the paper's 20", '001'), ("the paper's first 11", '000')]
    """
    numbers = paper_numbers(cohort)
    version = {frozenset(paper.ELEVEN): "000", frozenset(paper.TWENTY): "001"}
    found = [
        Group(
            f"{len(numbers)} models",
            version.get(frozenset(n or 0 for n in numbers)),
            list(range(len(numbers))),
        )
    ]
    for label, its, key in (
        ("the paper's 20", paper.TWENTY, "001"),
        ("the paper's first 11", paper.ELEVEN, "000"),
    ):
        if set(its) < set(numbers):  # None is the number of another model
            found.append(Group(label, key, [numbers.index(n) for n in its]))
    return found


def paper_numbers(cohort: Cohort) -> list[int | None]:
    """Each model's number in Table 6, by its folder's or its model's name; None for others."""
    names = [[name] for name in cohort.names]
    for candidates, member in zip(names, cohort.members, strict=False):
        candidates += [member.run.cfg.model.name, member.run.cfg.model.id]
    return paper.numbers_of(names)


def complete(cohort: Cohort, least: int = 2) -> tuple[Bits, list[str]]:
    """Outcomes without gaps: the trials that no model owes for any question.

    Args:
        cohort: models on one data set.
        least: trials that the caller needs.

    Returns:
        Outcomes 0 and 1, uint8, shape (L, M, n), and a note where trials were left out.

    Raises:
        UserError: fewer than two models, or fewer than `least` such trials.
    """
    if len(cohort.names) < 2:
        raise UserError(f"{cohort.dataset}: holds one model; a ranking needs two or more")
    matrix = cohort.matrix()
    whole = ~np.ma.getmaskarray(matrix).any(axis=(0, 1))  # type: ignore[no-untyped-call]
    kept = int(whole.sum())
    if kept < least:
        raise UserError(
            f"{cohort.dataset}: {kept} trials are complete for all questions and models; this"
            f" needs {least} or more: generate and grade the rest, or name fewer models"
        )
    data = np.asarray(matrix.data)[..., whole].astype(np.uint8)
    if kept == matrix.shape[-1]:
        return data, []
    return data, [
        f"{cohort.dataset}: {kept} of {matrix.shape[-1]} trials are complete for all questions and"
        " models; the others are left out"
    ]


def each_sound(
    cohorts: Iterable[Cohort], least: int = 2
) -> tuple[list[tuple[Cohort, Bits]], list[str]]:
    """Cohorts with their complete outcomes; those that lack them are left out with a note.

    Raises:
        UserError: none is left.
    """
    found, notes = [], []
    for cohort in cohorts:
        try:
            data, said = complete(cohort, least)
        except UserError as error:
            notes.append(f"left out: {error}")
            continue
        found.append((cohort, data))
        notes += said
    if not found:
        raise UserError("; ".join(n.removeprefix("left out: ") for n in notes) or "no runs found")
    return found, notes


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


def capped_mean(found: Convergence) -> float:
    """Mean convergence@n over all replicates, where one that did not converge counts as N.

    >>> import numpy as np
    >>> capped_mean(Convergence("Bayes@N", np.array([0, 2, 0, 0]), 2, 0, 1))  # twice 2, twice 4
    3.0
    """
    trials = found.counts.size
    settled = int(found.counts @ np.arange(1, trials + 1))
    return (settled + trials * found.failed) / found.replicates


def at(curve: Sequence[Any], n: int) -> float | None:
    """The value of a curve over 1..N at n, None where it has none."""
    return value(curve[n - 1]) if 1 <= n <= len(curve) else None
