"""The data sets' own questions (`questions=`), matched with what the records say of theirs."""

from pathlib import Path

import verifiers
from pipeline.base.console import warn
from pipeline.base.errors import UserError
from pipeline.config.settings import DatasetConfig
from pipeline.imports.plan import Plan, Question
from pipeline.imports.source import shown
from pipeline.prepare import questions
from pipeline.prepare.questions import Question as Own


def own_questions(where: str | None, plan: Plan) -> dict[str, list[Own]]:
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
    matched, path = {}, Path(where).expanduser()
    for dataset, asked in plan.questions.items():
        file = path / f"{dataset}.jsonl" if path.is_dir() else path
        if path.is_dir() and not file.is_file():
            warn(f"import: {path} holds no {dataset}.jsonl; its questions are known by number only")
            continue
        own, _ = questions.load(DatasetConfig(name=dataset, path=str(file)))
        try:
            matched[dataset] = _matched(asked, own, f"{file}, {dataset}")
        except ValueError as error:
            raise UserError(
                f"questions={where}: {file} does not hold the questions of {dataset}: {error}; name"
                " the file of these questions, or leave questions= out"
            ) from error
    return matched


def _matched(asked: list[Question], own: list[Own], place: str) -> list[Own]:
    """For each question of the records the data set's own, whose id it gets.

    Raises:
        ValueError: saying which question is another one.
    """
    matched = [_own(question, own) for question in asked]
    if len({one.id for one in matched}) < len(matched):
        raise ValueError("two questions of the records are one of the file")
    _check_golds(asked, matched)
    unseen = sum(not _texts(question) and question.gold is None for question in asked)
    if unseen and len(asked) != len(own):
        raise ValueError(
            f"it has {len(own)}, the records {len(asked)} of which {unseen} have neither a prompt"
            " nor a gold answer to know them by"
        )
    if unseen:
        warn(
            f"import: {place}: {unseen} questions have neither a prompt nor a gold answer; they"
            " are taken for the file's by their number or name alone"
        )
    for question, one in zip(asked, matched, strict=True):
        question.id = one.id
    return matched


def _own(question: Question, own: list[Own]) -> Own:
    """The one that the record's number or name says, else the one that its texts hold."""
    at, texts = question.number, _texts(question)
    named = [one for i, one in enumerate(own) if at == (one.id if isinstance(at, str) else i)]
    for one in (*named, *own) if texts else named:
        if all(one.problem in text for text in texts):
            return one
    if texts:
        raise ValueError(f"no problem of it is that of question {shown(str(at))}")
    raise ValueError(f"it has no question {shown(str(at))}")


def _texts(question: Question) -> list[str]:
    return [text for text in (question.problem, *question.prompts.values()) if text]


def _check_golds(asked: list[Question], matched: list[Own]) -> None:
    pairs = {
        (one.gold, question.gold): question.id
        for question, one in zip(asked, matched, strict=True)
        if question.gold is not None and question.gold != one.gold.strip()
    }
    grades = verifiers.grade(list(pairs), workers=1) if pairs else {}
    others = [pair for pair, grade in grades.items() if grade.outcome != "correct"]
    if others:
        own, theirs = (shown(gold)[:40] for gold in others[0])
        raise ValueError(
            f"{len(others)} gold answers are others, such as {own} there and {theirs} in the"
            f" records for question {shown(pairs[others[0]])}"
        )
