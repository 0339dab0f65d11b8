"""The verbs `run`, `score` and `compare` from Python.

verbs.py    `evaluate`, `load_run`, `compare`: they call what the command line calls
given.py    what they are given, objects among it, as the settings that the command line has
results.py  what they return
"""
