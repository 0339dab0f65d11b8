"""Statistics on outcome matrices: what a model scored, and how sure that is.

A matrix R has one row per question and one column per trial; an entry is the category 0..C of
that attempt: for plain grading 1 correct and 0 not. Only NumPy and SciPy are needed, and Numba for
``scoring.studies.convergence``.

>>> import numpy as np
>>> from scoring import avg, bayes, bayes_ci, compare, pass_at_k, pass_at_k_ci
>>> from scoring import monotone_tau, question_stderr, ranks, reversal_rate, shrinkage
>>> R = np.array([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])

Bayes@N is the posterior mean of the success rate over these questions, with its standard
deviation and credible interval:

>>> mu, sigma, lo, hi = bayes_ci(R, bounds=(0.0, 1.0))
>>> f"{mu:.3f} +/- {sigma:.3f}, 95 % [{lo:.3f}, {hi:.3f}]"
'0.643 +/- 0.118, 95 % [0.411, 0.875]'

The plain average ranks models alike if all have the same number of trials; how far the prior
moved the score, in units of sigma, should stay under ``SHRINKAGE_LIMIT`` in size:

>>> a, sigma_a = avg(R)
>>> round(a, 3), round(shrinkage(mu, sigma, a), 2)
(0.7, -0.48)

That sigma is about repeating the trials of these questions. Questions as a sample from a larger
pool have the standard error that most harnesses print:

>>> round(question_stderr(R), 3)
0.1

Pass@k, without bias, and its posterior:

>>> round(pass_at_k(R, 2), 3)
0.95
>>> mu2, sigma2, lo2, hi2 = pass_at_k_ci(R, 2)
>>> round(mu2, 3), round(sigma2, 3)
(0.839, 0.097)

A trial that is missing is masked and counts as nothing, never as wrong:

>>> ragged = np.ma.masked_equal([[0, 1, 1, 0, 1], [1, 1, -1, -1, -1]], -1)
>>> a, _ = avg(ragged)
>>> round(a, 3)
0.8

Rubrics are categories with weights, one weight per category 0..C; and the trials of an earlier
run of the same questions can be the prior:

>>> rubric = [[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]]
>>> mu, sigma = bayes(rubric, w=[0.0, 0.5, 1.0], R0=[[0, 2], [1, 2]])
>>> round(mu, 3), round(sigma, 3)
(0.575, 0.084)

A stack of models (or models x data sets) is scored in one call, and compared:

>>> stack = [R, 1 - R]
>>> bayes(stack)[0].round(3).tolist(), ranks(avg(stack)[0]).tolist()
([0.643, 0.357], [1, 2])
>>> round(compare(R, 1 - R).probability, 3)
0.956

Checkpoints of one training, in their order: how steadily a score follows it, and how often the
order of models reverses from one set of scores to another:

>>> round(monotone_tau([0.31, 0.35, 0.34, 0.40]), 3)
0.667
>>> round(reversal_rate([0.31, 0.35, 0.40], [0.52, 0.66, 0.61]), 3)
0.333

Studies are in ``scoring.studies``: ``convergence`` and ``estimators`` (how many trials a ranking
needs), ``coverage`` (which interval holds what it says), ``simulation`` and
``updates`` (models with known truth); ``scoring.metrics.passk_variance`` says how good MaP's
variance of Pass@k is.

Formulas: Hariri et al., "Don't Pass@k", arXiv 2510.04265. Which number to report, and why:
``docs/scoring.md``.
"""

from scoring.intervals.classical import bootstrap_ci, clustered_ci, wald_ci, wilson_ci
from scoring.intervals.empirical import Prior, empirical_bayes, empirical_bayes_ci, fit_prior
from scoring.intervals.exact import bayes_exact_ci, posterior_cdf
from scoring.intervals.uncertainty import Uncertainty, uncertainty
from scoring.metrics.auc import auc_at_k, auc_at_k_ci
from scoring.metrics.bayes import (
    SHRINKAGE_LIMIT,
    avg,
    avg_ci,
    bayes,
    bayes_ci,
    question_stderr,
    shrinkage,
)
from scoring.metrics.cost import sampling_cost
from scoring.metrics.geom import geom_at_k, geom_at_k_ci, geom_ds_at_k, geom_ds_at_k_ci
from scoring.metrics.maxk import max_at_k, max_at_k_ci
from scoring.metrics.passk import (
    g_pass_at_k,
    g_pass_at_k_ci,
    naive_pass_at_k,
    pass_at_k,
    pass_at_k_ci,
    pass_hat_k,
    pass_hat_k_ci,
    unanimous_at_k,
    unanimous_at_k_ci,
)
from scoring.metrics.passk_variance import (
    delta_variance,
    pass_at_k_delta_sigma,
    pass_at_k_sigma,
    posterior_variance,
    sampling_variance,
)
from scoring.metrics.priors import down_weight
from scoring.metrics.spectrum import (
    geo_spectrum_at_k,
    geo_spectrum_at_k_ci,
    geo_spectrum_star_at_k,
    geo_spectrum_star_at_k_ci,
    threshold_spectrum_at_k,
    threshold_spectrum_at_k_ci,
)
from scoring.metrics.thresholds import (
    g_pass_at_k_tau,
    g_pass_at_k_tau_ci,
    maj_at_k,
    maj_at_k_ci,
    mg_pass_at_k,
    mg_pass_at_k_ci,
    mg_pass_at_k_integral,
)
from scoring.numerics.inputs import Counts
from scoring.ranking.compare import (
    Comparison,
    compare,
    compare_scores,
    paired_questions,
    pairwise_z,
)
from scoring.ranking.kendall import kendall_tau_b
from scoring.ranking.planning import TrialPlan, trials_for_width, trials_to_separate
from scoring.ranking.ranks import (
    indistinguishable_groups,
    probability_best,
    rank_distribution,
    ranks,
    ranks_with_uncertainty,
)
from scoring.ranking.reversal import Reversal, reversal_probability, reversal_rate, reversal_rate_ci
from scoring.ranking.trajectory import (
    Stability,
    down_share,
    monotone_tau,
    progress_tau_b,
    stabilities,
    stability,
)

__all__ = [
    "SHRINKAGE_LIMIT",
    "Comparison",
    "Counts",
    "Prior",
    "Reversal",
    "Stability",
    "TrialPlan",
    "Uncertainty",
    "auc_at_k",
    "auc_at_k_ci",
    "avg",
    "avg_ci",
    "bayes",
    "bayes_ci",
    "bayes_exact_ci",
    "bootstrap_ci",
    "clustered_ci",
    "compare",
    "compare_scores",
    "delta_variance",
    "down_share",
    "down_weight",
    "empirical_bayes",
    "empirical_bayes_ci",
    "fit_prior",
    "g_pass_at_k",
    "g_pass_at_k_ci",
    "g_pass_at_k_tau",
    "g_pass_at_k_tau_ci",
    "geo_spectrum_at_k",
    "geo_spectrum_at_k_ci",
    "geo_spectrum_star_at_k",
    "geo_spectrum_star_at_k_ci",
    "geom_at_k",
    "geom_at_k_ci",
    "geom_ds_at_k",
    "geom_ds_at_k_ci",
    "indistinguishable_groups",
    "kendall_tau_b",
    "maj_at_k",
    "maj_at_k_ci",
    "max_at_k",
    "max_at_k_ci",
    "mg_pass_at_k",
    "mg_pass_at_k_ci",
    "mg_pass_at_k_integral",
    "monotone_tau",
    "naive_pass_at_k",
    "paired_questions",
    "pairwise_z",
    "pass_at_k",
    "pass_at_k_ci",
    "pass_at_k_delta_sigma",
    "pass_at_k_sigma",
    "pass_hat_k",
    "pass_hat_k_ci",
    "posterior_cdf",
    "posterior_variance",
    "probability_best",
    "progress_tau_b",
    "question_stderr",
    "rank_distribution",
    "ranks",
    "ranks_with_uncertainty",
    "reversal_probability",
    "reversal_rate",
    "reversal_rate_ci",
    "sampling_cost",
    "sampling_variance",
    "shrinkage",
    "stabilities",
    "stability",
    "threshold_spectrum_at_k",
    "threshold_spectrum_at_k_ci",
    "trials_for_width",
    "trials_to_separate",
    "unanimous_at_k",
    "unanimous_at_k_ci",
    "uncertainty",
    "wald_ci",
    "wilson_ci",
]
