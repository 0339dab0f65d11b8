"""Records that others made, as ordinary run folders: see docs/import.md.

importing   the verb: leads through all that follows
formats     how each kind of records is recognised, and read: by `parquet`, `npz`, `lm_eval`, ...
completions chats of OpenAI's interface, and outputs of NeMo-Skills
row         what a record can say, under which names, and every check of a value
batches     records as columns, however they came
plan        between the passes: which record is which run, question and trial
names       what this project calls data sets, models and questions
questions   the user's own questions, matched with the records'
copies      run folders of this program from another machine
staging     rows of all runs on their way to the disk
runs        what makes a folder of rows a run
logs        what readers of other harnesses' logs share
source      what readers share: files, lines, and what was wrong with them, counted and named
"""
