"""After verify: how good its probabilities are, and how far verifier and grader agree.

The grader's outcomes stand for the truth (`store.true_labels`): where it has no view (a timeout, an
answer that it cannot read) the attempt is left out. T is fitted to labels of people, or, only with
calibration=graded, to these outcomes; then it is tried on whole questions that it has not seen.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import mention, note, percent, results, warn
from bayes_at_n.pipeline.display.table import Table, columns, show
from bayes_at_n.pipeline.store import outcomes, parquet, rowkeys, runfolder
from bayes_at_n.pipeline.store.columns import KEY
from bayes_at_n.pipeline.store.outcomes import CORRECT, NO_ANSWER, OWED, WRONG
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify import calibrate, people, store
from bayes_at_n.pipeline.verify.store import folder
from bayes_at_n.verifiers.judge import agreement, quality
from bayes_at_n.verifiers.judge.calibration import Fit, fit_temperature
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


def calibrated(run: Run) -> None:
    """Fit T if asked for and apply it, then report the calibration on graded attempts.

    Writes `verdicts/_calibration.json` and a reliability diagram, `verdicts/_reliability.png`.
    """
    logprobs, bases, truth, keys = _labelled(run)
    temperature, held_out = run.cfg.verifier.temperature, np.ones(truth.size, dtype=bool)
    fitted: dict[str, Any] | None = None
    if run.cfg.verifier.fit_temperature:
        if fit := _fit(run, logprobs - bases, truth, keys):
            temperature = round(fit.temperature, 6)
            held_out = fit.held_out if run.cfg.labels.file is None else held_out
            fitted = {"temperature": temperature, "stderr": fit.stderr, "fitted": fit.fitted}
        calibrate.recalibrate(run, temperature)
    if not held_out.any():
        return
    measures = quality.report(logprobs[held_out], bases[held_out], truth[held_out], temperature)
    measures |= {"fit": fitted, "truth": "the grader's outcomes"}
    runfolder.write_json(folder(run) / "_calibration.json", measures)
    show(_measures_table(measures, "graded" if held_out.all() else "held-out"))
    from bayes_at_n.pipeline.display import style
    from bayes_at_n.pipeline.plots import calibration as plots  # matplotlib takes half a second

    name = f"{run.cfg.verifier.name} on {run.cfg.model.name}, {run.cfg.dataset.name}"
    figure = plots.reliability(f"{name}: P(A) against correct", measures)
    style.save(figure, folder(run) / "_reliability")


def pooled(runs: Sequence[Run]) -> dict[str, Any] | None:
    """`quality.report` over the graded attempts of several runs, all with verdicts.

    Returns:
        None where a run has no verdicts, or two of them were calibrated with different T.
    """
    applied = [store.remembered(run, "calibration") or {} for run in runs]
    temperatures: set[Any] = {settings.get("temperature") for settings in applied}
    if None in temperatures or len(temperatures) != 1:
        return None
    parts = [_labelled(run) for run in runs]
    logprobs, bases, truth = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return quality.report(logprobs, bases, truth, temperatures.pop()) if truth.size else None


def _labelled(run: Run) -> tuple[Floats, Floats, Ints, Ints]:
    """Log-probs and baselines (n, 3), truth (n,) and keys (n,) of attempts with a grade."""
    kinds = ("logprob_", "base_")
    table, keys = store.judged(run, [f"{kind}{x.lower()}" for kind in kinds for x in LABELS])
    truth = store.truth(run, table)
    graded = truth >= 0
    logprobs, bases = (store.of_labels(table, kind)[graded].astype(np.float64) for kind in kinds)
    return logprobs, bases, truth[graded], keys[graded]


def _fit(run: Run, scores: Floats, truth: Ints, keys: Ints) -> Fit | None:
    """The fit of T to scores (n, 3), or None, with a warning, where it is worth nothing."""
    who = "graded attempts"
    try:
        if run.cfg.labels.file is not None:
            who, (of, said) = "attempts that people labelled", people.labelled(run)
            rows = rowkeys.rows_of(of, keys)
            scores, truth, keys = scores[rows[rows >= 0]], 1 - said[rows >= 0], of[rows >= 0]
            # People say right or not right, which is the surer of B and C.
            scores[:, 1], scores[:, 2] = scores[:, 1:].max(axis=1), -np.inf
        elif run.cfg.verifier.calibration != "graded":
            raise ValueError(
                "needs labels=FILE, of people: only calibration=graded reads the grader's outcomes"
            )
        fit = fit_temperature(scores, np.zeros(3), truth, groups=keys >> 32)
    except ValueError as error:
        problem = str(error)
    else:
        if fit.stderr is not None:
            mention(
                f"verify: T = {fit.temperature:.3f} (standard error {fit.stderr:.3f}) fitted to"
                f" {fit.fitted} {who}"
            )
            return fit
        problem = (
            f"T ran to {fit.temperature:g}, the end of its range (the verifier is never wrong here,"
            " or worse than chance)"
        )
    warn(f"verifier.fit_temperature: {problem}; the configured T stays")
    return None


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


def agree(run: Run) -> None:
    """Show the 2x3 table of grader against verifier and list disagreements for a person."""
    verdicts, keys = store.judged(run, ["a", "b", "c", "label", "cut"])
    if cut := int(np.count_nonzero(verdicts["cut"].to_numpy())):
        share = percent(cut / len(verdicts))
        mention(f"verify: {cut} of {len(verdicts)} responses ({share}) were cut in the middle")
    truth, judge = store.true_labels(verdicts["outcome"]), run.cfg.dataset.judge
    # Where verdicts decide, people see those on what the rules could not read, too.
    seen = pc.is_valid(verdicts["outcome"]).to_numpy() if judge else truth >= 0
    graded = np.flatnonzero(seen)
    path = folder(run) / "_disagreements.jsonl"
    if not graded.size:
        path.unlink(missing_ok=True)
        note("verify: no grades to compare the verdicts with; run `grade`")
        return
    correct, prob = truth[graded] == 0, store.of_labels(verdicts)[graded]
    if judge:
        _show_deciders(run)
    if judge != "unmatched":
        both = agreement.agreement(correct, prob.argmax(axis=1))
        _show_agreement(both, len(verdicts) - graded.size)
        kinds = _show_kinds(run, keys[graded] >> 32, correct, prob.argmax(axis=1) == 0)
        found = {"kinds": kinds, "agreement": both.table.tolist(), "kappa": both.cohen.kappa}
        runfolder.write_json(folder(run) / "_kinds.json", found)
    surest = agreement.disagreements(correct, prob.astype(np.float64))
    rows = graded[surest]
    entries = _for_a_person(run, verdicts.take(pa.array(rows)), keys[rows])
    atomic.write_jsonl(path, entries if rows.size else [])
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


def _for_a_person(run: Run, verdicts: pa.Table, keys: Ints) -> Iterable[dict[str, object]]:
    golds = {row["question_id"]: row["gold"] for row in run.questions}
    ends = [""] * keys.size
    for i, text in rowkeys.responses(run, keys, parquet.Damage()):
        ends[i] = text[-_END:]
    for row, end in zip(verdicts.to_pylist(), ends, strict=True):
        yield {
            **{name: row[name] for name in (*KEY, "outcome", "label")},
            **{x.lower(): round(row[x.lower()], 4) for x in LABELS},
            "gold": golds[row["question_id"]],
            "answer": row["answer"],
            "cut": row["cut"],
            "response_end": end,
        }
