"""Match the questions of records with the dataset's own (`questions=`)."""

from pathlib import Path

from bayes_at_n import verifiers
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import DatasetConfig
from bayes_at_n.pipeline.prepare import questions
from bayes_at_n.pipeline.prepare.questions import Question as OwnQuestion
from bayes_at_n.pipeline.records.runs import Question, Runs
from bayes_at_n.pipeline.records.source import printable


def match(where: str | None, runs: Runs) -> None:
    """Give the questions of a source the ids and texts of the dataset's own, from the user's files.

    Records hold prompts, not problems. With the problems a run has the ids and hashes of a sampled
    run, and can be compared with it. Raises UserError: the file is missing, or has other questions.
    """
    if where is None:
        return
    path = Path(where).expanduser()
    for dataset, known in runs.questions.items():
        file = path / f"{dataset}.jsonl" if path.is_dir() else path
        if path.is_dir() and not file.is_file():
            warn(f"import: {path} has no {dataset}.jsonl; its questions are known by number only")
            continue
        own, _ = questions.load(DatasetConfig(name=dataset, path=str(file)))
        try:
            _match(known, own, f"{file}, {dataset}")
        except ValueError as error:
            what = f"questions={where}: {file} does not hold the questions of {dataset}: {error}"
            raise UserError(f"{what}; name the right file, or leave questions= out") from error


def _match(known: list[Question], own: list[OwnQuestion], place: str) -> None:
    """Match by problems in prompts, and by gold answers, which must be equal as for `grade`.

    Where there is neither, the numbers of questions must be equal. Raises ValueError: they differ.
    """
    pairs = [(question, _own(question, own)) for question in known]
    if len({match.id for _, match in pairs}) < len(pairs):
        raise ValueError("two questions of the records match one of the file")
    golds = {  # pairs of unequal texts
        (match.gold, question.gold): question.id
        for question, match in pairs
        if question.gold is not None and question.gold != match.gold.strip()
    }
    grades = verifiers.grade(list(golds), workers=1) if golds else {}
    for (own_gold, gold), grade in grades.items():
        if grade.outcome != "correct":
            differ = f"{printable(own_gold)[:40]} in the file and {printable(gold)[:40]} in the"
            name = printable(golds[own_gold, gold])
            raise ValueError(f"gold answers differ, {differ} records for question {name}")
    unseen = sum(not _texts(question) and question.gold is None for question in known)
    what = f"{unseen} questions have neither a prompt nor a gold answer"
    if unseen and len(known) != len(own):
        raise ValueError(f"it has {len(own)}, the records {len(known)}, of which {what}")
    if unseen:
        warn(f"import: {place}: {what}; they are matched by number or name alone")
    for question, match in pairs:
        question.id, question.own = match.id, match


def _own(question: Question, own: list[OwnQuestion]) -> OwnQuestion:
    """Return the question with the record's number or name, else the one in the record's texts."""
    at, texts = question.number, _texts(question)
    named = [match for i, match in enumerate(own) if at == (match.id if isinstance(at, str) else i)]
    for match in (*named, *own) if texts else named:
        if all(match.problem in text for text in texts):
            return match
    problem = "no problem in it is that of" if texts else "it has no"
    raise ValueError(f"{problem} question {printable(str(at))}")


def _texts(question: Question) -> list[str]:
    return [text for text in (question.problem, *question.prompts.values()) if text]
