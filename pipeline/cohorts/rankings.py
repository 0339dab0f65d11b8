"""Rankings by methods of the library scorio, beside our own; `config/rankings.py` lists them.

None of them knows how sure its ranks are: bootstrap replicates of the trials say that.
"""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import scoring
from pipeline.base.apart import bounded
from pipeline.base.console import Meter, clock, counted
from pipeline.base.environment import version
from pipeline.base.errors import UserError, one_line
from pipeline.cohorts.cohort import Cohort
from pipeline.cohorts.leaderboard import title
from pipeline.config.analysis import AnalysisConfig
from pipeline.config.rankings import METHODS
from pipeline.display.table import Column, Table, of_columns
from scoring.metrics.table import parse
from scoring.numerics.inputs import Floats, Ints
from scoring.ranking.ranks import Method as Numbering
from scoring.studies.bootstrap import chunk_size, draw

Tensor = npt.NDArray[np.int8]
SEED = 0  # of methods that draw, and of replicates
_MEMORY = 1 << 28  # bytes; `limits.room` gives a method more than four times as many


class Unranked(Exception):
    """A method cannot rank these outcomes; the message says why."""


def library() -> Any:
    """The module scorio.rank. Raises UserError: it is not installed."""
    try:
        from scorio import rank  # a second, with half of scipy
    except ImportError as error:
        remedy = "pip install 'bayes-at-n[rank]'"
        raise UserError(f"ranking: scorio cannot be imported ({error}); {remedy}") from error
    return rank


def complete(outcomes: Any) -> Tensor:
    """The first K graded trials of each question by each model, K the fewest: shape (L, M, K).

    No method takes owed trials. Raises Unranked: there is nothing to rank.

    >>> complete(np.ma.masked_equal([[[1, -1, 0]], [[-1, 1, 1]]], -1)).tolist()
    [[[1, 0]], [[1, 1]]]
    """
    data = np.ma.masked_array(outcomes, dtype=np.int8)  # type: ignore[no-untyped-call]
    missing = np.broadcast_to(data.mask, data.shape)
    fewest = int((~missing).sum(axis=2).min(initial=data.shape[2]))
    if len(data) < 2 or not fewest:
        raise Unranked("there are no two models with graded trials of every question")
    places = np.argsort(missing, axis=2, kind="stable")[..., :fewest]
    return np.take_along_axis(data.data, places, axis=2)


def telling(tensor: Tensor) -> npt.NDArray[np.bool_]:
    """Which questions some attempt got right and some other wrong: (M,) of (L, M, N)."""
    differs: npt.NDArray[np.bool_] = tensor.min(axis=(0, 2)) < tensor.max(axis=(0, 2))
    return differs


def ranked(name: str, outcomes: Any, numbering: Numbering = "dense") -> tuple[Ints, Floats]:
    """Ranks and scores by a method of METHODS, (L,) each; higher scores first, equal ones tie.

    `outcomes` are 1 and 0, masked where owed, (L, M, N); :func:`complete` says what counts. It
    takes as long as it takes; :func:`fits` has a limit. Raises Unranked: the method fails, or a
    score is not finite. UserError: no scorio.
    """
    call, method, tensor = getattr(library(), name), METHODS[name], complete(outcomes)
    if method.telling and not (tensor := tensor[:, telling(tensor)]).size:
        raise Unranked("all attempts got every question right, or all wrong")
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            seed = {"seed": SEED} if method.seeded else {}
            scores = np.asarray(call(tensor, return_scores=True, **seed)[1], dtype=np.float64)
    except Exception as error:  # whatever the library raises
        raise Unranked(f"{type(error).__name__}: {one_line(error)}") from error
    if not np.isfinite(scores).all():
        raise Unranked("its scores are not finite")
    return scoring.ranks(scores, numbering), scores


def replicates(tensor: Tensor, count: int) -> Iterator[Tensor]:
    """The outcomes (L, M, N), then bootstrap replicates: whole columns, the same for all models."""
    yield tensor
    trials, size = tensor.shape[2], chunk_size(tensor.shape[2], 1)
    for chunk, start in enumerate(range(0, count, size)):
        for columns in draw(SEED, chunk, min(size, count - start), trials, 1)[..., 0]:
            yield tensor[:, :, columns]


Fit = tuple[Ints, Floats]  # of :func:`ranked`


def fits(
    name: str,
    draws: Callable[[], Iterable[Any]],
    count: int,
    seconds: float = 60,
    numbering: Numbering = "dense",
    done: Callable[[], object] = bool,
) -> tuple[list[Fit], str]:
    """:func:`ranked` for each of `draws()`, `count` of them; and what prevented some, or all.

    Another process makes them, which has so much processor time in all. Where the first has no
    ranks, or the second says that all would take too long, there are no more. UserError: no scorio.
    """
    library()

    def work() -> Iterator[tuple[Fit | str, float]]:
        for outcomes in draws():
            started = time.process_time()
            try:
                fit: Fit | str = ranked(name, outcomes, numbering)
            except Unranked as error:
                fit = str(error)
            yield fit, time.process_time() - started

    made: list[Fit] = []
    failed: list[str] = []
    try:
        for number, (fit, took) in enumerate(bounded(work, seconds, _MEMORY)):
            failed.append(fit) if isinstance(fit, str) else made.append(fit)
            if not made:
                return [], f"no ranks: {fit}"
            # The first fit also pays for what is imported late.
            if number == 1 and (all_s := took * count) > seconds:
                return (
                    made[:1],
                    f"too slow for {count - 1:,} replicates: about {clock(all_s)} of"
                    f" processor time; ranking.seconds={2 * all_s:.0f} allows that",
                )
            done()
    except (TimeoutError, ChildProcessError) as error:
        lacks = f"no intervals, {len(made) - 1} of {count - 1} replicates" if made else "no ranks"
        grows = f"its time grows as {METHODS[name].grows}"
        return made[:1], f"{lacks}: {error}; {grows}; ranking.seconds={10 * seconds:g} allows more"
    return made, f"{len(failed)} of {count - 1} replicates have none: {failed[0]}" if failed else ""


def by_method(cohort: Cohort, cfg: AnalysisConfig, tables: Mapping[str, Table]) -> Table:
    """Ranks by each method of `cfg.ranking`, beside those of leaderboard and posterior in `tables`.

    Raises UserError: no scorio.
    """
    board, posterior = tables["leaderboard"].rows, tables["posterior_ranks"].rows
    names, each = cfg.ranking.chosen(), 1 + (cfg.ranking.replicates or 0)
    head, tensor = parse(cfg.scoring.headline).title(), complete(cohort.matrix())
    numbering: Any = cfg.scoring.method
    plain = np.array([row["rank"] for row in board])
    columns: dict[Column, Any] = {
        Column("model", "model", align="left"): [row["model"] for row in board],
        Column("rank", "rank", group=head): [row[f"rank_{cfg.scoring.rule}"] for row in board],
        Column("rank_by_score", "by score", group=head, wide=True): plain,
        Column("from", "from", group=head): [row["from"] for row in posterior],
        Column("to", "to", group=head): [row["to"] for row in posterior],
        Column("first", "first", None, "{:.2f}", group=head): [row["best"] for row in posterior],
    }
    order = [cohort.names.index(row["model"]) for row in board]
    taus, said = [], []
    with Meter("rankings", len(names) * each) as meter:
        for number, name in enumerate(names, 1):
            draws = partial(replicates, tensor, each - 1)
            seconds = cfg.ranking.seconds
            made, lacking = fits(name, draws, each, seconds, numbering, lambda: meter.advance(1))
            said += [f"{name}: {lacking}"] * bool(lacking)
            meter.reach(number * each)
            if made:
                ranks, scores = (np.stack(parts)[:, order] for parts in zip(*made, strict=True))
                tau = scoring.kendall_tau_b(ranks[0], plain)
                taus.append(f"{name} {'none, all tied' if np.ma.is_masked(tau) else f'{tau:.3f}'}")
                columns |= _columns(name, ranks, scores[0], np.ma.filled(tau, np.nan), cfg)
    notes = _notes(cohort.matrix(), tensor, cfg)
    if taus:
        notes.insert(1, f"τ_b with the order by {head}: {', '.join(taus)}")
    return of_columns(title("rankings by method", cohort), columns, [*notes, *said])


def _columns(
    name: str, ranks: Ints, scores: Floats, tau: Any, cfg: AnalysisConfig
) -> dict[Column, Any]:
    """What is shown of a method: `ranks` (1 + replicates, L), those of the outcomes first."""
    columns: dict[Column, Any] = {
        Column(name, "rank", group=name): ranks[0],
        Column(f"{name}_score", "score", None, "{:.6g}", group=name, wide=True): scores,
        Column(f"{name}_tau_b", "τ_b", None, "{:.3f}", group=name, wide=True): (
            np.full(len(scores), tau)
        ),
    }
    if len(ranks) > 1:
        tail, best = (1 - cfg.scoring.confidence) / 2, ranks[1:] == 1
        ends = np.quantile(ranks[1:], [tail, 1 - tail], axis=0, method="inverted_cdf")
        first = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
        columns[Column(f"{name}_from", "from", group=name)] = ends[0]
        columns[Column(f"{name}_to", "to", group=name)] = ends[1]
        columns[Column(f"{name}_first", "first", None, "{:.2f}", group=name)] = first
    return columns


def _notes(matrix: Any, tensor: Tensor, cfg: AnalysisConfig) -> list[str]:
    """How the ranks were made, and of which attempts."""
    had, trials, count = int(np.ma.count(matrix)), tensor.shape[2], cfg.ranking.replicates
    head = parse(cfg.scoring.headline).title()
    notes = [
        f"{head}: ranks of the leaderboard and their posterior; the others: scorio"
        f" {version('scorio')}, {cfg.scoring.method} ranks, equal scores share one"
    ]
    if count:
        notes.append(
            f"from, to: the central {cfg.scoring.confidence:.0%} of a method's ranks in {count:,}"
            " bootstrap replicates of whole trials; first: in what share of them, divided by ties"
        )
    if unused := had - tensor.size:
        notes.append(
            f"methods take equally many trials: the first {trials} graded ones of each question by"
            f" each model; {unused:,} of {had:,} graded attempts are not in them"
        )
    those = [name for name in cfg.ranking.chosen() if METHODS[name].telling]
    if those and (same := int((~telling(tensor)).sum())):
        what = f"{counted(same, 'question')} that all attempts got right, or all wrong"
        notes.append(f"without {what}: {', '.join(those)}")
    return notes
