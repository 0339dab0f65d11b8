"""The tables of `prr`: how often each protocol's order reverses, and every model's ranks."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.base.console import percent
from pipeline.cohorts.cohort import Cohort
from pipeline.config.prr import ReversalConfig
from pipeline.display.table import Column, Table
from pipeline.research.prr.loading import Usage
from pipeline.research.prr.pairing import distinct
from pipeline.research.prr.rates import CHANCE, Protocol, pair_counts
from scoring.metrics.cost import sampling_cost

MILLION = 1e6  # tokens, which prices are of
_MOST_NAMED = 5  # pairs in a note


class Found(NamedTuple):
    """What was measured."""

    cohort: Cohort  # 2 L runs: before, then after
    before: list[str]  # L names
    after: list[str]
    rates: list[Protocol]
    usages: Mapping[str, Usage | None]  # of "sampled" and "greedy" runs before
    doubt: str | None  # why the pairing looks wrong


def size(found: Found) -> str:
    """Of what, and how much of it."""
    fewest, most = _trials(found)
    trials = f"{most} trials" if fewest == most else f"{fewest} to {most} trials"
    questions = len(found.cohort.question_ids)
    return f"{found.cohort.dataset}, {len(found.before)} models, {questions} questions, {trials}"


def _trials(found: Found) -> tuple[int, int]:
    """The fewest and the most trials of a question of a run."""
    had = np.ma.count(found.cohort.matrix(), axis=2)
    return int(had.min()), int(had.max())


def shown(rates: Sequence[Protocol]) -> list[Protocol]:
    """The protocols that a page has room for: greedy, avg@N, Pass@k with the largest k."""
    passes = [one for one in rates if one.k is not None and one.k > 1]
    first = [one for one in rates if one.label == "greedy"]
    return [*first, average(rates), *passes[-1:]]


def average(rates: Sequence[Protocol]) -> Protocol:
    """The protocol avg@N, which is always there."""
    return next(one for one in rates if one.label.startswith("avg@"))


def cost(found: Found, one: Protocol, cfg: ReversalConfig) -> float | None:
    """What one model's evaluation before costs, in the currency of the prices (MaP, appendix C).

    Pass@k: what k attempts cost, as MaP draws it; here its score takes all N trials.
    """
    tokens = found.usages["greedy" if one.label == "greedy" else "sampled"]
    if tokens is None:
        return None
    questions = len(found.cohort.question_ids)
    return float(questions * sampling_cost(*tokens, one.trials, **vars(cfg.prices)) / MILLION)


def protocol_rows(found: Found, cfg: ReversalConfig) -> list[dict[str, Any]]:
    """One row a protocol."""
    rows = []
    names = distinct(found.before)
    for one in found.rates:
        counts = pair_counts(one, cfg.confidence)
        rows.append(
            {
                "protocol": one.label,
                "k": one.k,
                "prr": one.rate,
                "reversed": counts.reversed,
                "tied": counts.tied,
                "pairs": counts.pairs,
                "mean": one.mean,
                "low": one.low,
                "high": one.high,
                "settled": counts.settled,
                "settled_reversed": None
                if counts.settled is None
                else len(counts.settled_reversed),
                "settled_reversed_pairs": [
                    [names[i], names[j]] for i, j in counts.settled_reversed
                ],
                "trials": one.trials,
                "cost": cost(found, one, cfg),
            }
        )
    return rows


def of_protocols(found: Found, cfg: ReversalConfig) -> Table:
    """PRR by protocol, with its posterior, the settled pairs and the cost."""
    rows = protocol_rows(found, cfg)
    level = percent(cfg.confidence)
    columns = [
        Column("protocol", "protocol", align="left"),
        Column("k", "k", "$k$", wide=True),
        Column("prr", "PRR", None, "{:.4f}"),
        Column("reversed", "reversed", group="pairs"),
        Column("tied", "tied", group="pairs"),
        Column("pairs", "all", group="pairs"),
        Column("mean", "mean", None, "{:.4f}", group="posterior"),
        Column("low", f"low {level}", None, "{:.4f}", group="posterior", short="low"),
        Column("high", f"high {level}", None, "{:.4f}", group="posterior", short="high"),
        Column("settled", "pairs", group="settled"),
        Column("settled_reversed", "reversed", group="settled"),
        Column("trials", "trials", wide=True),
        Column(
            "cost",
            "cost of k attempts (as in MaP)",
            r"cost of $k$ attempts (as in MaP)",
            "{:.4g}",
            short="cost of k",
        ),
    ]
    title = f"pairwise ranking reversal rate (PRR): {size(found)}"
    return Table(title, columns, rows, _notes(found, cfg, rows))


def _notes(found: Found, cfg: ReversalConfig, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    pairs = rows[0]["pairs"]
    level = percent(cfg.confidence)
    notes = [
        f"PRR: share of pairs ({pairs}) whose order reverses; a tie is no reversal, so that many"
        f" ties make it small. Chance is {CHANCE:g}, and one pair is {1 / pairs:.4f}",
        "posterior: of the rate, from the trials of these very models and questions; noise reverses"
        " half of the pairs that the trials cannot tell apart, tied ones too, which pulls the mean,"
        f" mostly towards {CHANCE:g}; its {level} interval need not hold PRR",
        f"settled: the {level} interval of the difference leaves out 0 both before and after; of"
        " avg and Bayes by the posteriors, of Pass@k over repetitions of the trials; trials are"
        " taken as independent",
    ]
    fewest, most = _trials(found)
    if fewest < most:
        notes.append(f"N: questions have {fewest} to {most} trials")
    turned = {tuple(pair): None for row in rows for pair in row["settled_reversed_pairs"]}
    if turned:
        named = ", ".join(f"{a} and {b}" for a, b in list(turned)[:_MOST_NAMED])
        more = f" and {len(turned) - _MOST_NAMED} more" if len(turned) > _MOST_NAMED else ""
        notes.append(f"settled and reversed by some protocol: {named}{more}")
    if not any(row["protocol"] == "greedy" for row in rows):
        notes.append("greedy is left out: not every run has a graded one beside it, RUN-greedy")
    else:
        notes.append("greedy: one attempt of each question, so no interval from trials")
    missing = [k for k in cfg.pass_k if not any(row["protocol"] == f"Pass@{k}" for row in rows)]
    if missing:
        ks = ", ".join(f"Pass@{k}" for k in missing)
        notes.append(f"{ks}: left out, some question has fewer trials")
    return [*notes, *_cost_notes(found, cfg), *_unlike(found)]


def _cost_notes(found: Found, cfg: ReversalConfig) -> list[str]:
    tokens, prices = found.usages["sampled"], cfg.prices
    if tokens is None:
        return ["cost: not known, since some run does not say how many tokens it took"]
    return [
        "cost: of one model's evaluation before, by appendix C of MaP, at"
        f" {prices.cache_miss:g} (prompt), {prices.cache_hit:g} (cached) and {prices.output:g}"
        f" (output) per million tokens; a prompt has {tokens.prompt_tokens:,.0f} tokens and an"
        f" attempt {tokens.completion_tokens:,.0f}, as measured. Pass@k: of k attempts, as MaP"
        " draws it, although its score here is of all N trials; avg and Bayes: of N; greedy: of one"
    ]


def _unlike(found: Found) -> list[str]:
    return [f"not alike: {line}" for line in found.cohort.differences]


def rank_rows(found: Found) -> list[dict[str, Any]]:
    """One row a protocol and model, in the order of the pairs."""
    rows: list[dict[str, Any]] = []
    for one in found.rates:
        before, after = one.ranks
        for i, (name, name_after) in enumerate(zip(found.before, found.after, strict=True)):
            rows.append(
                {
                    "protocol": one.label,
                    "before": name,
                    "after": name_after,
                    "score_before": float(one.before.mu[i]),
                    "sigma_before": _value(one.before.sigma, i),
                    "score_after": float(one.after.mu[i]),
                    "sigma_after": _value(one.after.sigma, i),
                    "rank_before": int(before[i]),
                    "rank_after": int(after[i]),
                    "shift": int(before[i] - after[i]),
                }
            )
    return rows


def _value(sigma: Any, i: int) -> float | None:
    return None if sigma is None else float(sigma[i])


def of_ranks(found: Found, label: str | None = None) -> Table:
    """Which run is paired with which, and how far each model moved; of one protocol or of all."""
    rows = [row for row in rank_rows(found) if label in (None, row["protocol"])]
    four = "{:.4f}"
    columns = [
        Column("protocol", "protocol", align="left", wide=label is not None),
        Column("before", "before", align="left"),
        Column("after", "after", align="left"),
        Column("score_before", "before", None, four, group="score"),
        Column("sigma_before", "σ", r"$\sigma$", four, group="score"),
        Column("score_after", "after", None, four, group="score"),
        Column("sigma_after", "σ", r"$\sigma$", four, group="score"),
        Column("rank_before", "before", group="rank"),
        Column("rank_after", "after", group="rank"),
        Column("shift", "shift", None, "{:+d}", group="rank"),
    ]
    notes = [
        "each row is one model: check that the names belong together",
        "ranks: competition, 1 the best; shift: places won (+) or lost (-) from before to after",
        "σ: avg and Bayes of the posterior; Pass@k over repetitions of the trials",
    ]
    what = "ranks before and after" if label is None else f"ranks before and after by {label}"
    return Table(f"{what}: {size(found)}", columns, rows, notes)
