"""prr: the pairwise ranking reversal rate between two sets of runs, in tables and pictures.

Source: MaP (Wang et al., 2025), section 3.1; posteriors of arXiv 2510.04265.
"""

import functools
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import note, percent, results, warn
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.trajectory import ReversalConfig
from bayes_at_n.pipeline.display import table as tabular
from bayes_at_n.pipeline.display.table import Column, Table, columns
from bayes_at_n.pipeline.store import files, find
from bayes_at_n.pipeline.training import pairing, protocols
from bayes_at_n.pipeline.training.cells import Row, Rows, page, records, where
from bayes_at_n.pipeline.training.pairing import Pairs, distinct
from bayes_at_n.pipeline.training.protocols import (
    AVG,
    BAYES,
    GREEDY,
    PASS,
    Tokens,
    greedy_twins,
    stacked,
    tokens,
)
from bayes_at_n.scoring.metrics.table import Summary
from bayes_at_n.scoring.numerics.inputs import Ints
from bayes_at_n.scoring.ranking.ranks import ranks
from bayes_at_n.scoring.ranking.reversal import Reversal, reversal_rate, reversal_rate_ci

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHANCE = 0.5  # of two orders that are independent
_MOST_NAMED = 5  # pairs in a note
_THREE = "{:.3f}"


class Reversals(NamedTuple):
    """One protocol's scores of L models before and after, and how often they reverse."""

    metric: str  # its name
    label: str
    trials: float  # of a question that one model's evaluation before takes, a mean where ragged
    before: Summary  # arrays (L,)
    after: Summary
    posterior: Reversal | None = None  # of the rate; None but for avg, Bayes and Pass@k

    @property
    def rate(self) -> float:
        """The share of pairs that reverse."""
        return float(reversal_rate(self.before.value, self.after.value))

    @property
    def ranks(self) -> tuple[Ints, Ints]:
        """Competition ranks before and after, 1 the best; ties share one."""
        return ranks(self.before.value), ranks(self.after.value)


class Measured(NamedTuple):
    """All that `prr` measures, before it becomes tables."""

    cohort: Cohort  # 2 L runs: before, then after
    before: list[str]  # L names
    after: list[str]
    reversals: list[Reversals]
    tokens: Mapping[str, Tokens | None]  # of "sampled" and "greedy" runs before
    mismatch: str | None  # why the pairing looks wrong

    @property
    def trials(self) -> tuple[int, int]:
        """The fewest and the most trials of a question of a run."""
        had = np.ma.count(self.cohort.matrix(), axis=2)
        return int(had.min()), int(had.max())

    @property
    def size(self) -> str:
        """The data set and how much of it was measured, in words."""
        fewest, most = self.trials
        trials = f"{most} trials" if fewest == most else f"{fewest} to {most} trials"
        questions = len(self.cohort.question_ids)
        return f"{self.cohort.dataset}, {len(self.before)} models, {questions} questions, {trials}"

    def on_page(self) -> list[Reversals]:
        """The protocols that a page has room for: greedy, avg@N, Pass@k with the largest k."""
        first = [p for p in self.reversals if p.metric in (GREEDY.name, AVG)]
        passes = [p for p in self.reversals if p.metric.startswith(PASS) and p.trials > 1]
        return [*first, *passes[-1:]]


def run(cfg: ReversalConfig) -> None:
    """Compare the order of models before and after; print tables, save them with pictures.

    Raises UserError: runs that cannot be compared. OSError: the folder may not be written.
    """
    pairs = pairing.pair(cfg)
    measured = measure(pairs, cfg)
    rates, by_model = protocol_table(measured, cfg), rank_rows(measured)
    pages = {p.label: rank_table(measured, by_model, p.label) for p in measured.on_page()}
    average = next(table for label, table in pages.items() if label.startswith("avg@"))
    tabular.show(average, rates)  # ranks by other protocols are in the files
    results.print()

    folder = Path(cfg.out).expanduser() if cfg.out else pairs.before[0].parent / "_prr"
    figures = _figures(measured, rates.rows, cfg)
    record = {
        "settings": asdict(cfg),
        "dataset": measured.cohort.dataset,
        "questions": len(measured.cohort.question_ids),
        "pairs_of_runs": [
            {"before": str(before), "after": str(after)}
            for before, after in zip(pairs.before, pairs.after, strict=True)
        ],
        "protocols": rates.rows,
        "ranks": by_model,
        "tokens": {
            kind: of and {"prompt_tokens": of.prompt, "completion_tokens": of.completion}
            for kind, of in measured.tokens.items()
        },
        "differences": measured.cohort.differences,
        "pairing_doubt": measured.mismatch,
    }
    tabular.print_json(record)
    title = f"Pairwise ranking reversal rate: {measured.cohort.dataset}"
    warnings = [f"Warning: {measured.mismatch}."] * bool(measured.mismatch)
    text = page(title, [], warnings, figures, {"protocols": rates, **pages})
    saved = {"protocols": rates, "ranks": rank_table(measured, by_model)}
    files.write(folder, "prr", record, saved, figures, {"prr.md": text})
    note(
        f"saved {folder / 'prr.md'}, prr.json, protocols and ranks as .csv, .json, .tex, .md, and"
        f" {' and '.join(figures)} as .png, .pdf"
    )


def measure(pairs: Pairs, cfg: ReversalConfig) -> Measured:
    """Measure the reversal rate of every protocol. Raises UserError: runs cannot be compared."""
    models, folders = len(pairs.before), [*pairs.before, *pairs.after]
    cohort, twins = stacked(folders), greedy_twins(folders)
    greedy = None if twins is None else stacked(twins, cohort)
    names = find.names(folders)
    before, after = names[:models], names[models:]
    mismatch = pairing.mismatch(before, after)
    if mismatch is not None:
        warn(f"{mismatch}; if that is wrong list the runs: before=A,B after=C,D")
    used = {
        kind: None if of is None else tokens([m.run for m in of.members[:models]])
        for kind, of in {"sampled": cohort, "greedy": greedy}.items()
    }
    rates = reversals(cohort.matrix(), cfg, None if greedy is None else greedy.matrix())
    return Measured(cohort, before, after, rates, used, mismatch)


def reversals(outcomes: Any, cfg: ReversalConfig, greedy: Any | None = None) -> list[Reversals]:
    """Score all protocols that the trials allow before and after, greedy first.

    `outcomes` are of L models before and of the same L after, 1 correct and 0 not, masked where
    pending, of shape (2 L, M, N), and `greedy` those of greedy decoding, (2 L, M, 1), where it was
    run. With equal trials everywhere labels state how many, avg@16; else avg@N. Metrics that need
    more than the fewest trials are left out.
    """
    L, had = len(outcomes) // 2, np.ma.count(outcomes, axis=2)
    fewest, most = int(had.min()), int(had.max())
    size, trials = (fewest, float(most)) if fewest == most else ("N", float(had[:L].mean()))

    @functools.cache
    def posterior(k: int) -> Reversal:
        return reversal_rate_ci(outcomes[:L], outcomes[L:], k, cfg.draws, cfg.seed, cfg.confidence)

    rates: list[Reversals] = []
    enough = [metric for metric in protocols.metrics(cfg.metrics) if metric.k <= fewest]
    for metric in [*[GREEDY] * (greedy is not None), *enough]:
        R: Any = greedy if metric is GREEDY else outcomes
        before, after = (metric.summary(side, cfg.confidence) for side in (R[:L], R[L:]))
        average = metric.name in (AVG, BAYES)  # whose posterior is that of Pass@1
        takes = trials if average else metric.k
        drawn = average or metric.name.startswith(PASS)
        own = posterior(1 if average else metric.k) if drawn else None
        rates.append(Reversals(metric.name, metric.title(size), takes, before, after, own))
    return rates


def pair_counts(protocol: Reversals, confidence: float) -> Row:
    """Count the pairs of models that reverse, that are tied, and that are apart on both sides.

    Apart: the interval of the difference of the two scores, at this confidence, leaves out 0; it
    takes trials as independent, and pairs one at a time. `apart` is None without a sigma, and
    `turned` are those of them that reverse, by position.
    """
    upper = np.triu_indices(len(protocol.before.value), 1)
    before, after = (np.sign(rank[upper[1]] - rank[upper[0]]) for rank in protocol.ranks)
    counts: Row = {
        "pairs": len(before),
        "reversed": int((before * after < 0).sum()),
        "tied": int((before * after == 0).sum()),
        "apart": None,
        "turned": [],
    }
    if protocol.before.sigma is not None:
        sides = (protocol.before, protocol.after)
        first, second = (_apart(side, confidence)[upper] for side in sides)
        turned = np.flatnonzero(first * second < 0)
        counts["apart"] = int((first * second != 0).sum())
        counts["turned"] = [(int(upper[0][i]), int(upper[1][i])) for i in turned]
    return counts


def _apart(scores: Summary, confidence: float) -> Ints:
    """Return (L, L): 1 where the row's model is surely ahead of the column's, -1 where behind."""
    value, sigma = scores.value, scores.sigma
    compared = scoring.compare_scores(value[:, None], sigma[:, None], value, sigma, confidence)
    return np.asarray((compared.lo > 0).astype(np.int64) - (compared.hi < 0))


def protocol_table(measured: Measured, cfg: ReversalConfig) -> Table:
    """Tabulate PRR by protocol, with its posterior, the pairs that are apart, and the cost.

    The cost is of one model's evaluation before, in the currency of the prices; of Pass@k what k
    attempts cost, as MaP draws it, although its score here takes all N trials.
    """
    names, questions = distinct(measured.before), len(measured.cohort.question_ids)
    rows: list[Row] = []
    for protocol in measured.reversals:
        counts, posterior = pair_counts(protocol, cfg.confidence), protocol.posterior
        turned = [[names[i], names[j]] for i, j in counts["turned"]]
        used = measured.tokens["greedy" if protocol.metric == GREEDY.name else "sampled"]
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
                "apart_reversed": None if counts["apart"] is None else len(turned),
                "apart_reversed_pairs": turned,
                "trials": protocol.trials,
                "cost": used
                and protocols.evaluation_cost(used, questions, protocol.trials, cfg.prices),
            }
        )
    level, cost = percent(cfg.confidence), "cost of k attempts (as in MaP)"
    heads = [
        *columns(align="left", protocol="protocol"),
        *columns(wide=True, metric="metric"),
        *columns(_THREE, prr="PRR"),
        *columns(group="pairs", reversed="reversed", tied="tied", pairs="all"),
        *columns(_THREE, group="posterior", mean="mean"),
        *(
            Column(end, f"{end} {level}", None, _THREE, group="posterior", short=end)
            for end in ("low", "high")
        ),
        *columns(group="apart", apart="pairs", apart_reversed="reversed"),
        *columns(wide=True, trials="trials"),
        Column("cost", cost, cost.replace("of k", "of $k$"), "{:.4g}", short="cost of k"),
    ]
    title = f"pairwise ranking reversal rate (PRR): {measured.size}"
    return Table(title, heads, rows, _notes(measured, cfg, rows))


def _notes(measured: Measured, cfg: ReversalConfig, rows: Rows) -> list[str]:
    pairs, level = rows[0]["pairs"], percent(cfg.confidence)
    notes = [
        f"PRR: share of the {pairs} pairs whose order reverses; a tie is no reversal. Chance is"
        f" {CHANCE:g}, and one pair is {1 / pairs:.4f}",
        "posterior: of the rate, from these very trials; noise reverses half of the pairs that the"
        f" trials cannot tell apart, so its {level} interval need not hold PRR",
        f"apart: the {level} interval of the difference leaves out 0 before and after; trials are"
        " taken as independent",
    ]
    fewest, most = measured.trials
    if fewest < most:
        notes.append(f"N: questions have {fewest} to {most} trials")
    turned = {tuple(pair): None for row in rows for pair in row["apart_reversed_pairs"]}
    if turned:
        named = ", ".join(f"{a} and {b}" for a, b in list(turned)[:_MOST_NAMED])
        more = f" and {len(turned) - _MOST_NAMED} more" if len(turned) > _MOST_NAMED else ""
        notes.append(f"apart and reversed by some protocol: {named}{more}")
    notes.append(
        "greedy: one attempt of each question, so no interval from trials"
        if where(rows, metric=GREEDY.name)
        else "greedy is left out: not every run has a graded one beside it, RUN-greedy"
    )
    if short := [m.title() for m in protocols.metrics(cfg.metrics) if m.k > fewest]:
        notes.append(f"{', '.join(short)}: left out, some question has fewer trials")
    notes.append(_cost_note(measured.tokens["sampled"], cfg))
    return [*notes, *(f"not alike: {line}" for line in measured.cohort.differences)]


def _cost_note(used: Tokens | None, cfg: ReversalConfig) -> str:
    if used is None or used.prompt is None or used.completion is None:
        return "cost: not known, since some run does not record how many tokens it took"
    prices = ", ".join(f"{name} {price:g}" for name, price in vars(cfg.prices).items())
    return (
        "cost: of one model's evaluation before, by appendix C of MaP; prices per million tokens"
        f" ({prices}); a prompt has {used.prompt:,.0f} tokens, an attempt {used.completion:,.0f}."
        " Pass@k: of k attempts, although its score here is of all N; avg, Bayes: of N"
    )


def rank_rows(measured: Measured) -> list[Row]:
    """Make one row a protocol and model, in the order of the pairs."""
    rows: list[Row] = []
    for protocol in measured.reversals:
        rank_before, rank_after = protocol.ranks
        cells = {
            "before": measured.before,
            "after": measured.after,
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


def rank_table(measured: Measured, rows: Rows, label: str | None = None) -> Table:
    """Tabulate the pairs of runs and how far each model moved; of one protocol or of all."""
    heads = [
        *columns(align="left", wide=label is not None, protocol="protocol"),
        *columns(align="left", before="before", after="after"),
        *columns(_THREE, group="score", score_before="before", sigma_before="σ"),
        *columns(_THREE, group="score", score_after="after", sigma_after="σ"),
        *columns(group="rank", rank_before="before", rank_after="after"),
        *columns("{:+d}", group="rank", shift="shift"),
    ]
    notes = [
        "each row is one model: check that the names belong together",
        "ranks: competition, 1 the best; shift: places won (+) or lost (-) from before to after",
        "σ: avg and Bayes of the posterior; others over repetitions of the trials",
    ]
    title = f"ranks before and after{f' by {label}' if label else ''}: {measured.size}"
    return Table(title, heads, where(rows, protocol=label) if label else rows, notes)


def _figures(measured: Measured, rates: Rows, cfg: ReversalConfig) -> "dict[str, Figure]":
    from bayes_at_n.pipeline.plots import reversals as plots  # matplotlib takes half a second
    from bayes_at_n.pipeline.plots.lines import Curve

    panels = {p.label: (*p.ranks, p.rate) for p in measured.on_page()}
    title = f"ranks before and after, {measured.size}"
    figures = {"rank_scatter": plots.rank_scatter(distinct(measured.before), panels, title)}
    passes = [row for row in rates if row["metric"].startswith(PASS)]
    if passes:
        k, rate, low, high, cost, mean = (
            [row[key] for row in passes] for key in ("trials", "prr", "low", "high", "cost", "mean")
        )
        title = f"pairwise ranking reversal rate, {measured.size}"
        level = f"{percent(cfg.confidence)} interval"
        costs = None if None in cost else cost
        figures["trend"] = plots.trend(Curve(k, rate, low, high), costs, title, mean, level)
    return figures
