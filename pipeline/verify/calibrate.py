"""What is subtracted from log-probs of the labels, and the temperature: neither asks the model.

`verifier.calibration` says what: see docs/verifier.md. Only `graded` reads the grader's outcomes.
"""

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


class Views(NamedTuple):
    """What verifier and grader say of n attempts."""

    keys: Ints  # (n,) see rowkeys.encode
    logprobs: npt.NDArray[np.float32]  # (n, 3)
    truth: Ints  # (n,) see `texts.true_labels`

    def at(self, rows: Any) -> "Views":
        """Those at these places."""
        return Views(*(column[rows] for column in self))


def probes(run: Run) -> list[Candidate]:
    """Make what the verifier is asked without content: every text once, or once a question."""
    v = run.cfg.verifier
    if v.calibration == "contextual":
        return [Candidate("", text, text, text, text) for text in v.content_free]
    rows = [asked(row) for row in run.questions] if v.calibration == "question" else []
    return [row._replace(response=text) for row in rows for text in v.content_free]


def baselines(run: Run, said: Floats, views: Views) -> Floats:
    """Make the baseline of every question, (M, 3).

    `said`: log-probs of `probes`, (p, 3). Content-free, a baseline moves A against B only; with
    verifier.clip=null it is the printed formula's: of all three labels, and unbounded.
    """
    v, base = run.cfg.verifier, np.zeros(len(LABELS))
    if v.calibration == "graded":
        base = _of_attempts(run, views)
    elif said.size:
        strings = said.astype(np.float64).reshape(-1, len(v.content_free), 3).swapaxes(0, 1)
        base = calibration.baseline(strings, cast(Any, v.average))
        base = base if v.clip is None else calibration.a_against_b(base)
        base = calibration.clipped(base, v.clip).round(6) + 0.0
    return np.broadcast_to(base, (len(run.questions), 3))


def _of_attempts(run: Run, views: Views) -> Floats:
    """By how much labels are said too often by the grader's outcomes; zeros where it is unsure."""
    v, nothing, seen = run.cfg.verifier, np.zeros(len(LABELS)), views.at(views.truth >= 0)
    if run.cfg.dataset.judge or seen.keys.size < calibration.LEAST_LABELLED:
        return nothing  # the grader is not believed, or has not said enough
    base = calibration.of_attempts(seen.logprobs, seen.truth)
    base = calibration.clipped(base, v.clip).round(6)
    of = seen.truth, seen.keys >> 32, v.temperature
    return base if calibration.lowers_loss(seen.logprobs, base, *of) else nothing


def fit(run: Run, views: Views, bases: Floats) -> tuple[Fit | None, str]:
    """Fit T to labels of people; `bases`: (n, 3). Also says it in words.

    None where the fit is worth nothing: then the configured T stays.
    """
    if run.cfg.labels.file is None:
        return None, "needs labels=FILE"
    of, right = people.labelled(run)
    at = rowkeys.rows_of(of, np.where(views.truth >= 0, views.keys, -1))
    rows = at[at >= 0]
    scores = views.logprobs[rows].astype(np.float64) - bases[rows]
    # People say right or not right, which is the surer of B and C.
    scores[:, 1], scores[:, 2] = scores[:, 1:].max(axis=1), -np.inf
    truth, questions = 1 - right[at >= 0], of[at >= 0] >> 32
    try:
        found = calibration.fit_temperature(scores, np.zeros(3), truth, groups=questions)
    except ValueError as error:
        return None, str(error)
    t, stderr = found.temperature, found.stderr
    if stderr is None:
        return None, f"T ran to {t:g}, the end of its range: never wrong, or worse than chance"
    told = f"T = {t:.3f} (standard error {stderr:.3f}) fitted to {found.fitted} labels of people"
    return found._replace(temperature=round(t, 6)), told
