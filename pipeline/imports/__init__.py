"""Records that others made, as ordinary run folders: see docs/import.md.

The map, in the order of the work:

settings    what a user says
source      which files, which kind, their fingerprint; lines of text
importing   the verb: leads through all that follows
parquet     rows of Parquet files, a few at a time     trace     what they mean, both passes
rows        CSV and JSON Lines as rows                 arrays    an NPZ as rows
lm_eval     sample logs as rows                        records   rows, both passes
values      single values; `columns` whole columns of Parquet as our tables
names       what this project calls data sets, models and questions
plan        between the passes: which record is which run, question and trial
known       the user's own questions, matched with the records'
staging     rows of all runs on their way to the disk; folders renamed at the end
labels      categories as a rubric
finish      what makes a folder of rows a run
troubles    what was wrong with the source, counted and named
"""
