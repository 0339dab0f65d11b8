"""The verbs `run`, `score` and `compare` from Python.

verbs.py      `evaluate`, `load_run`, `compare`, which call the functions of the command line
overrides.py  converts their arguments, including objects, to overrides of the command line
results.py    their results
"""
