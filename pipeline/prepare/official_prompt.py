"""Published prompts of verifiers: each a text in a Python file of a public repository.

The file is kept where Hugging Face keeps its own, by its SHA-256, which is checked at every use. It
is read as syntax: nothing in it is imported or run.
"""

import ast
import hashlib
import string
import time
from pathlib import Path

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.settings import FIELDS, OFFICIAL, OfficialPrompt
from bayes_at_n.pipeline.prepare.hub import from_hub

SOURCE = "https://raw.githubusercontent.com"  # no setting: only tests put another here
REMEDY = f"`{PROGRAM} prefetch` gets it, with the same settings and HF_HOME"
_MOST = 1 << 18  # bytes of such a file
_SECONDS = 60  # that fetching it may take


def fetch(prompt: OfficialPrompt) -> Path:
    """Download the file unless it is here; returns its path.

    Raises UserError: when it cannot be had, kept or used, is too long, or is another file.
    """
    if read(prompt) is None:
        url = f"{SOURCE}/{prompt.file}"
        with from_hub(url, "Check verifier.official and the network", asked=False):
            source = _download(url)
            if (digest := hashlib.sha256(source).hexdigest()) != prompt.sha256:
                raise UserError(
                    f"{url}: has SHA-256 {digest}, not verifier.official.sha256={prompt.sha256}"
                )
            _place(prompt).parent.mkdir(parents=True, exist_ok=True)
            with atomic.replacing(_place(prompt)) as file:
                file.write(source)
    template(prompt)
    return _place(prompt)


def read(prompt: OfficialPrompt) -> bytes | None:
    """The file as it was published; None where it is missing or damaged."""
    try:
        with _place(prompt).open("rb") as file:
            source = file.read(_MOST)
    except FileNotFoundError:
        return None
    return source if hashlib.sha256(source).hexdigest() == prompt.sha256 else None


def template(prompt: OfficialPrompt) -> str:
    """The prompt with our names of fields, and braces that are no longer doubled.

    Raises UserError: when it was not fetched, the file holds no such text, or the text has fields
    that nobody knows.
    """
    source, parts = read(prompt), list[str]()
    if source is None:
        raise UserError(f"verifier.prompt={OFFICIAL}: is not on this machine. {REMEDY}")
    try:
        for text, field, form, conversion in string.Formatter().parse(_text(source, prompt.name)):
            name = field if field is None else prompt.fields.get(field, field)
            if form or conversion or name not in (None, *FIELDS):
                raise ValueError(f"its field {field!r} is none of verifier.official.fields")
            parts += [text, "" if name is None else f"{{{name}}}"]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"verifier.official={prompt}: {one_line(error)}") from error
    return "".join(parts)


def _place(prompt: OfficialPrompt) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "verifier-prompts" / prompt.sha256


def _download(url: str) -> bytes:
    import httpx

    source, until = bytearray(), time.monotonic() + _SECONDS
    with httpx.stream("GET", url, headers={"Accept-Encoding": "identity"}, timeout=20) as answer:
        if not answer.is_success:
            raise UserError(f"{url}: HTTP status {answer.status_code}")
        for part in answer.iter_raw():  # what a bomb would unpack to is never made
            source += part
            if len(source) > _MOST or time.monotonic() > until:
                raise UserError(f"{url}: is over {_MOST} bytes, or takes over {_SECONDS} s")
    return bytes(source)


def _text(source: bytes, name: str) -> str:
    """The text that a Python file assigns to the name, written out, perhaps with ``.strip()``."""
    for node in ast.parse(source).body:
        match node:
            case ast.Assign([ast.Name(known)], ast.Constant(str(text))) if known == name:
                return text
            case ast.Assign(
                [ast.Name(known)], ast.Call(ast.Attribute(ast.Constant(str(text)), "strip"), [], [])
            ) if known == name:
                return text.strip()
    raise ValueError("the file assigns no text to that name")
