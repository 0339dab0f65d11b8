"""Questions with gold answers, from a file or a Hugging Face data set.

Data files are untrusted: every row is checked, known damage is mended and counted, and whatever
is wrong is named by file, row and field.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bayes_at_n import verifiers
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import find_local
from bayes_at_n.pipeline.config.settings import DatasetConfig
from bayes_at_n.pipeline.prepare.golds import mend
from bayes_at_n.pipeline.prepare.hub import OFFLINE, from_hub
from bayes_at_n.pipeline.prepare.rows import SUFFIXES, Rows, read_rows
from bayes_at_n.verifiers import LETTERS

# What JSON and Python make of \f, \b, \v and \a when somebody forgot to escape the backslash.
_LOST_ESCAPES = {"\f": "\\f", "\b": "\\b", "\v": "\\v", "\a": "\\a"}
_LOST = re.compile(r"[\f\b\v\a](?=[a-z])")  # in front of the rest of a command: \frac, \beta
_THOUSANDS = re.compile(r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_MAX_FIELD = 100_000  # characters
_MAX_ID = 100
# What fields are called elsewhere, in lower case; by their own names in other letters, too.
_ALSO = {"id": (), "problem": ("question", "prompt"), "answer": ("gold", "target")}
# In place of 3.5, of 1/2.
_SPREADSHEET = re.compile(r"[-+]?\d+,\d+|\d{1,2}[-. ]+[^\W\d_]{3,9}\.?|[A-Z][a-z]{2}-\d\d")


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
    given = cfg.fields
    cfg, source, rows = rows_of(cfg)
    questions: list[Question] = []
    named = [
        f"{field} {name!r}"
        for field in _ALSO
        if (name := getattr(cfg.fields, field)) not in (None, getattr(given, field))
    ]
    notes = [f"read from these fields: {', '.join(named)}"] * bool(named)
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
    reasons = verifiers.check_golds((question.gold for question in questions), answer=cfg.answer)
    for question in questions:
        if reason := reasons[question.gold]:
            gold = f"gold answer {question.gold[:60]!r}: {reason}"
            notes.append(f"{question.id}: {gold}; only an identical answer can match it")
    sheet = [q.gold for q in questions if _SPREADSHEET.fullmatch(q.gold)]
    if sheet and Path(source).suffix in (".csv", ".tsv"):
        notes.append(
            f"{len(sheet)} gold answers such as {sheet[0]!r} may be what a spreadsheet makes of 3.5"
            " or 1/2: format the column as text, and write decimals with a point"
        )
    return questions, notes


def rows_of(cfg: DatasetConfig) -> tuple[DatasetConfig, str, Rows]:
    """The data set with its fields as it has them, its source, and its rows as they are read.

    A field that nobody named may have another common name (`_ALSO`), in upper or lower case; rows
    without ids are numbered. Raises UserError: there is no such file; a row cannot be read.
    """
    local = find_local(cfg.path)
    if local is not None and not local.is_dir():
        source, rows = str(local), read_rows(local)
    elif Path(cfg.path).suffix in SUFFIXES:
        raise UserError(f"dataset.path={cfg.path}: no such file")
    else:
        source, rows = cfg.path, _hub_rows(cfg, str(local or cfg.path))
    first = list(itertools.islice(rows, 1))
    there = list(first[0][1]) if first else []
    folded = {str(name).strip().casefold(): name for name in reversed(there)}
    fields = replace(cfg.fields)
    for field, names in _ALSO.items():
        if first and getattr(fields, field) == field and field not in there:
            found = next((folded[name] for name in (field, *names) if name in folded), None)
            setattr(fields, field, found or (None if field == "id" else field))
    return replace(cfg, fields=fields), source, itertools.chain(first, rows)


def with_letters(cfg: DatasetConfig, questions: list[Question], source: str) -> list[Question]:
    """The same questions; of multiple choice their gold answers are letters.

    Raises UserError: they cannot be read as letters, indices or texts of options.
    """
    if cfg.fields.choices is None and cfg.answer != "choice":
        return questions
    try:
        letters = verifiers.lettered([(question.gold, question.choices) for question in questions])
    except ValueError as error:
        raise UserError(f"{source}: the gold answers {error}") from error
    return [replace(q, gold=letter) for q, letter in zip(questions, letters, strict=True)]


def _hub_rows(cfg: DatasetConfig, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    import datasets

    datasets.disable_progress_bars()
    with from_hub(
        f"dataset.path={cfg.path} (split {cfg.split})",
        f"Check the id and dataset.split; {OFFLINE}, or use dataset=jsonl dataset.path=FILE",
        not Path(where).is_dir(),
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
    options, asked = cfg.fields.choices, ["problem", "answer"] + ["solution"] * solved
    named = {name: field for field in ("id", *asked) if (name := getattr(cfg.fields, field))}
    named |= dict.fromkeys([options] if isinstance(options, str) else options or (), "choices")
    if lacking := [name for name in named if name not in row]:
        names = ", ".join(map(str, list(row)[:12])) or "none"
        raise UserError(
            f"{place}: no field {' and no field '.join(map(repr, lacking))}; found {names}. Set "
            + " ".join(dict.fromkeys(f"dataset.fields.{named[name]}=NAME" for name in lacking))
        )

    def text(field: str) -> str:
        name = getattr(cfg.fields, field)
        return read(row[name], field, name)

    def read(value: Any, field: str, name: str) -> str:
        if value is None or value != value:  # a missing value, as None or NaN
            value = ""
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            other = f"another one: dataset.fields.{field}=NAME"
            raise UserError(
                f"{place}: field {name!r} is {type(value).__name__}, expected text; name {other}"
            )
        whole = isinstance(value, float) and value.is_integer()  # a column of integers with gaps
        string, lost = _LOST.subn(
            lambda damaged: _LOST_ESCAPES[damaged[0]], str(int(value)) if whole else str(value)
        )
        if lost:
            notes.append(f"{field}: {lost} control characters were read as lost backslashes")
        string = string.strip()
        if not string:
            raise UserError(
                f"{place}: the {field} (field {name!r}) is empty; fill it in, or leave the row out"
            )
        if len(string) > _MAX_FIELD:
            raise UserError(f"{place}: field {name!r} is longer than {_MAX_FIELD} characters")
        if any("\ud800" <= c <= "\udfff" for c in string):
            raise UserError(f"{place}: field {name!r} holds half a character (a lone surrogate)")
        return string

    raw_id = text("id") if cfg.fields.id is not None else str(number)
    if len(raw_id) > _MAX_ID or not raw_id.isprintable():
        raise UserError(f"{place}: the id must be one line of at most {_MAX_ID} characters")
    question_id = f"{cfg.name}-{int(raw_id):02d}" if raw_id.isdecimal() else raw_id
    problem, gold, choices = text("problem"), text("answer"), options
    if isinstance(choices, str):
        listed = row[choices]
        if not isinstance(listed, list | tuple):
            raise UserError(
                f"{place}: field {choices!r} is {type(listed).__name__}, expected a list of"
                " options; where each has a column, set dataset.fields.choices=[NAME,NAME,...]"
            )
        found = tuple(read(option, "choices", choices) for option in listed)
    else:
        found = tuple(read(row[name], "choices", name) for name in choices or ())
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
