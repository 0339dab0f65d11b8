"""settle: sampling that stops when the decision is made."""

RECORD = "plan.json"  # in a folder of `settle`
