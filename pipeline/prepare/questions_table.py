"""The rows of the questions table: every question with its rendered prompt, checked and hashed."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.base.console import warn
from pipeline.base.errors import UserError
from pipeline.prepare import models, questions
from pipeline.store import runfolder, shards
from pipeline.store.columns import QUESTIONS
from pipeline.store.runfolder import Run
from prompts import PromptError, control_tokens, fill, render, turns


def build(run: Run) -> list[dict[str, Any]]:
    """The rows of the questions table, without writing anything.

    Raises:
        UserError: for a problem with the data set, the model or a prompt.
    """
    cfg = run.cfg
    models.locate(cfg.model)
    loaded, mended = questions.load(cfg.dataset)
    for line in mended:
        warn(f"{cfg.dataset.name}: {line}")
    if cfg.model.trust_remote_code:
        warn(f"model.trust_remote_code=true: Python code that {cfg.model.id} brings will run")
    tokenizer = models.tokenizer(cfg.model)
    context = models.context(cfg.model)
    rows = [_row(cfg, question, tokenizer, context) for question in loaded]
    limits = [row["max_tokens"] for row in rows]
    if clamped := sum(limit < cfg.sampling.max_tokens for limit in limits):
        warn(
            f"sampling.max_tokens={cfg.sampling.max_tokens} does not fit {cfg.model.name}'s context"
            f" of {context}: clamped for {clamped} questions, down to {min(limits)}"
        )
    return rows


def identity(run: Run, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the run is: its settings, the model's weights, every question and every prompt."""
    return {
        **runfolder.identity(run.cfg),
        "model.weights": models.fingerprint(run.cfg.model),
        "questions": {row["question_id"]: row["question_hash"] for row in rows},
        "prompts": {
            row["question_id"]: runfolder.short_hash(str(row["prompt_token_ids"])) for row in rows
        },
    }


def _row(cfg: Any, question: questions.Question, tokenizer: Any, context: int) -> dict[str, Any]:
    if control := control_tokens(tokenizer, question.problem):
        raise UserError(
            f"{question.id}: the problem contains {' '.join(control[:3])}, which"
            f" {cfg.model.name} reads as control tokens and not as text; write it otherwise (a"
            " space inside is enough) or leave the question out of the data set"
        )
    model = cfg.model
    text = fill(cfg.prompt.template, question.problem)
    chat = turns(text, model.system, cfg.prompt.system_role)
    try:
        prompt = render(tokenizer, chat, model.chat_template_kwargs, date=model.template_date)
    except PromptError as error:
        remedy = "; if it refuses the system role, set prompt.system_role=user"
        has_role = model.system is not None and cfg.prompt.system_role == "system"
        raise UserError(f"{question.id}, model {model.id}: {error}{remedy * has_role}") from error
    room = context - len(prompt.token_ids)
    if room < 1:
        raise UserError(
            f"{question.id}: the prompt has {len(prompt.token_ids)} tokens, the context of"
            f" {model.name} only {context}; use a model with a longer context, or leave the"
            " question out of the data set"
        )
    return {
        "question_id": question.id,
        "problem": question.problem,
        "gold": question.gold,
        "question_hash": question.hash,
        "prompt": prompt.text,
        "prompt_token_ids": prompt.token_ids,
        "prompt_logprobs": None,
        "max_tokens": min(room, cfg.sampling.max_tokens),
    }


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the questions table atomically."""
    shards.write_part(path, pa.Table.from_pylist(rows, schema=QUESTIONS))
