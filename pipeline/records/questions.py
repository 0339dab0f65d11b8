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
    run, and can be compared with it. The problem must occur in the prompts, and gold answers must
    be equal, as `grade` compares them; if there is neither, the numbers of questions must be equal,
    and a warning is printed. Raises UserError: the file is missing, or has other questions.
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
            raise UserError(
                f"questions={where}: {file} does not hold the questions of {dataset}: {error}; name"
                " the file of these questions, or leave questions= out"
            ) from error


def _match(known: list[Question], own: list[OwnQuestion], place: str) -> None:
    matches = [_own(question, own) for question in known]
    if len({match.id for match in matches}) < len(matches):
        raise ValueError("two questions of the records match one of the file")
    golds = {  # pairs of unequal texts
        (match.gold, question.gold): question.id
        for question, match in zip(known, matches, strict=True)
        if question.gold is not None and question.gold != match.gold.strip()
    }
    grades = verifiers.grade(list(golds), workers=1) if golds else {}
    if unequal := [pair for pair, grade in grades.items() if grade.outcome != "correct"]:
        own_gold, gold = (printable(gold)[:40] for gold in unequal[0])
        raise ValueError(
            f"{len(unequal)} gold answers differ, such as {own_gold} in the file and {gold} in the"
            f" records for question {printable(golds[unequal[0]])}"
        )
    unseen = sum(not _texts(question) and question.gold is None for question in known)
    if unseen and len(known) != len(own):
        raise ValueError(
            f"it has {len(own)}, the records {len(known)}, of which {unseen} have neither a prompt"
            " nor a gold answer to match them by"
        )
    if unseen:
        warn(
            f"import: {place}: {unseen} questions have neither a prompt nor a gold answer; they"
            " are matched with the file's by number or name alone"
        )
    for question, match in zip(known, matches, strict=True):
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
