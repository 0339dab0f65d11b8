"""What the page draws itself: the verdict over the forest of its models, and bars of rubrics."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayes_at_n.pipeline.compare import rubrics as cohort_rubrics
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.compare.comparison import with_best
from bayes_at_n.pipeline.compare.conclusion import conclude
from bayes_at_n.pipeline.compare.leaderboard import HEADLINE
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.display import sides
from bayes_at_n.pipeline.display.table import Table
from bayes_at_n.pipeline.plots.findings import most_often
from bayes_at_n.pipeline.report.attempts import Categories
from bayes_at_n.pipeline.rubrics.categories import counts
from bayes_at_n.pipeline.score.shown import apart, ordered

Row = Mapping[str, Any]


def first(cohort: Cohort, cfg: AnalysisConfig, tables: Mapping[str, Table]) -> dict[str, Any]:
    """What is best and what of it is settled, in a sentence, and the rows of the leaderboard."""
    rows, found = with_best(tables), conclude(cohort, cfg)
    drawn = forest(rows, f"rank_{cfg.scoring.rule}", cfg.scoring.headline)
    doubts = apart({row["model"]: row["shrinkage"] for row in rows})
    return {"sentence": found.sentence(), "apart": doubts, **drawn}


def forest(rows: Sequence[Row], rank: str, headline: str) -> dict[str, Any]:
    """Models with the headline and its interval, rank and P(best), as the template takes them.

    `rows` of a leaderboard, best first, with `best` where it is known; `rank`: the key of it.
    Places are percents of the axis, whose ticks are round numbers.

    >>> row = {"model": "a", "avg": 0.5, "avg_low": 0.4, "avg_high": 0.6, "mu": 0.49, "rank": 1}
    >>> drawn = forest([row], "rank", "avg")
    >>> drawn["ticks"][:2], drawn["rows"][0]["bar"]
    ([(0.0, '0.4'), (25.0, '0.45')], [0.0, 50.0, 100.0])
    """
    first, second = ordered(headline)
    score, _, *ends = HEADLINE[first]
    other = HEADLINE[second][0]
    low = min((row[ends[0]] for row in rows), default=0.0)
    high = max((row[ends[1]] for row in rows), default=1.0)
    step = _step(max(high - low, 1e-3) / 5)
    start, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)

    def place(value: float) -> float:
        return round(100 * (value / step - start) / max(last - start, 1), 2)

    shown = [
        {
            "model": row["model"],
            "rank": row[rank],
            "bar": [place(row[key]) for key in (ends[0], score, ends[1])],
            "score": f"{row[score]:.3f}",
            "interval": " to ".join(f"{row[end]:.3f}" for end in ends),
            "other": f"{row[other]:.3f}",
            "best": _chance(row.get("best")),
        }
        for row in rows
    ]
    ticks = [(place(i * step), f"{i * step:.3g}") for i in range(start, last + 1)]
    names = {"avg": "avg", "bayes": "Bayes@N"}
    return {"rows": shown, "ticks": ticks, "names": [names[first], names[second]]}


def _chance(share: float | None) -> str:
    if share is None:
        return "–"
    return "<0.01" if share < 0.005 else ">0.99" if share > 0.995 else f"{share:.2f}"


def _step(width: float) -> float:
    """The least of 1, 2 and 5 times powers of ten that is no smaller."""
    power = 10.0 ** math.floor(math.log10(width))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= width * (1 - 1e-9))


def rubrics(models: Sequence[str], of: Categories, board: Table) -> dict[str, Any]:
    """Who is best by each rubric, and `cards`: how each model's attempts fall into its categories.

    `of` is what :func:`pipeline.compare.rubrics.categories` returned for the `models`; cards have
    them in the order of the `board`. Rubrics that part all attempts alike share a card.
    """
    cards: dict[Any, dict[str, Any]] = {}
    won: list[list[str]] = []
    places = [models.index(row["model"]) for row in board.rows if row["model"] in models]
    for rubric, codes in of.values():
        counted = counts(codes, len(rubric.categories))
        names = [category.name for category in rubric.categories]
        looks, totals = sides.looks(names), counted.sum(axis=1)[places]
        kept = [i for i in sides.order(names) if totals[:, i].any()]
        ranks = cohort_rubrics.ranks(rubric, counted)
        firsts = [] if ranks is None else [models[i] for i in places if ranks[i] == 1]
        won += [firsts] if firsts else []
        alike = (totals[:, kept].tobytes(), *(looks[i].side for i in kept))
        shares = totals / np.maximum(totals.sum(axis=1, keepdims=True), 1)
        if alike not in cards:
            cards[alike] = {
                "names": [],
                "texts": [],
                "firsts": [],
                "keys": [
                    _part(names[i], looks[i], totals[:, i].sum() / totals.sum()) for i in kept
                ],
                "rows": [
                    (models[place], [_part(names[i], looks[i], row[i]) for i in kept])
                    for place, row in zip(places, shares, strict=True)
                ],
            }
        card = cards[alike]
        card["names"].append(rubric.name)
        card["texts"].append(rubric.description)
        if len(firsts) < len(places) and firsts not in [[], *card["firsts"]]:
            card["firsts"].append(firsts)
    told = won and len(places) > 1
    finding = most_often(won, "under {} of {} rubrics") if told else "Under each rubric"
    return {"finding": finding, "cards": [*cards.values()]} if cards else {}


def _part(name: str, look: sides.Look, share: float) -> dict[str, Any]:
    """A part of a bar: `share` of the attempts."""
    text = f"{name.replace('_', ' ')}: {100 * share:.1f} %"
    return {"side": look.side, "shade": look.shade, "share": round(100 * share, 2), "text": text}
