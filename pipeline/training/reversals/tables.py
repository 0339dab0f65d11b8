"""The tables of `prr`: how often each protocol's order reverses, and every model's ranks."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bayes_at_n.pipeline.base.console import percent
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.trajectory import ReversalConfig
from bayes_at_n.pipeline.display.table import Column, Table, columns
from bayes_at_n.pipeline.training import protocols
from bayes_at_n.pipeline.training.protocols import AVG, GREEDY, PASS, Tokens
from bayes_at_n.pipeline.training.reversals.pairing import distinct
from bayes_at_n.pipeline.training.reversals.rates import CHANCE, Reversals, pair_counts
from bayes_at_n.pipeline.training.tables import Row, Rows, records, where

_MOST_NAMED = 5  # pairs in a note
_THREE = "{:.3f}"


class Measured(NamedTuple):
    """What was measured."""

    cohort: Cohort  # 2 L runs: before, then after
    before: list[str]  # L names
    after: list[str]
    reversals: list[Reversals]
    tokens: Mapping[str, Tokens | None]  # of "sampled" and "greedy" runs before
    doubt: str | None  # why the pairing looks wrong

    @property
    def trials(self) -> tuple[int, int]:
        """The fewest and the most trials of a question of a run."""
        had = np.ma.count(self.cohort.matrix(), axis=2)
        return int(had.min()), int(had.max())

    @property
    def size(self) -> str:
        """Of what, and how much of it."""
        fewest, most = self.trials
        trials = f"{most} trials" if fewest == most else f"{fewest} to {most} trials"
        questions = len(self.cohort.question_ids)
        return f"{self.cohort.dataset}, {len(self.before)} models, {questions} questions, {trials}"

    def shown(self) -> list[Reversals]:
        """The protocols that a page has room for: greedy, avg@N, Pass@k with the largest k."""
        first = [p for p in self.reversals if p.metric in (GREEDY.name, AVG)]
        passes = [p for p in self.reversals if p.metric.startswith(PASS) and p.trials > 1]
        return [*first, *passes[-1:]]

    def cost(self, protocol: Reversals, cfg: ReversalConfig) -> float | None:
        """What one model's evaluation before costs, in the currency of the prices.

        Pass@k: what k attempts cost, as MaP draws it; here its score takes all N trials.
        """
        tokens = self.tokens["greedy" if protocol.metric == GREEDY.name else "sampled"]
        questions = len(self.cohort.question_ids)
        return tokens and protocols.evaluation_cost(tokens, questions, protocol.trials, cfg.prices)


def of_protocols(measured: Measured, cfg: ReversalConfig) -> Table:
    """PRR by protocol, with its posterior, the settled pairs and the cost."""
    rows: list[Row] = []
    names = distinct(measured.before)
    for protocol in measured.reversals:
        counts, posterior = pair_counts(protocol, cfg.confidence), protocol.posterior
        turned = [[names[i], names[j]] for i, j in counts.settled_reversed]
        rows.append(
            {
                "protocol": protocol.label,
                "metric": protocol.metric,
                "prr": protocol.rate,
                "reversed": counts.reversed,
                "tied": counts.tied,
                "pairs": counts.pairs,
                "mean": posterior and posterior.mean,
                "low": posterior and posterior.lo,
                "high": posterior and posterior.hi,
                "settled": counts.settled,
                "settled_reversed": None if counts.settled is None else len(turned),
                "settled_reversed_pairs": turned,
                "trials": protocol.trials,
                "cost": measured.cost(protocol, cfg),
            }
        )
    level = percent(cfg.confidence)
    cost = "cost of k attempts (as in MaP)"
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
        *columns(group="settled", settled="pairs", settled_reversed="reversed"),
        *columns(wide=True, trials="trials"),
        Column("cost", cost, cost.replace("of k", "of $k$"), "{:.4g}", short="cost of k"),
    ]
    title = f"pairwise ranking reversal rate (PRR): {measured.size}"
    return Table(title, heads, rows, _notes(measured, cfg, rows))


def _notes(measured: Measured, cfg: ReversalConfig, rows: Rows) -> list[str]:
    pairs, level = rows[0]["pairs"], percent(cfg.confidence)
    notes = [
        f"PRR: share of pairs ({pairs}) whose order reverses; a tie is no reversal, so that many"
        f" ties make it small. Chance is {CHANCE:g}, and one pair is {1 / pairs:.4f}",
        "posterior: of the rate, from the trials of these very models and questions; noise reverses"
        " half of the pairs that the trials cannot tell apart, tied ones too, which pulls the mean,"
        f" mostly towards {CHANCE:g}; its {level} interval need not hold PRR; of avg, Bayes and"
        " Pass@k",
        f"settled: the {level} interval of the difference leaves out 0 both before and after; of"
        " avg and Bayes by the posteriors, of others over repetitions of the trials; trials are"
        " taken as independent",
    ]
    fewest, most = measured.trials
    if fewest < most:
        notes.append(f"N: questions have {fewest} to {most} trials")
    turned = {tuple(pair): None for row in rows for pair in row["settled_reversed_pairs"]}
    if turned:
        named = ", ".join(f"{a} and {b}" for a, b in list(turned)[:_MOST_NAMED])
        more = f" and {len(turned) - _MOST_NAMED} more" if len(turned) > _MOST_NAMED else ""
        notes.append(f"settled and reversed by some protocol: {named}{more}")
    notes.append(
        "greedy: one attempt of each question, so no interval from trials"
        if where(rows, metric=GREEDY.name)
        else "greedy is left out: not every run has a graded one beside it, RUN-greedy"
    )
    if short := [m.title() for m in protocols.metrics(cfg.metrics) if m.k > fewest]:
        notes.append(f"{', '.join(short)}: left out, some question has fewer trials")
    notes.append(_cost_note(measured.tokens["sampled"], cfg))
    return [*notes, *(f"not alike: {line}" for line in measured.cohort.differences)]


def _cost_note(tokens: Tokens | None, cfg: ReversalConfig) -> str:
    prices = cfg.prices
    if tokens is None or tokens.prompt is None or tokens.completion is None:
        return "cost: not known, since some run does not say how many tokens it took"
    return (
        "cost: of one model's evaluation before, by appendix C of MaP, at"
        f" {prices.cache_miss:g} (prompt), {prices.cache_hit:g} (cached) and {prices.output:g}"
        f" (output) per million tokens; a prompt has {tokens.prompt:,.0f} tokens and an"
        f" attempt {tokens.completion:,.0f}, as measured. Pass@k: of k attempts, as MaP"
        " draws it, although its score here is of all N trials; avg and Bayes: of N; greedy: of one"
    )


def rank_rows(measured: Measured) -> list[Row]:
    """One row a protocol and model, in the order of the pairs."""
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


def of_ranks(measured: Measured, rows: Rows, label: str | None = None) -> Table:
    """Which run is paired with which, and how far each model moved; of one protocol or of all."""
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
