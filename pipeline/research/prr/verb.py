"""prr: the pairwise ranking reversal rate between two sets of runs, in tables and pictures."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.base import atomic
from pipeline.base.console import note, percent, results, warn
from pipeline.base.errors import UserError
from pipeline.cohorts.cohort import Cohort
from pipeline.config.prr import ReversalConfig, load
from pipeline.display import table as tabular
from pipeline.display.table import Table
from pipeline.research.prr import pairing, tables
from pipeline.research.prr.loading import stacked, usage
from pipeline.research.prr.pairing import Pairs
from pipeline.research.prr.rates import protocols
from pipeline.research.prr.tables import Found
from pipeline.store import find, runfolder


def run(settings: Sequence[str]) -> None:
    """Compare the order of models before and after; print tables, save them with pictures.

    Raises:
        UserError: settings or runs that cannot be compared; the folder may not be written.
    """
    cfg = load(settings)
    pairs = pairing.find(cfg)
    found = measure(pairs, cfg)
    made = {"protocols": tables.of_protocols(found, cfg), "ranks": tables.of_ranks(found)}
    pages = [tables.of_ranks(found, one.label) for one in tables.shown(found.rates)]
    main = tables.of_ranks(found, tables.average(found.rates).label)
    for table in (main, made["protocols"]):  # ranks by other protocols are in the files
        tabular.show(table)
        results.print()
    folder = Path(cfg.out).expanduser() if cfg.out else pairs.before[0].parent / "_prr"
    try:
        for stem, table in made.items():
            tabular.save(table, folder, stem)
        runfolder.write_json(folder / "prr.json", tabular.plain(_told(found, pairs, cfg)))
        _draw(found, cfg, folder)
        atomic.write_text(folder / "prr.md", _page(found, made["protocols"], pages))
    except OSError as error:
        raise UserError(
            f"{error.filename or folder}: {error.strerror or error}; the comparison was not saved"
        ) from error
    note(
        f"saved {folder / 'prr.md'}, prr.json, protocols and ranks as .csv, .json, .tex, .md, and"
        " rank_scatter and trend as .png, .pdf"
    )


def measure(pairs: Pairs, cfg: ReversalConfig) -> Found:
    """The reversal rate of every protocol.

    Raises:
        UserError: runs that cannot be compared.
    """
    models = len(pairs.before)
    cohort = stacked([*pairs.before, *pairs.after])
    greedy = _greedy(pairs)
    matrix = cohort.matrix()
    sides = matrix[:models], matrix[models:]
    of_greedy = None if greedy is None else greedy.matrix()
    rates = protocols(
        *sides, cfg, None if of_greedy is None else (of_greedy[:models], of_greedy[models:])
    )
    names = find.names([*pairs.before, *pairs.after])
    before, after = names[:models], names[models:]
    doubts = pairing.doubt(before, after)
    if doubts is not None:
        warn(f"{doubts}; if that is wrong list the runs: before=A,B after=C,D")
    usages = {
        "sampled": usage(cohort.members[:models]),
        "greedy": None if greedy is None else usage(greedy.members[:models]),
    }
    return Found(cohort, before, after, rates, usages, doubts)


def _greedy(pairs: Pairs) -> Cohort | None:
    """The outcomes of the greedy twins, where every run has one."""
    before, after = pairing.twins(pairs.before), pairing.twins(pairs.after)
    return None if before is None or after is None else stacked([*before, *after])


def _told(found: Found, pairs: Pairs, cfg: ReversalConfig) -> dict[str, Any]:
    """All that was computed, for programs."""
    return {
        "settings": asdict(cfg),
        "dataset": found.cohort.dataset,
        "questions": len(found.cohort.question_ids),
        "pairs_of_runs": [
            {"before": str(one), "after": str(other)}
            for one, other in zip(pairs.before, pairs.after, strict=True)
        ],
        "protocols": tables.protocol_rows(found, cfg),
        "ranks": tables.rank_rows(found),
        "tokens": {kind: one and one._asdict() for kind, one in found.usages.items()},
        "differences": found.cohort.differences,
        "pairing_doubt": found.doubt,
    }


def _page(found: Found, rates: Table, ranks: Sequence[Table]) -> str:
    """prr.md: the tables with their notes, and the pictures."""
    parts = [
        f"# Pairwise ranking reversal rate: {found.cohort.dataset}",
        f"Warning: {found.doubt}." if found.doubt else "",
        tabular.to_markdown(rates),
        "![PRR of Pass@k by k, and the cost of k attempts](trend.png)"
        * any(one.k for one in found.rates),
        *map(tabular.to_markdown, ranks),
        "![ranks before and after](rank_scatter.png)",
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _draw(found: Found, cfg: ReversalConfig, folder: Path) -> None:
    from pipeline.display import style
    from pipeline.plots import reversals  # matplotlib takes half a second

    names = pairing.distinct(found.before)
    shown = tables.shown(found.rates)
    panels = {one.label: (*one.ranks, one.rate) for one in shown}
    title = f"ranks before and after, {tables.size(found)}"
    style.save(reversals.rank_scatter(names, panels, title), folder / "rank_scatter")
    if not any(one.k for one in found.rates):
        for ending in ("png", "pdf"):
            (folder / f"trend.{ending}").unlink(missing_ok=True)  # of an earlier comparison
        return
    rows = [row for row in tables.protocol_rows(found, cfg) if row["k"] is not None]
    k, rate, low, high, cost, mean = (
        [row[key] for row in rows] for key in ("k", "prr", "low", "high", "cost", "mean")
    )
    title = f"pairwise ranking reversal rate, {tables.size(found)}"
    level = f"{percent(cfg.confidence)} interval"
    costs = None if None in cost else cost
    style.save(reversals.trend(k, rate, low, high, costs, title, mean, level), folder / "trend")
