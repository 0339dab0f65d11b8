"""Models in pairs, neighbors and everyone with everyone, and ranked by other methods."""

import itertools
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.children import in_fork
from bayes_at_n.pipeline.base.console import Meter, joined, percent, plural
from bayes_at_n.pipeline.base.errors import one_line
from bayes_at_n.pipeline.base.program import version
from bayes_at_n.pipeline.compare.claims import claims, corrected, shares, together
from bayes_at_n.pipeline.compare.cohort import Bits, Cohort, complete
from bayes_at_n.pipeline.compare.leaderboard import (
    Columns,
    finished,
    inflation_columns,
    scores,
    title,
)
from bayes_at_n.pipeline.config.analysis import METHODS, SEED, AnalysisConfig
from bayes_at_n.pipeline.display.table import CHANCE, Column, Table, of_columns
from bayes_at_n.pipeline.score.headline import correlation_warning
from bayes_at_n.scoring.numerics.inputs import Floats, finite_array
from bayes_at_n.scoring.studies.bootstrap import chunk_size, draw

Positions = npt.NDArray[np.intp]
_TABLED = 32  # models, up to which all pairs are a table
SECONDS = 60.0  # of processor time that one method may take


def neighbors(cohort: Cohort, cfg: AnalysisConfig) -> Table:
    """Tabulate each two neighbors in order: is the upper one better, and how to settle it."""
    scored, matrix = scores(cohort, cfg), cohort.matrix()
    upper, lower = scored.order[:-1], scored.order[1:]
    columns, notes = _of_pairs(cohort, cfg, upper, lower)
    limit = together(cohort, scored.avg, cfg.scoring.confidence).limit
    level = float(scipy.special.ndtr(limit))
    plan = scoring.trials_to_separate(matrix[upper], matrix[lower], confidence=level)
    # One trial does not show what trials vary by, and more of them do not mend a judge.
    if matrix.count(axis=2).max() == 1 or corrected(cohort, cfg.scoring.confidence):
        plan = plan._replace(**{key: np.full(len(upper), np.nan) for key in plan._fields})
    luck = scoring.inflation(matrix[upper], matrix[lower], confidence=cfg.scoring.confidence)
    ended, of_ended = finished(cohort)
    # Kitagawa (1955): what is left of the gap if both answered what they finish equally well.
    by_truncation = (ended[upper] - ended[lower]) * (of_ended[upper] + of_ended[lower]) / 2
    columns |= {
        Column("truncation", "by truncation", None, "{:+.3f}", short="trunc."): by_truncation,
        Column("trials", "trials to tell apart", None, "{:.0f}", short="trials"): plan.trials,
        Column("trials_fewest", "fewest", None, "{:.0f}", wide=True): plan.fewest,
        Column("trials_most", "most", None, "{:.0f}", wide=True): plan.most,
        **inflation_columns(luck),
    }
    names = [cohort.names[i] for i in scored.order]
    pairs = [f"{a} minus {b}" for a, b in itertools.pairwise(names)]
    sigmas = scored.avg.sigma, scored.of_trials
    whole, of_trials = (np.hypot(of[upper], of[lower]) for of in sigmas)
    extend = "; to extend these runs use `settle`, which may look as often as it likes"
    extend *= not cohort.imported
    notes += [
        "by truncation: the part of the difference that arises because the lower model finishes"
        " fewer attempts (at the mean of both models' accuracies on finished attempts)",
        f"trials: of each model in a new experiment with 90% power for such a difference{extend}",
        *correlation_warning(pairs, luck, of_trials, cfg.scoring.confidence, whole),
    ]
    return of_columns(title("adjacent models", cohort), columns, notes)


def pairs(cohort: Cohort, cfg: AnalysisConfig) -> Table | None:
    """Tabulate all pairs, the better one first; None of more than 32 models."""
    if len(cohort.names) > _TABLED:
        return None
    above, below = np.triu_indices(len(cohort.names), 1)
    order = scores(cohort, cfg).order
    return of_columns(title("pairs", cohort), *_of_pairs(cohort, cfg, order[above], order[below]))


def _of_pairs(
    cohort: Cohort, cfg: AnalysisConfig, above: Positions, below: Positions
) -> tuple[Columns, list[str]]:
    """Compare models at positions `above` with those at `below`; both of shape (pairs,)."""
    scored = scores(cohort, cfg)
    whole = together(cohort, scored.avg, cfg.scoring.confidence)
    proven = claims(cohort, cfg)
    value, sigma = scored.avg[:2]
    comparison = scoring.compare_scores(value[above], sigma[above], value[below], sigma[below])
    reach = whole.limit * comparison.sigma
    other_questions = np.full(len(above), np.nan)
    if len({*cohort.clusters}) > 1:
        means = shares(cohort, cfg.scoring.confidence)
        gaps = means[above] - means[below], comparison.sigma
        other_questions = scoring.paired_gaps(*gaps, clusters=cohort.clusters).probability
    better, tied = proven.better[above, below], proven.tied[above, below]
    names = np.array(cohort.names)
    columns: Columns = {
        Column("above", "above", align="left"): names[above],
        Column("below", "below", align="left"): names[below],
        Column("difference", "difference", None, "{:+.3f}", short="diff."): comparison.difference,
        Column("low", "low", None, "{:+.4f}", wide=True): comparison.difference - reach,
        Column("high", "high", None, "{:+.4f}", wide=True): comparison.difference + reach,
        Column("z", "z", "$z$", "{:.2f}"): comparison.z,
        Column("q", "q", "$q$", CHANCE): whole.q[above, below],
        Column("log10_e", "log10 e", None, "{:.1f}"): proven.log_e[above, below] / np.log(10),
        Column("settled", "settled", align="left"): np.select(
            [better, tied], ["better", "tied"], ""
        ),
    }
    chances = {"probability": ("P(above better)", "P", comparison.probability)}
    chances["probability_other_questions"] = "P, other questions", "P other", other_questions
    for key, (head, short, of) in chances.items():  # rounding may have carried it past 0 or 1
        columns[Column(key, head, None, CHANCE, short=short)] = np.clip(of, 0, 1)
    level, needed = percent(cfg.scoring.confidence), proven.needed / np.log(10)
    notes = [
        f"z: at least {whole.limit:.2f} separates a pair, {level} for all pairs at once; q: the"
        " expected share of false differences among pairs with at most this q",
        f"log10 e: largest evidence so far, of which 10^-e is a p-value at any number of looks;"
        f" settled: better from {needed:.1f}, tied where a pair differs by at most"
        f" {plural(cfg.scoring.margin, 'point')}",
        "P: probability that the upper model is better on these questions; P other: on a pool that"
        " they are a sample of, shrunk toward 1/2 because most pairs differ little",
        *([f"nothing is settled: {proven.dependent}"] if proven.dependent else []),
    ]
    return columns, notes


def method_scores(name: str, outcomes: Any) -> Floats | str:
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
            yield method_scores(name, outcomes), time.process_time() - started

    return in_fork(work, seconds, 1 << 28)


def replicates(tensor: Bits, count: int, seed: int = SEED) -> Iterator[Bits]:
    """Draw bootstrap replicates of outcomes (L, M, N): whole columns, the same for all models."""
    trials, size = tensor.shape[2], chunk_size(tensor.shape[2], 1)
    for chunk, start in enumerate(range(0, count, size)):
        for columns in draw(seed, chunk, min(size, count - start), trials, 1)[..., 0]:
            yield tensor[:, :, columns]


def _method_row(name: str, models: list[str], ranks: list[Any], found: list[Any]) -> dict[str, Any]:
    row = {f"{model}_rank": rank for model, rank in zip(models, ranks, strict=True)}
    return {"method": name, **row, **{f"{m}_score": s for m, s in zip(models, found, strict=True)}}


def by_method(cohort: Cohort, cfg: AnalysisConfig, tables: Mapping[str, Table]) -> Table:
    """Rank by each method of `cfg.ranking`, beside the leaderboard; what fails is a note."""
    names, (tensor, notes) = cfg.ranking.chosen(), complete(cohort, least=1)
    seconds, ours = cfg.ranking.seconds or SECONDS, tables["leaderboard"].rows
    models, plain = [row["model"] for row in ours], [row["rank"] for row in ours]
    metric = "avg (corrected)" if ours[0]["prior"] == "labels" else "avg@N"
    rows = [_method_row(metric, models, plain, [row["avg"] for row in ours])]
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
            row = _method_row(name, models, ranks.tolist(), found.tolist())
            rows.append(row | {"tau_b": float(tau)})
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
