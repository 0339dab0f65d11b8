"""Other intervals than the normal one: exact, classical, empirical Bayes."""
