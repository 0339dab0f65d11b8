"""After verify: how good its probabilities are, and how far verifier and grader agree.

The grader's outcomes stand for the truth (`texts.true_labels`): where it has no view (a timeout, an
answer that it cannot read) the attempt is left out.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.console import mention, note, percent, results, warn
from bayes_at_n.pipeline.display.table import Table, columns, show
from bayes_at_n.pipeline.store import graded, outcomes, rowkeys, runfolder, verdicts
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify import calibrate
from bayes_at_n.pipeline.verify.calibrate import Views
from bayes_at_n.pipeline.verify.texts import of_labels, true_labels
from bayes_at_n.verifiers.judge import agreement, quality
from bayes_at_n.verifiers.judge.labels import LABELS, Floats

MEASURES = {
    "accuracy": "accuracy",
    "nll": "negative log-likelihood",
    "brier": "Brier score",
    "ece": "calibration error (ECE)",
    "auroc": "AUROC of P(A)",
}
_MANY = 20  # attempts of which a sound verifier hardly accepts all
_OF = [f"{kind}{label.lower()}" for kind in ("logprob_", "base_") for label in LABELS]


def report(run: Run) -> None:
    """Show what verdicts are worth, and write it into `verdicts/_calibration.json`."""
    table, views, bases = judged(run, ["a", "b", "c", "cut"])
    if cut := np.count_nonzero(table["cut"].to_numpy()):
        of = f"{cut} of {len(table)} responses ({percent(cut / len(table))})"
        mention(f"verify: {of} were cut in the middle")
    judge = run.cfg.dataset.judge
    if judge:
        found = outcomes.read(run, quiet=True)
        results.print(outcomes.who(run, found))
        n = found.deciders()
        if judge == "unmatched" and n["accepted"] == n["verifier"] >= _MANY:
            warn(
                f"the verifier accepts every one of {n['verifier']} attempts that the rule grader"
                " does not: is it broken? dataset.judge=all asks it about the others, too"
            )
    if judge == "unmatched":  # its sample says nothing of all attempts
        return
    # Where verdicts decide, people see those on what the rules could not read, too.
    seen = pc.is_valid(table["outcome"]).to_numpy() if judge else views.truth >= 0
    if not seen.any():
        note("verify: no grades to compare the verdicts with; run `grade`")
        return
    measures = _calibrated(run, views, bases)
    labels = of_labels(table)[seen].argmax(axis=1)
    both = agreement.agreement(views.truth[seen] == 0, labels)
    _show_agreement(both, int(np.count_nonzero(~seen)))
    measures |= {"agreement": both.table.tolist(), "kappa": both.cohen.kappa}
    runfolder.write_json(run.path / "verdicts" / "_calibration.json", measures)


def judged(run: Run, names: Sequence[str] = ()) -> tuple[pa.Table, Views, Floats]:
    """Return n verdicts with the grader's `outcome`, what both say, and baselines (n, 3)."""
    table = verdicts.read(run, [*_OF, *names]).table
    keys = rowkeys.encode(table, rowkeys.question_ids(run))
    order = np.argsort(keys)[np.count_nonzero(keys < 0) :]  # sums do not depend on who wrote what
    table, keys = table.take(pa.array(order)), keys[order]
    outcome = graded.aligned(run, ["outcome"], keys)["outcome"]
    views = Views(keys, of_labels(table, "logprob_"), true_labels(outcome, run))
    return table.append_column("outcome", outcome), views, of_labels(table, "base_")


def pooled(runs: Sequence[Run]) -> dict[str, Any] | None:
    """`quality.report` over the graded attempts of several runs, all with verdicts.

    None where a run has no verdicts, or two of them were calibrated with different T.
    """
    told = [runfolder.read_json(run.path / "verdicts" / "_calibration.json") for run in runs]
    temperatures: set[Any] = {measures.get("temperature") for measures in told}
    if None in temperatures or len(temperatures) != 1:
        return None
    parts = [(views.logprobs, bases, views.truth) for _, views, bases in map(judged, runs)]
    logprobs, bases, truth = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not (seen := truth >= 0).any():
        return None
    return quality.report(logprobs[seen], bases[seen], truth[seen], temperatures.pop())


def _calibrated(run: Run, views: Views, bases: Floats) -> dict[str, Any]:
    """Show and return the calibration on graded attempts; empty without any."""
    seen, temperature, fitted = views.truth >= 0, run.cfg.verifier.temperature, None
    if run.cfg.verifier.fit_temperature:
        fit, told = calibrate.fit(run, views, bases)
        if fit is None:
            warn(f"verifier.fit_temperature: {told}; the configured T stays")
        else:
            mention(f"verify: {told}")
            temperature = fit.temperature
            fitted = {"temperature": temperature, "stderr": fit.stderr, "fitted": fit.fitted}
    if not seen.any():
        return {}
    measures = quality.report(views.logprobs[seen], bases[seen], views.truth[seen], temperature)
    rows = []
    for key, name in MEASURES.items():
        values = {side: measures[side][key] for side in ("before", "after")}
        shown = {side: "undefined" if v is None else v for side, v in values.items()}
        rows.append({"measure": name, **shown})
    heads = columns(align="left", measure="measure")
    heads += columns("{:.3f}", before="softmax", after=f"calibrated, T = {temperature:g}")
    title = f"calibration against the grader, {measures['attempts']} graded attempts"
    show(Table(title, heads, rows))
    return measures | {"fit": fitted, "truth": "the grader's outcomes"}


def _show_agreement(both: agreement.Agreement, left_out: int) -> None:
    """Show the 2x3 table of grader against verifier, and kappa."""
    heads = columns(align="left", grader="grader")
    heads += columns(A="A correct", B="B incorrect", C="C invalid")
    names, shares = ("correct", "not correct"), both.percent.filled(0)
    rows = [
        {"grader": name}
        | {x: f"{n} ({share:.1f} %)" for x, n, share in zip(LABELS, *cells, strict=True)}
        for name, *cells in zip(names, both.table, shares, strict=True)
    ]
    extra = f" ({left_out} on which the grader has no view are left out)" if left_out else ""
    show(Table(f"grader and verifier, {both.table.sum()} attempts{extra}", heads, rows))
    cohen, kappa = both.cohen, "undefined, since both know one word only"
    if cohen.kappa is not None:
        kappa = f"{cohen.kappa:.3f} (standard error {cohen.stderr:.3f})"
    results.print(
        f"agree on {cohen.observed:.1%}, by chance {cohen.expected:.1%}; Cohen's kappa {kappa}"
    )
    differ = int(both.table[0, 1:].sum() + both.table[1, 0])
    mention(f"verify: {differ} disagreements; the page of `report` lists them, surest first")
