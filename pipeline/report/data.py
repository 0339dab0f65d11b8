"""What one data set's part of the page shows: tables, figures, notices, and counts for its map."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from scipy.stats import rankdata

from pipeline import cohort_rubrics, leaderboard, neighbours, tabular
from pipeline.analysis import AnalysisConfig
from pipeline.cohort import Cohort
from pipeline.plots import leaderboard as leaderboard_plots
from pipeline.plots import style, tokens
from pipeline.report.attempts import Categories
from pipeline.score import MISSING
from pipeline.tabular import Column, Table

Lengths = tuple[float | None, float | None]  # mean tokens of correct, of other attempts
_ENDS = ("low", "mu", "high")


def counts(cohort: Cohort) -> dict[str, Any]:
    """Correct and graded attempts of each model and question, for the page's map.

    Returns:
        `name`, `questions` (M), `correct` and `graded` (L lists of M numbers).
    """
    return {
        "name": cohort.dataset,
        "questions": cohort.question_ids,
        "correct": (cohort.outcomes == "correct").sum(axis=2).tolist(),
        "graded": (cohort.outcomes != MISSING).sum(axis=2).tolist(),
    }


def tables(cohort: Cohort, cfg: AnalysisConfig, rubrics: Categories) -> list[Table]:
    """The tables of a data set, the leaderboard first.

    Raises:
        UserError: a question that some model has no graded trial of.
    """
    board = leaderboard.leaderboard(cohort, cfg)
    found = [board, leaderboard.attempts(board, cfg)]
    if len(cohort.names) > 1:
        found += [neighbours.order_of_neighbours(cohort, cfg)]
        found += [neighbours.posterior_ranks(cohort, cfg)]
    if rubrics:
        found += [cohort_rubrics.scores(cohort, cfg)]
    return found


def summary(cohorts: Sequence[Cohort]) -> str:
    """How much there is, in a line.

    >>> from pipeline.cohort import from_arrays
    >>> summary([from_arrays("coins", ["a", "b"], ["q1"], [[[1, 0]], [[1, -1]]])])
    '2 models, 1 question, 3 graded attempts'
    """
    models = {name for cohort in cohorts for name in cohort.names}
    questions = sum(len(cohort.question_ids) for cohort in cohorts)
    graded = sum(int((cohort.outcomes != MISSING).sum()) for cohort in cohorts)
    parts = {"model": len(models), "data set": len(cohorts), "question": questions}
    parts |= {"graded attempt": graded}
    if len(cohorts) == 1:
        del parts["data set"]
    return ", ".join(f"{n:,} {noun}{'s' * (n != 1)}" for noun, n in parts.items())


def table(made: Table, sorted_by: str = "mu") -> dict[str, Any]:
    """A table as the template takes it: cells with what is shown, what sorts, and interval bars."""
    columns = [
        column
        for column in made.columns
        if not column.wide and any(row.get(column.key) is not None for row in made.rows)
    ]
    ends = {column.key for column in columns} & set(_ENDS)
    scale = _scale(made.rows) if len(ends) == len(_ENDS) else None
    order = [float(row[sorted_by]) for row in made.rows if row.get(sorted_by) is not None]
    is_sorted = len(order) == len(made.rows) and order == sorted(order, reverse=True)
    kinds = {column.key: _is_text(column, made.rows) for column in columns}
    return {
        "title": made.title.partition(":")[0].capitalize(),
        "notes": list(made.notes),
        "columns": [
            {
                "title": f"{column.group} {column.title}".strip(),
                "text": kinds[column.key],
                "brief": len(f"{column.group} {column.title}".strip()) < 7,
                "sorted": "descending" if is_sorted and column.key == sorted_by else None,
            }
            for column in columns
        ],
        "rows": [
            [_cell(column, row, kinds[column.key], scale) for column in columns]
            for row in made.rows
        ],
    }


def figures(
    cohort: Cohort, made: Table, lengths: Sequence[Lengths], rubrics: Categories
) -> list[dict[str, Any]]:
    """The figures of a data set as inline SVG with their captions.

    Args:
        cohort: L models.
        made: its leaderboard, with keys model, mu, low and high.
        lengths: one pair a model.
        rubrics: what :func:`pipeline.cohort_rubrics.categories` returned.
    """
    rows = [row for row in made.rows if row.get("mu") is not None]
    names = [str(row["model"]) for row in rows]
    mu, low, high = ([row[key] for row in rows] for key in ("mu", "low", "high"))
    found = [_figure(leaderboard_plots.forest(names, mu, low, high), "Bayes@N with its interval.")]
    matrix = cohort.matrix()
    if len(cohort.names) > 1 and (cohort.outcomes != MISSING).all() and matrix.shape[2] > 1:
        n, ranks, settled = trajectories(matrix.filled(0))
        drawn = leaderboard_plots.rank_trajectories(cohort.names, n, ranks, settled)
        said = f"They do not change from n = {settled} on." if settled else ""
        found.append(_figure(drawn, f"Ranks by Bayes@n after the first n trials. {said}"))
    if any(one is not None for pair in lengths for one in pair):
        sides = np.array(lengths, float)
        share = np.ma.filled(matrix.mean(axis=(1, 2)).astype(float), np.nan)
        drawn = tokens.tokens_against_correctness(cohort.names, sides[:, 0], sides[:, 1], share)
        found.append(_figure(drawn, "Mean completion tokens of correct and of wrong attempts."))
    if len(cohort.names) > 1 and len(rubrics) > 1:
        titles = [rubric.name for rubric, _ in rubrics.values()]
        drawn = leaderboard_plots.rank_lines(titles, cohort.names, rubric_ranks(rubrics))
        found.append(_figure(drawn, "Ranks by the mean weight under each rubric."))
    return found


def rubric_ranks(rubrics: Categories) -> npt.NDArray[np.int64]:
    """Competition ranks of L models by their mean weight under each of K rubrics: (L, K)."""
    columns = []
    for rubric, codes in rubrics.values():
        known = codes >= 0
        weights = np.array([part.weight for part in rubric.categories], float)
        total = np.where(known, weights[codes], 0.0).sum(axis=(1, 2))
        mean = total / np.maximum(known.sum(axis=(1, 2)), 1)
        columns.append(rankdata(-mean.round(12), method="min"))
    return np.array(columns).astype(np.int64).T


def trajectories(outcomes: npt.NDArray[np.int8]) -> tuple[list[int], npt.NDArray[Any], int | None]:
    """Competition ranks by Bayes@n as trials are added, all of them graded.

    Args:
        outcomes: 1 correct, 0 not; shape (L, M, N).

    Returns:
        n (N), ranks (L, N), and the first n from which on ranks stay as they are at N; None when
        that is N itself.

    >>> trajectories(np.array([[[1, 1, 1]], [[1, 0, 0]]]))[1:]
    (array([[1, 1, 1],
           [1, 2, 2]]), 2)
    """
    # With equal n for all questions the order by Bayes@n is the order by the number of correct.
    correct = outcomes.sum(axis=1, dtype=np.int64).cumsum(axis=1)
    ranks = rankdata(-correct, method="min", axis=0).astype(int)
    trials = ranks.shape[1]
    other = np.flatnonzero((ranks != ranks[:, -1:]).any(axis=0))
    settled = 1 if not other.size else int(other[-1]) + 2
    return list(range(1, trials + 1)), ranks, settled if settled < trials else None


def mean_lengths(index: dict[str, Any]) -> Lengths:
    """Mean completion tokens of correct and of all other graded attempts of one model.

    Args:
        index: what :func:`pipeline.report.attempts.index` returned.
    """
    outcome, found = index["outcome"], {True: [0, 0], False: [0, 0]}
    for code, count in zip(outcome["codes"], index["tokens"], strict=True):
        if code >= 0 and count is not None:
            side = found[outcome["values"][code] == "correct"]
            side[0] += count
            side[1] += 1
    good, bad = ((total / number if number else None) for total, number in found.values())
    return good, bad


def _figure(drawn: Any, caption: str) -> dict[str, Any]:
    return {"svg": Markup(style.svg(drawn)), "caption": caption.strip()}


def _cell(
    column: Column, row: Any, is_text: bool, scale: tuple[float, float] | None
) -> dict[str, Any]:
    value = row.get(column.key)
    sort = "" if tabular.plain(value) is None else str(value).replace("inf", "Infinity")
    bar = None
    if scale and column.key == "mu" and all(row.get(key) is not None for key in _ENDS):
        low, width = scale
        bar = [round(100 * (row[key] - low) / width, 2) for key in _ENDS]
    return {"text": tabular.shown(column, value), "sort": sort, "is_text": is_text, "bar": bar}


def _scale(rows: Sequence[Any]) -> tuple[float, float] | None:
    """Where the bars of a column begin, and how much they span."""
    seen = [row for row in rows if all(row.get(key) is not None for key in _ENDS)]
    if not seen:
        return None
    low, high = min(row["low"] for row in seen), max(row["high"] for row in seen)
    return low, max(high - low, 1e-12)


def _is_text(column: Column, rows: Sequence[Any]) -> bool:
    return column.align == "left" or any(isinstance(row.get(column.key), str) for row in rows)
