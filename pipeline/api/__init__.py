"""The verbs `run`, `score` and `compare` from Python.

verbs.py      `evaluate`, `load_run`, `compare`: they call what the command line calls
overrides.py  what they are given, objects among it, as overrides of the command line
results.py    what they return
"""
