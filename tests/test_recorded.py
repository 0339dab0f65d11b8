"""What a change of structure must not change: results from recorded attempts, to twelve digits.

`recorded/` holds 1,920 attempts of the demo models with log-probs and verdicts, label log-probs of
the demo's verifier, and `results.json`: what the commands and the grader make of them. After a
change of results that is meant, `python tests/test_recorded.py` stores them anew; git shows what
it changed.
"""

import contextlib
import csv
import io
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bayes_at_n import verifiers
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.verifiers.judge.calibration import (
    LABELS,
    a_against_b,
    calibrate,
    clipped,
    of_attempts,
)
from benchmarks.answers import adversarial

HERE = Path(__file__).parent / "recorded"


WORDS = ("sentence", "notes")  # keys whose values are English, which may be mended


def rounded(value: Any) -> Any:
    """Floats with twelve significant digits, the last ones are the processor's; without words."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {str(key): rounded(v) for key, v in value.items() if key not in WORDS}
    return [rounded(v) for v in value] if isinstance(value, list | tuple) else value


def number(text: str) -> float | str:
    """A cell's number, or its text."""
    try:
        return float(text)
    except ValueError:
        return text


def commands(root: Path) -> dict[str, Any]:
    """What import, grade, categorize, score and compare make of the attempts."""

    def command(*words: str) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(list(words)) == 0, words

    command("import", f"source={HERE / 'attempts.parquet'}", f"runs={root}")
    made: dict[str, Any] = {}
    for run in sorted((root / "demo").glob("demo-step-*")):
        for verb in ("grade", "categorize", "score"):
            command(verb, str(run))
        grades = pq.read_table(run / "grades").sort_by(
            [("question_id", "ascending"), ("trial", "ascending")]
        )
        scores = json.loads((run / "scores.json").read_text())
        del scores["made_from"]
        rubrics = sorted((run / "categories").glob("*.parquet"))
        made[run.name] = {
            "outcomes": "".join(outcome[0] for outcome in grades["outcome"].to_pylist()),
            "categories": {
                p.stem: counted(pq.read_table(p)["category"].to_pylist()) for p in rubrics
            },
            "scores": scores,
        }
    command("compare", "dataset=demo", f"runs={root}", f"out={root / 'out'}")
    made["compare"] = json.loads((root / "out" / "compare.json").read_text())
    with (root / "out" / "leaderboard.csv").open(newline="") as file:
        made["leaderboard"] = [[number(cell) for cell in row] for row in csv.reader(file)]
    text = json.dumps(rounded(made)).replace(str(root), "runs")
    return json.loads(text)  # type: ignore[no-any-return]


def counted(values: list[Any]) -> dict[str, int]:
    """How often each value is there."""
    return {str(value): number for value, number in sorted(Counter(values).items())}


def calibrated(_: Path) -> dict[str, Any]:
    """Means of the verifier's probabilities, by model and baseline."""
    table, made = pq.read_table(HERE / "labels.parquet").to_pandas(), {}
    for model, rows in table.groupby("model"):
        logprobs = rows[[f"logprob_{label.lower()}" for label in LABELS]].to_numpy(float)
        batch = of_attempts(logprobs)
        bases = {
            "none": 0 * batch,
            "batch": clipped(batch),
            "a_against_b": clipped(a_against_b(batch)),
        }
        made[model] = {
            kind: calibrate(logprobs, base).mean(axis=0).tolist() for kind, base in bases.items()
        }
    return rounded(made)  # type: ignore[no-any-return]


def corpus(_: Path) -> dict[str, Any]:
    """How many of the adversarial answers have each outcome, by kind."""
    cases = [
        (case, verifiers.find(case.completion, truncated=False).answer) for case in adversarial()
    ]
    grades = verifiers.grade([(case.gold, answer) for case, answer in cases if answer is not None])
    return counted([
        f"{case.kind}: {grades[case.gold, answer].outcome if answer is not None else 'no_answer'}"
        for case, answer in cases
    ])  # fmt: skip


RESULTS = {"commands": commands, "calibrated": calibrated, "corpus": corpus}


@pytest.mark.parametrize(
    "part", ["commands", "calibrated", pytest.param("corpus", marks=pytest.mark.soak)]
)
def test_results_are_those_recorded(part: str, tmp_path: Path) -> None:
    assert RESULTS[part](tmp_path) == json.loads((HERE / "results.json").read_text())[part]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        parts = {name: part(Path(folder)) for name, part in RESULTS.items()}
    (HERE / "results.json").write_text(json.dumps(parts, indent=1) + "\n")
