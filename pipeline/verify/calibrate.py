"""Calibrate label probabilities, and measure them against the grader and human labels.

The verifier is not needed here. Attempts are tables with `key` (`tables.encode`), `logprob_*` and
`truth`, which is null if the grader failed (a timeout, an answer that it cannot read).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.console import note, note_alone, percent, results, warn
from bayes_at_n.pipeline.display.table import Table, columns, show
from bayes_at_n.pipeline.score import labels
from bayes_at_n.pipeline.store import outcomes, runfolder, tables
from bayes_at_n.pipeline.store.columns import VERDICTS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import Inputs, Part
from bayes_at_n.verifiers.judge import calibration, quality
from bayes_at_n.verifiers.judge.calibration import LABELS

_TITLES = {"nll": "log-loss", "brier": "Brier score", "ece": "ECE", "auroc": "AUROC of P(A)"}
_MANY = 20  # attempts at least, all accepted, that suggest a broken verifier


def true_labels(outcome: Any, run: Run) -> Any:
    """Return the labels of outcomes: 0 (A), 1 (B), 2 (C; B if the verifier has no C)."""
    label = pc.index_in(outcome, value_set=pa.array(["correct", "wrong", "no_answer"]))
    most = 2 if run.cfg.verifier.labels.invalid else 1
    return pc.min_element_wise(label, most, skip_nulls=False)


def of_labels(rows: Any, kind: str = "") -> npt.NDArray[Any]:
    """Return the columns of A, B and C as (n, 3): "logprob_", "base_" or "" (calibrated)."""
    return np.stack([rows[f"{kind}{label.lower()}"].to_numpy() for label in LABELS], axis=1)


def label_columns(values: npt.NDArray[Any], kind: str = "") -> dict[str, Any]:
    """Return values (n, 3) as columns; the inverse of `of_labels`."""
    return {f"{kind}{label.lower()}": values[:, i] for i, label in enumerate(LABELS)}


def write_verdicts(
    run: Run, attempts: pa.Table, columns: Mapping[str, Any], made_from: Inputs, of: Iterable[Part]
) -> int:
    """Write the verdicts `of` parts of attempts; missing columns are null. Return their number."""
    keys, written = attempts["key"].to_numpy(), 0
    ids = tables.question_ids(run).take(pa.array(keys >> 32))
    known = {"question_id": ids, "trial": keys & 0xFFFFFFFF, **columns}
    nulls = {f.name: pa.nulls(keys.size, f.type) for f in VERDICTS if f.name not in known}
    table = pa.table(nulls | known, schema=VERDICTS)
    for part in of:
        rows = table.filter(pc.equal(attempts["part"], part.stem))
        outcomes.VERDICTS_TABLE.write(run.path, part.stem, rows, made_from, part.mark)
        written += rows.num_rows
    outcomes.VERDICTS_TABLE.sweep(run)
    return written


def with_labels(run: Run, attempts: pa.Table, logprobs: pa.Table, probes: list[str]) -> pa.Table:
    """Add log-probs and baselines `base_*` to attempts; those without log-probs are left out.

    Baselines are missing until all `probes` are judged. They move A against B only; with
    verifier.clip=null they are the paper's formula, for all labels and without bounds.
    """
    rows = logprobs.take(pc.index_in(attempts["judged"], value_set=logprobs["judged"]))
    for name in rows.column_names[1:]:
        attempts = attempts.append_column(name, rows[name])
    attempts = attempts.filter(rows["judged"].is_valid())
    free = logprobs.take(pc.index_in(pa.array(probes, pa.string()), value_set=logprobs["judged"]))
    if free["judged"].null_count and len(attempts):
        return attempts
    v, base, questions = run.cfg.verifier, np.zeros(3), attempts["key"].to_numpy() >> 32
    labeled = attempts.filter(attempts["truth"].is_valid())
    # Not if the verifier decides outcomes, or there are few grades.
    unusable = run.cfg.dataset.judge or len(labeled) < calibration.LEAST_LABELLED
    if v.calibration == "graded" and not unusable:
        scores, truth = of_labels(labeled, "logprob_"), labeled["truth"].to_numpy()
        bias = calibration.clipped(calibration.of_attempts(scores, truth), v.clip).round(6)
        questions_of = labeled["key"].to_numpy() >> 32
        better = calibration.lowers_loss(scores, bias, truth, questions_of, v.temperature)
        base = bias if better else base
    elif len(free) and len(attempts):
        strings = of_labels(free, "logprob_").astype(np.float64)
        strings = strings.reshape(-1, len(v.content_free), 3).swapaxes(0, 1)
        base = calibration.baseline(strings, cast(Any, v.average))
        base = base if v.clip is None else calibration.a_against_b(base)
        base = calibration.clipped(base, v.clip).round(6) + 0.0
    bases = np.broadcast_to(base, (len(run.questions), 3))[questions]
    for name, values in label_columns(bases, "base_").items():
        attempts = attempts.append_column(name, pa.array(values))
    return attempts


def fit(run: Run, attempts: pa.Table) -> tuple[calibration.Fit | None, str]:
    """Fit T to human labels; return the fit and a line on it; None: the configured T is kept."""
    decided = attempts.filter(attempts["truth"].is_valid())
    if (people := labels.read(run, keys := decided["key"].to_numpy())) is None:
        return None, "needs labels=FILE"
    sure = people.values != 0.5
    rows, right = people.at[sure], people.values[sure] > 0.5
    bases = of_labels(decided, "base_").astype(np.float32)  # as stored
    scores = (of_labels(decided, "logprob_").astype(np.float64) - bases)[rows]
    # Human labels are right or wrong; wrong is the more probable of B and C.
    scores[:, 1], scores[:, 2] = scores[:, 1:].max(axis=1), -np.inf
    truth, groups = 1 - right.astype(np.int64), keys[rows] >> 32
    try:
        fitted = calibration.fit_temperature(scores, np.zeros(3), truth, groups=groups)
    except ValueError as error:
        return None, str(error)
    t, stderr = fitted.temperature, fitted.stderr
    if stderr is None:
        why = "the end of its range: it is never wrong, or worse than chance"
        return None, f"T reached {t:g}, {why}"
    words = f"T = {t:.3f} (standard error {stderr:.3f}) fitted to {fitted.fitted} human labels"
    return fitted._replace(temperature=round(t, 6)), words


def judged(run: Run, names: Sequence[str] = ()) -> pa.Table:
    """Return attempts with verdicts: `base_*`, the grader's `outcome` and other columns."""
    columns = [f"{kind}{x}" for kind in ("logprob_", "base_") for x in "abc"]
    table = outcomes.read_verdicts(run, [*columns, *names]).table
    keys = pa.array(tables.encode(table, tables.question_ids(run)))
    table = table.append_column("key", keys).sort_by("key")  # so that sums are reproducible
    grades = outcomes.ruled(run, ["outcome"])
    outcome = tables.aligned(run, grades, table["key"].to_numpy())["outcome"]
    return table.append_column("outcome", outcome).append_column("truth", true_labels(outcome, run))


def pooled(runs: Sequence[Run]) -> dict[str, Any] | None:
    """Measure the calibration of several runs; None if one has no verdicts, or T differs."""
    paths = [run.path / "verdicts" / "_calibration.json" for run in runs]
    temperatures: set[Any] = {runfolder.read_json(path).get("temperature") for path in paths}
    if None in temperatures or len(temperatures) != 1:
        return None
    return _measured(pa.concat_tables(map(judged, runs)), temperatures.pop())


def _measured(attempts: pa.Table, temperature: float) -> dict[str, Any] | None:
    labeled = attempts.filter(attempts["truth"].is_valid())
    logprobs, bases = of_labels(labeled, "logprob_"), of_labels(labeled, "base_")
    truth = labeled["truth"].to_numpy()
    return quality.report(logprobs, bases, truth, temperature) if truth.size else None


def report(run: Run) -> None:
    """Print the calibration of verdicts, and write it to `verdicts/_calibration.json`."""
    attempts, judge = judged(run, ["a", "b", "c", "cut"]), run.cfg.dataset.judge
    if cut := np.count_nonzero(attempts["cut"].to_numpy()):
        share = f"{cut} of {len(attempts)} responses ({percent(cut / len(attempts))})"
        note_alone(f"verify: {share} were cut in the middle to fit the verifier's context")
    if judge:
        all_outcomes = outcomes.read(run, quiet=True)
        results.print(outcomes.deciders_line(run, all_outcomes))
        n = all_outcomes.deciders()
        if judge == "unmatched" and n["accepted"] == n["verifier"] >= _MANY:
            accepted = f"the verifier accepts all {n['verifier']} that the rule grader does not"
            warn(f"{accepted}: is it broken? dataset.judge=all lets it judge the others, too")
    if judge == "unmatched":  # a biased sample of attempts
        return
    # If the verifier decides outcomes, include its verdicts on answers that the rules cannot read.
    comparable = attempts.filter(attempts["outcome" if judge else "truth"].is_valid())
    if not len(comparable):
        note("verify: no grades to compare the verdicts with; run `grade`")
        return
    temperature, fitted = run.cfg.verifier.temperature, None
    if run.cfg.verifier.fit_temperature:
        best, words = fit(run, attempts)
        if best is None:
            warn(f"verifier.fit_temperature: {words}; the configured T is kept")
        else:
            note_alone(f"verify: {words}")
            temperature = best.temperature
            fitted = {"temperature": temperature, "stderr": best.stderr, "fitted": best.fitted}
    correct = pc.equal(comparable["outcome"], "correct").to_numpy()
    both = quality.agreement(correct, of_labels(comparable).argmax(axis=1))
    measures = _measured(attempts, temperature) or {}
    _show(measures, both, len(attempts) - len(comparable))
    if measures:
        measures |= {"fit": fitted, "truth": "the grader's outcomes"}
    measures |= {"agreement": both.table.tolist(), "kappa": both.kappa}
    runfolder.write_json(run.path / "verdicts" / "_calibration.json", measures)


def _show(measures: dict[str, Any], both: quality.Agreement, left_out: int) -> None:
    """Print the calibration, the 2×3 table of grader against verifier, and kappa."""
    if measures:
        rows, heads = list[dict[str, Any]](), columns(align="left", measure="measure")
        for name in ("accuracy", *_TITLES):
            values = {side: measures[side][name] for side in ("before", "after")}
            cells = {side: "undefined" if v is None else v for side, v in values.items()}
            rows.append({"measure": _TITLES.get(name, name), **cells})
        after = f"calibrated, T = {measures['temperature']:g}"
        heads += columns("{:.3f}", before="softmax", after=after)
        title = f"calibration against the grader, {measures['attempts']} graded attempts"
        show(Table(title, heads, rows))
    heads, rows = columns(align="left", grader="grader"), []
    heads += columns(A="A correct", B="B incorrect", C="C invalid")
    for name, counts in zip(("correct", "not correct"), both.table, strict=True):
        shares = zip(LABELS, counts, counts / max(counts.sum(), 1), strict=True)
        rows.append({"grader": name} | {x: f"{n} ({share:.1%})" for x, n, share in shares})
    extra = f" ({left_out} without the grader's decision are left out)" if left_out else ""
    show(Table(f"grader and verifier, {both.table.sum()} attempts{extra}", heads, rows))
    kappa = "undefined, because both are constant" if both.kappa is None else f"{both.kappa:.3f}"
    by_chance = f"by chance {both.expected:.1%}; Cohen's kappa {kappa}"
    results.print(f"agree on {both.observed:.1%}, {by_chance}")
    differ = both.table[0, 1:].sum() + both.table[1, 0]
    note_alone(f"verify: {differ} disagreements; `report` lists them, most confident first")
