"""What `scoring` exports; imported with the first name that is used."""

from bayes_at_n.scoring.intervals.uncertainty import Groups, difference_ci, group_scores
from bayes_at_n.scoring.intervals.assumptions import DRIFT_LEVEL, Drift, prior_drift
from bayes_at_n.scoring.intervals.assumptions import INFLATION_LEVEL, LUCK_LEVEL, Inflation
from bayes_at_n.scoring.intervals.assumptions import SharedLuck, inflation, shared_luck
from bayes_at_n.scoring.intervals.judged import Corrected, Labeled, Misclassified
from bayes_at_n.scoring.intervals.judged import drawn_sample, label_chances, labeled
from bayes_at_n.scoring.intervals.judged import misclassification, prediction_powered
from bayes_at_n.scoring.intervals.uncertainty import NextAttempts, Uncertainty, next_attempts
from bayes_at_n.scoring.intervals.uncertainty import pool_ci, uncertainty, wilson_ci
from bayes_at_n.scoring.metrics.votes import Ballots, best_at_k, best_at_k_sigma
from bayes_at_n.scoring.metrics.votes import weighted_cons_at_k, weighted_cons_at_k_sigma
from bayes_at_n.scoring.metrics.bayes import avg, avg_ci, bayes, bayes_ci
from bayes_at_n.scoring.metrics.bayes import down_weight, question_stderr
from bayes_at_n.scoring.metrics.forecast import sampling_cost
from bayes_at_n.scoring.metrics.empirical import Prior, empirical_bayes_ci
from bayes_at_n.scoring.metrics.empirical import fit_prior, score_and_prior, score_ci, score_prior
from bayes_at_n.scoring.metrics.forecast import Forecast, forecast
from bayes_at_n.scoring.metrics.geom import geo_spectrum_at_k, geo_spectrum_at_k_ci
from bayes_at_n.scoring.metrics.geom import geo_spectrum_star_at_k, geo_spectrum_star_at_k_ci
from bayes_at_n.scoring.metrics.geom import geom_at_k, geom_at_k_ci, geom_ds_at_k, geom_ds_at_k_ci
from bayes_at_n.scoring.metrics.passk import max_at_k, max_at_k_ci, pass_at_k_sigma
from bayes_at_n.scoring.metrics.passk import g_pass_at_k, g_pass_at_k_ci, naive_pass_at_k, pass_at_k
from bayes_at_n.scoring.metrics.passk import pass_at_k_ci, pass_hat_k, pass_hat_k_ci, unanimous_at_k
from bayes_at_n.scoring.metrics.passk import unanimous_at_k_ci
from bayes_at_n.scoring.metrics.passk import auc_at_k, auc_at_k_ci, g_pass_at_k_tau
from bayes_at_n.scoring.metrics.passk import g_pass_at_k_tau_ci, maj_at_k, maj_at_k_ci
from bayes_at_n.scoring.metrics.passk import mg_pass_at_k, mg_pass_at_k_ci
from bayes_at_n.scoring.metrics.passk import threshold_spectrum_at_k
from bayes_at_n.scoring.metrics.passk import threshold_spectrum_at_k_ci
from bayes_at_n.scoring.metrics.votes import cons_at_k, cons_at_k_sigma
from bayes_at_n.scoring.metrics.probability import attempted_f, confidence_error
from bayes_at_n.scoring.numerics.inputs import Counts, Points, right, values
from bayes_at_n.scoring.ranking.compare import Comparison, compare, compare_scores, paired_questions
from bayes_at_n.scoring.ranking.compare import paired_gaps, pairwise_z
from bayes_at_n.scoring.ranking.equivalence import Equivalence, equivalence
from bayes_at_n.scoring.ranking.compare import TrialPlan, trials_to_separate
from bayes_at_n.scoring.ranking.ranks import kendall_tau_b, ranks, ranks_with_uncertainty
from bayes_at_n.scoring.ranking.trajectory import Reversal, reversal_rate, reversal_rate_ci
from bayes_at_n.scoring.ranking.ranks import best_candidates, pairs_quantile
from bayes_at_n.scoring.ranking.ranks import probability_best, q_values, rank_ranges
from bayes_at_n.scoring.ranking.trajectory import down_share, monotone_tau, progress_tau_b
