"""Know the model of a run as its engine has it: loaded here, or held by a server."""

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
    """Return what the run's server reports, asked once: a prepared folder needs no server.

    `tokenizer`: the model's, or None where there is none. Returns None for engines that load the
    model themselves; a function is a server of chat turns. Raises UserError: the server does not
    have the model, or does not take what `engine.api` says.
    """
    engine = kind(run.cfg.engine.name)
    if not engine.served:
        return None
    if engine.in_process:
        return Facts("chat", run.cfg.model.id)
    if known := recorded(run):
        if known.api != "chat" and tokenizer is None:
            models.tokenizer(run.cfg.model)  # says why it cannot be loaded any more
        api = run.cfg.engine.api
        return known if api == "auto" else replace(known, api=api)
    ids = None if tokenizer is None else tokenizer("1 + 1 =", add_special_tokens=False)["input_ids"]
    reported: Facts = engine.made_by.facts(run.cfg, ids)
    return reported


def recorded(run: Run) -> Facts | None:
    """Return what `prepare` has recorded; None for other engines, and before it."""
    known = runfolder.read_manifest(run).get(KEY)
    return Facts(**known) if known and kind(run.cfg.engine.name).served else None


def tokenizer(cfg: RunConfig) -> Any | None:
    """Load the model's tokenizer; None where a server has the model and it cannot be had.

    Raises UserError: it cannot be loaded and is needed.
    """
    engine = kind(cfg.engine.name)
    if engine.in_process:
        return None
    try:
        return models.tokenizer(cfg.model)
    except UserError as error:  # a hosted model's name; or a network that is down
        needed = not engine.served or cfg.prompt.kind == "plain" or cfg.prompt.prefix
        named = cfg.model.tokenizer is not None or cfg.engine.api in ("completions", "generate")
        if needed or named:
            raise
        note(f"no tokenizer here, so chat turns are sent ({error})")
        return None


def weights(cfg: RunConfig, known: Facts | None) -> str:
    """Return what tells the model from others: its weights, or the name that it is served under."""
    if not kind(cfg.engine.name).served:
        return models.fingerprint(cfg.model)
    name = cfg.engine.served_name or (known.served_name if known else cfg.model.id)
    return f"served:{name}"
