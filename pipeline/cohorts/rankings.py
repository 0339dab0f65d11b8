"""Rankings by methods of the library scorio, beside our own; `config/rankings.py` lists them.

None of them knows how sure its ranks are: bootstrap replicates of the trials say that.
"""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

import scoring
from pipeline.base.apart import forked
from pipeline.base.console import Meter, clock, counted
from pipeline.base.environment import version
from pipeline.base.errors import one_line
from pipeline.cohorts.cohort import Cohort
from pipeline.cohorts.leaderboard import title
from pipeline.config.analysis import AnalysisConfig
from pipeline.config.rankings import METHODS, SEED, RankingConfig
from pipeline.display.table import Column, Table, of_columns
from scoring.metrics.table import parse
from scoring.numerics.arrays import finite_array
from scoring.numerics.inputs import Floats
from scoring.studies.bootstrap import chunk_size, draw

Tensor = npt.NDArray[np.int8]


class Unranked(Exception):
    """A method cannot rank these outcomes; the message says why."""


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


def scores(name: str, outcomes: Any) -> Floats:
    """Scores by a method of METHODS, shape (L,); :func:`scoring.ranks` makes ranks of them.

    `outcomes` are 1 and 0, masked where owed, (L, M, N); :func:`complete` says what counts. The
    same outcomes give the same scores. Raises Unranked: the method fails, or one is not finite.
    """
    from scorio import rank  # a second, with half of scipy

    method, tensor = METHODS[name], complete(outcomes)
    if method.telling and not (tensor := tensor[:, np.ptp(tensor, axis=(0, 2)) > 0]).size:
        raise Unranked("all attempts got every question right, or all wrong")
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = getattr(rank, name)(tensor, return_scores=True, **method.parameters)[1]
        return finite_array(found, "the result")
    except Exception as error:  # whatever the library raises
        raise Unranked(f"{type(error).__name__}: {one_line(error)}") from error


def fits(name: str, draws: Callable[[], Iterable[Any]], seconds: float) -> Iterator[Any]:
    """:func:`scores` of each of `draws()`, or why there are none, and the seconds that it took.

    In another process, with so much processor time in all. Raises as :func:`forked`.
    """
    import scorio.rank  # noqa: F401  # once, and not in every process

    def work() -> Iterator[tuple[Floats | str, float]]:
        for outcomes in draws():
            started = time.process_time()
            try:
                found: Floats | str = scores(name, outcomes)
            except Unranked as error:
                found = str(error)
            yield found, time.process_time() - started

    return forked(work, seconds, 1 << 28)


def replicates(tensor: Tensor, count: int, seed: int = SEED) -> Iterator[Tensor]:
    """Bootstrap replicates of outcomes (L, M, N): whole columns, the same for all models."""
    trials, size = tensor.shape[2], chunk_size(tensor.shape[2], 1)
    for chunk, start in enumerate(range(0, count, size)):
        for columns in draw(seed, chunk, min(size, count - start), trials, 1)[..., 0]:
            yield tensor[:, :, columns]


def bootstrap(name: str, tensor: Tensor, cfg: RankingConfig, meter: Meter) -> tuple[Any, str]:
    """Scores of the outcomes, then of replicates; and what prevented some of them, or all."""
    made, failed, count = list[Floats](), list[str](), cfg.replicates or 0
    fitted = fits(name, lambda: chain([tensor], replicates(tensor, count)), cfg.seconds)
    try:
        for number, (found, took) in enumerate(fitted):
            failed.append(found) if isinstance(found, str) else made.append(found)
            if not made:
                return [], f"no ranks: {found}"
            if number == 1 and took * count > cfg.seconds:  # the first fit also pays for imports
                much = f"about {clock(took * count)} of processor time"
                more = f"ranking.seconds={2 * took * count:.0f} allows that"
                return made[:1], f"too slow for {count:,} replicates: {much}; {more}"
            meter.advance(1, lambda: name)
    except (TimeoutError, ChildProcessError) as error:
        lacks = f"no intervals, {len(made) - 1} of {count} replicates" if made else "no ranks"
        more = (
            f"its time grows as {METHODS[name].grows}; ranking.seconds={10 * cfg.seconds:g} is more"
        )
        return made[:1], f"{lacks}: {error}; {more}"
    return made, f"{len(failed)} of {count} replicates have none: {failed[0]}" if failed else ""


def by_method(cohort: Cohort, cfg: AnalysisConfig, tables: Mapping[str, Table]) -> Table:
    """Ranks by each method of `cfg.ranking`, beside those of leaderboard and posterior."""
    matrix, head, names = cohort.matrix(), parse(cfg.scoring.headline).title(), cfg.ranking.chosen()
    tensor, each = complete(matrix), 1 + (cfg.ranking.replicates or 0)
    board, posterior = tables["leaderboard"].rows, tables["posterior_ranks"].rows
    models, plain = ([row[key] for row in board] for key in ("model", "rank"))
    values = {"rank": [row[f"rank_{cfg.scoring.rule}"] for row in board], "rank_by_score": plain}
    for key, its in {"from": "from", "to": "to", "first": "best"}.items():
        values[key] = [row[its] for row in posterior]
    columns: dict[Column, Any] = {Column("model", "model", align="left"): models}
    columns |= _group(head, "", values)
    taus, lacks = [], []
    with Meter("rankings", len(names) * each) as meter:
        for number, name in enumerate(names, 1):
            made, lacking = bootstrap(name, tensor, cfg.ranking, meter)
            meter.reach(number * each)
            lacks += [f"{name}: {lacking}"] * bool(lacking)
            if made:
                in_order = np.stack(made)[:, [cohort.names.index(model) for model in models]]
                columns |= _group(name, f"{name}_", of := _values(in_order, plain, cfg))
                taus.append(f"{name} {of['tau_b'][0]:.3f}".replace("nan", "none, all tied"))
    notes = [f"τ_b with the order by {head}: {', '.join(taus)}"] * bool(taus)
    notes += [*_notes(matrix, tensor, cfg), *lacks]
    return of_columns(title("rankings by method", cohort), columns, notes)


def _group(group: str, prefix: str, values: Mapping[str, Any]) -> dict[Column, Any]:
    """Columns under one head; only files have those that are not named here."""
    shown = {"rank": "{}", "from": "{}", "to": "{}", "first": "{:.2f}"}
    return {
        Column(prefix + key, key, None, shown.get(key, ""), group=group, wide=key not in shown): of
        for key, of in values.items()
    }


def _values(made: Floats, plain: Sequence[int], cfg: AnalysisConfig) -> dict[str, Any]:
    """What is shown of a method, from its scores (1 + replicates, L)."""
    numbering: Any = cfg.scoring.method
    ranks, *drawn = scoring.ranks(made, numbering)
    tau = np.ma.filled(scoring.kendall_tau_b(ranks, plain), np.nan)
    values = {"rank": ranks, "score": made[0], "tau_b": np.full(len(plain), tau)}
    if drawn:
        tail, best = (1 - cfg.scoring.confidence) / 2, np.array(drawn) == 1
        ends = np.quantile(drawn, [tail, 1 - tail], axis=0, method="inverted_cdf")
        first = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
        values |= {"from": ends[0], "to": ends[1], "first": first}
    return values


def _notes(matrix: Any, tensor: Tensor, cfg: AnalysisConfig) -> list[str]:
    """How the ranks were made, and of which attempts."""
    had, same = int(np.ma.count(matrix)), int((np.ptp(tensor, axis=(0, 2)) == 0).sum())
    notes, unused = [f"methods of scorio {version('scorio')}; equal scores tie"], had - tensor.size
    if count := cfg.ranking.replicates:
        level = f"the central {cfg.scoring.confidence:.0%} of ranks"
        notes[0] += f"; from, to: {level} in {count:,} bootstrap replicates of whole trials"
    if unused:
        used = f"the first {tensor.shape[2]} graded trials of each question by each model"
        notes.append(f"methods take {used}; {unused:,} of {had:,} graded attempts are not in them")
    if same and (those := [name for name in cfg.ranking.chosen() if METHODS[name].telling]):
        notes.append(f"without {counted(same, 'question')} that say nothing: {', '.join(those)}")
    return notes
