"""Scores of one matrix: Bayes@N, avg@N, and the Pass@k family."""

from typing import Literal

By = Literal["sum", "token", "byte", "unconditional"]  # see `options.option_values`
DEFAULT = ("bayes", "avg", "pass@1", "pass@2", "pass@4", "pass@8")
OWN = r"(.+\.py):([^\W\d]\w*)"  # a user's own metric: FILE.py:function
