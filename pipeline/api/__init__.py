"""The verbs `run`, `score` and `compare` from Python."""
