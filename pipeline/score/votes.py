"""What votes are counted from: the answers of a run's attempts, and scores of theirs."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.display.table import Column, Table, columns
from bayes_at_n.pipeline.grade import classes
from bayes_at_n.pipeline.rubrics import signals
from bayes_at_n.pipeline.store import rowkeys
from bayes_at_n.pipeline.store.outcomes import PENDING
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.metrics.metric import ANSWERS, CONFIDENCE, VERIFIER, Metric
from bayes_at_n.scoring.metrics.votes import right

_SIGNALS = {CONFIDENCE: ("completion_bpt", "log-probs"), VERIFIER: ("a", "verdict")}
_MOST = 40  # questions that a table of swings shows
_LONGEST = 60  # characters of an answer in it
_COLUMNS = (
    *columns(align="left", model="model", question_id="question", vote="vote"),
    Column("avg", "right", format="{:.3f}"),
    Column("value", "Cons@N", "Cons@$N$", "{:.3f}"),
    Column("gain", "gain", format="{:+.3f}"),
    Column("answers", "answers"),
    Column("share", "commonest wrong", format="{:.3f}"),
    Column("wrong", "it is", align="left"),
)


class Evidence(NamedTuple):
    """What votes of a run are made from: arrays (M, N), by the names that metrics have."""

    arrays: dict[str, Any]  # "answers", masked where pending, and scores
    lacking: dict[str, str]  # why others are not there
    texts: list[list[str]]  # of each question the texts of the answers 2, 3, ...


NOTHING = Evidence({}, {ANSWERS: "no run, so no answers"}, [])


def read(run: Run, question_ids: Sequence[str]) -> Evidence:
    """Read the answers of these questions, and the scores that all attempts with an answer have.

    The confidence of an attempt is the geometric mean of the probabilities of its tokens, 2 to the
    power of minus its bits per token; the verifier's score is its calibrated P(A).
    """
    try:
        found = classes.classes_of(run)
    except UserError as error:
        return Evidence({}, {ANSWERS: str(error)}, [])
    ids = pa.array(question_ids, pa.string())
    rows = pc.index_in(ids, rowkeys.question_ids(run)).to_numpy()
    answers: Any = np.ma.masked_equal(found.codes[rows], PENDING)  # type: ignore[no-untyped-call]
    evidence = Evidence({ANSWERS: answers}, {}, [found.texts[row] for row in rows])
    try:
        table = signals.read(run)
    except UserError as error:
        return evidence._replace(lacking=dict.fromkeys(_SIGNALS, str(error)))
    for name, (signal, noun) in _SIGNALS.items():
        values = table[signal].to_numpy().astype(np.float64)
        scores = rowkeys.placed(table, ids, values, answers.shape, np.nan)
        if lost := int((np.isnan(scores) & (answers.filled(PENDING) > classes.NONE)).sum()):
            evidence.lacking[name] = f"{run.path}: {lost} attempts with an answer have no {noun}"
        else:
            evidence.arrays[name] = np.exp2(-scores) if name == CONFIDENCE else scores
    return evidence


def left_out(metrics: Sequence[Metric], evidence: Evidence) -> dict[str, str]:
    """Say why metrics cannot be made of the evidence, by their names; nothing of the others."""
    whys = evidence.lacking
    return {m.name: whys[name] for m in metrics for name in m.of[::-1] if name in whys}


def swings(question_ids: Sequence[str], models: Mapping[str, Evidence]) -> Table | None:
    """List the questions that the vote of all trials wins or loses; None where nobody has answers.

    It wins one that fewer than half of the attempts get right, and loses one where it is right less
    often than they are.
    """
    known = {model: of for model, of in models.items() if ANSWERS in of.arrays}
    rows = list[dict[str, Any]]()
    for model, of in known.items():
        for name, given, texts in zip(question_ids, of.arrays[ANSWERS], of.texts, strict=True):
            answers = given.compressed()
            average = float((answers == classes.RIGHT).mean())
            vote = float(right(np.bincount(answers, minlength=2)))
            if average < 0.5 < vote or vote < average:
                row: dict[str, Any] = {"model": model, "question_id": name}
                row |= {"vote": "wins" if vote > average else "loses", "avg": average}
                row |= {"value": vote, "gain": vote - average}
                row["answers"] = np.unique(answers[answers > classes.NONE]).size
                row["share"] = float((answers == classes.RIGHT + 1).mean()) or None
                rows.append(row | {"wrong": texts[0][:_LONGEST] if texts else None})
    rows.sort(key=lambda row: -abs(row["gain"]))
    won = sum(row["vote"] == "wins" for row in rows)
    notes = [
        f"won by the vote of all trials: {won}; lost: {len(rows) - won}; right, commonest wrong:"
        " shares of attempts; answers: how many different ones there are"
    ]
    if len(rows) > _MOST:
        notes.append(f"the {_MOST} with the largest gain or loss")
    title = "questions that a vote wins or loses"
    return Table(title, _COLUMNS, rows[:_MOST], notes) if known else None
