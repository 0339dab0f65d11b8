"""Questions with gold answers, from a JSON Lines file or a Hugging Face data set.

Data files are untrusted: every row is checked, known damage is mended and counted, and whatever
is wrong is named by file, row and field.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.base import jsonl
from pipeline.base.errors import UserError, one_line
from pipeline.base.places import ROOT
from pipeline.base.program import PROGRAM
from pipeline.config.settings import DatasetConfig
from pipeline.prepare.golds import mend
from verifiers import LETTERS, check_golds, lettered

# What JSON and Python make of \f, \b, \v and \a when somebody forgot to escape the backslash.
_LOST_ESCAPES = {"\f": "\\f", "\b": "\\b", "\v": "\\v", "\a": "\\a"}
_LOST = re.compile(r"[\f\b\v\a](?=[a-z])")  # in front of the rest of a command: \frac, \beta
_THOUSANDS = re.compile(r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_MAX_FIELD = 100_000  # characters
_MAX_ID = 100
OFFLINE = f"without a network, run `{PROGRAM} prefetch` first on a machine that has one"


@dataclass(frozen=True, slots=True)
class Question:
    """One question: a readable id that is stable across runs, its text, its gold answer."""

    id: str
    problem: str
    gold: str
    published: str = ""  # the gold answer before it was mended: what the hash is of
    solution: str = ""  # of an example
    form: str | None = None  # "strict": in another form than the gold answer's it is wrong
    choices: tuple[str, ...] = ()  # of multiple choice, whose gold answer is a letter

    @property
    def hash(self) -> str:
        """First 16 hex digits of the SHA-256 of problem, gold answer and options.

        >>> Question("a", "1+1?", "2").hash == Question("b", "1+1?", "2").hash
        True
        """
        parts = [self.problem, self.published or self.gold, *self.choices]
        text = json.dumps(parts, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def load(cfg: DatasetConfig) -> tuple[list[Question], list[str]]:
    """Read the questions of a data set; returns them and a note for each mended damage.

    A row with problem, gold answer and options of an earlier one is left out.

    Raises UserError: when the data set or its own grader cannot be found or read, a field is
    missing or empty, or two questions have one id.
    """
    cfg.grader()  # what is not there is said now, not when all is sampled
    source, rows = rows_of(cfg)
    questions: list[Question] = []
    notes: list[str] = []
    ids: dict[str, str] = {}
    hashes: dict[str, str] = {}
    copies: list[str] = []
    for number, (place, row) in enumerate(rows, 1):
        question, mended = question_of(cfg, row, number, f"{source}, {place}")
        mark = question.hash
        if first := hashes.get(mark):
            copies.append(f"{place} is {first}")
            continue
        if first := ids.get(question.id):
            raise UserError(
                f"{source}: {first} and {place} have one id, {question.id!r};"
                " dataset.fields.id=null numbers the rows"
            )
        ids[question.id] = hashes[mark] = place
        notes += [f"{question.id}: {note}" for note in mended]
        questions.append(question)
        if len(questions) == cfg.limit:
            break
    if copies:
        some = f"{', '.join(copies[:3])}{', ...' * (len(copies) > 3)}"
        notes.append(f"{len(copies)} rows left out, the same questions as earlier ones: {some}")
    if not questions:
        raise UserError(f"{source}: holds no questions")
    if cfg.fields.form is not None and not any(question.form for question in questions):
        raise UserError(
            f"{source}: no row has a field {cfg.fields.form!r} that says strict; set"
            " dataset.fields.form=NAME, or null if no question asks for a form"
        )
    questions = with_letters(cfg, questions, source)
    reasons = check_golds((question.gold for question in questions), answer=cfg.answer)
    for question in questions:
        if reason := reasons[question.gold]:
            gold = f"gold answer {question.gold[:60]!r}: {reason}"
            notes.append(f"{question.id}: {gold}; only an identical answer can match it")
    return questions, notes


def rows_of(cfg: DatasetConfig) -> tuple[str, Iterator[tuple[str, Any]]]:
    """Where a data set is read from, and its rows as they are read, each with its place there.

    Raises UserError: there is no such file; when a row is asked for, it cannot be read.
    """
    local = find_local(cfg.path)
    if local is not None and local.is_file():
        return str(local), jsonl.read(local)
    if Path(cfg.path).suffix in (".jsonl", ".json"):
        raise UserError(f"dataset.path={cfg.path}: no such file")
    return cfg.path, _hub_rows(cfg, str(local or cfg.path))


def with_letters(cfg: DatasetConfig, questions: list[Question], source: str) -> list[Question]:
    """The same questions; of multiple choice their gold answers are letters.

    Raises UserError: they cannot be read as letters, indices or texts of options.
    """
    if cfg.fields.choices is None and cfg.answer != "choice":
        return questions
    try:
        letters = lettered([(question.gold, question.choices) for question in questions])
    except ValueError as error:
        raise UserError(f"{source}: the gold answers {error}") from error
    return [replace(q, gold=letter) for q, letter in zip(questions, letters, strict=True)]


def find_local(path: str) -> Path | None:
    """The file or folder a path names: as given, or inside the project."""
    candidates = (Path(path).expanduser(), ROOT / path)
    return next((candidate for candidate in candidates if candidate.exists()), None)


@contextlib.contextmanager
def from_hub(what: str, remedy: str) -> Iterator[None]:
    """What libraries raise about hub, network and files becomes one line; they raise many kinds."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if "gated" in str(error):
            remedy = (
                "Ask for access on its page at huggingface.co, then `hf auth login`, or HF_TOKEN in"
                " the environment"
            )
        raise UserError(f"{what}: could not be loaded: {one_line(error)}. {remedy}") from error


def _hub_rows(cfg: DatasetConfig, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    import datasets
    import huggingface_hub

    datasets.disable_progress_bars()
    huggingface_hub.logging.set_verbosity_error()  # five retries without a network say nothing new
    with from_hub(
        f"dataset.path={cfg.path} (split {cfg.split})",
        f"Check the id and dataset.split; {OFFLINE}, or use dataset=jsonl dataset.path=FILE",
    ):
        rows = datasets.load_dataset(where, name=cfg.subset, split=cfg.split, revision=cfg.revision)
    for number, row in enumerate(rows, 1):
        yield f"row {number}", row


def question_of(
    cfg: DatasetConfig, row: dict[str, Any], number: int, place: str, solved: bool = False
) -> tuple[Question, list[str]]:
    """The question in a row, with its solution where it is `solved`; a note for mended damage.

    Raises UserError: a field is missing, empty or no text.
    """
    notes: list[str] = []

    def value_of(field: str, name: str) -> Any:
        if name not in row:
            names = ", ".join(map(str, list(row)[:12])) or "none"
            raise UserError(
                f"{place}: no field {name!r} for the {field}; found {names}."
                f" Set dataset.fields.{field}=NAME"
            )
        return row[name]

    def text(field: str) -> str:
        name = getattr(cfg.fields, field)
        return read(value_of(field, name), field, name)

    def read(value: Any, field: str, name: str) -> str:
        if value is None or value != value:  # a missing value, as None or NaN
            value = ""
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise UserError(f"{place}: field {name!r} is {type(value).__name__}, expected text")
        whole = isinstance(value, float) and value.is_integer()  # a column of integers with gaps
        string, lost = _LOST.subn(
            lambda damaged: _LOST_ESCAPES[damaged[0]], str(int(value)) if whole else str(value)
        )
        if lost:
            notes.append(f"{field}: {lost} control characters were read as lost backslashes")
        string = string.strip()
        if not string:
            raise UserError(f"{place}: the {field} (field {name!r}) is empty")
        if len(string) > _MAX_FIELD:
            raise UserError(f"{place}: field {name!r} is longer than {_MAX_FIELD} characters")
        if any("\ud800" <= c <= "\udfff" for c in string):
            raise UserError(f"{place}: field {name!r} holds half a character (a lone surrogate)")
        return string

    raw_id = text("id") if cfg.fields.id is not None else str(number)
    if len(raw_id) > _MAX_ID or not raw_id.isprintable():
        raise UserError(f"{place}: the id must be one line of at most {_MAX_ID} characters")
    question_id = f"{cfg.name}-{int(raw_id):02d}" if raw_id.isdecimal() else raw_id
    problem, gold, choices = text("problem"), text("answer"), cfg.fields.choices
    if isinstance(choices, str):
        listed = value_of("choices", choices)
        if not isinstance(listed, list | tuple):
            raise UserError(
                f"{place}: field {choices!r} is {type(listed).__name__}, expected a list of"
                " options; where each has a column, set dataset.fields.choices=[NAME,NAME,...]"
            )
        found = tuple(read(option, "choices", choices) for option in listed)
    else:
        found = tuple(read(value_of("choices", n), "choices", n) for n in choices or ())
    if choices is not None and not 2 <= len(found) <= len(LETTERS):
        raise UserError(f"{place}: {len(found)} options; there must be 2 to {len(LETTERS)}")
    if doubles := len(found) - len(set(found)):
        notes.append(f"choices: {doubles} options have the text of another one")
    if cfg.gold_after is not None:
        gold = _behind(cfg.gold_after, gold, f"{place}: field {cfg.fields.answer!r}")
        if _THOUSANDS.fullmatch(gold):  # it is one answer, so these are no lists
            notes.append(f"answer: {gold} was read without its commas")
            gold = gold.replace(",", "")
    # A letter, a name or a user's own notation is as it is.
    mended, slips = mend(gold) if cfg.answer == "math" and not found else (gold, [])
    notes += [f"answer: {gold[:60]!r} was read without {slip}" for slip in slips]
    solution = text("solution") if solved else ""
    form = row.get(cfg.fields.form) if cfg.fields.form is not None else None
    if form not in (None, "", "strict"):
        raise UserError(f'{place}: field {cfg.fields.form!r} is {form!r:.60}, not "strict" or ""')
    published = gold if slips else ""
    question = Question(question_id, problem, mended, published, solution, form or None, found)
    return question, notes


def _behind(mark: str, solution: str, field: str) -> str:
    """The gold answer behind the last mark in a worked solution, which `field` holds."""
    gold = solution.rpartition(mark)[2].strip() if mark in solution else ""
    if not gold:
        raise UserError(f"{field} has no gold answer behind dataset.gold_after={mark}")
    return gold
