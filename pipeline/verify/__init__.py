"""The verify stage: a second model's label probabilities for every attempt.

stage.py    what the stage does, from what is owed to the report
survey.py   what there is to judge, what is judged, what is owed
prompts.py  a verifier's prompt, which no response can leave
judge.py    the model: candidates in, log-probs of its labels out
asker.py    asking it: in this process, or in replicas.py, which are processes of replica.py
store.py    verdicts on the disk
calibrate.py  what is subtracted from log-probs, and calibrating verdicts (again)
quality.py  the fit of T, how good the probabilities are, how far verifier and grader agree
"""
