"""trajectory: how steadily a score follows a training, by protocol (MaP, Wang et al. 2025).

trainings.py     checkpoints of one or several training runs, their steps and windows
plan.py          every model to evaluate as an ordinary run
standing.py      whether a run is finished, and what it owes
merged.py        the weights of a window: made when they are needed, and taken away again
preview.py       what would be evaluated: the table of --dry-run, settings run by run
evaluate.py      one run after the other, each in a process of its own
tracks.py        what the finished runs hold: counts by step, question and outcome
protocols.py     window x metric: labels, scores and intervals by step
stability.py     curve and stability tables
forms.py         the tables of the paper
samples.py       stability and cost by number of trials
samples_tables.py  and its tables
beside.py        several training runs: who is ahead, crossings
spread.py        the variance of Pass@k, three ways
figures.py       pictures
summary.py       what the numbers say, in three lines
page.py          tables and pictures on one page
verb.py          all of it, in order
"""
