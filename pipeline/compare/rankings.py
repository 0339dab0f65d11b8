"""Rankings by methods of scorio, beside our own: see `config/analysis.py`."""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.children import in_fork
from bayes_at_n.pipeline.base.console import Meter, joined, plural
from bayes_at_n.pipeline.base.errors import one_line
from bayes_at_n.pipeline.base.program import version
from bayes_at_n.pipeline.compare.cohort import Bits, Cohort, complete
from bayes_at_n.pipeline.compare.leaderboard import title
from bayes_at_n.pipeline.config.analysis import METHODS, SEED, AnalysisConfig
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.scoring.numerics.checks import finite_array
from bayes_at_n.scoring.numerics.inputs import Floats
from bayes_at_n.scoring.studies.bootstrap import chunk_size, draw

SECONDS = 60.0  # of processor time that one method may take


def scores(name: str, outcomes: Any) -> Floats | str:
    """Score by a method of METHODS, (L,), or return in words why there are no finite scores.

    `outcomes` are 1 and 0, (L, M, N), as :func:`complete` gives them; the same ones give the same
    scores. Higher is better: :func:`scoring.ranks` makes ranks of them. Scores that differ by less
    than the method's error are equal, for else the order of models would break ties.
    """
    from scorio import rank  # a second, with half of scipy

    method, tensor = METHODS[name], np.asarray(outcomes)
    if np.ma.is_masked(outcomes):
        return "some trials are missing"
    if method.mixed_only and not (tensor := tensor[:, np.ptp(tensor, axis=(0, 2)) > 0]).size:
        return "every question has only correct or only wrong attempts"
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            fitted = getattr(rank, name)(tensor, return_scores=True, **method.parameters)[1]
        return _tied(finite_array(fitted, "the result"), method.error)
    except Exception as error:  # whatever the library raises
        return f"{type(error).__name__}: {one_line(error)}"


def _tied(values: Floats, error: float) -> Floats:
    """Set scores (L,) within a share of each other, in a chain, to the least of them.

    >>> _tied(np.array([2.000001, 0.5, 2.0]), 1e-5).tolist()
    [2.0, 0.5, 2.0]
    """
    order = np.argsort(values)
    least = values[order]
    size = np.maximum(np.abs(least), 1e-3)
    first = np.diff(least, prepend=-np.inf) > error * np.maximum(size, np.roll(size, 1))
    starts = np.maximum.accumulate(np.where(first, np.arange(len(values)), 0))
    return np.asarray(least[starts[np.argsort(order)]])


def fits(name: str, draws: Callable[[], Iterable[Any]], seconds: float) -> Iterator[Any]:
    """Yield :func:`scores` of each of `draws()` and its seconds, `in_fork`, so many in all."""
    import scorio.rank  # noqa: F401  # once, and not in every process

    def work() -> Iterator[tuple[Floats | str, float]]:
        for outcomes in draws():
            started = time.process_time()
            yield scores(name, outcomes), time.process_time() - started

    return in_fork(work, seconds, 1 << 28)


def replicates(tensor: Bits, count: int, seed: int = SEED) -> Iterator[Bits]:
    """Draw bootstrap replicates of outcomes (L, M, N): whole columns, the same for all models."""
    trials, size = tensor.shape[2], chunk_size(tensor.shape[2], 1)
    for chunk, start in enumerate(range(0, count, size)):
        for columns in draw(seed, chunk, min(size, count - start), trials, 1)[..., 0]:
            yield tensor[:, :, columns]


def by_method(cohort: Cohort, cfg: AnalysisConfig, tables: Mapping[str, Table]) -> Table:
    """Rank by each method of `cfg.ranking`, beside the leaderboard; a method that fails is a note.

    Raises UserError: no trial is complete for all questions and models.
    """
    names, (tensor, notes) = cfg.ranking.chosen(), complete(cohort, least=1)
    seconds, ours = cfg.ranking.seconds or SECONDS, tables["leaderboard"].rows
    models, plain = [row["model"] for row in ours], [row["rank"] for row in ours]
    metric = "avg (corrected)" if ours[0]["prior"] == "labels" else "avg@N"
    rows: list[dict[str, Any]] = [
        {"method": metric}
        | {f"{row['model']}_rank": row["rank"] for row in ours}
        | {f"{row['model']}_score": row["avg"] for row in ours}
    ]
    with Meter("rankings", len(names)) as meter:
        for name in names:
            try:
                [(found, _)] = fits(name, lambda: [tensor], seconds)
            except (TimeoutError, ChildProcessError) as error:
                grows = f"time grows as {METHODS[name].grows}"
                found = f"{error}; {grows}; ranking.seconds={10 * seconds:g} allows more"
            meter.advance(1)
            if isinstance(found, str):
                notes.append(f"{name}: no ranks: {found}")
                continue
            found = found[[*map(cohort.names.index, models)]]
            ranks = scoring.ranks(found, cfg.scoring.method)  # type: ignore[arg-type]
            tau = np.ma.filled(scoring.kendall_tau_b(ranks, plain), np.nan)
            cells = zip(models, ranks.tolist(), found.tolist(), strict=True)
            row: dict[str, Any] = {"method": name, "tau_b": float(tau)}
            for model, rank, score in cells:
                row |= {f"{model}_rank": rank, f"{model}_score": score}
            rows.append(row)
    same, those = np.ptp(tensor, axis=(0, 2)) == 0, [n for n in names if METHODS[n].mixed_only]
    if same.any() and those:
        alike = plural(int(same.sum()), "question")
        notes.append(
            f"left out for {joined(those)}: {alike} with only correct or only wrong attempts"
        )
    columns = [Column("method", "method", align="left"), Column("tau_b", "τ_b", format="{:.3f}")]
    columns += [Column(f"{model}_rank", model) for model in models]
    columns += [Column(f"{model}_score", f"{model} score", wide=True) for model in models]
    about = f"ranks by methods of scorio {version('scorio')}; τ_b: with the order by {metric}"
    notes.insert(0, about + ", outcomes are the judge's" * (metric != "avg@N"))
    return Table(title("rankings by method", cohort), columns, rows, notes)
