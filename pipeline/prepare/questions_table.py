"""The rows of the questions table: every question with its rendered prompt, checked and hashed."""

import itertools
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.seeds import option_order
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import endpoint, models, questions, shots
from bayes_at_n.pipeline.prepare.endpoint import Facts
from bayes_at_n.pipeline.prepare.shots import Example
from bayes_at_n.pipeline.store import origin, parquet, runfolder
from bayes_at_n.pipeline.store.columns import QUESTIONS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.prompts import PromptError, Rendered, control_tokens, fill, plain, render, turns
from bayes_at_n.prompts import options as lines_of
from bayes_at_n.verifiers import LETTERS

MADE_FROM = b"made_from"  # in the table's metadata, see prepare/stage.py
# Tokens that an option may take more at another place: its letter, and how it meets the next line.
_SLACK = 4
_CHANGED = (
    "prompt.shuffle=trial: in the prompt of {} the options do not stand as they are, or its tokens"
    " are not those of its text; use prompt.shuffle=question with this model"
)


class _Asked(NamedTuple):
    """A question as a model is asked: its options in their order, and the chat turns."""

    question: questions.Question
    choices: list[str]
    gold: str
    turns: list[dict[str, str]]


class Built(NamedTuple):
    """The questions table, what a server said of itself, and solved examples."""

    file: Any  # the table, on a disk: it may be larger than memory should be
    questions: dict[str, str]  # by their ids the hashes of questions, and of their prompts
    prompts: dict[str, str]
    server: Facts | None
    examples: list[Example]  # to choose from
    weights: str  # what tells the model from others
    tokenizer: dict[str, Any] | None  # what its tokenizer is

    def groups(self) -> Iterator[pa.Table]:
        """The table, a few rows at a time."""
        table = pq.ParquetFile(self.file)
        return (table.read_row_group(i) for i in range(table.num_row_groups))

    def rows(self) -> list[dict[str, Any]]:
        """All rows, in memory."""
        return [row for group in self.groups() for row in group.to_pylist()]


def build(run: Run) -> Built:
    """The questions table, without writing anything that stays.

    Raises UserError: for a problem with the data set, the model, its server or a prompt.
    """
    cfg = run.cfg
    tokenizer = endpoint.tokenizer(cfg)
    server = endpoint.facts(run, tokenizer)
    loaded, mended = questions.load(cfg.dataset)
    for line in mended:
        warn(f"{cfg.dataset.name}: {line}")
    if cfg.model.trust_remote_code:
        warn(f"model.trust_remote_code=true: Python code that {cfg.model.id} brings will run")
    context = _context(cfg, server)
    chat = server is not None and server.api == "chat"
    if chat and (cfg.prompt.kind == "plain" or cfg.prompt.prefix):
        which = "kind=plain" if cfg.prompt.kind == "plain" else f"prefix={cfg.prompt.prefix!r}"
        raise UserError(
            f"prompt.{which}: {''.join(cfg.engine.url[:1]) or cfg.model.id} gets chat turns, and"
            " only token ids say where an answer begins; a server that takes them is asked with"
            " engine.api=completions"
        )
    examples = shots.load(cfg)
    for number, example in enumerate(examples, 1):
        told = "\n".join([example.problem, *example.choices, example.solved])
        _check_text(cfg, tokenizer, told, f"example {number}")
    asked, ahead = itertools.tee(
        _asked(cfg, question, shots.of(cfg, examples, question)) for question in _emptied(loaded)
    )
    sent = ((json.dumps(one.turns, ensure_ascii=False), None) for one in ahead)  # a server renders
    prompts = sent if chat else _rendered(cfg, ahead, tokenizer)
    rows = (
        _row(cfg, one, prompt, tokenizer, context)
        for one, prompt in zip(asked, prompts, strict=True)
    )
    described = None if tokenizer is None else models.describe_tokenizer(cfg.model, tokenizer)
    weights = endpoint.weights(cfg, server)
    file = tempfile.TemporaryFile()  # noqa: SIM115  # gone when nobody reads it any more
    built, limits = Built(file, {}, {}, server, examples, weights, described), []
    with parquet.writer(file, QUESTIONS) as groups:
        while some := list(itertools.islice(rows, parquet.ROWS_PER_GROUP)):
            groups.write_table(pa.Table.from_pylist(some, QUESTIONS))
            limits += [row["max_tokens"] for row in some]
            for row in some:
                name, ids = row["question_id"], row["prompt_token_ids"]
                models.check_tokens(cfg.model, tokenizer, name, row["prompt"], ids)
                built.questions[name] = row["question_hash"]
                built.prompts[name] = runfolder.short_hash(str(ids or row["prompt"]))
    file.flush()
    if clamped := sum(limit < cfg.sampling.max_tokens for limit in limits):
        warn(
            f"sampling.max_tokens={cfg.sampling.max_tokens} does not fit {cfg.model.name}'s context"
            f" of {context}: clamped for {clamped} questions, down to {min(limits)}"
        )
    return built


def identity(run: Run, built: Built) -> dict[str, Any]:
    """What the run is: its settings, the model's weights, every question and every prompt."""
    chosen = [(example.asked, example.solved) for example in built.examples]
    chosen = chosen[: run.cfg.prompt.shots]  # for a question that is none of them
    return {
        **runfolder.identity(run.cfg),
        **({"prompt.shots_hash": runfolder.short_hash(json.dumps(chosen))} if chosen else {}),
        "model.weights": built.weights,
        "questions": built.questions,
        "prompts": built.prompts,
    }


def messages(row: Mapping[str, Any]) -> list[dict[str, str]] | None:
    """The chat turns of a row whose prompt a server renders; None where it is token ids."""
    return json.loads(row["prompt"]) if row["prompt_token_ids"] is None else None


def _context(cfg: RunConfig, server: Facts | None) -> int | None:
    """The most tokens of prompt and completion; None where nobody says."""
    if server is None:
        return models.context(cfg.model)
    limits = [cfg.model.context, server.context]
    return min((limit for limit in limits if limit is not None), default=None)


def _asked(cfg: RunConfig, question: questions.Question, examples: list[Example]) -> _Asked:
    choices, gold = list(question.choices), question.gold
    if choices and cfg.prompt.shuffle == "question":
        order = option_order(cfg, question.id, len(choices))
        choices = [choices[place] for place in order]
        gold = LETTERS[order.index(LETTERS.index(gold))]
    text = fill(cfg.prompt.template, question.problem, choices=lines_of(choices))
    before = [(example.asked, example.solved) for example in examples]
    role = "user" if cfg.prompt.kind == "plain" else cfg.prompt.system_role
    return _Asked(question, choices, gold, turns(text, cfg.model.system, role, before))


def _row(
    cfg: RunConfig,
    asked: _Asked,
    rendered: tuple[str, list[int] | None],
    tokenizer: Any,
    context: int | None,
) -> dict[str, Any]:
    question, choices, gold, _ = asked
    prompt, ids = rendered
    chat = ids is None
    size = len(prompt.encode()) if ids is None else len(ids)  # no token is less than a byte
    if choices and cfg.prompt.shuffle == "trial":
        size += _SLACK * len(choices)
        again = with_options(question.id, prompt, choices, choices, chat)
        if ids is not None and list(tokenizer(again, add_special_tokens=False)["input_ids"]) != ids:
            raise UserError(_CHANGED.format(question.id))
    if context is not None and size >= context:
        raise UserError(
            f"{question.id}: the prompt has {size} {'bytes' if chat else 'tokens'}, the context of"
            f" {cfg.model.name} only {context} tokens; use a model with a longer context,"
            + " fewer examples (prompt.shots)," * bool(cfg.prompt.shots)
            + " or leave the question out of the data set"
        )
    limit = cfg.sampling.max_tokens
    return {
        "question_id": question.id,
        "problem": question.problem,
        "gold": gold,
        "question_hash": question.hash,
        "prompt": prompt,
        "prompt_token_ids": ids,
        "prompt_logprobs": None,
        "max_tokens": limit if context is None else min(context - size, limit),
        "choices": choices or None,
        "form": question.form,
    }


def prompts_of_trials(run: Run) -> Callable[[Mapping[str, Any], int], Mapping[str, Any]]:
    """What makes of a row and a trial the row with that trial's prompt: itself, mostly.

    Raises UserError: the options are shuffled for each attempt, and there is no tokenizer any more.
    """
    cfg = run.cfg
    if cfg.prompt.shuffle != "trial":
        return lambda row, trial: row
    chat = any(row["prompt_token_ids"] is None for row in run.questions)
    tokenizer = None if chat else endpoint.tokenizer(cfg)

    def of_trial(row: Mapping[str, Any], trial: int) -> Mapping[str, Any]:
        shown = runfolder.as_shown(cfg, row, trial)
        name, old, new = row["question_id"], row["choices"], shown["choices"]
        text = with_options(name, row["prompt"], old, new, chat)
        ids = None if chat else tokenizer(text, add_special_tokens=False)["input_ids"]  # type: ignore[misc]
        return shown | {"prompt": text, "prompt_token_ids": ids}

    return of_trial


def with_options(name: str, prompt: str, old: list[str], new: list[str], chat: bool) -> str:
    """A prompt with its options in another order; those of examples stand further up."""
    texts = [
        json.dumps(x, ensure_ascii=False)[1:-1] if chat else x for x in map(lines_of, (old, new))
    ]
    before, found, after = prompt.rpartition(texts[0])
    if not found:
        raise UserError(_CHANGED.format(name))
    return before + texts[1] + after


def _emptied(loaded: list[Any]) -> Iterator[Any]:
    """The items of a list, which are forgotten one by one."""
    loaded.reverse()
    while loaded:
        yield loaded.pop()


def _rendered(cfg: RunConfig, asked: Iterable[_Asked], tokenizer: Any) -> Iterator[Rendered]:
    """The chat turns through the model's template; of a plain prompt their text alone."""
    model, prefix = cfg.model, cfg.prompt.prefix
    asked, ahead = itertools.tee(_checked(cfg, asked, tokenizer))
    if cfg.prompt.kind == "plain":
        del ahead
        for one in asked:
            yield plain(tokenizer, "".join(turn["content"] for turn in one.turns) + prefix)
        return
    chats = (one.turns for one in ahead)
    prompts = render(tokenizer, chats, model.chat_template_kwargs, model.template_date, prefix)
    for question, *_ in asked:
        try:
            yield next(prompts)
        except PromptError as error:
            remedy = ""
            if not getattr(tokenizer, "chat_template", None):
                remedy = "; a base model takes prompt.kind=plain (prompt=base)"
            elif model.system is not None and cfg.prompt.system_role == "system":
                remedy = "; if it refuses the system role, set prompt.system_role=user"
            raise UserError(f"{question.id}, model {model.id}: {error}{remedy}") from error


def _checked(cfg: RunConfig, asked: Iterable[_Asked], tokenizer: Any) -> Iterator[_Asked]:
    for one in asked:
        told = "\n".join([one.question.problem, *one.question.choices])
        _check_text(cfg, tokenizer, told, f"{one.question.id}: the problem")
        yield one


def _check_text(cfg: RunConfig, tokenizer: Any, text: str, what: str) -> None:
    """Refuse text of a data set that a model would read as control tokens."""
    if tokenizer is not None and (control := control_tokens(tokenizer, text)):
        raise UserError(
            f"{what} contains {' '.join(control[:3])}, which"
            f" {cfg.model.name} reads as control tokens and not as text; write it otherwise (a"
            " space inside is enough) or leave it out of the data set"
        )


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Replace the rows of the questions table, which were made from the same as before."""
    made_from = origin.metadata(path) if path.exists() else {}
    parquet.write_part(path, pa.Table.from_pylist(rows, QUESTIONS.with_metadata(made_from)))
