"""Deriving verdicts from log-probs, and fitting T, where bias and T of the verifier are known."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import Capsys, make_run, outcome_words, write_questions

from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.rubrics.categories import dependence
from bayes_at_n.pipeline.rubrics.rubric import load
from bayes_at_n.pipeline.store import outcomes, tables
from bayes_at_n.pipeline.store.columns import LABEL_LOGPROBS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify import calibrate, prompts, stage
from bayes_at_n.pipeline.verify.prompts import digest, read_template
from bayes_at_n.verifiers.judge.calibration import log_softmax

TRUE_T, TRIALS, QUESTIONS = 2.5, 60, 40
PAPER = ("verifier.calibration=question", "verifier.clip=null")  # nothing cut off
RESPONSES = {f"q{i:02d}": [f"no. {n}" for n in range(TRIALS)] for i in range(QUESTIONS)}
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
    run = make_run(folder, marks, "verifier=demo", *PAPER, *overrides, texts=RESPONSES)
    said(run, logprobs.reshape(-1, 3), {name: base for name in marks})
    return run


def simulated(folder: Path, right: float, bias: float, *overrides: str) -> tuple[Run, np.ndarray]:
    """A run of which so much is right, by a verifier with so many nats too many for A; the truth.

    Of nothing it says C, and what is left is its bias. The same numbers are drawn for all runs.
    """
    rng, n = np.random.default_rng(6), QUESTIONS * TRIALS
    truth = np.digitize(rng.random(n), [right, right + 0.9 * (1 - right)])
    evidence = rng.normal(0, 1, (n, 3)) + 2 * np.eye(3)[truth]
    rows = truth.reshape(QUESTIONS, TRIALS)
    marks = {f"q{i:02d}": "".join(OUTCOME[k] for k in row) for i, row in enumerate(rows)}
    run = make_run(folder, marks, "verifier=demo", *overrides, texts=RESPONSES)
    nothing = {"": log_softmax(np.array([bias, 0, 9]))}
    said(run, log_softmax(2.6 * evidence + np.array([bias, 0, 0])), nothing)
    return run, truth


def said(run: Run, logprobs: np.ndarray, nothing: dict[str, np.ndarray]) -> None:
    """What the verifier says of attempts, as the stage writes it, and the verdicts by that.

    `nothing`: what it says without content, by question.
    """
    template = read_template(run.cfg.verifier)
    made_by = stage.identity(run.cfg, template)
    hashes = prompts.texts_to_judge(run, template)["judged"].to_pylist()
    probes = prompts.probes(run)
    hashes += [digest(probe) for probe in probes]
    of_probes = [nothing[probe.question_id] for probe in probes]
    values = calibrate.label_columns(np.vstack([logprobs, *of_probes]), "logprob_")
    of = {"judged": hashes, "tokens": [9] * len(hashes), "cut": [False] * len(hashes)}
    rows = pa.table(of | values, schema=LABEL_LOGPROBS)
    (folder := stage.folder(run, made_by)).mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / "w-00000.parquet")
    stage.verify(run)


def again(run: Run, *overrides: str) -> Run:
    """The verdicts with other settings."""
    run = Run(load_folder(run.path, list(overrides)))
    stage.verify(run)
    return run


def measured(run: Run) -> Any:
    return json.loads((run.path / "verdicts" / "_calibration.json").read_text())


def stored(run: Run, *columns: str) -> np.ndarray:
    table = outcomes.read_verdicts(run, columns).table
    return np.stack([table[name].to_numpy() for name in columns], axis=1).astype(np.float64)


def regrade(run: Run, change: Callable[[Any], Any]) -> None:
    """Replace a run's grades; its verdicts are pending."""
    [part] = tables.parts(run.attempts)
    grades = outcomes.GRADES_TABLE
    table, _ = grades.made(run.path, part.stem, grades.columns.names)
    grades.write(run.path, part.stem, change(table), outcomes.grade_inputs(run), part.mark)
    (run.path / "verdicts" / f"{part.stem}.parquet").unlink()


def called(table: Any, outcomes: Any) -> Any:
    return table.set_column(table.column_names.index("outcome"), "outcome", [outcomes])


MADE = (2, "8fa410efadcca220")  # of another version another hash


def test_verdicts_on_recorded_log_probs_change_only_with_the_version(tmp_path: Path) -> None:
    recorded = pq.read_table(Path(__file__).parents[1] / "recorded" / "labels.parquet").slice(
        0, 480
    )
    marks = {f"q{i:02d}": "110" * (TRIALS // 3) for i in range(8)}
    run = make_run(tmp_path / "run", marks, "verifier=demo", texts=RESPONSES)
    nothing = {"": log_softmax(np.array([1.0, 0, 9]))} | dict.fromkeys(
        marks, np.log([0.5, 0.3, 0.2])
    )
    said(run, calibrate.of_labels(recorded, "logprob_"), nothing)
    found, columns = list[Any](), [f"{kind}{x}" for kind in ("base_", "direct_", "") for x in "abc"]
    for how in ("contextual", "graded", "none", "contextual verifier.clip=null"):
        run = again(run, *f"verifier.calibration={how}".split())
        found.append(np.round(stored(run, *columns), 4) + 0.0)
    made = hashlib.sha256(np.stack(found).tobytes()).hexdigest()[:16]
    assert (outcomes.VERDICTS_TABLE.version, made) == MADE


def unsaid(table: Any, first: int) -> list[str]:
    """Outcomes of which the grader has a view of the first few."""
    return [*table["outcome"].to_pylist()[:first], *["timeout"] * (table.num_rows - first)]


def test_the_grader_s_shares_find_a_bias_and_nothing_is_asked(tmp_path: Path) -> None:
    run = again(verified(tmp_path / "run"), "verifier.calibration=graded", "verifier.clip=1")
    base = stored(run, "base_a", "base_b", "base_c")[0]
    true = np.log([0.5, 0.3, 0.2])  # found in part: most labels are what they are with it, too
    assert np.corrcoef(base, true)[0, 1] > 0.95 and 0.15 < np.ptp(base) < np.ptp(true)
    assert measured(run)["after"]["nll"] < measured(run)["before"]["nll"]
    # Where the grader is not believed, or has said too little, nothing is subtracted.
    assert not stored(again(run, "dataset.judge=all"), "base_a", "base_b", "base_c").any()
    run = again(run, "dataset.judge=null")
    regrade(run, lambda table: called(table, unsaid(table, 9)))
    assert not stored(again(run), "base_a", "base_b", "base_c").any()


def test_t_is_fitted_to_labels_of_people(tmp_path: Path, drawn: None, capsys: Capsys) -> None:
    run = verified(tmp_path / "run", "verifier.fit_temperature=true")
    told = capsys.readouterr().err
    assert "needs labels=FILE" in told and "the configured T is kept" in told
    words = outcome_words(run)
    places = [(i, j) for i in range(QUESTIONS) for j in range(0, TRIALS, 2)]
    right = [(f"q{i:02d}", j, bool(words[i, j] == "correct")) for i, j in places]
    rows = [dict(zip(("question_id", "trial", "correct"), one, strict=True)) for one in right]
    regrade(run, lambda table: called(table, ["wrong"] * table.num_rows))
    few = write_questions(tmp_path / "few.jsonl", rows[:5])
    again(run, f"labels.file={few}")
    assert "T is kept" in capsys.readouterr().err and measured(run)["temperature"] == 1.5
    people = f"labels.file={write_questions(tmp_path / 'people.jsonl', rows)}"
    again(run, people)
    measures = measured(run)
    assert abs(measures["fit"]["temperature"] - TRUE_T) < 4 * measures["fit"]["stderr"] < 1
    assert measures["attempts"] == QUESTIONS * TRIALS
    # What is stored is softmax((logprob - base) / T), by hand.
    logprobs = stored(Run(load_folder(run.path, [people])), "logprob_a", "logprob_b", "logprob_c")
    bases = stored(run, "base_a", "base_b", "base_c")
    expected = np.exp((logprobs - bases) / measures["temperature"])
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(stored(run, "a", "b", "c"), expected, atol=1e-6)
    # The same command fits the same and rewrites nothing; the fit belongs to the command.
    [part] = run.path.glob("verdicts/*.parquet")
    written = part.stat().st_mtime_ns
    capsys.readouterr()
    again(run, people)
    assert part.stat().st_mtime_ns == written and measured(run) == measures
    assert "nothing pending" in capsys.readouterr().err
    again(run, "verifier.fit_temperature=false")
    assert "T=1.5" in capsys.readouterr().err and measured(run)["fit"] is None


def test_rubrics_of_the_verifier_alone_are_independent_of_the_grader(tmp_path: Path) -> None:
    """Of models of which 29 to 88 % is right the same share of what is right gets a high A."""
    found: dict[str, list[float]] = {}
    for how in ((), ("verifier.calibration=graded",)):
        for right in (0.29, 0.5, 0.69, 0.88):
            run, truth = simulated(tmp_path / f"{how}{right}", right, 0.0, *how)
            high = stored(run, "a")[:, 0] >= 0.6
            found.setdefault("".join(how), []).append(high[truth == 0].mean())
            rubrics = [*load(run.cfg).values()]
            marked = [line.split(" of ")[0] for line in dependence(rubrics, [run])]
            assert marked == (["Verifier-Only", "Verifier Probe"] if how else [])
    own, by_grader = found.values()
    assert np.ptp(own) < 0.05 < np.ptp(by_grader) and by_grader[-1] > own[-1] + 0.05
    # Grades that are all others change no probability.
    run, _ = simulated(tmp_path / "run", 0.5, 0.0)
    before = stored(run, "a", "b", "c")
    regrade(run, lambda table: called(table, table["outcome"].combine_chunks()[::-1]))
    assert (stored(again(run), "a", "b", "c") == before).all()


@pytest.mark.parametrize("bias", [-4.0, 0.0, 4.0])
def test_a_biased_verifier_gains(tmp_path: Path, bias: float) -> None:
    run, truth = simulated(tmp_path / "run", 0.5, bias)
    logprobs = stored(run, "logprob_a", "logprob_b", "logprob_c")
    raw, now = (rows.argmax(axis=1) for rows in (logprobs, stored(run, "a", "b", "c")))
    gained, lost = ((a == truth) & (b != truth) for a, b in ((now, raw), (raw, now)))
    gained, lost = gained.mean(), lost.mean()
    assert (gained > 0.05 and gained > 2 * lost) if bias else gained == lost == 0
    move = np.sign(bias) * np.array([1, -1, 0])  # C is right for nothing; at most a nat
    assert (stored(run, "base_a", "base_b", "base_c") == move).all()
    led = np.diff(np.sort(logprobs, axis=1)[:, 1:], axis=1)[:, 0]
    assert led[now != raw].max(initial=0) <= 2
