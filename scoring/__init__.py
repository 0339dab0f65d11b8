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

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bayes_at_n.scoring.exports import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        return getattr(import_module("bayes_at_n.scoring.exports"), name)

    def __dir__() -> list[str]:
        return dir(import_module("bayes_at_n.scoring.exports"))
