"""A model that a server holds, before it is asked anything: through which interface, how long."""

from dataclasses import dataclass, replace
from typing import Any

from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run

KEY = "server"  # in the manifest


@dataclass(frozen=True)
class Facts:
    """What a server says of itself.

    Attributes:
        api: completions, chat or generate.
        served_name: the model's name there.
        context: the most tokens, prompt and completion together; None where it does not say.
        software: vllm, sglang, llamacpp; empty where it does not say.
        version: of the software, or empty.
    """

    api: str
    served_name: str
    context: int | None = None
    software: str = ""
    version: str = ""


def facts(run: Run, tokenizer: Any | None) -> Facts | None:
    """What the run's server is, asked once: a prepared folder needs no server.

    `tokenizer`: the model's, or None where there is none. Returns None for engines that load the
    model themselves; a function is a server of chat turns. Raises UserError: the server does not
    have the model, or does not take what `engine.api` says.
    """
    if not kind(run.cfg.engine.name).served:
        return None
    if kind(run.cfg.engine.name).in_process:
        return Facts("chat", run.cfg.model.id)
    if known := kept(run):
        if known.api != "chat" and tokenizer is None:
            models.tokenizer(run.cfg.model)  # says why it cannot be loaded any more
        asked = run.cfg.engine.api
        return known if asked == "auto" else replace(known, api=asked)
    ids = None if tokenizer is None else tokenizer("1 + 1 =", add_special_tokens=False)["input_ids"]

    found: Facts = kind(run.cfg.engine.name).made_by.facts(run.cfg, ids)
    return found


def kept(run: Run) -> Facts | None:
    """What `prepare` has learnt; None for other engines, and before it."""
    known = runfolder.read_manifest(run).get(KEY)
    if not known or not kind(run.cfg.engine.name).served:
        return None
    return Facts(**known)


def tokenizer(cfg: RunConfig) -> Any | None:
    """The model's tokenizer; None where a server has the model and its tokenizer cannot be had.

    Raises UserError: it cannot be loaded and is needed.
    """
    if kind(cfg.engine.name).in_process:
        return None
    needed = not kind(cfg.engine.name).served or cfg.prompt.kind == "plain" or cfg.prompt.prefix
    if needed or cfg.model.tokenizer is not None or cfg.engine.api in ("completions", "generate"):
        return models.tokenizer(cfg.model)
    try:
        return models.tokenizer(cfg.model)
    except UserError as error:  # a hosted model's name; or a network that is down
        note(f"no tokenizer here, so chat turns are sent ({error})")
        return None


def weights(cfg: RunConfig, known: Facts | None) -> str:
    """What tells the model from others: its weights, or the name that it is served under."""
    if not kind(cfg.engine.name).served:
        return models.fingerprint(cfg.model)
    name = cfg.engine.served_name or (known.served_name if known else cfg.model.id)
    return f"served:{name}"
