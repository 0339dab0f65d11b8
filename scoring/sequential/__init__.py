"""Sampling until something is settled: claims whose error holds however often one looks.

:class:`Race` is for several models, :class:`MeanSequence` for one; :func:`simulate` says what to
expect. docs/adaptive.md has the guarantee and its proof.

>>> import numpy as np
>>> from bayes_at_n.scoring.sequential import Race, Target
>>> race, rng = Race(models=3, questions=30, target=Target("best")), np.random.default_rng(1)
>>> look = race.look()
>>> while not look.settled:
...     attempts = np.repeat(look.open[:, None].astype(int), 30, axis=1)
...     race.add(rng.binomial(attempts, [[0.8], [0.6], [0.3]]), attempts)
...     look = race.look()
>>> look.groups, look.rounds.tolist()
([[0], [1, 2]], [4, 4, 2])
"""

from bayes_at_n.scoring.sequential.bank import BankSequence as BankSequence
from bayes_at_n.scoring.sequential.bank import question_factors as question_factors
from bayes_at_n.scoring.sequential.batch import Target as Target
from bayes_at_n.scoring.sequential.batch import claimed as claimed
from bayes_at_n.scoring.sequential.race import Look as Look
from bayes_at_n.scoring.sequential.race import MeanSequence as MeanSequence
from bayes_at_n.scoring.sequential.race import Race as Race
from bayes_at_n.scoring.sequential.race import Simulated as Simulated
from bayes_at_n.scoring.sequential.race import simulate as simulate
