"""How good the verifier's probabilities are, before and after calibration, and fitting T.

The grader's outcomes stand for the truth: correct is A, wrong is B, no answer is C. Where it has no
view (a timeout, an answer that it cannot read) the attempt is left out. A fitted T is tried on
whole questions that it has not seen.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table

from pipeline.base.console import note, results, warn
from pipeline.store import rowkeys, runfolder
from pipeline.store.rowkeys import Ints
from pipeline.store.runfolder import Run
from pipeline.verify import store
from pipeline.verify.store import LABELS, folder
from verifiers.judge import calibration

Floats = npt.NDArray[np.float64]

TRUTH = ("correct", "wrong", "no_answer")  # A, B and C
MEASURES = {
    "accuracy": "accuracy",
    "nll": "negative log-likelihood",
    "brier": "Brier score",
    "ece": "calibration error (ECE)",
    "auroc": "AUROC of P(A)",
}
_COLUMNS = [f"{kind}_{label.lower()}" for kind in ("logprob", "base") for label in LABELS]


def calibrated(run: Run) -> None:
    """Fit T if asked for and apply it, then report the calibration on graded attempts.

    Writes `verdicts/_calibration.json` and a reliability diagram, `verdicts/_reliability.png`.
    """
    logprobs, bases, truth, questions = _labelled(run)
    temperature, held_out = run.cfg.verifier.temperature, np.ones(truth.size, dtype=bool)
    fitted: dict[str, Any] | None = None
    if run.cfg.verifier.fit_temperature:
        fit = _fit(logprobs, bases, truth, questions)
        if fit is not None:
            temperature, held_out = round(fit.temperature, 6), fit.held_out
            fitted = {"temperature": temperature, "stderr": fit.stderr, "fitted": fit.fitted}
        store.recalibrate(run, temperature)
    if not held_out.any():
        return
    table = calibration.report(
        logprobs[held_out], bases[held_out], truth[held_out], temperature=temperature
    )
    table |= {"fit": fitted, "truth": "the grader's outcomes"}
    runfolder.write_json(folder(run) / "_calibration.json", table)
    _print(table)
    from pipeline.display import style
    from pipeline.plots import calibration as plots  # matplotlib takes half a second

    name = f"{run.cfg.verifier.name} on {run.cfg.model.name}, {run.cfg.dataset.name}"
    drawn = plots.reliability(f"{name}: P(A) against correct", table)
    style.save(drawn, folder(run) / "_reliability")


def pooled(runs: Sequence[Run]) -> dict[str, Any] | None:
    """`calibration.report` over the graded attempts of several runs, all with verdicts.

    Returns:
        None where a run has no verdicts, or two of them were calibrated with different T.
    """
    applied = [store.remembered(run, "calibration") for run in runs]
    temperatures = {one["temperature"] for one in applied if isinstance(one, dict)}
    if not runs or None in applied or len(temperatures) != 1:
        return None
    parts = [_labelled(run) for run in runs]
    logprobs, bases, truth = (np.concatenate([part[i] for part in parts]) for i in range(3))
    if not truth.size:
        return None
    return calibration.report(logprobs, bases, truth, temperature=temperatures.pop())


def _labelled(run: Run) -> tuple[Floats, Floats, Ints, Ints]:
    """Log-probs and baselines (n, 3), truth (n,) and question (n,) of attempts with a grade."""
    table = store.judged(run, _COLUMNS)
    outcome = table["outcome"].combine_chunks()
    place = pc.fill_null(pc.index_in(outcome, value_set=pa.array(TRUTH)), -1).to_numpy()
    kept = place >= 0
    both = np.stack([table[name].to_numpy() for name in _COLUMNS], axis=1)[kept]
    questions = rowkeys.encode(table.combine_chunks(), rowkeys.question_ids(run)) >> 32
    truth = place[kept].astype(np.int64)
    return both[:, :3].astype(np.float64), both[:, 3:].astype(np.float64), truth, questions[kept]


def _fit(logprobs: Floats, bases: Floats, truth: Ints, groups: Ints) -> Any:
    """The fit of T, or None, with a warning, where it is worth nothing."""
    kept = "the configured T stays"
    try:
        fit = calibration.fit_temperature(logprobs, bases, truth, groups=groups)
    except ValueError as error:
        warn(f"verifier.fit_temperature: {error}; {kept}")
        return None
    if fit.stderr is None:
        warn(
            f"verifier.fit_temperature: T ran to {fit.temperature:g}, the end of its range (the"
            f" verifier is never wrong here, or worse than chance); {kept}"
        )
        return None
    note(
        f"verify: T = {fit.temperature:.3f} (standard error {fit.stderr:.3f}) fitted to"
        f" {fit.fitted} graded attempts"
    )
    return fit


def _print(table: dict[str, Any]) -> None:
    where = "held-out attempts" if table["fit"] else "graded attempts"
    title = f"calibration against the grader, {table['attempts']} {where}"
    made = Table(title=title, title_justify="left")
    made.add_column("measure")
    made.add_column("softmax", justify="right")
    made.add_column(f"calibrated, T = {table['temperature']:g}", justify="right")
    for key, name in MEASURES.items():
        cells = [table[side][key] for side in ("before", "after")]
        made.add_row(name, *("undefined" if cell is None else f"{cell:.4f}" for cell in cells))
    results.print(made, soft_wrap=False)
