"""score: outcomes become an M×N matrix, and the matrix a table with honest uncertainty.

Another run as the prior: its trials are evidence from before the first trial of this one. Questions
are matched by their hash; the other run must hold all of this one's. Source: arXiv 2510.04265,
Algorithm 1 (R0); the weight is our addition (docs/scoring.md).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import mode, note, note_alone, percent, plural, results, warn
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.rubrics import categories
from bayes_at_n.pipeline.score import answers, by_category, caps, headline, labels, likelihood
from bayes_at_n.pipeline.score.headline import MADE_FROM, made_from
from bayes_at_n.pipeline.store import outcomes, provenance, runfolder, selection
from bayes_at_n.pipeline.store.outcomes import CORRECT, PENDING, UNDECIDED, Outcomes
from bayes_at_n.pipeline.store.runfolder import Run, open_run
from bayes_at_n.scoring.metrics import DEFAULT
from bayes_at_n.scoring.metrics.table import Metric, Summary, parse_all
from bayes_at_n.scoring.numerics.inputs import values

Parts = dict[str, Any]


def score(run: Run) -> None:
    """Score the run's graded attempts: print a table, save `scores.json` and `matrix.npz`.

    With other `sampling.trials` than the folder's nothing is saved.
    """
    labels.keep(run)
    record = made_from(run)  # what is added meanwhile makes the scores stale
    if run.cfg.sampling.likelihood == "gold":
        scores = _about(run, likelihood.measured(run)) | {"cost": _cost(run), MADE_FROM: record}
        attempts = len(run.questions) - len(runfolder.pending(run))
        scores |= {"trials": 1, "attempts": attempts, "metrics": {}}
        headline.show(scores, [])
        display.print_json(scores)
        return runfolder.write_json(run.path / "scores.json", scores)
    scores, graded, curve = scored(run)
    scores[MADE_FROM] = record
    display.print_json(scores)
    if (own := load_folder(run.path, []).sampling.trials) != run.cfg.sampling.trials:
        return note_alone(f"nothing saved: {run.path} has sampling.trials={own}")
    if curve is not None:
        from bayes_at_n.pipeline.plots.scores import by_cap  # matplotlib takes half a second

        picture = by_cap(curve.rows, curve.title)
        selection.write_results(run.path / "caps", "caps", {}, {"curve": curve}, {"curve": picture})
        note(f"saved {run.path / 'caps'}")
    with atomic.replacing(run.path / "matrix.npz") as file:
        np.savez(
            file,
            R=graded.matrix.filled(-1),
            outcomes=outcomes.words(graded.codes),
            question_ids=np.array(graded.question_ids, dtype=str),
        )
    runfolder.write_json(run.path / "scores.json", scores)
    note_alone(f"saved {run.path / 'scores.json'} and matrix.npz")


def scored(run: Run) -> tuple[Parts, Outcomes, display.Table | None]:
    """Compute and print what `scores.json` is to hold, also outcomes and the curve of `caps=`.

    Raises UserError: nothing is graded, or settings ask what the attempts do not tell.
    """
    runfolder.check_same(run, provenance.identity(run.cfg))
    graded = outcomes.read(run)
    if (graded.codes == PENDING).all():
        raise headline.without_outcomes(run, graded)
    curve = forecast = dated = by_people = of_categories = None
    settings, matrix = run.cfg.scoring, graded.matrix
    if settings.caps or settings.forecast:  # what is refused, before anything is shown
        curve, forecast = caps.read(run, matrix)
    if run.cfg.dataset.since:
        dated = by_category.since(run, matrix)
    metrics, evidence = _metrics(run, graded)
    mapped = categories.current(run)
    scores = _scores(run, graded, metrics, mapped, evidence)
    if mode("verbose"):
        categories.print_rubrics(run, scores.get("rubrics", {}))
    headline.show(scores, metrics)
    headline.warn_of_intervals(scores)
    if fields := by_category.fields(run):
        of_categories = by_category.table(run, fields, matrix)
    for name, table in (("categories", of_categories), ("caps", curve)):
        if table is not None:
            whole = mode("verbose") or table is not of_categories
            display.show(table if whole else by_category.cut(table))
            scores[name] = [dict(row) for row in table.rows]
    if labels.files(run) and (by_people := labels.corrected(run, graded)):
        scores["people"], table = by_people
        display.show(table)
    prompt = " ".join([*run.cfg.prompt.templates, run.cfg.model.system or ""]).lower()
    written = graded.judged is not None and run.cfg.verifier.kind == "generate"
    measured = {
        "stated": answers.stated(run, graded) if "confidence" in prompt else None,
        "attempted": answers.attempted(run, graded) if written else None,  # else C is "invalid"
        "since": dated,
        "forecast": forecast,
    }
    for name, found in measured.items():
        if found is not None:
            scores[name], line = found
            results.print(line)
    if decided := outcomes.deciders_line(run, graded):
        results.print(decided)
    before = runfolder.read_json(run.path / "scores.json")
    if before and before.get("judge", {}).get("by") != outcomes.judge_settings(run):
        note("score: the previous scores used another grader or verifier")
    if lacking := int((graded.codes == PENDING).sum()):
        of = f"{lacking} of {graded.codes.size} attempts"
        warn(f"{of} are pending, ungraded or unjudged; they are left out, not counted as wrong")
    if cut := runfolder.continuing(run):
        warn(f"{len(cut)} truncated attempts count as truncated until `run` continues them")
    return scores, graded, curve


def _metrics(run: Run, graded: Outcomes) -> tuple[list[Metric], answers.Evidence]:
    """Return the metrics that can be made, and what votes among them take; warn of the others."""
    names = ("bayes", "avg", "bayes-uniform", *run.cfg.scoring.metrics)
    metrics = parse_all(names, run.cfg.scoring.prior)
    least = int((graded.codes != PENDING).sum(axis=1).min())
    short = ", ".join(metric.title() for metric in metrics if metric.k > least)
    if short and run.cfg.scoring.metrics != [*DEFAULT]:  # else nobody asked for them
        warn(f"{short}: left out: some question has only {plural(least, 'graded attempt')}")
    metrics = [metric for metric in metrics if metric.k <= least]
    voting = any(metric.votes for metric in metrics)
    evidence = answers.evidence(run, graded.question_ids) if voting else answers.NOTHING
    left_out = answers.left_out(metrics, evidence)
    for name, why in left_out.items():
        warn(f"{name}: left out: {why}")
    return [metric for metric in metrics if metric.name not in left_out], evidence


def _scores(
    run: Run,
    graded: Outcomes,
    metrics: Sequence[Metric],
    mapped: Mapping[str, categories.Recorded],
    evidence: answers.Evidence,
) -> Parts:
    """Compute all of `scores.json` but for votes, caps and the forecast."""
    matrix, level = graded.matrix, run.cfg.scoring.confidence
    arrays, drawn = {"outcomes": matrix, **evidence.arrays}, outcomes.clusters(run)
    head, by = headline.compute(matrix, run.cfg.scoring), outcomes.judge_settings(run)
    fitted = {"bayes": Summary(*(head[key] for key in Summary._fields))}  # fitted once
    by_likelihood = likelihood.measured(run) if run.cfg.sampling.likelihood else {}
    try:
        summaries = {
            metric.name: fitted.get(metric.name) or metric.summary(metric.given(arrays), level)
            for metric in metrics
        }
    except ValueError as error:  # of a user's own
        raise UserError(f"scoring.metrics: {one_line(error)}") from error
    errors = {m.name: {"error": m.error(m.given(arrays))} for m in metrics if m.error is not None}
    scores: Parts = {
        "headline": head,
        **_about(run, by_likelihood),
        "trials": int((graded.codes != PENDING).sum(axis=1).max()),
        "attempts": int((graded.codes != PENDING).sum()),
        **({"judge": {"by": by, **graded.deciders()}} if by else {}),
        "uniform_prior": _uniform_prior(graded, summaries, level, drawn),
        "metrics": {name: of._asdict() | errors.get(name, {}) for name, of in summaries.items()},
    }
    undecided = np.isin(graded.codes, UNDECIDED)
    failed = run.cfg.dataset.answer == "code"  # a program that takes too long
    if undecided.any() and graded.points is None and not failed:
        best = outcomes.correct(np.where(undecided, CORRECT, graded.codes))
        scores["headline_if_undecided_were_correct"] = headline.compute(best, run.cfg.scoring)
    if len({*drawn}) > 1 and "avg" in summaries:
        more = scoring.next_attempts(matrix, clusters=drawn)
        fixed = run.cfg.sampling.temperature == 0 or bool(by_likelihood)
        scores["next_attempts"] = headline.next_attempts(more, fixed=fixed)
    if how := headline.stopped(run):
        scores["stopped"] = headline.mean_of_rounds(how, matrix, level)
    if run.cfg.prior.run is not None:
        scores |= _with_prior(run, graded)
    scores["shares"] = _shares(graded, run.cfg.boxed)
    if graded.points is not None:
        scores["points"] = _points(run, graded)
    if mapped:
        scores["rubrics"] = categories.rubric_scores(run, mapped)
    return scores | {"cost": _cost(run)}


def _about(run: Run, by_likelihood: Mapping[str, Parts]) -> Parts:
    """Return what `scores.json` says of a run, and its scores by likelihood, the headline first."""
    about: Parts = {
        "run": str(run.path),
        "model": run.cfg.model.name,
        "dataset": run.cfg.dataset.name,
        "questions": len(run.questions),
        "clusters": len({*outcomes.clusters(run)}),
        "confidence": run.cfg.scoring.confidence,
    }
    for metric, of in [*by_likelihood.items()][:1]:
        about["headline"] = {"metric": metric, "prior": run.cfg.sampling.likelihood, **of}
        about["likelihood"] = by_likelihood
    return about


def _uniform_prior(
    graded: Outcomes, summaries: Mapping[str, Summary], level: float, drawn: Sequence[str]
) -> Parts:
    """Compute Bayes@N and avg@N with what stands beside them, and Pass@k of every k asked for."""
    matrix = graded.matrix
    bayes = _named(summaries["bayes-uniform"])
    if (summary := summaries.get("avg")) is None:  # a question has no trial
        return {"bayes": bayes}
    avg = _named(summary, "mean")
    luck = scoring.inflation(matrix, confidence=level)
    if np.isfinite(luck.high):  # else nothing is known
        sigma = summary.sigma * max(luck.value, 1.0) ** 0.5
        avg["inflation"] = luck._asdict() | {"sigma": sigma}
    if len({*drawn}) > 1:
        avg["stderr_over_questions"] = scoring.question_stderr(matrix, clusters=drawn)
        avg["other_questions"] = scoring.pool_ci(matrix, None, level, drawn)._asdict()
    passes = {n.removeprefix("pass@"): of.value for n, of in summaries.items() if n[:5] == "pass@"}
    return {"bayes": bayes, "avg": avg, "pass_at_k": passes}


def _named(summary: Sequence[float], mean: str = "mu") -> Parts:
    return dict(zip((mean, "sigma", "low", "high"), summary, strict=True))


def _shares(graded: Outcomes, boxed: bool) -> dict[str, float]:
    """Compute the shares of outcomes, and of what explains a missing answer."""
    counts = {name: (graded.codes == code).sum() for code, name in enumerate(outcomes.OUTCOMES)}
    boxes = {name: (graded.boxes == code).sum() for code, name in enumerate(outcomes.BOXES)}
    unboxed = boxes["no_box"] + boxes["unclosed"]
    counts |= {"truncated": boxes["truncated"], "unboxed": unboxed * boxed}
    return {name: float(of / (graded.codes != PENDING).sum()) for name, of in counts.items()}


def _points(run: Run, graded: Outcomes) -> Parts:
    """Compute the shares of points, or of means of votes, and the mean of each question."""
    points, weights = np.ma.masked_equal(graded.points, PENDING), [*(graded.weights or ())]  # type: ignore[no-untyped-call]
    shares = np.bincount(points.compressed(), minlength=len(weights)) / points.count()
    said, of, names = run.cfg.verifier, f"points of {len(weights) - 1}", [*range(len(weights))]
    if said.ballots > 1 and said.judgement.votes == "mean":
        points, of, names = values(graded.matrix), f"means of {said.ballots} votes", weights
    means = zip(graded.question_ids, points.mean(axis=1).tolist(), strict=True)
    record = {"of": of, "names": names, "weights": weights, "shares": shares.tolist()}
    return record | {"by_question": dict(means)}


def _cost(run: Run) -> Parts:
    usage = outcomes.usage(run)
    spent = usage.spent
    return {
        "completion_tokens": usage.completion_tokens,
        "prompt_tokens": usage.prompt_tokens,
        "sessions": spent.sessions,
        "wall_s": round(spent.wall_s, 3),
        "gpu_hours": None if spent.gpu_s is None else round(spent.gpu_s / 3600, 4),
        "tokens_per_s": round(spent.completion_tokens / spent.wall_s, 1) if spent.wall_s else None,
    } | ({} if usage.price is None else {"price": usage.price})


def _with_prior(run: Run, graded: Outcomes) -> Parts:
    """Score with the trials of `prior.run` as the prior; warn if they are unlike this run's.

    Where it is no run folder but holds one of this run's name, that is the prior. Raises UserError:
    no such run, or one that does not fit.
    """
    cfg, level, path = run.cfg.prior, run.cfg.scoring.confidence, Path(str(run.cfg.prior.run))
    path = path.expanduser()
    if run.cfg.point_weights:
        raise UserError(f"prior={path}: not for points; leave it out")
    if not (path / "config.yaml").exists() and (path / run.path.name).is_dir():
        path /= run.path.name
    try:
        earlier = outcomes.read(open_run(path))
        places, own = earlier.positions(), graded.positions()
    except UserError as error:
        raise UserError(f"prior={path}: {error}") from error
    if path.resolve() == run.path.resolve():
        raise UserError(f"prior={path}: is this run itself, so its trials would count twice")
    if missing := [graded.question_ids[i] for mark, i in own.items() if mark not in places]:
        lacks = f"{len(missing)} of this run's questions ({', '.join(missing[:3])})"
        raise UserError(f"prior={path}: lacks {lacks}; name a run of the same questions")
    trials = cfg.trials or earlier.codes.shape[1]
    complete = int((earlier.codes != PENDING).all(axis=0).cumprod().sum())
    if complete < (trials if cfg.weight is None else 1) or earlier.codes.shape[1] < trials:
        why = f"of {path} only the first {complete} trials are graded"
        raise UserError(f"prior.trials={trials}: {why}")
    codes = earlier.codes[[places[mark] for mark in own], :trials]
    kinds = [((codes != CORRECT) & (codes != PENDING)).sum(axis=1), (codes == CORRECT).sum(axis=1)]
    R0 = scoring.down_weight(scoring.Counts(np.stack(kinds, axis=-1)), cfg.weight or trials, 2)
    if graded.matrix.count(axis=1).all():
        found = scoring.prior_drift(graded.matrix, R0, (codes != PENDING).sum(axis=1), level)
        if found.p < scoring.DRIFT_LEVEL:
            warn(
                f"prior={path}: was {'better' if found.z > 0 else 'worse'} than this run (z ="
                f" {abs(found.z):.1f}; another checkpoint?); with it the {percent(level)} interval"
                f" holds the truth in about {found.coverage:.0%}: prior.weight=1 or none"
            )
    about = {"run": str(path), "trials": trials}
    return {
        "prior": about | ({} if cfg.weight is None else {"weight": cfg.weight}),
        "with_prior": _named(scoring.bayes_ci(graded.matrix, None, R0, level, (0.0, 1.0))),
    }
