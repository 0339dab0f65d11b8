"""The data sets' own questions (`questions=`), matched with what the records say of theirs."""

from pathlib import Path

import verifiers
from pipeline.base.console import warn
from pipeline.base.errors import UserError
from pipeline.config.settings import DatasetConfig
from pipeline.imports.plan import Plan, Question
from pipeline.imports.troubles import shown
from pipeline.prepare import questions
from pipeline.prepare.questions import Question as Known


def exact_questions(where: str | None, plan: Plan) -> dict[str, list[Known]]:
    """The data sets' own questions, per data set, from the user's files.

    Records hold prompts, not problems. With the problems a run has the ids and hashes that a run
    made here has, and can be compared with it. So the problem must be in the prompts, and the gold
    answers must be equal, as `grade` compares; where neither can be looked at, the numbers of
    questions must be equal, and a warning says that nothing else was checked.

    Raises:
        UserError: the file is not there, or does not hold the questions of the records.
    """
    if where is None:
        return {}
    found = {}
    path = Path(where).expanduser()
    for dataset, rows in plan.questions.items():
        file = path / f"{dataset}.jsonl" if path.is_dir() else path
        if path.is_dir() and not file.is_file():
            warn(f"import: {path} holds no {dataset}.jsonl; its questions are known by number only")
            continue
        own, _ = questions.load(DatasetConfig(name=dataset, path=str(file)))
        try:
            found[dataset] = _matched(rows, own, f"{file}, {dataset}")
        except ValueError as error:
            raise UserError(
                f"questions={where}: {file} does not hold the questions of {dataset}: {error}; name"
                " the file of these questions, or leave questions= out"
            ) from error
    return found


def _matched(rows: list[Question], own: list[Known], place: str) -> list[Known]:
    """For each question of the records the data set's own, by row number or id.

    Raises:
        ValueError: saying which question is another one.
    """
    found = [_own(row, own) for row in rows]
    if len({one.id for one in found}) < len(found):
        raise ValueError("two questions of the records are one of the file")
    _check_golds(rows, found)
    unseen = [row.id for row in rows if not _texts(row) and row.gold is None]
    if unseen and len(rows) != len(own):
        raise ValueError(
            f"it has {len(own)}, the records {len(rows)} of which {len(unseen)} have neither a"
            " prompt nor a gold answer to know them by"
        )
    if unseen:
        warn(
            f"import: {place}: {len(unseen)} questions have neither a prompt nor a gold answer;"
            " they are taken for the file's by their number or name alone"
        )
    for row, one in zip(rows, found, strict=True):
        row.id = one.id
    return found


def _own(row: Question, own: list[Known]) -> Known:
    """The one that the record's number or name says, else the one that its texts hold."""
    at = row.number
    if isinstance(at, str):
        one = next((k for k in own if k.id == at), None)
    else:
        one = own[at] if at < len(own) else None
    texts = _texts(row)
    if texts and (one is None or any(one.problem not in text for text in texts)):
        one = next((k for k in own if all(k.problem in text for text in texts)), None)
        if one is None:
            raise ValueError(f"no problem of it is that of question {shown(str(at))}")
    if one is None:
        raise ValueError(f"it has no question {shown(str(at))}")
    return one


def _texts(row: Question) -> list[str]:
    return [text for text in (row.problem, *row.prompts.values()) if text]


def _check_golds(rows: list[Question], found: list[Known]) -> None:
    pairs = {
        (one.gold, row.gold): row.id
        for row, one in zip(rows, found, strict=True)
        if row.gold is not None and row.gold.strip() != one.gold.strip()
    }
    grades = verifiers.grade(list(pairs), workers=1) if pairs else {}
    other = [pair for pair, grade in grades.items() if grade.outcome != "correct"]
    if other:
        own, told = (shown(gold)[:40] for gold in other[0])
        raise ValueError(
            f"{len(other)} gold answers are others, such as {own} there and {told} in the records"
            f" for question {shown(pairs[other[0]])}"
        )
