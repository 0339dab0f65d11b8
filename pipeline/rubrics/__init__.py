"""Two stages: `signals` measures attempts, `categorize` maps them into categories of rubrics.

signals.py        the stage: nine base signals of every attempt
signals_table.py  their table: what it was made from, and whether it is current
categorize.py     the stage: thresholds of a data set, then a category of every rubric
variables.py      what conditions may ask of an attempt, and the thresholds that they compare with
rubric.py         a rubric: checked, its weights, the category of every attempt
conditions.py     the little language of conditions
categories.py     a run's rubrics on the disk: read, saved, scored, drawn, shown
"""
