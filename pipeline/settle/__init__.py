"""settle: sampling that stops when the decision is made."""
