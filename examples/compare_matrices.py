"""Compare two models from outcomes that another harness recorded: only the statistics.

python examples/compare_matrices.py
"""

import numpy as np

from bayes_at_n import scoring


def sampled(accuracy: float, questions: int = 30, trials: int = 16, seed: int = 0) -> np.ndarray:
    """Return outcomes (questions, trials): 1 correct, 0 not; replace this with your records."""
    rng = np.random.default_rng(seed)
    difficulty = rng.beta(4 * accuracy, 4 * (1 - accuracy), questions)
    return rng.binomial(1, difficulty[:, None], (questions, trials))


if __name__ == "__main__":
    old, new = sampled(0.5, seed=1), sampled(0.7, seed=2)
    for name, outcomes in {"old": old, "new": new}.items():
        score = scoring.empirical_bayes_ci(outcomes)
        print(f"{name}: Bayes@16 {score.value:.3f}, 95% {score.low:.3f} to {score.high:.3f}")
    these, others = scoring.compare(new, old), scoring.paired_questions(new, old)
    print(f"new is better on these 30 questions with probability {these.probability:.2f},")
    print(f"on other questions of the same kind with probability {others.probability:.2f}")
    plan = scoring.trials_to_separate(new, old)
    print(f"about {plan.trials:.0f} trials of each question separate them")
