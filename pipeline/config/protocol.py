"""What a run samples and how: dataset, model, prompt and sampling protocol.

`dataset.where` is a filter of rows: comparisons of columns with literals, joined by `and`.
"""

import contextlib
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from pydantic import Field

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.checks import (
    MISSING,
    Above0,
    Amount,
    FolderName,
    Named,
    Natural,
    Positive,
    Seed,
    Share,
    must,
    one_of,
)
from bayes_at_n.verifiers.answers import own
from bayes_at_n.verifiers.code.programs import NAMES as LANGUAGE_NAMES
from bayes_at_n.verifiers.maths.boxed import Policy
from bayes_at_n.verifiers.maths.conventions import Conventions

GOLD = ("auto", "any", "box", "index", "letter", "list", "literal", "text")
_reads = {name: one_of(*get_args(hint)) for name, hint in get_type_hints(Conventions).items()}
Temperature = Annotated[float, Field(ge=0, le=2)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
MinP = Annotated[float, Field(ge=0, le=1)]
Stops = list[Annotated[str, Field(min_length=1)]]
Day = Annotated[str, must("a date, YYYY-MM-DD", date.fromisoformat)]
Dtype = Annotated[str, one_of("auto", "bfloat16", "float16", "float32")]


def _are_names(names: Any) -> bool:
    return all(isinstance(n, str) for n in (names if isinstance(names, list) else [names or ""]))


Names = Annotated[Any, must("a name, or a list of names", _are_names)]


@dataclass
class AboutConfig:
    """Where the facts in a YAML file come from; read by `catalogue` and tests only."""

    license: str | None = None  # SPDX id, or the words of its page; null: no source names it
    source: str | None = None  # public file that confirms the other keys: OWNER/NAME@COMMIT/PATH
    unverified: bool = False  # no public file confirms some of it; a run warns


@dataclass
class CardConfig:
    """What a model's authors ask for beyond its generation_config.json; null: they do not say."""

    temperature: Temperature | None = None  # 0: greedy
    top_p: Share | None = None  # nucleus sampling; 1: off
    top_k: Natural | None = None  # most likely tokens; 0: off
    min_p: MinP | None = None  # least probability, relative to the likeliest token's; 0: off
    presence_penalty: Penalty | None = None  # subtracted from logits of tokens in the response
    frequency_penalty: Penalty | None = None  # as presence_penalty, times their count
    repetition_penalty: Above0 | None = None  # weakens logits of tokens in prompt and response
    max_tokens: Positive | None = None  # completion tokens per attempt
    context: Positive | None = None  # context length, for `model.context`
    system: str | None = None  # system message, for `model.system`
    # variables of the chat template, added to the model's
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    source: str | None = None  # address or file of the text that asks for this
    date: Day | None = None  # when it was read there


@dataclass
class ModelConfig:
    """A generator model: its weights, tokenizer and chat template."""

    key = "model"  # the group of these settings, for messages
    name: FolderName = MISSING  # name in tables and of run folders
    id: str = MISSING  # Hugging Face hub id or local folder; any name if a server has the model
    tokenizer: str | None = None  # hub id or folder; default: the model's
    check_tokens: bool = True  # check that token ids of prompts decode to their texts
    revision: str | None = None  # commit, branch or tag on the hub
    checkpoint: str | None = None  # replaces ${model.checkpoint} in model.id
    table_id: int | None = None  # number in the paper's Table 6
    short_name: str | None = None  # name in the paper's figures
    dtype: Dtype = "bfloat16"  # dtype of weights and computation; auto: the checkpoint's
    quantization: Named | None = None  # vLLM's method for weights, such as fp8; null: as released
    adapter: Named | None = None  # LoRA adapter: hub id or local folder
    context: Positive | None = None  # context length; default: from the model's config.json
    trust_remote_code: bool = False  # run Python code that comes with the model
    # variables of the chat template
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    # date for chat templates that print the current one, so that prompts do not change
    template_date: Day | None = None
    system: str | None = None  # system message
    reasoning_end: str | None = "</think>"  # the answer is extracted from the text after it
    # vLLM's parser that finds that end; auto: by the model's type; null: the text of reasoning_end
    reasoning_parser: Named | None = None
    skip_special_tokens: bool = True  # leave special tokens out of responses
    engine_args: dict[str, Any] = field(default_factory=dict)  # engine arguments for this model
    card: CardConfig = field(default_factory=CardConfig)  # what its authors ask for
    about: AboutConfig = field(default_factory=AboutConfig)  # sources of these settings


@dataclass
class PromptConfig:
    """How a problem becomes a prompt."""

    name: str = MISSING  # name in records
    template: str = MISSING  # user's turn, with {problem} and optionally {choices}
    # more such templates; trials use all of them in turn, `template` first
    variants: list[str] = field(default_factory=list)
    kind: Annotated[str, one_of("chat", "plain")] = (
        "chat"  # chat: with the chat template; plain: the text alone
    )
    prefix: str = ""  # start of the response, which the model continues; graded with it
    stop: Stops = field(default_factory=list)  # strings that end an attempt
    shots: Annotated[int, Field(ge=0, le=1000)] = 0  # number of solved examples
    shots_from: Named | None = None  # file of examples, or a split of the dataset
    shots_seed: int | None = None  # seed that shuffles examples; null: in order
    solved: str = "{solution}"  # an example's response, with {solution} or {answer}
    system_role: Annotated[str, one_of("system", "user")] = "system"  # user: in the user's turn
    option: str = "{letter}) {option}"  # a line of {choices}
    # order of {choices}; none: the dataset's; question: shuffled per question; trial: per attempt
    shuffle: Annotated[str, one_of("none", "question", "trial")] = "none"
    shuffle_seed: Seed = 0  # seed of prompt.shuffle

    @property
    def templates(self) -> list[str]:
        """Return the templates of trials 0, 1, ...; later trials begin again."""
        return [self.template, *self.variants]

    def problems(self) -> Iterator[str]:
        for key, texts in (("template", [self.template]), ("variants", self.variants)):
            if not all("{problem}" in text for text in texts):
                yield f"{key}: must contain {{problem}}, the place of the problem's text"
        if not ("{letter}" in self.option and "{option}" in self.option):
            yield "option: must contain {letter} and {option}"
        if self.shots and self.shots_from is None:
            yield f"shots={self.shots}: needs prompt.shots_from=FILE.jsonl, or a split"
        if self.shots and not ("{solution}" in self.solved or "{answer}" in self.solved):
            yield "solved: must contain {solution} or {answer}"


@dataclass
class RepetitionDetection:
    """vLLM's detector, which ends an attempt whose last tokens repeat one pattern."""

    max_pattern_size: Natural = 0  # tokens of the longest pattern looked for; 0: off
    min_pattern_size: Natural = 0  # tokens of the shortest; 0: 1
    min_count: Natural = 0  # repetitions that end an attempt

    def problems(self) -> Iterator[str]:
        if self.min_pattern_size > self.max_pattern_size:
            yield f"min_pattern_size={self.min_pattern_size}: must not exceed max_pattern_size"
        if self.max_pattern_size and self.min_count < 2:
            yield f"max_pattern_size={self.max_pattern_size}: needs a min_count of at least 2"


@dataclass
class SamplingConfig:
    """The sampling protocol."""

    name: str = MISSING  # name in records
    trials: Annotated[int, Field(ge=1, le=10**6)] = 80  # attempts per question
    temperature: Temperature = 0.6  # 0: greedy
    top_p: Share = 0.95  # nucleus sampling; 1: off
    top_k: Positive | None = None  # sample from the most likely tokens, this many; null: off
    min_p: MinP = 0.0  # least probability, relative to the likeliest token's; 0: off
    presence_penalty: Penalty = 0.0  # subtracted from logits of tokens in the response
    frequency_penalty: Penalty = 0.0  # as presence_penalty, times their count
    repetition_penalty: Above0 = 1.0  # weakens logits of tokens in prompt and response; 1: off
    stop: Stops = field(default_factory=list)  # strings that end an attempt, beside prompt.stop
    max_tokens: Positive = 32768  # completion tokens per attempt
    thinking_budget: Natural | None = None  # reasoning tokens per attempt, in vLLM; null: no limit
    repetition_detection: RepetitionDetection = field(default_factory=RepetitionDetection)
    json_schema: dict[str, Any] = field(default_factory=dict)  # responses must follow it
    seed: Seed | None = 1234  # up to 62 bits; null: not seeded
    # shared: seed + trial for all questions and models; independent: a hash (attempt_seed)
    seeds: Annotated[str, one_of("shared", "independent")] = "shared"
    logprobs: bool = True  # store log-probs of sampled tokens
    prompt_logprobs: bool = True  # store log-probs of prompts
    # score given texts by their log-probs instead of sampling: the options, or the gold answer
    likelihood: Annotated[str, one_of("options", "gold")] | None = None
    card: bool = False  # use what the model's authors ask for where no setting is typed

    def problems(self) -> Iterator[str]:
        if self.temperature == 0 and self.trials > 1:
            yield "temperature=0: all greedy attempts are equal; set sampling.trials=1"
        if self.likelihood and self.trials > 1:
            yield f"likelihood={self.likelihood}: nothing is random; set sampling.trials=1"


@dataclass
class AboutDatasetConfig(AboutConfig):
    """Where the facts about a dataset come from, its size, and a row of its form."""

    questions: Positive | None = None  # number of questions; null: no source names it
    sample: dict[str, Any] = field(default_factory=dict)  # a made-up row with the same columns


@dataclass
class FieldNames:
    """The columns or JSON keys that hold the parts of a question.

    Texts may combine columns, as in `{passage}\\n\\n{question}`; `a.b` is the key b of column a.
    Hub datasets have the columns subset, split and row (number in its split) if not by other names.
    """

    id: str | None = "id"  # column of the id; null: row numbers
    problem: str = "problem"  # column of the text
    solution: str = "solution"  # column of the worked solution, for examples
    form: str | None = None  # column that says "strict" where the form must match, too
    cluster: str | None = None  # column that names what questions share, such as a passage
    answer: str = "answer"  # column of the gold answer; a choice's letter, index from 0, or text
    choices: Names = None  # columns of the options: one with a list, or several
    category: Names = None  # columns of subject, level, language: one, or a list of them
    date: str | None = None  # column of the date (or month, or year) when it was published


@dataclass
class ConventionsConfig:
    """Conventions for equal answers, see verifiers.Conventions."""

    lists: Annotated[str, _reads["lists"]] = "unordered"  # ordered: `1,2` is not `2,1`
    units: Annotated[str, _reads["units"]] = "optional"  # whether units must match
    decimals: Annotated[str, _reads["decimals"]] = "exact"  # rounded: 0.333 equals 1/3
    percent: Annotated[str, _reads["percent"]] = "hundredth"  # either: 2% may also mean 2
    tolerance: Amount = 0.0  # absolute tolerance, for answer=number
    relative: Amount = 0.0  # tolerance as a share of the gold answer; the larger counts
    text: Annotated[str, _reads["text"]] = "space"  # differences that answer=exact and regex ignore


@dataclass
class DatasetConfig:
    """Questions with gold answers: a file, or a Hugging Face dataset."""

    name: FolderName = MISSING  # name in tables and of the folder of its runs
    path: str = MISSING  # JSON, JSON Lines, CSV or Parquet file, or a hub id
    subset: Names = None  # configuration of a hub dataset, or a list of them
    split: Names = "test"  # split of a hub dataset, or a list of them
    revision: str | None = None  # commit, branch or tag on the hub
    fields: FieldNames = field(default_factory=FieldNames)
    where: str | None = None  # filter of rows: COLUMN == VALUE and ... (!= < <= > >= ~ !~)
    since: Day | None = None  # `score` compares questions before this date with later ones
    gold_after: Named | None = None  # the gold answer follows the last occurrence of this text
    # how the gold answer is read: box (the last one of a solution), list (all its items), any (one
    # of its items is enough; empty: "unanswerable"), literal (a list or value of Python or JSON);
    # of a choice letter, index (from 0) or text; auto: a text, or a choice in any of these forms
    gold: Annotated[str, one_of(*GOLD)] = "auto"
    limit: Positive | None = None  # use only this many of the first questions
    # kind of answer: a name in verifiers.KINDS, python:FILE.py:function, or judge (math, decided by
    # the verifier)
    answer: str = "math"
    # of programs (answer=code); others than Python are tested by input and output
    language: Annotated[str, one_of(*LANGUAGE_NAMES)] = "python"
    # boxes that are the answer; auto: the last, or the closing ones if the gold answer has parts
    boxes: Annotated[str, one_of(*get_args(Policy))] = "auto"
    pattern: str | None = None  # for answer=regex; its group is the answer
    conventions: ConventionsConfig = field(default_factory=ConventionsConfig)
    # answers that the verifier judges: all, or unmatched, those that the rules do not accept
    judge: Annotated[str, one_of("unmatched", "all")] | None = None
    about: AboutDatasetConfig = field(default_factory=AboutDatasetConfig)  # sources, size, a row

    def __post_init__(self) -> None:
        if self.answer == "judge":
            self.answer, self.judge = "math", self.judge or "all"

    def problems(self) -> Iterator[str]:
        try:
            parse_filter(self.where or "x == x")
        except ValueError as error:
            yield f"where={self.where}: {error}; write COLUMN == VALUE and COLUMN < VALUE"
        if (self.answer, self.pattern, self.conventions) != ("math", None, ConventionsConfig()):
            from bayes_at_n.verifiers.answers.kinds import problems  # a tenth of a second

            yield from problems(self.answer, self.pattern, Conventions(**asdict(self.conventions)))

    def grader(self) -> tuple[str, str | None]:
        """Return the kind of answer, with the resolved path and hash of a user's own grader."""
        if not self.answer.startswith("python:"):
            return self.answer, None
        try:
            return own.resolved(self.answer)
        except ValueError as error:
            raise UserError(f"dataset.answer={self.answer}: {error}") from error


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "~": operator.contains,
    "!~": lambda text, part: part not in text,
}
_TERM = re.compile(
    r"\s*(`[^`]+`|[^\s=!<>~`'\"]+)\s*([=!<>]=|!?~|<|>)\s*(\"[^\"]*\"|'[^']*'|[^\s=!<>~`'\"]+)\s*"
    r"(?:\band\s+(?=\S)|$)"
)


class Term(NamedTuple):
    """One comparison: of a column with a text."""

    column: str
    operator: str
    literal: str

    def accepts(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row satisfies it; a cell with a list does if one of its items does.

        Two numbers are compared as numbers, else texts without case, so dates in ISO form work; ~
        is "contains". An empty cell (None, NaN) is the text "". With != and !~ all items of a list
        must satisfy it.
        """
        cell = row[self.column]
        items = cell if isinstance(cell, list | tuple) else [cell]
        tests = (self._compare("" if item is None or item != item else item) for item in items)
        return all(tests) if self.operator[0] == "!" else any(tests)

    def _compare(self, item: Any) -> bool:
        sides: tuple[Any, Any] = str(item).casefold(), self.literal.casefold()
        if "~" not in self.operator:
            with contextlib.suppress(ValueError):
                sides = float(sides[0]), float(sides[1])
        return _OPERATORS[self.operator](*sides)


def parse_filter(text: str) -> list[Term]:
    """Return the comparisons of a filter, all of which must hold.

    A column whose name has spaces stands in backquotes, a text with spaces in quotes.

    >>> [tuple(term) for term in parse_filter("year == 2024 and `Answer type` != 'a proof'")]
    [('year', '==', '2024'), ('Answer type', '!=', 'a proof')]
    """
    terms, place = list[Term](), 0
    while place < len(text) or not terms:
        if not (found := _TERM.match(text, place)):
            raise ValueError(f"cannot be read from {text[place:].strip()[:40]!r} on")
        column, name, literal = found.groups()
        literal = literal[1:-1] if literal[0] in "\"'" else literal
        terms.append(Term(column.strip("`"), name, literal))
        place = found.end()
    return terms
