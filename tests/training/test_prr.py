"""prr on real run folders, its numbers computed again from the outcomes that made them."""

import csv
import itertools
import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import run_of
from scipy.stats import norm

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.multirun import ReversalConfig
from bayes_at_n.pipeline.config.records import RecordsConfig
from bayes_at_n.pipeline.records.importing import import_records
from bayes_at_n.pipeline.training import prr

GREEDY = ("sampling.temperature=0", "sampling.top_p=1.0", "sampling.seed=null")

load = partial(compose.load_as, ReversalConfig)


def imported(root: Path, names: Sequence[str], outcomes: Any) -> None:
    """Run folders root/sums/NAME of outcomes (L, M, N): 1 correct, 0 not, -1 pending."""
    source = root / f"{names[0]}.npz"
    np.savez(source, sums=np.asarray(outcomes))
    import_records(
        compose.load_as(
            RecordsConfig, [f"source={source}", f"runs={root}", f"model={','.join(names)}"]
        )
    )


def random_sides(root: Path, models: int = 4, questions: int = 5, trials: int = 6) -> Any:
    """Runs a-base, ... and a-tuned, ...; their outcomes (2, L, M, N)."""
    rng = np.random.default_rng(7)
    p = rng.beta(1, 1.2, (2, models, questions, 1))
    outcomes = (rng.random((2, models, questions, trials)) < p).astype(int)
    for side, ending in zip(outcomes, ("base", "tuned"), strict=True):
        imported(root, [f"{chr(97 + i)}-{ending}" for i in range(models)], side)
    return outcomes


def measured(root: Path, *settings: str, endings: tuple[str, str] = ("base", "tuned")) -> Any:
    before, after = (f"{root}/sums/*-{ending}" for ending in endings)
    more = [f"out={root / 'out'}", "draws=500", *settings]
    prr.run(load([f"before={before}", f"after={after}", *more]))
    return json.loads((root / "out" / "prr.json").read_text())


def test_rates_are_those_of_scoring(tmp_path: Path) -> None:
    outcomes = random_sides(tmp_path)
    found = measured(tmp_path, "metrics=pass@1,pass@2,pass@4")
    rows = {row["protocol"]: row for row in found["protocols"]}
    assert list(rows) == ["avg@6", "Bayes@6", "Pass@1", "Pass@2", "Pass@4"]
    for label, row in rows.items():
        k = int(label.split("@")[1]) if label.startswith("Pass") else 1
        rate = scoring.reversal_rate(*scoring.pass_at_k(outcomes, k))
        assert (row["prr"], row["reversed"]) == pytest.approx((rate, 6 * rate))
        assert row["low"] <= row["mean"] <= row["high"]
        assert row["apart_reversed"] <= row["apart"] <= row["pairs"] == 6
        assert row["cost"] is None  # imported outcomes have no tokens


def test_pairs_apart_are_those_whose_intervals_leave_out_zero(tmp_path: Path) -> None:
    outcomes = random_sides(tmp_path, models=6, questions=20, trials=16)
    found = measured(tmp_path, "metrics=pass@4,pass@8", "confidence=0.9")
    rows = {row["protocol"]: row for row in found["protocols"]}
    scores = {"avg@16": scoring.avg(outcomes)}
    for k in (4, 8):
        sigma = scoring.pass_at_k_sigma(outcomes, k)
        scores[f"Pass@{k}"] = scoring.pass_at_k(outcomes, k), sigma
        row_sigmas = [r["sigma_before"] for r in found["ranks"] if r["protocol"] == f"Pass@{k}"]
        assert row_sigmas == pytest.approx(sigma[0])
    for label, (mean, sigma) in scores.items():
        settled, turned = 0, []
        for i, j in itertools.combinations(range(6), 2):
            z = (mean[:, i] - mean[:, j]) / np.hypot(sigma[:, i], sigma[:, j])
            sure = np.abs(z) > norm.ppf(0.95)
            settled += sure.all()
            if sure.all() and z[0] * z[1] < 0:
                turned.append([chr(97 + i), chr(97 + j)])
        row = rows[label]
        assert (row["apart"], row["apart_reversed_pairs"]) == (settled, turned)
        assert len(turned) <= settled < 15
    assert rows["avg@16"]["apart_reversed"] > 0


def test_ranks_tell_pairs_scores_and_shifts(tmp_path: Path) -> None:
    imported(tmp_path, ["x-base", "y-base", "z-base"], [[[1, 1, 0]], [[1, 0, 0]], [[1, 0, 0]]])
    imported(tmp_path, ["x-sft", "y-sft", "z-sft"], [[[0, 0, 0]], [[1, 1, 1]], [[1, 1, 0]]])
    found = measured(tmp_path, "metrics=pass@1", endings=("base", "sft"))
    rows = [row for row in found["ranks"] if row["protocol"] == "avg@3"]
    assert [(r["before"], r["after"]) for r in rows] == [(f"{n}-base", f"{n}-sft") for n in "xyz"]
    assert [(r["rank_before"], r["rank_after"], r["shift"]) for r in rows] == [
        (1, 3, -2),
        (2, 1, 1),
        (2, 2, 0),
    ]
    average = found["protocols"][0]
    # x falls behind both; y and z are tied before, which is no reversal.
    assert (average["reversed"], average["tied"]) == (2, 1)
    p = 3 / 5
    assert rows[0]["sigma_before"] == pytest.approx(math.sqrt(p * (1 - p) / 6) * 5 / 3)
    with (tmp_path / "out" / "ranks.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["after"] == "x-sft"


def test_twins_are_no_models_and_count_only_when_all_are_there(tmp_path: Path) -> None:
    for name in ("a-base", "b-base", "a-tuned", "b-tuned"):
        run_of(tmp_path, name)
        if name != "b-tuned":
            run_of(tmp_path, f"{name}-greedy", {"a": "1", "b": "0", "c": "0"}, *GREEDY)
    folder, out = f"{tmp_path}/sums", tmp_path / "out"
    patterns = [f"before={folder}/[ab]-base*", f"after={folder}/?-tuned*", f"out={out}"]
    prr.run(load(patterns))
    found = json.loads((out / "prr.json").read_text())
    assert [len(found["pairs_of_runs"]), found["protocols"][0]["protocol"]] == [2, "avg@4"]
    assert "greedy is left out" in (out / "index.html").read_text()
    # Sampled, so it is no greedy run either.
    run_of(tmp_path, "b-tuned-greedy", {"a": "1", "b": "0", "c": "0"})
    prr.run(load(patterns))
    assert "greedy is left out" in (out / "index.html").read_text()


def test_fewer_trials_leave_out_k_and_other_trials_are_said(tmp_path: Path) -> None:
    outcomes = np.ones((2, 3, 4), int)
    outcomes[1, 2, 2:] = -1
    imported(tmp_path, ["a-base", "b-base"], outcomes)
    imported(tmp_path, ["a-tuned", "b-tuned"], outcomes[:, :, :3])
    found = measured(tmp_path, "metrics=pass@1,pass@2,pass@4")
    labels = ["avg@N", "Bayes@N", "Pass@1", "Pass@2"]
    assert [row["protocol"] for row in found["protocols"]] == labels
    page = (tmp_path / "out" / "index.html").read_text()
    assert "Pass@4: left out" in page and "differs: trials" in page
    assert not [key for key, row in enumerate(found["protocols"]) if row["cost"] is not None]
    measured(tmp_path, "metrics=pass@4")
    assert not (tmp_path / "out" / "trend.png").exists()


def test_runs_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    for name in ("a-base", "b-base", "a-tuned", "b-tuned", "c-tuned"):
        run_of(tmp_path, name)
    run_of(tmp_path, "a-raw", {"a": "++", "b": "++", "c": "++"})
    run_of(tmp_path, "b-raw", {"a": "11", "b": "10", "c": "++"})
    run_of(tmp_path, "a-other", {"a": "11", "b": "10", "d": "00"})
    run_of(tmp_path, "a-far", dataset="products")
    (tmp_path / "empty").mkdir()
    runs = f"{tmp_path}/sums"
    base = f"{runs}/*-base"
    for before, after, message in (
        (base, f"{runs}/*-tuned", "a-base, b-base"),
        (base, f"{tmp_path}/empty", "empty"),
        (base, base, "before= .*after="),
        (base, f"{runs}/a-tuned,{runs}/a-raw", "a-raw"),
        (base, f"{runs}/a-tuned,{runs}/b-raw", "b-raw"),
        (base, f"{runs}/a-tuned,{runs}/a-other", "a-other: 2 of its 3 questions"),
        (base, f"{runs}/a-tuned,{tmp_path}/products/a-far", "sums, products"),
    ):
        with pytest.raises(UserError, match=message) as error:
            prr.run(load([f"before={before}", f"after={after}", f"out={tmp_path / 'out'}"]))
        assert "\n" not in str(error.value)
