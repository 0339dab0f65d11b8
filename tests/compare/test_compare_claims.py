"""compare where people labeled attempts: corrected scores, computed again from marks and labels."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Capsys, run_of
from scipy.stats import norm, t

from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.score.headline import correlation_warning
from bayes_at_n.scoring import Inflation, labeled, prediction_powered


def made(root: Path, name: str, chance: float, accepted: float, dataset: str = "x") -> list[float]:
    """Of a run with 40 labels the corrected score, sigma as wide as Student's, the judged score,
    and the low end that `score` prints."""
    rng = np.random.default_rng([*f"{dataset}/{name}".encode()])
    y = rng.random((12, 20)) < chance
    f, at = y | (rng.random(y.shape) < accepted), rng.permutation(240)[:40]
    lines = {f"q{i:02d}": "".join(map(str, row.astype(int))) for i, row in enumerate(f)}
    path = run_of(root, name, lines, "sampling.seeds=independent", dataset=dataset).path / "labels"
    path.mkdir()
    keys = ({"question_id": f"q{i // 20:02d}", "trial": int(i % 20)} for i in at)
    rows = (key | {"correct": bool(y.flat[i])} for key, i in zip(keys, at, strict=True))
    (path / "ana.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    sample = labeled(f.ravel(), y.ravel()[at], at, questions=np.arange(240) // 20)
    found = prediction_powered(sample)
    wider = t(found.freedom).ppf(0.975) / norm.ppf(0.975)
    return [found.value, found.sigma * wider, float(f.mean()), found.low]


def compared(root: Path, capsys: Capsys, *settings: str) -> Any:
    assert main.main(["compare", f"runs={root}", *settings, "--json"]) == 0
    found: Any = json.loads(capsys.readouterr().out)
    return found["pooled"] or found["datasets"][0]


def test_differences_carry_the_error_of_judges(tmp_path: Path, capsys: Capsys) -> None:
    a, s, strict, *low = made(tmp_path, "strict", 0.6, 0.0)
    b, u, lenient, *low[1:] = made(tmp_path, "lenient", 0.45, 0.5)
    found = compared(tmp_path, capsys)
    assert [row["model"] for row in found["models"]] == ["strict", "lenient"]
    assert [row["score"] for row in found["models"]] == pytest.approx([a, b])
    assert [row["low"] for row in found["models"]] == pytest.approx(low)
    pair, sigma = found["pairs"][0], np.hypot(s, u)
    assert pair["log10_e"] is None
    assert pair["high"] == pytest.approx(a - b + norm.ppf(0.975) * sigma)
    assert pair["probability"] == pytest.approx(norm.cdf((a - b) / sigma))
    assert 0.5 < pair["probability_other_questions"] < pair["probability"] and not pair["settled"]
    (tmp_path / "x" / "lenient" / "labels" / "ana.jsonl").unlink()  # then none is corrected
    found = compared(tmp_path, capsys)
    assert [row["avg"] for row in found["models"]] == pytest.approx([lenient, strict])


def test_datasets_are_pooled_and_the_gate_asks_people_too(tmp_path: Path, capsys: Capsys) -> None:
    values = [made(tmp_path, "new", 0.4, 0.6, of)[0] for of in "xy"]
    for dataset in "xy":
        made(tmp_path, "base", 0.4, 0.0, dataset)
    pooled = compared(tmp_path, capsys, "dataset=x,y")
    value = {row["model"]: row["avg"] for row in pooled["models"]}["new"]
    assert value == pytest.approx(np.mean(values)) and "people" not in pooled
    (tmp_path / "policy.yaml").write_text("datasets: {x: {better: 0}}")
    gate = ["compare", f"runs={tmp_path}", "model=base,new", f"gate={tmp_path}/policy.yaml"]
    gate.append(f"out={tmp_path}/out")
    assert main.main(gate) == 4 and "human labels" in capsys.readouterr().out
    (tmp_path / "policy.yaml").write_text("datasets: {x: {no_worse: 90}}")
    assert main.main(gate) == 0 and "any look" not in capsys.readouterr().out.splitlines()[-1]
    [row] = json.loads((tmp_path / "out" / "gate.json").read_text())["datasets"]
    assert row["labels_low"] < row["labels"] < row["labels_high"]
    (tmp_path / "policy.yaml").write_text("datasets: {x: {better: 0}}")
    for name in ("base", "new"):
        (tmp_path / "x" / name / "labels" / "ana.jsonl").unlink()
    assert main.main(gate) == 0  # the judge's own outcomes are far apart
    assert "any look" in capsys.readouterr().out.splitlines()[-1]


def test_shared_luck_inflates_the_part_of_trials_alone() -> None:
    [line] = correlation_warning(["a"], Inflation(4.0, 2.0, 6.0, 1e-9), 0.01, 0.95, 0.05)
    assert f"{(0.05**2 + 3 * 0.01**2) ** 0.5:.4f}, not 0.0500" in line


def test_changes_and_rankings_name_what_they_compare(tmp_path: Path, capsys: Capsys) -> None:
    values = [made(tmp_path / night, "a", 0.4, share)[0] for night, share in (("o", 0), ("n", 0.6))]
    for night in "on":
        run_of(tmp_path / night, "b", {f"q{i:02d}": "0110" for i in range(12)}, dataset="x")
    assert main.main(["compare", f"{tmp_path}/o", f"{tmp_path}/n", "--json"]) == 0
    found: Any = json.loads(capsys.readouterr().out)
    row = next(row for row in found["changes"] if row["model"] == "a")
    assert [row["old"], row["new"]] == pytest.approx(values) and "labels in 1 of" in found["notes"][
        0
    ]
    made(tmp_path / "n", "c", 0.5, 0.1)
    found = compared(tmp_path / "n", capsys, "model=a,c", "ranking=borda")
    assert [row["method"] for row in found["ranking_methods"]] == ["avg (corrected)", "borda"]
    assert "avg (corrected)" in found["notes"]["ranking_methods"][0]
    run_of(tmp_path / "n", "short", {f"q{i:02d}": "01" * 10 for i in range(6)}, dataset="x")
    row = compared(tmp_path / "n", capsys, "model=c,short")["people"][0]
    labels = [json.loads(line) for line in (tmp_path / "n/x/c/labels/ana.jsonl").open()]
    counted = sum(int(row[key].split(" of ")[1]) for key in ("missed", "accepted"))
    assert counted == sum(label["question_id"] < "q06" for label in labels) < len(labels)
