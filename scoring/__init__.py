"""Statistics on outcome matrices: what a model scored, and how sure that is.

A matrix R has one row per question and one column per trial; an entry is the category 0..C of
that attempt: for plain grading 1 correct and 0 not.

>>> import numpy as np
>>> from bayes_at_n.scoring import avg, bayes, bayes_ci, compare, shrinkage
>>> R = np.array([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])

Bayes@N is the posterior mean of the success rate over these questions, with its standard
deviation and credible interval:

>>> mu, sigma, lo, hi = bayes_ci(R, bounds=(0.0, 1.0))
>>> f"{mu:.3f} +/- {sigma:.3f}, 95 % [{lo:.3f}, {hi:.3f}]"
'0.643 +/- 0.118, 95 % [0.411, 0.875]'

The plain average, and how far the prior moved the score in units of sigma, which should stay
under ``SHRINKAGE_LIMIT`` in size:

>>> a, sigma_a = avg(R)
>>> round(a, 3), round(shrinkage(mu, sigma, a), 2)
(0.7, -0.48)

A trial that is missing is masked and counts as nothing, never as wrong. A stack of models is scored
in one call, and compared:

>>> ragged = np.ma.masked_equal([[0, 1, 1, 0, 1], [1, 1, -1, -1, -1]], -1)
>>> round(avg(ragged)[0], 3)
0.8
>>> bayes([R, 1 - R])[0].round(3).tolist(), round(compare(R, 1 - R).probability, 3)
([0.643, 0.357], 0.956)

Studies with known truth, and of how many trials a ranking needs, are in ``scoring.studies``. Which
number to report, and why: ``docs/scoring.md``. Formulas: Hariri et al., "Don't Pass@k", arXiv
2510.04265.
"""

from bayes_at_n.scoring.intervals.classical import bootstrap_ci as bootstrap_ci
from bayes_at_n.scoring.intervals.classical import clustered_ci as clustered_ci
from bayes_at_n.scoring.intervals.classical import wald_ci as wald_ci
from bayes_at_n.scoring.intervals.classical import wilson_ci as wilson_ci
from bayes_at_n.scoring.intervals.exact import bayes_exact_ci as bayes_exact_ci
from bayes_at_n.scoring.intervals.inflation import INFLATION_LEVEL as INFLATION_LEVEL
from bayes_at_n.scoring.intervals.inflation import Inflation as Inflation
from bayes_at_n.scoring.intervals.inflation import inflation as inflation
from bayes_at_n.scoring.intervals.predicted import Corrected as Corrected
from bayes_at_n.scoring.intervals.predicted import prediction_powered as prediction_powered
from bayes_at_n.scoring.intervals.uncertainty import Uncertainty as Uncertainty
from bayes_at_n.scoring.intervals.uncertainty import uncertainty as uncertainty
from bayes_at_n.scoring.metrics.ballots import Ballots as Ballots
from bayes_at_n.scoring.metrics.ballots import best_at_k as best_at_k
from bayes_at_n.scoring.metrics.ballots import best_at_k_sigma as best_at_k_sigma
from bayes_at_n.scoring.metrics.ballots import weighted_cons_at_k as weighted_cons_at_k
from bayes_at_n.scoring.metrics.ballots import weighted_cons_at_k_sigma as weighted_cons_at_k_sigma
from bayes_at_n.scoring.metrics.bayes import SHRINKAGE_LIMIT as SHRINKAGE_LIMIT
from bayes_at_n.scoring.metrics.bayes import avg as avg
from bayes_at_n.scoring.metrics.bayes import avg_ci as avg_ci
from bayes_at_n.scoring.metrics.bayes import bayes as bayes
from bayes_at_n.scoring.metrics.bayes import bayes_ci as bayes_ci
from bayes_at_n.scoring.metrics.bayes import down_weight as down_weight
from bayes_at_n.scoring.metrics.bayes import question_stderr as question_stderr
from bayes_at_n.scoring.metrics.bayes import shrinkage as shrinkage
from bayes_at_n.scoring.metrics.cost import sampling_cost as sampling_cost
from bayes_at_n.scoring.metrics.empirical import Prior as Prior
from bayes_at_n.scoring.metrics.empirical import covering_ci as covering_ci
from bayes_at_n.scoring.metrics.empirical import empirical_bayes as empirical_bayes
from bayes_at_n.scoring.metrics.empirical import empirical_bayes_ci as empirical_bayes_ci
from bayes_at_n.scoring.metrics.empirical import fit_prior as fit_prior
from bayes_at_n.scoring.metrics.empirical import fits as fits
from bayes_at_n.scoring.metrics.forecast import Forecast as Forecast
from bayes_at_n.scoring.metrics.forecast import forecast as forecast
from bayes_at_n.scoring.metrics.geom import geo_spectrum_at_k as geo_spectrum_at_k
from bayes_at_n.scoring.metrics.geom import geo_spectrum_at_k_ci as geo_spectrum_at_k_ci
from bayes_at_n.scoring.metrics.geom import geo_spectrum_star_at_k as geo_spectrum_star_at_k
from bayes_at_n.scoring.metrics.geom import geo_spectrum_star_at_k_ci as geo_spectrum_star_at_k_ci
from bayes_at_n.scoring.metrics.geom import geom_at_k as geom_at_k
from bayes_at_n.scoring.metrics.geom import geom_at_k_ci as geom_at_k_ci
from bayes_at_n.scoring.metrics.geom import geom_ds_at_k as geom_ds_at_k
from bayes_at_n.scoring.metrics.geom import geom_ds_at_k_ci as geom_ds_at_k_ci
from bayes_at_n.scoring.metrics.maxk import max_at_k as max_at_k
from bayes_at_n.scoring.metrics.maxk import max_at_k_ci as max_at_k_ci
from bayes_at_n.scoring.metrics.passk import g_pass_at_k as g_pass_at_k
from bayes_at_n.scoring.metrics.passk import g_pass_at_k_ci as g_pass_at_k_ci
from bayes_at_n.scoring.metrics.passk import naive_pass_at_k as naive_pass_at_k
from bayes_at_n.scoring.metrics.passk import pass_at_k as pass_at_k
from bayes_at_n.scoring.metrics.passk import pass_at_k_ci as pass_at_k_ci
from bayes_at_n.scoring.metrics.passk import pass_hat_k as pass_hat_k
from bayes_at_n.scoring.metrics.passk import pass_hat_k_ci as pass_hat_k_ci
from bayes_at_n.scoring.metrics.passk import unanimous_at_k as unanimous_at_k
from bayes_at_n.scoring.metrics.passk import unanimous_at_k_ci as unanimous_at_k_ci
from bayes_at_n.scoring.metrics.passk_variance import delta_variance as delta_variance
from bayes_at_n.scoring.metrics.passk_variance import pass_at_k_sigma as pass_at_k_sigma
from bayes_at_n.scoring.metrics.passk_variance import posterior_variance as posterior_variance
from bayes_at_n.scoring.metrics.passk_variance import sampling_variance as sampling_variance
from bayes_at_n.scoring.metrics.thresholds import auc_at_k as auc_at_k
from bayes_at_n.scoring.metrics.thresholds import auc_at_k_ci as auc_at_k_ci
from bayes_at_n.scoring.metrics.thresholds import g_pass_at_k_tau as g_pass_at_k_tau
from bayes_at_n.scoring.metrics.thresholds import g_pass_at_k_tau_ci as g_pass_at_k_tau_ci
from bayes_at_n.scoring.metrics.thresholds import maj_at_k as maj_at_k
from bayes_at_n.scoring.metrics.thresholds import maj_at_k_ci as maj_at_k_ci
from bayes_at_n.scoring.metrics.thresholds import mg_pass_at_k as mg_pass_at_k
from bayes_at_n.scoring.metrics.thresholds import mg_pass_at_k_ci as mg_pass_at_k_ci
from bayes_at_n.scoring.metrics.thresholds import mg_pass_at_k_integral as mg_pass_at_k_integral
from bayes_at_n.scoring.metrics.thresholds import threshold_spectrum_at_k as threshold_spectrum_at_k
from bayes_at_n.scoring.metrics.thresholds import (
    threshold_spectrum_at_k_ci as threshold_spectrum_at_k_ci,
)
from bayes_at_n.scoring.metrics.votes import cons_at_k as cons_at_k
from bayes_at_n.scoring.metrics.votes import cons_at_k_ci as cons_at_k_ci
from bayes_at_n.scoring.metrics.votes import cons_at_k_sigma as cons_at_k_sigma
from bayes_at_n.scoring.numerics.inputs import Counts as Counts
from bayes_at_n.scoring.ranking.compare import Comparison as Comparison
from bayes_at_n.scoring.ranking.compare import compare as compare
from bayes_at_n.scoring.ranking.compare import compare_scores as compare_scores
from bayes_at_n.scoring.ranking.compare import paired_questions as paired_questions
from bayes_at_n.scoring.ranking.compare import pairwise_z as pairwise_z
from bayes_at_n.scoring.ranking.equivalence import Equivalence as Equivalence
from bayes_at_n.scoring.ranking.equivalence import equivalence as equivalence
from bayes_at_n.scoring.ranking.orders import compare_rankings as compare_rankings
from bayes_at_n.scoring.ranking.orders import lehmer_hash as lehmer_hash
from bayes_at_n.scoring.ranking.orders import lehmer_unhash as lehmer_unhash
from bayes_at_n.scoring.ranking.orders import rank_scores as rank_scores
from bayes_at_n.scoring.ranking.orders import ranking_hash as ranking_hash
from bayes_at_n.scoring.ranking.orders import unhash_ranking as unhash_ranking
from bayes_at_n.scoring.ranking.planning import TrialPlan as TrialPlan
from bayes_at_n.scoring.ranking.planning import trials_for_width as trials_for_width
from bayes_at_n.scoring.ranking.planning import trials_to_separate as trials_to_separate
from bayes_at_n.scoring.ranking.ranks import indistinguishable_groups as indistinguishable_groups
from bayes_at_n.scoring.ranking.ranks import kendall_tau_b as kendall_tau_b
from bayes_at_n.scoring.ranking.ranks import probability_best as probability_best
from bayes_at_n.scoring.ranking.ranks import rank_distribution as rank_distribution
from bayes_at_n.scoring.ranking.ranks import ranks as ranks
from bayes_at_n.scoring.ranking.ranks import ranks_with_uncertainty as ranks_with_uncertainty
from bayes_at_n.scoring.ranking.reversal import Reversal as Reversal
from bayes_at_n.scoring.ranking.reversal import reversal_rate as reversal_rate
from bayes_at_n.scoring.ranking.reversal import reversal_rate_ci as reversal_rate_ci
from bayes_at_n.scoring.ranking.trajectory import down_share as down_share
from bayes_at_n.scoring.ranking.trajectory import monotone_tau as monotone_tau
from bayes_at_n.scoring.ranking.trajectory import progress_tau_b as progress_tau_b
