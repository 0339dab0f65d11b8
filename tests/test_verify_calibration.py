"""Fitting T to graded attempts and the report, on verdicts whose true T is known."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import make_run

from pipeline.store import parquet, rowkeys
from pipeline.store.columns import VERDICTS
from pipeline.store.runfolder import Run
from pipeline.verify import calibrate, store
from pipeline.verify.quality import calibrated

pytestmark = pytest.mark.usefixtures("undrawn")
TRUE_T, TRIALS, QUESTIONS = 2.5, 60, 40
PAPER = ("verifier.calibration=question", "verifier.clip=null")  # nothing cut off
OUTCOME = {0: "1", 1: "0", 2: "-"}


def verified(folder: Path, *overrides: str) -> Run:
    """A run whose labels were drawn from softmax((logprob - base) / TRUE_T)."""
    rng = np.random.default_rng(5)
    base = np.log([0.5, 0.3, 0.2])
    scores = rng.normal(0, 4, (QUESTIONS, TRIALS, 3))
    logprobs = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    tilted = np.exp((logprobs - base) / TRUE_T)
    shares = (tilted / tilted.sum(axis=-1, keepdims=True)).cumsum(axis=-1)
    truth = (rng.random((QUESTIONS, TRIALS, 1)) > shares).sum(axis=-1)
    marks = {f"q{i:02d}": "".join(OUTCOME[k] for k in row) for i, row in enumerate(truth)}
    run = make_run(folder, marks, "verifier=demo", *PAPER, *overrides)
    texts = run.cfg.verifier.content_free
    baselines = {(name, text): base.tolist() for name in marks for text in texts}
    run.path.joinpath("verdicts").mkdir()
    calibrate.write_baselines(run, baselines)
    bases = calibrate.subtracted(run, baselines, "question")
    names = [name for name in marks for _ in range(TRIALS)]
    table = store.columns(logprobs.reshape(-1, 3), np.stack([bases[n] for n in names]), 1.5)
    table |= {
        "question_id": names,
        "trial": [*range(TRIALS)] * QUESTIONS,
        "tokens": [9] * len(names),
        "cut": [False] * len(names),
        "judged": ["x"] * len(names),
        "continued_from": [None] * len(names),
        "digest": rowkeys.streamed(run, "attempts", ["digest"])["digest"],
    }
    part = pa.table(table, schema=VERDICTS)
    parquet.write_part(run.path / "verdicts" / "00000.parquet", part)
    return run


def stored(run: Run, *columns: str) -> np.ndarray:
    table = pq.read_table(run.path / "verdicts" / "00000.parquet", columns=list(columns))
    return np.stack([table[name].to_numpy() for name in columns], axis=1).astype(np.float64)


def test_a_fitted_temperature_is_found_applied_and_better_on_questions_held_out(
    tmp_path: Path, drawn: None
) -> None:
    run = verified(tmp_path / "run", "verifier.fit_temperature=true")
    calibrated(run)
    measures = json.loads((run.path / "verdicts" / "_calibration.json").read_text())
    assert abs(measures["fit"]["temperature"] - TRUE_T) < 4 * measures["fit"]["stderr"]
    assert measures["attempts"] == QUESTIONS * TRIALS // 5  # whole questions
    assert measures["after"]["nll"] < measures["before"]["nll"]
    assert measures["after"]["ece"] < measures["before"]["ece"]
    # What is stored is softmax((logprob - base) / T), by hand.
    logprobs = stored(run, "logprob_a", "logprob_b", "logprob_c")
    bases = stored(run, "base_a", "base_b", "base_c")
    expected = np.exp((logprobs - bases) / measures["temperature"])
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(stored(run, "a", "b", "c"), expected, atol=1e-6)
    assert (run.path / "verdicts" / "_reliability.png").stat().st_size > 10_000


def test_the_same_command_fits_the_same_and_rewrites_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = verified(tmp_path / "run", "verifier.fit_temperature=true")
    calibrated(run)
    [part] = run.path.glob("verdicts/*.parquet")
    written = part.stat().st_mtime_ns
    assert "calibrated anew" in capsys.readouterr().err
    assert calibrate.temperature(run) > 1.5  # what verdicts still to come are written with
    calibrated(run)
    assert part.stat().st_mtime_ns == written and run.cfg.verifier.temperature == 1.5
    assert "calibrated anew" not in capsys.readouterr().err
    run.cfg.verifier.fit_temperature = False
    calibrate.recalibrate(run, calibrate.temperature(run))
    assert "T=1.5" in capsys.readouterr().err


def test_without_fitting_the_configured_temperature_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = verified(tmp_path / "run")
    before = stored(run, "a", "b", "c")
    calibrated(run)
    measures = json.loads((run.path / "verdicts" / "_calibration.json").read_text())
    assert measures["fit"] is None and measures["temperature"] == 1.5
    assert measures["attempts"] == QUESTIONS * TRIALS
    assert (stored(run, "a", "b", "c") == before).all()
    assert "AUROC" in capsys.readouterr().out


def test_the_grader_s_shares_find_a_bias_and_nothing_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = verified(tmp_path / "run")
    run.cfg.verifier.calibration, run.cfg.verifier.clip = "graded", 1.0
    for _ in range(2):
        calibrate.recalibrate(run, 1.5)
        calibrate.check_turned(run)
    said = capsys.readouterr().err
    assert said.count("calibrated anew") == 1 and "changes the label" not in said
    base = stored(run, "base_a", "base_b", "base_c")[0]
    true = np.log([0.5, 0.3, 0.2])  # found in part: most labels are what they are with it, too
    assert np.corrcoef(base, true)[0, 1] > 0.95 and 0.15 < np.ptp(base) < np.ptp(true)
    calibrated(run)
    measures = json.loads((run.path / "verdicts" / "_calibration.json").read_text())
    assert measures["after"]["nll"] < measures["before"]["nll"]
    # Where the grader is not believed, or has said too little, nothing is subtracted.
    run.cfg.dataset.judge = "all"
    assert not any(calibrate.subtracted(run, {}, "graded")["q00"])
    run.cfg.dataset.judge = None
    [part] = run.grades.glob("*.parquet")
    parquet.write_part(part, pq.read_table(part).slice(0, 9))
    assert not any(calibrate.subtracted(run, {}, "graded")["q00"])


def test_too_few_labels_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = verified(tmp_path / "run", "verifier.fit_temperature=true")
    [part] = run.grades.glob("*.parquet")
    parquet.write_part(part, pq.read_table(part).slice(0, 5))
    calibrated(run)
    assert "T stays" in capsys.readouterr().err
    assert run.cfg.verifier.temperature == 1.5
