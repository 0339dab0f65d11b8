"""After verify: how good its probabilities are, and how far verifier and grader agree.

The grader's outcomes stand for the truth (`texts.true_labels`): where it has no view (a timeout, an
answer that it cannot read) the attempt is left out. A fitted T is tried on whole questions that it
has not seen.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.console import mention, note, percent, results, warn
from bayes_at_n.pipeline.display.table import Table, columns, show
from bayes_at_n.pipeline.store import graded, outcomes, rowkeys, runfolder, verdicts
from bayes_at_n.pipeline.store.outcomes import CORRECT, NO_ANSWER, OWED, WRONG
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify import calibrate
from bayes_at_n.pipeline.verify.calibrate import Views
from bayes_at_n.pipeline.verify.texts import of_labels, true_labels
from bayes_at_n.verifiers.judge import agreement, guards, quality
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
_OF = [f"{kind}{label.lower()}" for kind in ("logprob_", "base_") for label in LABELS]


def report(run: Run) -> None:
    """Show what verdicts are worth; writes it into `verdicts/_calibration.json`, `_kinds.json`."""
    table, views, bases = judged(run, ["a", "b", "c", "cut"])
    _turned(run, views, bases)
    if run.cfg.dataset.judge != "unmatched":  # its sample says nothing of all attempts
        _calibrated(run, views, bases)
    if cut := np.count_nonzero(table["cut"].to_numpy()):
        of = f"{cut} of {len(table)} responses ({percent(cut / len(table))})"
        mention(f"verify: {of} were cut in the middle")
    _agree(run, table, views)


def judged(run: Run, names: Sequence[str] = ()) -> tuple[pa.Table, Views, Floats]:
    """All n verdicts.

    Returns:
        columns of them, with the grader's `outcome`; what verifier and grader say; and the
        baselines, (n, 3).
    """
    table = verdicts.read(run, [*_OF, *names]).table
    keys = rowkeys.encode(table, rowkeys.question_ids(run))
    table, keys = table.filter(pa.array(keys >= 0)), keys[keys >= 0]
    outcome = graded.aligned(run, ["outcome"], keys)["outcome"]
    views = Views(keys, of_labels(table, "logprob_"), true_labels(outcome, run))
    return table.append_column("outcome", outcome), views, of_labels(table, "base_")


def _calibrated(run: Run, views: Views, bases: Floats) -> None:
    """Report the calibration on graded attempts; where T was fitted, on those held out."""
    seen, temperature, fitted = views.truth >= 0, run.cfg.verifier.temperature, None
    which = "graded"
    if run.cfg.verifier.fit_temperature:
        fit, told = calibrate.fit(run, views, bases)
        if fit is None:
            warn(f"verifier.fit_temperature: {told}; the configured T stays")
        else:
            mention(f"verify: {told}")
            temperature = fit.temperature
            fitted = {"temperature": temperature, "stderr": fit.stderr, "fitted": fit.fitted}
            if run.cfg.labels.file is None:
                seen[seen], which = fit.held_out, "held-out"
    if not seen.any():
        return
    measures = quality.report(views.logprobs[seen], bases[seen], views.truth[seen], temperature)
    measures |= {"fit": fitted, "truth": "the grader's outcomes"}
    runfolder.write_json(run.path / "verdicts" / "_calibration.json", measures)
    rows = []
    for key, name in MEASURES.items():
        values = {side: measures[side][key] for side in ("before", "after")}
        shown = {side: "undefined" if v is None else v for side, v in values.items()}
        rows.append({"measure": name, **shown})
    heads = columns(align="left", measure="measure")
    heads += columns("{:.3f}", before="softmax", after=f"calibrated, T = {temperature:g}")
    title = f"calibration against the grader, {measures['attempts']} {which} attempts"
    show(Table(title, heads, rows))


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


def _turned(run: Run, views: Views, bases: Floats) -> None:
    """Warn where calibration changes many labels: how many, and how often they are right."""
    share = guards.turned(views.logprobs, bases).size / max(1, views.keys.size)
    if share <= guards.TURNED:
        return
    truth = views.truth
    labels = (scores.argmax(axis=1) for scores in (views.logprobs, views.logprobs - bases))
    before, now = (np.count_nonzero(label == truth) for label in labels)
    warn(
        f"verifier.calibration={run.cfg.verifier.calibration} changes the label of {share:.1%} of"
        f" {truth.size} attempts; by the grader {before} of {np.sum(truth >= 0)} were right before"
        f" and {now} are now; verifier.calibration=none subtracts nothing"
    )


def _agree(run: Run, table: pa.Table, views: Views) -> None:
    """Show the 2x3 table of grader against verifier, also by kind of gold answer."""
    judge = run.cfg.dataset.judge
    # Where verdicts decide, people see those on what the rules could not read, too.
    seen = pc.is_valid(table["outcome"]).to_numpy() if judge else views.truth >= 0
    if not seen.any():
        note("verify: no grades to compare the verdicts with; run `grade`")
        return
    if judge:
        _show_deciders(run)
    if judge == "unmatched":
        return
    correct, label = views.truth[seen] == 0, of_labels(table)[seen].argmax(axis=1)
    both = agreement.agreement(correct, label)
    _show_agreement(both, int(np.count_nonzero(~seen)))
    kinds = _show_kinds(run, views.keys[seen] >> 32, correct, label == 0)
    if differ := int(np.count_nonzero(correct != (label == 0))):
        mention(f"verify: {differ} disagreements; the page of `report` lists them, surest first")
    found = {"kinds": kinds, "agreement": both.table.tolist(), "kappa": both.cohen.kappa}
    runfolder.write_json(run.path / "verdicts" / "_kinds.json", found)


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
    cohen, kappa = both.cohen, "undefined, since both know one word only"
    if cohen.kappa is not None:
        kappa = f"{cohen.kappa:.3f} (standard error {cohen.stderr:.3f})"
    results.print(
        f"agree on {cohen.observed:.1%}, by chance {cohen.expected:.1%}; Cohen's kappa {kappa}"
    )


def _show_kinds(run: Run, questions: Ints, correct: Bools, accepted: Bools) -> list[dict[str, Any]]:
    """Show on what kinds of gold answer the two differ, and which way."""
    kinds = np.array([_kind(run, question["gold"]) for question in run.questions])[questions]
    way = np.array(["neither", "verifier", "grader", "both"])[2 * correct + accepted]
    rows: list[dict[str, Any]] = []
    for kind in sorted(set(kinds.tolist())):
        of = way[kinds == kind].tolist()
        counted = {name: of.count(name) for name in ("both", "neither", "grader", "verifier")}
        agreed = (counted["both"] + counted["neither"]) / len(of)
        rows.append({"kind": kind, "attempts": len(of), "agreed": agreed, **counted})
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
