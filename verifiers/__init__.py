r"""Judge one attempt at a question: find its boxed answer and compare it with the gold answer.

Two steps, usable without the rest of the project:

1. `extract` takes the last closed box of the final part of a completion. A truncated attempt
   has not answered.
2. `grade` compares (gold, answer) pairs, each unique pair once. `compare` is its cheap part:
   exact text, LaTeX spelling, exact numbers, words and lists of those. What that leaves open
   goes to math_verify in worker processes with limits on time and memory, because a model's
   output may ask for a number with more digits than there are atoms.

The outcome is one of five words (`Outcome`): correct, wrong, no_answer (no box), unparsable
(nobody can tell), timeout (the comparison was stopped). A correct attempt counts 1, all others 0.

Conventions, all strict: decimals and percents are exact values (0.333 is not 1/3, 2\% is 0.02);
a trailing unit or degree sign may be missing on one side; a bare list and a set have no order,
a tuple and an interval have.

>>> found = extract(r"<think>\boxed{3}?</think>It is \boxed{\dfrac{4}{8}}.", truncated=False)
>>> found.answer
'\\dfrac{4}{8}'
>>> compare("0.5", found.answer)
True
>>> grade([("0.5", found.answer), ("12", found.answer)])
{('0.5', '\\dfrac{4}{8}'): 'correct', ('12', '\\dfrac{4}{8}'): 'wrong'}
"""

from verifiers.boxed import Extraction, extract
from verifiers.compare import compare
from verifiers.grading import Outcome, check_gold, check_golds, grade

VERSION = "1"  # raise it whenever an outcome may change: runs are then graded anew

__all__ = [
    "VERSION",
    "Extraction",
    "Outcome",
    "check_gold",
    "check_golds",
    "compare",
    "extract",
    "grade",
]
