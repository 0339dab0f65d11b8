"""Facts about the model of a run, loaded by its engine or on a server."""

from dataclasses import dataclass, replace
from typing import Any

from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import kind
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run

KEY = "server"  # in the manifest


@dataclass(frozen=True)
class Facts:
    """What a server reports about itself.

    Attributes:
        api: completions or chat.
        served_name: the model's name there.
        context: the most tokens, prompt and completion together; None if not reported.
        software: vllm, or empty.
    """

    api: str
    served_name: str
    context: int | None = None
    software: str = ""


def facts(run: Run, tokenizer: Any | None) -> Facts | None:
    """Return the facts about the run's server, recorded or reported; None if the engine has none.

    A function counts as a server of chat turns. `tokenizer`: the model's, if any. Raises UserError:
    the server does not have the model, or does not support `engine.api`.
    """
    engine = kind(run.cfg.engine.name)
    if not engine.served:
        return None
    if engine.in_process:
        return Facts("chat", run.cfg.model.id)
    if facts := recorded(run):
        if facts.api != "chat" and tokenizer is None:
            models.tokenizer(run.cfg.model)  # raises with the reason
        api = run.cfg.engine.api
        return facts if api == "auto" else replace(facts, api=api)
    ids = None if tokenizer is None else tokenizer("1 + 1 =", add_special_tokens=False)["input_ids"]
    reported: Facts = engine.made_by.facts(run.cfg, ids)
    return reported


def recorded(run: Run) -> Facts | None:
    """Return the facts that `prepare` has recorded; None before it, and for other engines."""
    entry = runfolder.read_manifest(run).get(KEY)
    if not entry or not kind(run.cfg.engine.name).served:
        return None
    return Facts(**{name: entry[name] for name in Facts.__match_args__ if name in entry})


def tokenizer(cfg: RunConfig) -> Any | None:
    """Load the model's tokenizer; None if it is not available and a server does not need it.

    Raises UserError: it is needed and cannot be loaded.
    """
    engine = kind(cfg.engine.name)
    if engine.in_process:
        return None
    try:
        return models.tokenizer(cfg.model)
    except UserError as error:  # the name is a hosted model's, or the network is down
        needed = not engine.served or cfg.prompt.kind == "plain" or cfg.prompt.prefix
        named = cfg.model.tokenizer is not None or cfg.engine.api == "completions"
        if needed or named:
            raise
        note(f"no tokenizer available, so prompts are sent as chat turns ({error})")
        return None


def weights(cfg: RunConfig, server: Facts | None) -> str:
    """Return what identifies the model: a fingerprint of its weights, or its name on a server."""
    if not kind(cfg.engine.name).served:
        return models.fingerprint(cfg.model)
    name = cfg.engine.served_name or (server.served_name if server else cfg.model.id)
    return f"served:{name}"
