"""score: outcomes become an M×N matrix, and the matrix a table with honest uncertainty."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from rich.table import Table

import scoring
from pipeline.base.console import clock, count, note, results, warn
from pipeline.base.errors import UserError
from pipeline.config.compose import load_folder
from pipeline.rubrics import categories
from pipeline.store import rowkeys, runfolder, shards, workers
from pipeline.store.columns import ATTEMPTS, GRADES, KEY
from pipeline.store.runfolder import Run

OUTCOMES = ("correct", "wrong", "no_answer", "unparsable", "timeout")
MISSING = "owed"


def score(run: Run) -> None:
    """Score the run's graded attempts: a table, `scores.json` and `matrix.npz`.

    Raises:
        UserError: when nothing is graded, or the prior run does not fit.
    """
    runfolder.check_same(run, runfolder.identity(run.cfg))
    outcomes = outcome_matrix(run)
    graded = outcomes != MISSING
    if not graded.any():
        raise UserError(f"{run.path}: nothing graded yet; run `python -m pipeline grade` first")
    matrix = as_matrix(outcomes)
    scores: dict[str, Any] = {
        "run": str(run.path),
        "model": run.cfg.model.name,
        "dataset": run.cfg.dataset.name,
        "questions": int(outcomes.shape[0]),
        "trials": int(outcomes.shape[1]),
        "attempts": int(graded.sum()),
        "confidence": run.cfg.scoring.confidence,
        "uniform_prior": _summary(run, matrix, outcomes),
    }
    if run.cfg.prior.run is not None:
        prior = _prior_matrix(run)
        scores["prior"] = {"run": run.cfg.prior.run, "trials": int(prior.shape[1])}
        scores["with_prior"] = _posterior(run, matrix, prior)
    scores["shares"] = _shares(run, outcomes)
    mapped = categories.current(run)
    if mapped:
        scores["rubrics"] = categories.rubric_scores(run, mapped)
    scores["cost"] = _cost(run)
    ids = [row["question_id"] for row in run.questions]
    try:
        runfolder.write_json(run.path / "scores.json", scores)
        _write_matrix(run.path / "matrix.npz", matrix, outcomes, ids)
    except OSError as error:
        raise UserError(f"{run.path}: {error.strerror or error}; scores were not saved") from error
    categories.print_rubrics(scores.get("rubrics", {}), run.cfg.scoring.confidence)
    _draw(run, mapped)
    _print(scores)
    if not graded.all():
        warn(
            f"{int((~graded).sum())} of {graded.size} attempts are still owed or ungraded; a"
            " missing trial is never counted as wrong"
        )
    note(f"saved {run.path / 'scores.json'} and matrix.npz")


def _draw(run: Run, mapped: Mapping[str, categories.Mapped]) -> None:
    try:
        pictures = categories.draw(run, mapped)
    except OSError as error:
        raise UserError(f"{error.filename or run.path}: {error.strerror or error}") from error
    if pictures:
        note(f"drew {len(pictures)} pictures of category shares in {pictures[0].parent}")


def outcome_matrix(run: Run) -> npt.NDArray[np.str_]:
    """Outcomes as an M×N array of words, "owed" where there is no grade; dtype str."""
    ids, trials = rowkeys.question_ids(run), run.cfg.sampling.trials
    found = np.full((len(ids), trials), MISSING, dtype="U16")
    damage = shards.Damage()
    for batch in shards.batches(run.grades, GRADES, [*KEY, "outcome"], damage):
        kept, at = rowkeys.cells(rowkeys.encode(batch, ids), trials)
        found[at] = batch["outcome"].to_numpy(zero_copy_only=False)[kept]
    if damage.lines:
        warn(f"grades: {damage}; run `grade` to make them again")
    return found


def as_matrix(outcomes: npt.NDArray[np.str_]) -> Any:
    """1 for correct, 0 for every other outcome, masked where nothing is graded; M×N int8.

    >>> as_matrix(np.array([["correct", "timeout", "owed"]])).tolist()
    [[1, 0, None]]
    """
    correct = (outcomes == "correct").astype(np.int8)
    return np.ma.masked_where(outcomes == MISSING, correct)  # type: ignore[no-untyped-call]


def _posterior(run: Run, matrix: Any, prior: Any = None) -> dict[str, float]:
    confidence = run.cfg.scoring.confidence
    mu, sigma, low, high = scoring.bayes_ci(
        matrix, R0=prior, confidence=confidence, bounds=(0.0, 1.0)
    )
    return {"mu": mu, "sigma": sigma, "low": low, "high": high}


def _summary(run: Run, matrix: Any, outcomes: npt.NDArray[np.str_]) -> dict[str, Any]:
    found: dict[str, Any] = {"bayes": _posterior(run, matrix)}
    if (outcomes == MISSING).all(axis=1).any():
        empty = int((outcomes == MISSING).all(axis=1).sum())
        warn(f"{empty} questions have no graded attempt: avg@N and Pass@k are left out")
        return found
    confidence = run.cfg.scoring.confidence
    a, sigma, low, high = scoring.avg_ci(matrix, confidence=confidence, bounds=(0.0, 1.0))
    found["avg"] = {"mean": a, "sigma": sigma, "low": low, "high": high}
    if matrix.shape[0] > 1:
        parts = scoring.uncertainty(matrix)
        found["avg"]["stderr_over_questions"] = parts.clustered
        found["avg"]["stderr_total"] = parts.total
    if run.cfg.scoring.empirical_bayes:
        ends = scoring.empirical_bayes_ci(matrix, confidence=confidence)
        found["empirical_bayes"] = dict(zip(("mu", "sigma", "low", "high"), ends, strict=True))
    bayes = found["bayes"]
    bayes["shrinkage"] = scoring.shrinkage(bayes["mu"], bayes["sigma"], a)
    undecided = np.isin(outcomes, ("timeout", "unparsable"))
    if undecided.any():
        best = as_matrix(np.where(undecided, "correct", outcomes))
        found["bayes_if_undecided_were_correct"] = _posterior(run, best)
    fewest = int((outcomes != MISSING).sum(axis=1).min())
    found["pass_at_k"] = {
        str(k): scoring.pass_at_k(matrix, k) for k in run.cfg.scoring.pass_k if k <= fewest
    }
    return found


def _prior_matrix(run: Run) -> Any:
    """The first D trials of another run of the same questions, in this run's order: M×D."""
    cfg = run.cfg.prior
    try:
        other = Run(load_folder(Path(str(cfg.run)).expanduser(), []))
    except UserError as error:
        raise UserError(f"prior={cfg.run}: {error}") from error
    if other.path.resolve() == run.path.resolve():
        raise UserError(f"prior={cfg.run}: is this run itself, whose trials would count twice")
    theirs = {row["question_hash"]: i for i, row in enumerate(other.questions)}
    missing = [q["question_id"] for q in run.questions if q["question_hash"] not in theirs]
    if missing:
        raise UserError(
            f"prior={cfg.run}: does not hold {len(missing)} of this run's questions"
            f" ({', '.join(missing[:3])}); a prior must come from the same questions"
        )
    outcomes = outcome_matrix(other)
    most = other.cfg.sampling.trials
    trials = cfg.trials or most
    if trials > most:
        raise UserError(f"prior.trials={trials}: {cfg.run} has only {most} trials")
    chosen = outcomes[[theirs[q["question_hash"]] for q in run.questions], :trials]
    if (chosen == MISSING).any():
        raise UserError(
            f"prior.trials={trials}: not all of the first {trials} trials of {cfg.run} are graded"
        )
    return (chosen == "correct").astype(int)


def _shares(run: Run, outcomes: npt.NDArray[np.str_]) -> dict[str, Any]:
    total = max(int((outcomes != MISSING).sum()), 1)
    counts = {name: int((outcomes == name).sum()) for name in OUTCOMES}
    boxes: Counter[str] = Counter()
    for batch in shards.batches(run.grades, GRADES, ["trial", "box"], shards.Damage()):
        for trial, box in zip(*(batch[n].to_pylist() for n in ("trial", "box")), strict=True):
            boxes[box] += trial < run.cfg.sampling.trials
    return {
        **{name: number / total for name, number in counts.items()},
        "truncated": boxes["truncated"] / total,
        "unboxed": (boxes["no_box"] + boxes["unclosed"]) / total,
    }


def _cost(run: Run) -> dict[str, Any]:
    completion = prompt = 0
    columns = ["trial", "prompt_tokens", "completion_tokens"]
    for batch in shards.batches(run.attempts, ATTEMPTS, columns, shards.Damage()):
        scored = pc.less(batch["trial"], run.cfg.sampling.trials)
        prompt += pc.sum(batch["prompt_tokens"].filter(scored)).as_py() or 0  # null: not recorded
        completion += pc.sum(batch["completion_tokens"].filter(scored)).as_py() or 0
    spent = workers.totals(run)
    return {
        "completion_tokens": completion,
        "prompt_tokens": prompt,
        "sessions": spent.sessions,
        "wall_s": round(spent.wall_s, 3),
        "gpu_hours": None if spent.gpu_s is None else round(spent.gpu_s / 3600, 4),
        "tokens_per_s": round(spent.completion_tokens / spent.wall_s, 1) if spent.wall_s else None,
    }


def _write_matrix(path: Path, matrix: Any, outcomes: npt.NDArray[np.str_], ids: list[str]) -> None:
    """`R` (M×N int8, -1 where owed), `outcomes` (M×N words) and `question_ids`, uncompressed."""
    temporary = path.with_name(f".{path.name}.tmp.npz")
    try:
        np.savez(
            temporary, R=matrix.filled(-1), outcomes=outcomes, question_ids=np.array(ids, dtype=str)
        )
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _print(scores: dict[str, Any]) -> None:
    uniform, cost = scores["uniform_prior"], scores["cost"]
    level = f"{scores['confidence']:.0%}"
    table = Table(title=f"{scores['model']} on {scores['dataset']}", title_justify="left")
    for name, right in (
        ("metric", False),
        ("value", True),
        ("σ", True),
        (f"{level} interval", True),
    ):
        table.add_column(name, justify="right" if right else "left")

    def row(name: str, s: dict[str, Any], mean: str) -> None:
        interval = f"{s['low']:.4f} to {s['high']:.4f}"
        table.add_row(name, f"{s[mean]:.4f}", f"{s['sigma']:.4f}", interval)

    row(f"Bayes@{scores['trials']} (uniform prior)", uniform["bayes"], "mu")
    if "with_prior" in scores:
        name = f"Bayes@{scores['trials']} (prior: {scores['prior']['trials']} trials)"
        row(name, scores["with_prior"], "mu")
    if "bayes_if_undecided_were_correct" in uniform:
        row("  were all undecided correct", uniform["bayes_if_undecided_were_correct"], "mu")
    if "avg" in uniform:
        row(f"avg@{scores['trials']}", uniform["avg"], "mean")
        if "stderr_over_questions" in uniform["avg"]:
            error = uniform["avg"]["stderr_over_questions"]
            table.add_row("  questions as a sample", "", f"{error:.4f}", "")
    if "empirical_bayes" in uniform:
        row("empirical Bayes", uniform["empirical_bayes"], "mu")
    for k, value in uniform.get("pass_at_k", {}).items():
        table.add_row(f"Pass@{k}", f"{value:.4f}", "", "")
    results.print(table)
    shares = ", ".join(f"{name} {share:.1%}" for name, share in scores["shares"].items())
    results.print(f"{scores['questions']} questions, {scores['attempts']} attempts: {shares}")
    rate = f", {count(cost['tokens_per_s'])} tokens/s" if cost["tokens_per_s"] else ""
    results.print(
        f"{count(cost['completion_tokens'])} tokens sampled in {clock(cost['wall_s'])}{rate}"
    )
    if abs(uniform["bayes"].get("shrinkage", 0)) > scoring.SHRINKAGE_LIMIT:
        warn(
            f"the uniform prior moved μ by {uniform['bayes']['shrinkage']:+.2f} σ from avg@N: with"
            " so many easy or hard questions the interval covers less than it says; read avg@N's,"
            " or set scoring.empirical_bayes=true"
        )
