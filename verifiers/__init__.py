r"""Judge one attempt at a question: find its boxed answer and compare it with the gold answer.

Two steps, usable without the rest of the project:

1. `extract` takes the last closed box of the final part of a completion. A truncated attempt
   has not answered.
2. `grade` compares (gold, answer) pairs, each unique pair once. `compare` is its cheap part:
   exact text, LaTeX spelling, exact numbers, words, constant expressions and lists of those.
   What that leaves open goes to math_verify in worker processes with limits on time and
   memory, because a model's output may ask for a number with more digits than there are atoms.

The outcome is one of six words (`Outcome`): correct, wrong, no_answer (no box), unparsable
(nobody can tell), timeout (the comparison was stopped), error (the grader failed). A correct
attempt counts 1, all others 0.

`find` and `grade(..., answer=...)` do the same for other kinds of answers, `KINDS`.

What mathematics leaves open (is a list ordered? is 0.333 a third?) is a `Conventions`.

>>> text = r"<think>\boxed{3}?</think>It is \boxed{\dfrac{4}{8}}."
>>> answer = extract(text, truncated=False).answer
>>> answer
'\\dfrac{4}{8}'
>>> compare("0.5", answer)
True
>>> grade_answer("12", answer)
Grade(outcome='wrong', layer='number', reason='another number', grader='math')
"""

from bayes_at_n.verifiers.answers import own as own
from bayes_at_n.verifiers.answers.choice import LETTERS as LETTERS
from bayes_at_n.verifiers.answers.choice import lettered as lettered
from bayes_at_n.verifiers.answers.grading import NO_ANSWER as NO_ANSWER
from bayes_at_n.verifiers.answers.grading import Grade as Grade
from bayes_at_n.verifiers.answers.grading import check_golds as check_golds
from bayes_at_n.verifiers.answers.grading import failed as failed
from bayes_at_n.verifiers.answers.grading import grade as grade
from bayes_at_n.verifiers.answers.grading import grade_answer as grade_answer
from bayes_at_n.verifiers.answers.grading import grader as grader
from bayes_at_n.verifiers.answers.grading import in_form as in_form
from bayes_at_n.verifiers.answers.kinds import KINDS as KINDS
from bayes_at_n.verifiers.answers.kinds import Asked as Asked
from bayes_at_n.verifiers.answers.kinds import find as find
from bayes_at_n.verifiers.answers.kinds import problems as problems
from bayes_at_n.verifiers.maths.boxed import Extraction as Extraction
from bayes_at_n.verifiers.maths.boxed import Policy as Policy
from bayes_at_n.verifiers.maths.boxed import extract as extract
from bayes_at_n.verifiers.maths.compare import compare as compare
from bayes_at_n.verifiers.maths.conventions import Conventions as Conventions
from bayes_at_n.verifiers.maths.conventions import Outcome as Outcome

VERSION = "6"  # raise it whenever an outcome may change: runs are then graded anew
