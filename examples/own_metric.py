"""Grade single answers, and score outcomes with a metric of your own.

python examples/own_metric.py
"""

import numpy as np

from bayes_at_n import verifiers
from bayes_at_n.scoring.metrics.table import parse

ANSWERS = [  # gold answer, completion
    (r"\frac{1}{2}", r"Half of it, so \boxed{0.5}."),
    (r"\frac{1}{2}", r"\boxed{2/4}"),
    ("42", r"It is \boxed{41} or \boxed{42}."),
    ("x^2 - 1", r"\boxed{(x-1)(x+1)}"),
]


def always(correct: int, trials: int) -> float:
    """Score one question: 1 if every trial was correct, else 0.

    On the command line: `score RUN scoring.metrics=[examples/own_metric.py:always]`.
    """
    return float(correct == trials)


if __name__ == "__main__":
    for gold, completion in ANSWERS:
        answer = verifiers.extract(completion, truncated=False).answer or ""
        print(f"{gold:>12}  {answer:>12}  {verifiers.grade_answer(gold, answer).outcome}")
    outcomes = np.array([[1, 1, 1, 1], [1, 0, 1, 1]])
    metric = parse(f"{__file__}:always")
    score = metric.summary(outcomes)
    print(f"always correct: {score.value:.2f} of the questions, σ {score.sigma:.2f}")
