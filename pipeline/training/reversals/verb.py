"""prr: the pairwise ranking reversal rate between two sets of runs, in tables and pictures."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayes_at_n.pipeline.base.console import note, percent, results, warn
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.trajectory import ReversalConfig
from bayes_at_n.pipeline.display import table as tabular
from bayes_at_n.pipeline.store import files, find
from bayes_at_n.pipeline.training import protocols
from bayes_at_n.pipeline.training.protocols import PASS
from bayes_at_n.pipeline.training.reversals import pairing, tables
from bayes_at_n.pipeline.training.reversals.pairing import Pairs
from bayes_at_n.pipeline.training.reversals.rates import reversals
from bayes_at_n.pipeline.training.reversals.tables import Measured
from bayes_at_n.pipeline.training.tables import Rows, page

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run(cfg: ReversalConfig) -> None:
    """Compare the order of models before and after; print tables, save them with pictures.

    Raises UserError: runs that cannot be compared. OSError: the folder may not be written.
    """
    pairs = pairing.pair(cfg)
    measured = measure(pairs, cfg)
    rates, ranks = tables.of_protocols(measured, cfg), tables.rank_rows(measured)
    saved = {"protocols": rates, "ranks": tables.of_ranks(measured, ranks)}
    pages = {p.label: tables.of_ranks(measured, ranks, p.label) for p in measured.shown()}
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
        "ranks": ranks,
        "tokens": {
            kind: of and {"prompt_tokens": of.prompt, "completion_tokens": of.completion}
            for kind, of in measured.tokens.items()
        },
        "differences": measured.cohort.differences,
        "pairing_doubt": measured.doubt,
    }
    tabular.answer(record)
    title = f"Pairwise ranking reversal rate: {measured.cohort.dataset}"
    doubt = [f"Warning: {measured.doubt}."] * bool(measured.doubt)
    text = page(title, [], doubt, figures, {"protocols": rates, **pages})
    files.write(folder, "prr", record, saved, figures, {"prr.md": text})
    note(
        f"saved {folder / 'prr.md'}, prr.json, protocols and ranks as .csv, .json, .tex, .md, and"
        f" {' and '.join(figures)} as .png, .pdf"
    )


def measure(pairs: Pairs, cfg: ReversalConfig) -> Measured:
    """The reversal rate of every protocol.

    Raises UserError: runs that cannot be compared.
    """
    models = len(pairs.before)
    cohort = pairing.stacked([*pairs.before, *pairs.after])
    twins = pairing.greedy_twins([*pairs.before, *pairs.after])
    greedy = None if twins is None else pairing.stacked(twins, cohort)

    def sides(of: Cohort) -> tuple[Any, Any]:
        return of.matrix()[:models], of.matrix()[models:]

    names = find.names([*pairs.before, *pairs.after])
    before, after = names[:models], names[models:]
    doubt = pairing.doubt(before, after)
    if doubt is not None:
        warn(f"{doubt}; if that is wrong list the runs: before=A,B after=C,D")
    tokens = {
        kind: None if of is None else protocols.tokens([m.run for m in of.members[:models]])
        for kind, of in {"sampled": cohort, "greedy": greedy}.items()
    }
    rates = reversals(*sides(cohort), cfg, None if greedy is None else sides(greedy))
    return Measured(cohort, before, after, rates, tokens, doubt)


def _figures(measured: Measured, rates: Rows, cfg: ReversalConfig) -> "dict[str, Figure]":
    from bayes_at_n.pipeline.plots import reversals as plots  # matplotlib takes half a second
    from bayes_at_n.pipeline.plots.lines import Curve

    panels = {p.label: (*p.ranks, p.rate) for p in measured.shown()}
    title = f"ranks before and after, {measured.size}"
    names = pairing.distinct(measured.before)
    figures = {"rank_scatter": plots.rank_scatter(names, panels, title)}
    passes = [row for row in rates if row["metric"].startswith(PASS)]
    if passes:
        k, rate, low, high, cost, mean = (
            [row[key] for row in passes] for key in ("trials", "prr", "low", "high", "cost", "mean")
        )
        title = f"pairwise ranking reversal rate, {measured.size}"
        level = f"{percent(cfg.confidence)} interval"
        costs = None if None in cost else cost
        rates_by_k = Curve(k, rate, low, high)
        figures["trend"] = plots.trend(rates_by_k, costs, title, mean, level)
    return figures
