"""Calibrating verdicts: what is subtracted from their log-probs, and doing it (again).

`verifier.calibration` says what: how much oftener the verifier says a label than is right, by the
grader's shares (graded) or by equal ones (batch), or what it says of a prompt without content, in
all fields (contextual: the same text; domain: random words of the data set, Fei et al. 2023) or in
the response's alone (question), or nothing. Only graded reads the grader's outcomes. None of it
asks the model what is known already.
"""

import json
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import note, warn
from bayes_at_n.pipeline.store import judged
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify import store
from bayes_at_n.pipeline.verify.prompts import Candidate, asked
from bayes_at_n.verifiers.judge import calibration, guards
from bayes_at_n.verifiers.judge.labels import LABELS, Floats

Key = tuple[str, str]  # of a baseline: its question, empty for all of them, and what it was shown
Baselines = dict[Key, list[float]]  # log-probs of the labels
_SAMPLES = 20  # of random words, as in Fei et al.
_TELLING = 3


def temperature(run: Run) -> float:
    """T to calibrate with before any fit: the one fitted last where a fit is asked for."""
    fitting = run.cfg.verifier.fit_temperature
    applied = store.remembered(run, "calibration") if fitting else None
    return float(applied["temperature"]) if applied else run.cfg.verifier.temperature


def read_baselines(run: Run) -> Baselines:
    """What `write_baselines` wrote; empty, so that all are owed, where that is not to be read."""
    try:
        text = (store.folder(run) / "_baselines.jsonl").read_text(encoding="utf-8")
        rows = map(json.loads, text.splitlines())
        return {(row["question_id"], row["text"]): row["logprobs"] for row in rows}
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return {}


def write_baselines(run: Run, baselines: Baselines) -> None:
    """Replace the file of baselines."""
    rows = ({"question_id": q, "text": t, "logprobs": v} for (q, t), v in baselines.items())
    atomic.write_jsonl(store.folder(run) / "_baselines.jsonl", rows)


def probes(run: Run, ids: list[str]) -> dict[Key, Candidate]:
    """What the verifier is to be asked without content, for attempts at the questions `ids`."""
    v, of_all = run.cfg.verifier, set(ids)
    if not ids:
        return {}
    if v.calibration == "contextual":
        return {("", text): Candidate("", text, text, text, text) for text in v.content_free}
    if v.calibration == "question":
        rows = [asked(row) for row in run.questions if row["question_id"] in of_all]
        return {
            (row.question_id, text): row._replace(response=text)
            for row in rows
            for text in v.content_free
        }
    return _of_words(run) if v.calibration == "domain" else {}


def _of_words(run: Run) -> dict[Key, Candidate]:
    """Random words of the data set, so many as a question and a gold answer have on average.

    A response is made of the words of questions: those of responses are another model's each time.
    """
    rng = np.random.default_rng(0)
    rows = [asked(row) for row in run.questions]
    problems, golds = (
        [text.split() for text in field] for field in list(zip(*rows, strict=True))[1:3]
    )

    def drawn(texts: list[list[str]]) -> str:
        words = [word for text in texts for word in text]
        return " ".join(rng.choice(words, max(1, len(words) // len(texts)))) if words else ""

    made = {}
    for _ in range(_SAMPLES):
        fields = [drawn(texts) for texts in (problems, golds, problems, golds)]
        made["", "\n".join(fields[:3])] = Candidate("", *fields)
    return made


def subtracted(run: Run, known: Baselines) -> dict[str, Floats]:
    """The baseline (3,) of every question that has one; content-free, it moves A against B only.

    With verifier.clip=null it is the printed formula's: of all three labels, and unbounded.
    """
    v, ids = run.cfg.verifier, [row["question_id"] for row in run.questions]
    if v.calibration in ("graded", "batch"):
        return dict.fromkeys(ids, _of_attempts(run))
    by_question: dict[str, list[Key]] = {}
    for key in probes(run, ids):
        by_question.setdefault(key[0], []).append(key)
    average = cast(Any, v.average)
    found = {
        q: calibration.baseline(np.array([known[key] for key in keys]), average)
        for q, keys in by_question.items()
        if all(key in known for key in keys)
    }
    if v.clip is not None:
        found = {q: calibration.a_against_b(base) for q, base in found.items()}
    found = {q: calibration.clipped(base, v.clip).round(6) + 0.0 for q, base in found.items()}
    if v.calibration == "question":
        return found
    return dict.fromkeys(ids, found.get("", np.zeros(len(LABELS))))


def _of_attempts(run: Run) -> Floats:
    """The baseline that all verdicts so far give; zeros where nothing can be said."""
    v, nothing = run.cfg.verifier, np.zeros(len(LABELS))
    table, keys = store.judged(run, [f"logprob_{x.lower()}" for x in LABELS])
    logprobs, truth = store.of_labels(table, "logprob_"), store.truth(run, table)
    if v.calibration == "batch" and len(logprobs):
        return calibration.clipped(calibration.of_attempts(logprobs), v.clip).round(6)
    graded = np.flatnonzero(truth >= 0)
    if run.cfg.dataset.judge or graded.size < calibration.LEAST_LABELLED:
        return nothing  # the grader is not believed, or has not said enough
    seen = logprobs[graded], truth[graded], keys[graded] >> 32
    base = calibration.clipped(calibration.of_attempts(*seen[:2]), v.clip).round(6)
    return base if calibration.lowers_loss(seen[0], base, *seen[1:], v.temperature) else nothing


def recalibrate(run: Run, temperature: float) -> None:
    """Apply the calibration to every stored verdict, from its log-probs, unless it is applied."""
    kind, bases = run.cfg.verifier.calibration, subtracted(run, read_baselines(run))
    applied = {"temperature": temperature, **judged.calibrated_as(run)}
    if kind != "question":
        applied["subtracted"] = next(iter(bases.values())).tolist()
    if store.remembered(run, "calibration") == applied:
        return
    # Not of one calibration until all parts are; a crash on the way is noticed by this.
    store.remember(run, calibration=None)

    def anew(table: pa.Table) -> pa.Table:
        known = pc.is_in(table["question_id"], value_set=pa.array(list(bases), pa.string()))
        table = table.filter(known)
        if table.num_rows:
            base = np.stack([bases[q] for q in table["question_id"].to_pylist()])
            logprobs = store.of_labels(table, "logprob_")
            for name, values in store.columns(logprobs, base, temperature).items():
                table = table.set_column(table.column_names.index(name), name, [values])
        return table

    changed = store.rewrite(run, anew)
    store.remember(run, calibration=applied)
    if changed:
        note(
            f"verify: {changed} verdicts calibrated anew from their log-probs, T={temperature:g},"
            f" calibration={kind}"
        )


def check_turned(run: Run) -> None:
    """Warn where calibration changes many labels: how many, which, and how often they are right."""
    kinds = ("logprob_", "base_")
    table, keys = store.judged(run, [f"{kind}{x.lower()}" for kind in kinds for x in LABELS])
    logprobs, bases = (store.of_labels(table, kind) for kind in kinds)
    changed = guards.turned(logprobs, bases)
    share = changed.size / max(1, keys.size)
    if share <= guards.TURNED:
        return
    v, first = run.cfg.verifier, changed[:_TELLING]
    before = calibration.direct(logprobs)
    after = calibration.calibrate(logprobs, bases, v.temperature)
    rows = table.take(pa.array(first)).to_pylist()
    shown = "; ".join(
        f"{row['question_id']} trial {row['trial']}: {_top(old)}, then {_top(new)}"
        for row, old, new in zip(rows, before[first], after[first], strict=True)
    )
    truth = store.truth(run, table)
    right = [int(np.sum(prob.argmax(axis=1) == truth)) for prob in (before, after)]
    warn(
        f"verifier.calibration={v.calibration} changes the label of {share:.1%} of {keys.size}"
        f" attempts; by the grader {right[0]} of {np.sum(truth >= 0)} were right before and"
        f" {right[1]} are now; above all {shown}. verifier.calibration=none subtracts nothing"
    )


def _top(prob: Floats) -> str:
    return f"{LABELS[prob.argmax()]} {prob.max():.3f}"
