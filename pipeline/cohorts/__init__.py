"""Several runs of a data set side by side.

cohort.py       runs whose questions are the same, as one array of outcomes
differences.py  what is not alike in them
leaderboard.py  scores and ranks
neighbours.py   which orders are settled, and what would settle the others
rankings.py     ranks by other methods, beside the default
verdict.py      which model is best and whether that is settled, as a sentence
rubrics.py      categories of all of them with one set of thresholds
compare.py      the verb
pair.py         two runs, trial by trial
replay.py       the tokens of one in the other's engine
equivalence.py  the verb: are the two the same
"""
