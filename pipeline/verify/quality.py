"""After verify: how good its probabilities are, and how far verifier and grader agree.

The grader's outcomes stand for the truth (`texts.true_labels`): where it has no view (a timeout, an
answer that it cannot read) the attempt is left out. A fitted T is tried on whole questions that it
has not seen.
"""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import mention, note, percent, results, warn
from bayes_at_n.pipeline.display.table import Table, columns, show
from bayes_at_n.pipeline.store import graded, outcomes, parquet, rowkeys, runfolder, verdicts
from bayes_at_n.pipeline.store.columns import KEY
from bayes_at_n.pipeline.store.outcomes import CORRECT, NO_ANSWER, OWED, WRONG
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify import calibrate
from bayes_at_n.pipeline.verify.calibrate import Views
from bayes_at_n.pipeline.verify.texts import of_labels, true_labels
from bayes_at_n.verifiers.judge import agreement, calibration, guards, quality
from bayes_at_n.verifiers.judge.labels import LABELS, Bools, Floats
from bayes_at_n.verifiers.maths.exact import read_number
from bayes_at_n.verifiers.maths.latex import clean, split_list

MEASURES = {
    "accuracy": "accuracy",
    "nll": "negative log-likelihood",
    "brier": "Brier score",
    "ece": "calibration error (ECE)",
    "auroc": "AUROC of P(A)",
}
_MANY = 20  # attempts of which a sound verifier hardly accepts all
_END = 600  # characters of a response's end, in the list for a person
_TELLING = 3
_SHOWN = ["a", "b", "c", "label", "cut"]
_OF = [f"{kind}{label.lower()}" for kind in ("logprob_", "base_") for label in LABELS]


def report(run: Run) -> None:
    """Show what verdicts are worth; writes what it shows, and where to look, into `verdicts/`."""
    table, keys = judged(run, [*_OF, *_SHOWN])
    views, bases = _views(run, table, keys)
    _turned(run, views, bases)
    if run.cfg.dataset.judge != "unmatched":  # its sample says nothing of all attempts
        _calibrated(run, views, bases)
    _agree(run, table, views)


def judged(run: Run, names: list[str]) -> tuple[pa.Table, Ints]:
    """Columns of every verdict, with the grader's `outcome` and `answer`, and its key."""
    table = verdicts.read(run, names).table
    keys = rowkeys.encode(table, rowkeys.question_ids(run))
    table, keys = table.filter(pa.array(keys >= 0)), keys[keys >= 0]
    for name, values in graded.aligned(run, ["outcome", "answer"], keys).items():
        table = table.append_column(name, values)
    return table, keys


def _views(run: Run, table: pa.Table, keys: Ints) -> tuple[Views, Floats]:
    """What verifier and grader say of attempts with a verdict, and baselines (n, 3)."""
    truth = true_labels(table["outcome"], run)
    return Views(keys, of_labels(table, "logprob_"), truth), of_labels(table, "base_")


def _calibrated(run: Run, views: Views, bases: Floats) -> None:
    """Report the calibration on graded attempts; where T was fitted, on those held out."""
    graded, temperature, fitted = views.truth >= 0, run.cfg.verifier.temperature, None
    seen = graded
    if run.cfg.verifier.fit_temperature:
        fit, told = calibrate.fit(run, views, bases)
        if fit is None:
            warn(f"verifier.fit_temperature: {told}; the configured T stays")
        else:
            mention(f"verify: {told}")
            temperature = fit.temperature
            fitted = {"temperature": temperature, "stderr": fit.stderr, "fitted": fit.fitted}
            if run.cfg.labels.file is None:
                seen = graded.copy()
                seen[graded] = fit.held_out
    if not seen.any():
        return
    measures = quality.report(views.logprobs[seen], bases[seen], views.truth[seen], temperature)
    measures |= {"fit": fitted, "truth": "the grader's outcomes"}
    show(_measures_table(measures, "graded" if seen is graded else "held-out"))
    folder = run.path / "verdicts"
    if runfolder.read_json(folder / "_calibration.json") == json.loads(json.dumps(measures)):
        return  # the picture is of the same
    runfolder.write_json(folder / "_calibration.json", measures)
    from bayes_at_n.pipeline.display import style
    from bayes_at_n.pipeline.plots import calibration as plots  # matplotlib takes half a second

    name = f"{run.cfg.verifier.name} on {run.cfg.model.name}, {run.cfg.dataset.name}"
    style.save(
        plots.reliability(f"{name}: P(A) against correct", measures), folder / "_reliability"
    )


def pooled(runs: Sequence[Run]) -> dict[str, Any] | None:
    """`quality.report` over the graded attempts of several runs, all with verdicts.

    None where a run has no verdicts, or two of them were calibrated with different T.
    """
    told = [runfolder.read_json(run.path / "verdicts" / "_calibration.json") for run in runs]
    temperatures: set[Any] = {measures.get("temperature") for measures in told}
    if None in temperatures or len(temperatures) != 1:
        return None
    parts = [(*views, bases) for views, bases in (_views(r, *judged(r, _OF)) for r in runs)]
    logprobs, truth, bases = (np.concatenate([part[i] for part in parts]) for i in (1, 2, 3))
    if not (seen := truth >= 0).any():
        return None
    return quality.report(logprobs[seen], bases[seen], truth[seen], temperatures.pop())


def _turned(run: Run, views: Views, bases: Floats) -> None:
    """Warn where calibration changes many labels: how many, which, and how often they are right."""
    changed = guards.turned(views.logprobs, bases)
    share = changed.size / max(1, views.keys.size)
    if share <= guards.TURNED:
        return
    v, truth = run.cfg.verifier, views.truth
    before = calibration.direct(views.logprobs)
    after = calibration.calibrate(views.logprobs, bases, v.temperature)

    def top(prob: Floats) -> str:
        return f"{LABELS[prob.argmax()]} {prob.max():.3f}"

    shown = []
    for at in changed[:_TELLING].tolist():
        key = int(views.keys[at])
        name = f"{run.questions[key >> 32]['question_id']} trial {key & 0xFFFFFFFF}"
        shown.append(f"{name}: {top(before[at])}, then {top(after[at])}")
    right = [int(np.sum(prob.argmax(axis=1) == truth)) for prob in (before, after)]
    warn(
        f"verifier.calibration={v.calibration} changes the label of {share:.1%} of {truth.size}"
        f" attempts; by the grader {right[0]} of {np.sum(truth >= 0)} were right before and"
        f" {right[1]} are now; above all {'; '.join(shown)}. verifier.calibration=none subtracts"
        " nothing"
    )


def _measures_table(measures: dict[str, Any], which: str) -> Table:
    rows = []
    for key, name in MEASURES.items():
        values = {side: measures[side][key] for side in ("before", "after")}
        shown = {side: "undefined" if v is None else v for side, v in values.items()}
        rows.append({"measure": name, **shown})
    heads = columns(align="left", measure="measure")
    after = f"calibrated, T = {measures['temperature']:g}"
    heads += columns("{:.3f}", before="softmax", after=after)
    title = f"calibration against the grader, {measures['attempts']} {which} attempts"
    return Table(title, heads, rows)


def _agree(run: Run, table: pa.Table, views: Views) -> None:
    """Show the 2x3 table of grader against verifier and list disagreements for a person."""
    if cut := int(np.count_nonzero(table["cut"].to_numpy())):
        share = percent(cut / len(table))
        mention(f"verify: {cut} of {len(table)} responses ({share}) were cut in the middle")
    keys, truth, judge = views.keys, views.truth, run.cfg.dataset.judge
    # Where verdicts decide, people see those on what the rules could not read, too.
    seen = pc.is_valid(table["outcome"]).to_numpy() if judge else truth >= 0
    rows = np.flatnonzero(seen)
    path = run.path / "verdicts" / "_disagreements.jsonl"
    if not rows.size:
        path.unlink(missing_ok=True)
        note("verify: no grades to compare the verdicts with; run `grade`")
        return
    correct, prob = truth[rows] == 0, of_labels(table)[rows]
    if judge:
        _show_deciders(run)
    if judge != "unmatched":
        both = agreement.agreement(correct, prob.argmax(axis=1))
        _show_agreement(both, len(table) - rows.size)
        kinds = _show_kinds(run, keys[rows] >> 32, correct, prob.argmax(axis=1) == 0)
        found = {"kinds": kinds, "agreement": both.table.tolist(), "kappa": both.cohen.kappa}
        runfolder.write_json(path.with_name("_kinds.json"), found)
    rows = rows[agreement.disagreements(correct, prob.astype(np.float64))]
    _list(run, path, table.take(pa.array(rows)).to_pylist(), keys[rows])
    if rows.size:
        mention(f"verify: {rows.size} disagreements, the surest first, are in {path}")


def _show_deciders(run: Run) -> None:
    """What became of each outcome of the rule grader."""
    found = outcomes.read(run, quiet=True)
    assert found.judged is not None
    heads = {OWED: "no verdict", CORRECT: "A correct", WRONG: "B wrong", NO_ANSWER: "C no answer"}
    rows = []
    for code, name in enumerate(outcomes.OUTCOMES):
        of_rule = found.ruled == code
        judged = of_rule & found.judged
        row = {head: int((judged & (found.codes == c)).sum()) for c, head in heads.items()}
        rows.append({"rule": name, "kept": int((of_rule & ~judged).sum()), **row})
    shown = [*columns(align="left", rule="rule grader"), *columns(kept="kept")]
    shown += columns(titles={head: head for head in heads.values()})
    show(Table(f"what the verifier decides, judge={run.cfg.dataset.judge}", shown, rows))
    results.print(outcomes.who(run, found))
    n = found.deciders()
    if run.cfg.dataset.judge == "unmatched" and n["accepted"] == n["verifier"] >= _MANY:
        warn(
            f"the verifier accepts every one of {n['verifier']} attempts that the rule grader does"
            " not: is it broken? dataset.judge=all asks it about the others, too"
        )


def _show_agreement(both: agreement.Agreement, left_out: int) -> None:
    heads = columns(align="left", grader="grader")
    heads += columns(A="A correct", B="B incorrect", C="C invalid")
    rows = []
    for i, name in enumerate(("correct", "not correct")):
        cells = [
            f"{count}" if np.ma.is_masked(share) else f"{count} ({share:.1f} %)"
            for count, share in zip(both.table[i], both.percent[i], strict=True)
        ]
        rows.append({"grader": name, **dict(zip(LABELS, cells, strict=True))})
    extra = f" ({left_out} on which the grader has no view are left out)" if left_out else ""
    show(Table(f"grader and verifier, {both.table.sum()} attempts{extra}", heads, rows))
    cohen = both.cohen
    kappa = (
        "undefined, since both know one word only"
        if cohen.kappa is None
        else f"{cohen.kappa:.3f} (standard error {cohen.stderr:.3f})"
    )
    results.print(
        f"agree on {cohen.observed:.1%}, by chance {cohen.expected:.1%}; Cohen's kappa {kappa}"
    )


def _show_kinds(run: Run, questions: Ints, correct: Bools, accepted: Bools) -> list[dict[str, Any]]:
    """Show on what kinds of gold answer the two differ, and which way."""
    kinds = np.array([_kind(run, question["gold"]) for question in run.questions])[questions]
    ways = {"both": correct & accepted, "neither": ~correct & ~accepted,
            "grader": correct & ~accepted, "verifier": ~correct & accepted}  # fmt: skip
    rows: list[dict[str, Any]] = []
    for kind in sorted(set(kinds.tolist())):
        of = kinds == kind
        counted = {way: int((of & which).sum()) for way, which in ways.items()}
        agreed = (counted["both"] + counted["neither"]) / int(of.sum())
        rows.append({"kind": kind, "attempts": int(of.sum()), "agreed": agreed, **counted})
    if len(rows) > 1:
        heads = [*columns(align="left", kind="gold answer"), *columns(attempts="attempts")]
        heads += columns("{:.1%}", agreed="agree") + columns(both="both correct", neither="neither")
        heads += columns(grader="grader only", verifier="verifier only")
        show(Table("who says correct, by the kind of gold answer", heads, rows))
    return rows


def _kind(run: Run, gold: str) -> str:
    if run.cfg.dataset.answer != "math":
        return str(run.cfg.dataset.answer).partition(":")[0]
    text = clean(gold)
    if number := read_number(text):
        return "integer" if number.value.denominator == 1 else "number"
    return "list or set" if split_list(text) else "expression"


def _list(run: Run, path: Path, rows: list[dict[str, Any]], keys: Ints) -> None:
    """Write attempts for a person; as nothing reads their ends where they are listed already."""
    golds = {row["question_id"]: row["gold"] for row in run.questions}
    listed = [
        {
            **{name: row[name] for name in (*KEY, "outcome", "label")},
            **{x.lower(): round(row[x.lower()], 4) for x in LABELS},
            "gold": golds[row["question_id"]],
            "answer": row["answer"],
            "cut": row["cut"],
        }
        for row in rows
    ]
    with contextlib.suppress(OSError, ValueError, AttributeError):
        there = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        if [{k: v for k, v in row.items() if k != "response_end"} for row in there] == listed:
            return
    ends = [""] * keys.size
    for i, text in rowkeys.responses(run, keys, parquet.Damage()) if rows else ():
        ends[i] = text[-_END:]
    pairs = zip(listed, ends, strict=True)
    atomic.write_jsonl(path, [row | {"response_end": end} for row, end in pairs])
