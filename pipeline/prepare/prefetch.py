"""prefetch: download models, datasets and published prompts of verifiers.

These prompts are texts in Python files of public repositories. They are downloaded and not shipped,
because licenses differ and copies could drift. A file is stored in Hugging Face's folder, which
nodes without a network share, by its SHA-256, which is checked at every use. It is parsed as
syntax: nothing in it is imported or run.
"""

import ast
import hashlib
import string
import time
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import note, results
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.base.program import PROGRAM, find_local, from_hub
from bayes_at_n.pipeline.config.settings import verifier_as_model
from bayes_at_n.pipeline.config.verifier import FIELDS, OFFICIAL, OfficialPrompt
from bayes_at_n.pipeline.display.table import print_json
from bayes_at_n.pipeline.prepare import models, questions, solved
from bayes_at_n.pipeline.store.runfolder import Run

SOURCE = "https://raw.githubusercontent.com"  # changed by tests only
REMEDY = f"`{PROGRAM} prefetch` downloads it, with the same settings and HF_HOME"
_MAX_BYTES = 1 << 18  # of a file
_MAX_SECONDS = 60  # of its download


def prefetch(run: Run) -> None:
    """Download what a run needs into the Hugging Face cache.

    Compute nodes without a network then run with ``HF_HUB_OFFLINE=1`` and the same ``HF_HOME``.
    Raises UserError: a download failed.
    """
    model, dataset, verifier = run.cfg.model, run.cfg.dataset, run.cfg.verifier
    parts: dict[str, Any] = {"model": models.download(model), "adapter": models.adapter(model)}
    parts["questions"] = len(questions.load(dataset)[0])
    parts["dataset"] = find_local(dataset.path) or "in the Hugging Face cache"
    solved.load_examples(run.cfg)
    if verifier.id is not None:
        parts["verifier"] = models.download(verifier_as_model(run.cfg).model)
        if verifier.prompt == OFFICIAL:
            parts["prompt"] = fetch(verifier.official)
    for name, part in parts.items():
        if part is not None:
            results.print(f"{name:9} {part}")
    print_json(parts)
    note("on nodes without a network: export HF_HUB_OFFLINE=1, with the same HF_HOME")


def fetch(prompt: OfficialPrompt) -> Path:
    """Download the file unless it is stored; return its path."""
    import httpx

    path, url, source = _path(prompt), f"{SOURCE}/{prompt.file}", bytearray()
    if read(prompt) is None:
        deadline, headers = time.monotonic() + _MAX_SECONDS, {"Accept-Encoding": "identity"}
        with (
            from_hub(url, "Check verifier.official and the network", online=False),
            httpx.stream("GET", url, headers=headers, timeout=20) as answer,
        ):
            if not answer.is_success:
                raise UserError(f"{url}: HTTP status {answer.status_code}")
            for part in answer.iter_raw():  # never decompressed: it may be a zip bomb
                source += part
                if len(source) > _MAX_BYTES or time.monotonic() > deadline:
                    limits = f"{_MAX_BYTES} bytes, or takes over {_MAX_SECONDS} s"
                    raise UserError(f"{url}: is over {limits}")
        if (digest := hashlib.sha256(source).hexdigest()) != prompt.sha256:
            raise UserError(f"{url}: has SHA-256 {digest}, not {prompt.sha256}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replacing(path) as file:
            file.write(source)
    template(prompt)
    return path


def read(prompt: OfficialPrompt) -> bytes | None:
    """Return the file's content; None if it is missing or damaged."""
    try:
        with _path(prompt).open("rb") as file:
            source = file.read(_MAX_BYTES)
    except FileNotFoundError:
        return None
    return source if hashlib.sha256(source).hexdigest() == prompt.sha256 else None


def template(prompt: OfficialPrompt) -> str:
    """Return the prompt with our names of fields and single braces.

    It is the text that the file assigns to a name, perhaps with ``.strip()``. Raises UserError: it
    was not downloaded, the file has no such text, or the text has unknown fields.
    """
    source, parts, found = read(prompt), list[str](), None
    if source is None:
        raise UserError(f"verifier.prompt={OFFICIAL}: not on this machine. {REMEDY}")
    try:
        for node in ast.parse(source).body:
            match node:
                case ast.Assign([ast.Name(prompt.name)], ast.Constant(str(text))):
                    found = text
                case ast.Assign(
                    [ast.Name(prompt.name)],
                    ast.Call(ast.Attribute(ast.Constant(str(text)), "strip"), [], []),
                ):
                    found = text.strip()
        if found is None:
            raise ValueError("the file does not assign a text to that name")
        for text, field, form, conversion in string.Formatter().parse(found):
            name = field if field is None else prompt.fields.get(field, field)
            if form or conversion or name not in (None, *FIELDS):
                raise ValueError(f"its field {field!r} is not in verifier.official.fields")
            parts += [text, "" if name is None else f"{{{name}}}"]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"verifier.official={prompt}: {one_line(error)}") from error
    return "".join(parts)


def _path(prompt: OfficialPrompt) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "verifier-prompts" / prompt.sha256
