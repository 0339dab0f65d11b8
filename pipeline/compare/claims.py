"""What may be said of all models of a cohort at once: ranges of ranks, the best, and what settles.

Everything rests on the averages and the paper's sigma, and on the race of `scoring.sequential`, of
which `settle` makes its claims: these alone are called settled, since they allow for every look.
Where all runs have human labels, averages are corrected by these: where one has none, the judge's
error would pass for a difference. Runs' labels are independent.
"""

from typing import NamedTuple

import numpy as np
import scipy

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import joined
from bayes_at_n.pipeline.compare.cohort import Cohort, Member
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.score import labels
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.intervals.judged import Corrected
from bayes_at_n.scoring.numerics.inputs import Bools, Floats, Ints
from bayes_at_n.scoring.numerics.results import Summary, normal_summary, sample_sigma


def corrected(cohort: Cohort, level: float) -> tuple[Summary, Summary, Floats] | None:
    """Correct the models' avg, once for a cohort; None unless all runs have labels.

    Returns scores, (L,), with the intervals that `score` prints; the same for comparisons, with the
    sigma of a normal as wide, for all pairs at once, as Student's with few labels; and means by
    question, (L, M). Of pooled datasets the first are those for comparisons, too.
    """
    if (key := ("labels", level)) not in cohort.scored:
        runs = [member for member in cohort.runs() if member.name in cohort.names]
        complete = all(labels.files(of.run) for of in runs)
        found = [(of.name, _of_run(of, level)) for of in runs if complete and of.labeled]
        cohort.scored[key] = None
        if found and len(found) == len(runs):
            z = scoring.pairs_quantile(max(len(cohort.names), 2), level)
            models = [[of for of_name, of in found if of_name == name] for name in cohort.names]
            shares = np.stack([np.concatenate([by for _, by in of]) for of in models])
            sums = [[by.size * one.normal_sigma(z) for one, by in of] for of in models]
            sigma = np.array([np.linalg.norm(of) for of in sums]) / shares.shape[1]
            avg = normal_summary(shares.mean(axis=1), sigma, level)
            own = avg if cohort.parts else Summary(*np.array([of[0][0][:4] for of in models]).T)
            own = own._replace(value=own.value.clip(0, 1))
            cohort.scored[key] = own, avg, shares
    return cohort.scored[key]  # type: ignore[no-any-return]


def shares(cohort: Cohort, level: float) -> Floats:
    """Return the mean outcome of each question, (L, M), corrected where models are."""
    known = corrected(cohort, level)
    return known[2] if known else scoring.values(cohort.matrix()).mean(axis=2).filled(np.nan)


def _of_run(member: Member, level: float) -> tuple[Corrected, Floats]:
    """Correct a labeled run's avg on the questions compared, also by question, (M,)."""
    assert member.labeled
    found = scoring.prediction_powered(sample := member.labeled[1]["outcomes"], level)
    parts = np.bincount(np.asarray(sample.rows), sample.parts(found.rate, found.value))
    return found, np.multiply(parts[np.argsort(np.argsort(member.rows))], len(member.rows))


SETTLED = 0.95  # confidence, at least, of what is called settled
RACED = 200  # models up to which all pairs are raced, which takes a second


class Together(NamedTuple):
    """What L models show together; arrays (L,) and (L, L) in the order of the cohort."""

    low: Ints  # ranks that a model may have, for all models at once
    high: Ints
    candidates: Bools  # cannot be told apart from the best
    best: Floats  # pooled probability to be the best on these questions
    best_other: Floats  # and on others of their kind; NaN of fewer than four questions
    limit: float  # the |z| at which a pair is told apart, for all pairs at once
    q: Floats  # (L, L) q-values of pairs, by Benjamini and Hochberg


class Claims(NamedTuple):
    """What the complete trials prove, however often one looked at them; order of the cohort."""

    log_e: Floats  # (L, L) log of the largest e-value so far of "row is better than column"
    needed: float  # what it must reach for a claim
    better: Bools  # (L, L) claimed: row is better than column
    tied: Bools  # (L, L) claimed: they are less than `scoring.margin` points apart
    dependent: str | None  # why nothing is claimed: dependent attempts, or corrected scores
    corrected: bool  # by human labels, which the race does not know


def together(cohort: Cohort, avg: Summary, level: float) -> Together:
    """Compare all models at once, two at least, by their avg and sigma, once for a cohort."""
    key, (value, sigma, *_) = ("together", level), avg
    if key in cohort.scored:
        return cohort.scored[key]  # type: ignore[no-any-return]
    p = 2 * scipy.special.ndtr(-np.abs(scoring.pairwise_z(value, sigma)))
    upper = np.triu_indices(len(value), 1)
    q = np.ones_like(p)
    q[upper] = q.T[upper] = scoring.q_values(p[upper])
    elsewhere = np.full(len(value), np.nan)
    if (of_questions := _question_sigma(cohort, level)) is not None:
        elsewhere = scoring.probability_best(value, np.maximum(sigma, of_questions))
    cohort.scored[key] = found = Together(
        *scoring.rank_ranges(value, sigma, level),
        scoring.best_candidates(value, sigma, level),
        scoring.probability_best(value, sigma),
        elsewhere,
        scoring.pairs_quantile(len(value), level),
        q,
    )
    return found


def _question_sigma(cohort: Cohort, level: float) -> Floats | None:
    """Compute each model's standard error over questions, (L,), apart from what all have in common.

    Models answer the same questions, so only how a question differs between models counts: of two
    models it is the paired standard error, shared among both. Of few questions it is known itself
    only roughly, as Student's t says, whose variance is (G - 1) / (G - 3) times a normal's for G
    questions, or clusters of these. None of fewer than four.
    """
    means = shares(cohort, level)
    models = len(means)
    if len({*cohort.clusters}) < 4:
        return None
    sigma, drawn = sample_sigma(means - means.mean(axis=0), cohort.clusters)
    return np.asarray(sigma * np.sqrt(models / (models - 1) * (drawn - 1) / (drawn - 3)))


def claims(cohort: Cohort, cfg: AnalysisConfig) -> Claims:
    """Race the models over their complete trials as `settle until=order` would, once for a cohort.

    A model takes part up to its first trial that lacks a question. Of more than `RACED` models, and
    where attempts are not independent, or scores are corrected, nothing is claimed.
    """
    from bayes_at_n.scoring.sequential import Target, wealth  # Numba takes a third of a second
    from bayes_at_n.scoring.sequential.batch import Batch

    level = max(SETTLED, cfg.scoring.confidence)
    key = "claims", level, cfg.scoring.margin
    if key not in cohort.scored:
        codes = scoring.values(cohort.matrix()).filled(-1).astype(np.float64)
        models, questions, _ = codes.shape
        by_people = corrected(cohort, cfg.scoring.confidence) is not None
        why = "scores are corrected by human labels" if by_people else None
        raced = models <= RACED and not by_people
        rounds = (codes >= 0).all(axis=1).cumprod(axis=1).sum(axis=1) * raced
        shape = 1, models, questions
        race = Batch(shape, Target("order"), 1 - level, cfg.scoring.margin / 100)
        log_e, needed = np.full((models, models), np.nan if by_people else 0.0), race.needed.better
        for trial in range(rounds.max()):
            attempts = np.broadcast_to((rounds > trial)[:, None], codes.shape[:2]).astype(np.int64)
            race.add((codes[:, :, trial] * attempts)[None], attempts[None])
            log_e = np.maximum(log_e, wealth.log_wealth(race.pairs[0], race.weights))
        coupled = joined([*dict.fromkeys(r.name for r in cohort.runs() if seeds_couple(r.run))], 3)
        why = dependent(scoring.shared_luck(cohort.matrix()), coupled) if raced else why
        sure = race.better[0] & (why is None), race.tied[0] & (why is None)
        cohort.scored[key] = Claims(log_e, float(np.log(needed)), *sure, why, by_people)
    return cohort.scored[key]  # type: ignore[no-any-return]


def dependent(luck: scoring.SharedLuck, coupled: str) -> str | None:
    """Say why attempts are not independent, so that a race would err more often than it says.

    Trials vary more than those of independent attempts (:func:`scoring.shared_luck`), or attempts
    share seeds on an engine where these couple all questions of a trial, in the `coupled` runs.
    """
    if luck.sure:
        most = max([*luck.models.value, luck.of_pair.value if luck.of_pair else 0.0])
        return f"attempts of one trial are correlated (variance × {most:.1f})"
    return f"attempts of one trial share random numbers ({coupled})" if coupled else None


def seeds_couple(run: Run) -> bool:
    """Check whether attempts share seeds on transformers or on vLLM's Model Runner V1."""
    made = runfolder.read_json(run.manifest).get("generated", {}).get("engines", [])
    own = any(one.get("engine") == "transformers" or one.get("runner") == "V1" for one in made)
    return own and run.cfg.sampling.seeds == "shared" and run.cfg.sampling.seed is not None
