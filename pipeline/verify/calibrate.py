"""What is subtracted from log-probs of the labels, and the temperature: neither asks the model.

`verifier.calibration` says what: see docs/verifier.md. Only `graded` reads the grader's outcomes.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from bayes_at_n.pipeline.store import rowkeys
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify import people
from bayes_at_n.pipeline.verify.prompts import Candidate, asked
from bayes_at_n.verifiers.judge import calibration
from bayes_at_n.verifiers.judge.calibration import Fit
from bayes_at_n.verifiers.judge.labels import LABELS, Floats

Key = tuple[str, str]  # of a probe: its question, empty for all of them, and what it was shown
_SAMPLES = 20  # of random words, as in Fei et al.


class Views(NamedTuple):
    """What verifier and grader say of n attempts."""

    keys: Ints  # (n,) see rowkeys.encode
    logprobs: npt.NDArray[np.float32]  # (n, 3)
    truth: Ints  # (n,) see `texts.true_labels`

    def at(self, rows: Any) -> "Views":
        """Those at these places."""
        return Views(*(column[rows] for column in self))


def probes(run: Run, ids: list[str]) -> dict[Key, Candidate]:
    """Make what the verifier is asked without content, for attempts at the questions `ids`."""
    v, of_all = run.cfg.verifier, set(ids)
    if v.calibration == "contextual" and ids:
        return {("", text): Candidate("", text, text, text, text) for text in v.content_free}
    if v.calibration == "question":
        rows = [asked(row) for row in run.questions if row["question_id"] in of_all]
        return {
            (row.question_id, text): row._replace(response=text)
            for row in rows
            for text in v.content_free
        }
    return _of_words(run) if v.calibration == "domain" and ids else {}


def _of_words(run: Run) -> dict[Key, Candidate]:
    """Draw words of the data set (Fei et al. 2023), as many as a question and a gold answer have.

    A response is made of the words of questions: those of responses are another model's each time.
    """
    rng = np.random.default_rng(0)
    rows = [asked(row) for row in run.questions]
    problems, golds = [row.question.split() for row in rows], [row.gold.split() for row in rows]

    def drawn(texts: list[list[str]]) -> str:
        words = [word for text in texts for word in text]
        return " ".join(rng.choice(words, max(1, len(words) // len(texts)))) if words else ""

    made = {}
    for _ in range(_SAMPLES):
        fields = [drawn(texts) for texts in (problems, golds, problems, golds)]
        made["", "\n".join(fields[:3])] = Candidate("", *fields)
    return made


def subtracted(run: Run, said: Mapping[Key, Floats], views: Views) -> Floats:
    """Make the baseline of every question, (M, 3), NaN where none is needed.

    `said`: log-probs of the probes. Content-free, a baseline moves A against B only; with
    verifier.clip=null it is the printed formula's: of all three labels, and unbounded.
    """
    v, n = run.cfg.verifier, len(run.questions)
    if v.calibration in ("graded", "batch"):
        return np.tile(_of_attempts(run, views), (n, 1))
    by_question: dict[str, list[Floats]] = {}
    for (question, _), logprobs in said.items():
        by_question.setdefault(question, []).append(logprobs)
    found = dict[str, Floats]()
    for question, strings in by_question.items():
        base = calibration.baseline(np.array(strings, float), cast(Any, v.average))
        base = base if v.clip is None else calibration.a_against_b(base)
        found[question] = calibration.clipped(base, v.clip).round(6) + 0.0
    nothing = np.full(3, np.nan) if v.calibration == "question" else np.zeros(len(LABELS))
    ids = [row["question_id"] if v.calibration == "question" else "" for row in run.questions]
    return np.array([found.get(question, nothing) for question in ids])


def _of_attempts(run: Run, views: Views) -> Floats:
    """The baseline that all verdicts give; zeros where nothing can be said."""
    v, nothing = run.cfg.verifier, np.zeros(len(LABELS))
    if v.calibration == "batch" and len(views.logprobs):
        return calibration.clipped(calibration.of_attempts(views.logprobs), v.clip).round(6)
    seen = views.at(views.truth >= 0)
    if run.cfg.dataset.judge or seen.keys.size < calibration.LEAST_LABELLED:
        return nothing  # the grader is not believed, or has not said enough
    base = calibration.of_attempts(seen.logprobs, seen.truth)
    base = calibration.clipped(base, v.clip).round(6)
    of = seen.truth, seen.keys >> 32, v.temperature
    return base if calibration.lowers_loss(seen.logprobs, base, *of) else nothing


def fit(run: Run, views: Views, bases: Floats) -> tuple[Fit | None, str]:
    """Fit T to what people or, with calibration=graded, the grader says; also say it in words.

    `bases`: (n, 3). None where the fit is worth nothing: then the configured T stays.
    """
    who, seen = "graded attempts", views.truth >= 0
    keys, truth = views.keys[seen], views.truth[seen]
    scores = views.logprobs[seen].astype(np.float64) - bases[seen]
    try:
        if run.cfg.labels.file is not None:
            who, (of, said) = "attempts that people labelled", people.labelled(run)
            rows = rowkeys.rows_of(of, keys)
            scores, truth, keys = scores[rows[rows >= 0]], 1 - said[rows >= 0], of[rows >= 0]
            # People say right or not right, which is the surer of B and C.
            scores[:, 1], scores[:, 2] = scores[:, 1:].max(axis=1), -np.inf
        elif run.cfg.verifier.calibration != "graded":
            raise ValueError("needs labels=FILE, or calibration=graded")
        found = calibration.fit_temperature(scores, np.zeros(3), truth, groups=keys >> 32)
    except ValueError as error:
        return None, str(error)
    t = found.temperature
    if found.stderr is None:
        return None, f"T ran to {t:g}, the end of its range: never wrong, or worse than chance"
    told = f"T = {t:.3f} (standard error {found.stderr:.3f}) fitted to {found.fitted} {who}"
    return found._replace(temperature=round(t, 6)), told
