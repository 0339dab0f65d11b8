"""Several runs of a data set side by side.

whichruns.py    the run folders that settings name
cohort.py       runs whose questions are the same, as one array of outcomes
differences.py  what is not alike in them
leaderboard.py  scores and ranks
neighbours.py   which orders are settled, and what would settle the others
rubrics.py      categories of all of them with one set of thresholds; imported.py: foreign labels
compare.py      the verb
"""
