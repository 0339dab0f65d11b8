"""prr: the pairwise ranking reversal rate between two sets of runs, in tables and figures.

Source: MaP (Wang et al., 2025), section 3.1; posteriors of arXiv 2510.04265.
"""

import glob
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import note, percent, results
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.multirun import ReversalConfig
from bayes_at_n.pipeline.display import table as tabular
from bayes_at_n.pipeline.display.table import Column, Table, columns
from bayes_at_n.pipeline.store import selection
from bayes_at_n.pipeline.store.selection import natural
from bayes_at_n.pipeline.training.cells import Row, Rows, page, records, where
from bayes_at_n.pipeline.training.tracks import (
    AVG,
    BAYES,
    GREEDY,
    PASS,
    TWIN,
    Tokens,
    evaluation_cost,
    greedy_twins,
    metrics,
    stacked,
    tokens,
)
from bayes_at_n.scoring.metrics.table import Summary
from bayes_at_n.scoring.numerics.inputs import Ints
from bayes_at_n.scoring.ranking.ranks import ranks
from bayes_at_n.scoring.ranking.trajectory import Reversal, reversal_rate, reversal_rate_ci

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def pair(cfg: ReversalConfig) -> tuple[list[Path], list[Path]]:
    """Pair the run folders, before and after, that settings name, one by one.

    Patterns keep their order. The matches of one pattern are in natural order of their names
    without the words at either end that all share, so `a-base`, `a-m-base` come in the same order
    as `a-tuned`, `a-m-tuned`. Raises UserError: no such folder, no run, different numbers of runs,
    only one model, a run on both sides.
    """
    before, after = _side("before", cfg.before), _side("after", cfg.after)
    if both := {path.resolve() for path in before} & {path.resolve() for path in after}:
        raise UserError(f"{min(both)}: is in before= and in after=; name a run in only one")
    if len(before) != len(after):
        names = [", ".join(folder.name for folder in side) for side in (before, after)]
        raise UserError(
            f"before= names {len(before)} runs ({names[0]}) and after= {len(after)} ({names[1]});"
            " name the same models on both sides"
        )
    if len(before) < 2:
        raise UserError(f"before= names one run, {before[0].name}; a ranking needs 2 or more")
    return before, after


def _side(key: str, patterns: Sequence[str]) -> list[Path]:
    """List the run folders of one side, each once."""
    runs: dict[Path, Path] = {}  # by real path
    for pattern in patterns:
        folders = _matching(key, pattern)
        names = distinct([str(folder) for folder in folders])
        for _, folder in sorted(zip(names, folders, strict=True), key=lambda f: natural(f[0])):
            runs.setdefault(folder.resolve(), folder)
    return list(runs.values())


def _matching(key: str, pattern: str) -> list[Path]:
    """List the run folders that match a pattern, without the greedy twins of others."""
    path = Path(pattern).expanduser()
    if path.is_dir():
        folders = selection.runs_in(path)
    elif glob.has_magic(pattern):
        folders = [Path(name) for name in glob.glob(str(path)) if selection.is_run(Path(name))]
        if not folders:
            raise UserError(f"{key}={pattern}: matches no run folder")
    else:
        raise UserError(f"{key}={pattern}: no such folder; name run folders, or a glob of them")
    twins = {run.with_name(run.name + TWIN) for run in (f.resolve() for f in folders)}
    return [folder for folder in folders if folder.resolve() not in twins]


def distinct(names: Sequence[str]) -> list[str]:
    """Strip from names the words at either end that all of them share.

    >>> distinct(["demo-constant-base", "demo-cosine-to-zero-base"])
    ['constant', 'cosine-to-zero']
    >>> distinct(["a-base", "a-m-base"]), distinct(["same", "same"])
    (['a', 'a-m'], ['same', 'same'])
    """
    words = [re.split(r"(?<=[-_./ ])|(?=[-_./ ])", name) for name in names]
    last = _common([part[::-1] for part in words])
    first = _common([part[: len(part) - last] for part in words])
    for start, end in ((first, last), (0, last), (_common(words), 0)):
        cut = ["".join(part[start : len(part) - end]).strip("-_./ ") for part in words]
        if all(cut):
            return cut
    return list(names)


def _common(words: Sequence[list[str]]) -> int:
    """Count the leading words that all names share."""
    columns = zip(*words, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))


_THREE = "{:.3f}"


class Reversals(NamedTuple):
    """One protocol's scores of L models before and after, and how often they reverse."""

    metric: str  # its name
    label: str
    trials: float  # per question for one model before; a mean if they differ
    before: Summary  # arrays (L,)
    after: Summary
    posterior: Reversal | None = None  # of the rate; only for avg, Bayes and Pass@k

    @property
    def rate(self) -> float:
        """The share of pairs that reverse."""
        return float(reversal_rate(self.before.value, self.after.value))

    @property
    def ranks(self) -> tuple[Ints, Ints]:
        """Competition ranks before and after, 1 the best; ties share a rank."""
        return ranks(self.before.value), ranks(self.after.value)


def run(cfg: ReversalConfig) -> None:
    """Compare the order of models before and after; print tables, save them with figures.

    Raises UserError: the runs cannot be compared. OSError: the folder cannot be written.
    """
    before, after = pair(cfg)
    models, paths = len(before), [*before, *after]
    cohort, twins = stacked(paths), greedy_twins(paths)
    greedy = None if twins is None else stacked(twins, cohort)
    outcomes = cohort.matrix()
    rates = reversals(outcomes, cfg, None if greedy is None else greedy.matrix())
    used = {
        kind: None if stack is None else tokens([m.run for m in stack.members[:models]])
        for kind, stack in {"sampled": cohort, "greedy": greedy}.items()
    }
    questions, counts = len(cohort.question_ids), np.ma.count(outcomes, axis=2)
    trials = f"{counts.max()} trials" if counts.min() == counts.max() else "unequal trials"
    size = f"{cohort.dataset}, {models} models, {questions} questions, {trials}"
    names = selection.names(paths)
    short = distinct(names[:models])

    rows = protocol_rows(rates, short, used, questions, cfg)
    notes = [*_notes(rows, counts.min(), cfg), *(f"differs: {d}" for d in cohort.differences)]
    rates_table = _protocol_table(rows, size, [*notes], cfg)
    by_model = rank_rows(rates, names[:models], names[models:])
    average = next(p.label for p in rates if p.metric == AVG)
    ranked = _rank_table(where(by_model, protocol=average), size)
    tabular.show(ranked, rates_table)  # ranks by other protocols are in the files
    results.print()

    folder = Path(cfg.out).expanduser() if cfg.out else before[0].parent / "_prr"
    figures = _figures(rates, rows, short, size, cfg)
    record = {
        "settings": asdict(cfg),
        "dataset": cohort.dataset,
        "questions": questions,
        "pairs_of_runs": [
            {"before": str(one), "after": str(other)}
            for one, other in zip(before, after, strict=True)
        ],
        "protocols": rows,
        "ranks": by_model,
        "tokens": {
            kind: each and {"prompt_tokens": each.prompt, "completion_tokens": each.completion}
            for kind, each in used.items()
        },
        "differences": cohort.differences,
    }
    tabular.print_json(record)
    title = f"Pairwise ranking reversal rate: {cohort.dataset}"
    text = page(title, [], figures, {"protocols": rates_table, "ranks": ranked})
    tables = {"protocols": rates_table, "ranks": _rank_table(by_model, size)}
    selection.write_results(folder, "prr", record, tables, figures, {"index.html": text})
    note(f"saved {folder}: index.html, prr.json, its tables and figures")


def reversals(outcomes: Any, cfg: ReversalConfig, greedy: Any | None = None) -> list[Reversals]:
    """Score all protocols that the trials allow before and after, greedy first.

    `outcomes` (2 L, M, N) are of L models before and then of the same L after: 1 correct, 0 not,
    masked if pending; `greedy` (2 L, M, 1) are those of greedy decoding. Labels state the number of
    trials if it is the same everywhere, as avg@16; else avg@N. Metrics that need more than the
    smallest number of trials are left out.
    """
    L, counts = len(outcomes) // 2, np.ma.count(outcomes, axis=2)
    fewest, most = int(counts.min()), int(counts.max())
    size, trials = (fewest, float(most)) if fewest == most else ("N", float(counts[:L].mean()))
    rates: list[Reversals] = []
    enough = [metric for metric in metrics(cfg.metrics) if metric.k <= fewest]
    for metric in [*[GREEDY] * (greedy is not None), *enough]:
        R: Any = greedy if metric is GREEDY else outcomes
        before, after = (metric.summary(side, cfg.confidence) for side in (R[:L], R[L:]))
        average = metric.name in (AVG, BAYES)  # their posterior is that of Pass@1
        needed = trials if average else metric.k
        rate = None
        if average or metric.name.startswith(PASS):
            k = 1 if average else metric.k
            sides = outcomes[:L], outcomes[L:]
            rate = reversal_rate_ci(*sides, k, cfg.draws, cfg.seed, cfg.confidence)
        rates.append(Reversals(metric.name, metric.title(size), needed, before, after, rate))
    return rates


def pair_counts(protocol: Reversals, confidence: float) -> Row:
    """Count the pairs of models that reverse, that are tied, and that are apart on both sides.

    A pair is apart if the interval of the difference of its scores excludes 0; the interval assumes
    independent trials and is not simultaneous. `apart` is None without a sigma; `apart_reversed`
    lists the positions of pairs that are apart and reverse.
    """
    upper = np.triu_indices(len(protocol.before.value), 1)
    before, after = (np.sign(rank[upper[1]] - rank[upper[0]]) for rank in protocol.ranks)
    counts: Row = {
        "pairs": len(before),
        "reversed": int((before * after < 0).sum()),
        "tied": int((before * after == 0).sum()),
        "apart": None,
        "apart_reversed": [],
    }
    if protocol.before.sigma is not None:
        ahead = []  # of each pair: 1 if the first is ahead, -1 behind, else 0
        for value, sigma, *_ in (protocol.before, protocol.after):
            pair = value[upper[0]], sigma[upper[0]], value[upper[1]], sigma[upper[1]]
            compared = scoring.compare_scores(*pair, confidence)
            ahead.append((compared.lo > 0).astype(np.int64) - (compared.hi < 0))
        opposite = np.flatnonzero(ahead[0] * ahead[1] < 0)
        counts["apart"] = int((ahead[0] * ahead[1] != 0).sum())
        counts["apart_reversed"] = [(int(upper[0][i]), int(upper[1][i])) for i in opposite]
    return counts


def protocol_rows(
    rates: Sequence[Reversals],
    names: Sequence[str],
    used: Mapping[str, Tokens | None],
    questions: int,
    cfg: ReversalConfig,
) -> list[Row]:
    """Return one row per protocol: PRR, its posterior, the pairs that are apart, and the cost.

    The cost is that of evaluating one model before, in the currency of the prices; for Pass@k the
    cost of k attempts, as in MaP, although the score here uses all N trials.
    """
    rows: list[Row] = []
    for protocol in rates:
        counts, posterior = pair_counts(protocol, cfg.confidence), protocol.posterior
        reversed_names = [[names[i], names[j]] for i, j in counts["apart_reversed"]]
        tokens_ = used["greedy" if protocol.metric == GREEDY.name else "sampled"]
        rows.append(
            {
                "protocol": protocol.label,
                "metric": protocol.metric,
                "prr": protocol.rate,
                **{key: counts[key] for key in ("reversed", "tied", "pairs")},
                "mean": posterior and posterior.mean,
                "low": posterior and posterior.lo,
                "high": posterior and posterior.hi,
                "apart": counts["apart"],
                "apart_reversed": None if counts["apart"] is None else len(reversed_names),
                "apart_reversed_pairs": reversed_names,
                "trials": protocol.trials,
                "cost": tokens_
                and evaluation_cost(tokens_, questions, protocol.trials, cfg.prices),
            }
        )
    return rows


def _protocol_table(rows: Rows, size: str, notes: Sequence[str], cfg: ReversalConfig) -> Table:
    level, cost = percent(cfg.confidence), "cost of k attempts (as in MaP)"
    heads = [
        *columns(align="left", protocol="protocol"),
        *columns(wide=True, metric="metric"),
        *columns(_THREE, prr="PRR"),
        *columns(group="pairs", reversed="reversed", tied="tied", pairs="all"),
        *columns(_THREE, group=f"posterior, {level}", mean="mean", low="low", high="high"),
        *columns(group="apart", apart="pairs", apart_reversed="reversed"),
        *columns(wide=True, trials="trials"),
        Column("cost", cost, cost.replace("of k", "of $k$"), "{:.4g}", short="cost of k"),
    ]
    return Table(f"pairwise ranking reversal rate (PRR): {size}", heads, rows, notes)


def _notes(rows: Rows, fewest: int, cfg: ReversalConfig) -> list[str]:
    pairs, level = rows[0]["pairs"], percent(cfg.confidence)
    notes = [
        f"PRR: share of the {pairs} pairs whose order reverses; a tie is not a reversal. Chance is"
        f" 0.5, and one pair is {1 / pairs:.4f}",
        "posterior: of the rate, from these trials; noise reverses half of the pairs that they"
        f" cannot tell apart, so its {level} interval need not contain PRR",
        f"apart: the {level} interval of the difference excludes 0 before and after, assuming"
        " independent trials",
        "cost: of evaluating one model before (MaP, appendix C), if its tokens are known; that of"
        " Pass@k is of k attempts, although its score uses all N",
    ]
    if not where(rows, metric=GREEDY.name):
        notes.append("greedy is left out: not every run has a graded greedy run, RUN-greedy")
    if short := [m.title() for m in metrics(cfg.metrics) if m.k > fewest]:
        notes.append(f"{', '.join(short)}: left out, because some question has fewer trials")
    return notes


def rank_rows(rates: Sequence[Reversals], before: Sequence[str], after: Sequence[str]) -> list[Row]:
    """Return one row per protocol and model, in the order of the pairs."""
    rows: list[Row] = []
    for protocol in rates:
        rank_before, rank_after = protocol.ranks
        cells = {
            "before": before,
            "after": after,
            "score_before": protocol.before.value,
            "sigma_before": protocol.before.sigma,
            "rank_before": rank_before,
            "score_after": protocol.after.value,
            "sigma_after": protocol.after.sigma,
            "rank_after": rank_after,
            "shift": rank_before - rank_after,
        }
        rows += records(cells, protocol=protocol.label)
    return rows


def _rank_table(rows: Rows, size: str) -> Table:
    heads = [
        *columns(align="left", protocol="protocol"),
        *columns(align="left", before="before", after="after"),
        *columns(_THREE, group="score", score_before="before", sigma_before="σ"),
        *columns(_THREE, group="score", score_after="after", sigma_after="σ"),
        *columns(group="rank", rank_before="before", rank_after="after"),
        *columns("{:+d}", group="rank", shift="shift"),
    ]
    notes = [
        "each row is one model: check that its two runs belong together",
        "ranks: competition, 1 the best; shift: ranks gained (+) or lost (-) from before to after",
    ]
    return Table(f"ranks before and after: {size}", heads, rows, notes)


def _figures(
    rates: Sequence[Reversals], rows: Rows, names: Sequence[str], size: str, cfg: ReversalConfig
) -> "dict[str, Figure]":
    """Draw ranks by greedy, avg@N and Pass@k with the largest k, and the rate of Pass@k by k."""
    from bayes_at_n.pipeline.plots import checkpoints as plots  # matplotlib takes half a second
    from bayes_at_n.pipeline.plots.lines import Curve

    last = [p for p in rates if p.metric.startswith(PASS) and p.trials > 1][-1:]
    shown = [*(p for p in rates if p.metric in (GREEDY.name, AVG)), *last]
    panels = {p.label: (*p.ranks, p.rate) for p in shown}
    title = f"ranks before and after, {size}"
    figures = {"rank_scatter": plots.rank_scatter(list(names), panels, title)}
    if passes := [row for row in rows if row["metric"].startswith(PASS)]:
        keys = ("trials", "prr", "low", "high", "cost", "mean")
        k, rate, low, high, cost, mean = ([row[key] for row in passes] for key in keys)
        title, level = f"pairwise ranking reversal rate, {size}", percent(cfg.confidence)
        rates_ = Curve(k, rate, low, high)
        costs = None if None in cost else cost
        figures["trend"] = plots.trend(rates_, costs, title, mean, f"{level} interval")
    return figures
