"""What votes are counted from: the answers of a run's attempts, and scores of theirs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.pipeline.display.table import columns as named
from bayes_at_n.pipeline.grade import classes
from bayes_at_n.pipeline.rubrics import signals
from bayes_at_n.pipeline.store import rowkeys
from bayes_at_n.pipeline.store.outcomes import OWED
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.metrics.metric import ANSWERS, CONFIDENCE, VERIFIER, Metric
from bayes_at_n.scoring.metrics.votes import right

_SIGNALS = {CONFIDENCE: "completion_bpt", VERIFIER: "a"}
_OF = {CONFIDENCE: "log-probs", VERIFIER: "verdict"}
SWINGS = 40  # questions that a table of them shows
_LONGEST = 60  # characters of an answer in it
_SHARE = "{:.3f}"


class Evidence(NamedTuple):
    """What votes of a run are made from: arrays (M, N), by the names that metrics have."""

    arrays: dict[str, Any]  # "answers", masked where owed, and scores
    lacking: dict[str, str]  # why others are not there
    texts: list[list[str]]  # of each question the texts of the answers 2, 3, ...


NOTHING = Evidence({}, dict.fromkeys((ANSWERS, *_SIGNALS), "no run, so no answers"), [])


def read(run: Run, question_ids: Sequence[str] | None = None) -> Evidence:
    """The answers of a run, and the scores that all attempts with an answer have.

    Of the questions named; None: of all. The confidence of an attempt is the geometric mean of the
    probabilities of its tokens, 2 to the power of minus its bits per token; the verifier's score is
    its calibrated P(A).
    """
    try:
        found = classes.of(run)
    except UserError as error:
        return Evidence({}, dict.fromkeys((ANSWERS, *_SIGNALS), str(error)), [])
    places = {q["question_id"]: i for i, q in enumerate(run.questions)}
    rows = [places[name] for name in (places if question_ids is None else question_ids)]
    codes = masked(found.codes[rows])
    evidence = Evidence({ANSWERS: codes}, {}, [found.texts[row] for row in rows])
    try:
        table = signals.read(run)
    except UserError as error:
        return evidence._replace(lacking=dict.fromkeys(_SIGNALS, str(error)))
    keys = rowkeys.encode(table, rowkeys.question_ids(run))
    kept, cells = rowkeys.cells(keys, codes.shape[1])
    for name, signal in _SIGNALS.items():
        scores = np.full(found.codes.shape, np.nan)
        scores[cells] = table[signal].to_numpy()[kept]
        scores = scores[rows]
        if lost := int((np.isnan(scores) & (codes.filled(OWED) > classes.NONE)).sum()):
            why = f"{run.path}: {lost} attempts with an answer have no {_OF[name]}"
            evidence.lacking[name] = why
        else:
            evidence.arrays[name] = np.exp2(-scores) if name == CONFIDENCE else scores
    return evidence


def masked(array: Any) -> Any:
    """Masked where owed."""
    return np.ma.masked_equal(array, OWED)  # type: ignore[no-untyped-call]


def left_out(metrics: Sequence[Metric], evidence: Evidence) -> dict[str, str]:
    """Why metrics cannot be made of the evidence, by their names; those that can are not there."""
    lacking = evidence.lacking
    return {m.name: lacking[name] for m in metrics for name in m.of[::-1] if name in lacking}


def swings(
    question_ids: Sequence[str], models: Mapping[str, tuple[Any, Sequence[Sequence[str]]]]
) -> Table:
    """The questions that the vote of all trials wins or loses, most of all first.

    `models` holds for each the answers (M, N), masked where owed, and what :class:`Evidence` has as
    texts. A vote wins a question that fewer than half of the attempts get right, and loses one
    whose share of right attempts it falls short of.
    """
    rows = [row for model, of in models.items() for row in _rows(model, question_ids, *of)]
    rows.sort(key=lambda row: -abs(row["gain"]))
    columns = [
        *named(align="left", model="model", question_id="question", vote="vote"),
        Column("avg", "right", None, _SHARE),
        Column("value", "Cons@N", "Cons@$N$", _SHARE),
        Column("gain", "gain", None, "{:+.3f}"),
        Column("answers", "answers"),
        Column("share", "commonest wrong", None, _SHARE),
        Column("wrong", "it is", align="left"),
    ]
    won = sum(row["vote"] == "wins" for row in rows)
    notes = [
        f"won by the vote of all trials: {won}; lost: {len(rows) - won}; right, commonest wrong:"
        " shares of attempts; answers: how many different ones there are"
    ]
    if len(rows) > SWINGS:
        notes.append(f"the {SWINGS} with the largest gain or loss")
    return Table("questions that a vote wins or loses", columns, rows[:SWINGS], notes)


def _rows(
    model: str, question_ids: Sequence[str], codes: Any, texts: Sequence[Sequence[str]]
) -> Iterator[dict[str, Any]]:
    for name, row, of_question in zip(question_ids, codes, texts, strict=True):
        given = row.compressed()
        average = float((given == classes.RIGHT).mean())
        vote = float(right(np.bincount(given, minlength=2)))
        wins = average < 0.5 < vote
        if not wins and vote >= average:
            continue
        common = float((given == classes.RIGHT + 1).mean())
        yield {
            "model": model,
            "question_id": name,
            "vote": "wins" if wins else "loses",
            "avg": average,
            "value": vote,
            "gain": vote - average,
            "answers": np.unique(given[given > classes.NONE]).size,
            "share": common if common else None,
            "wrong": of_question[0][:_LONGEST] if of_question else None,
        }
