"""Which part of a response belongs to which token, and how surprising each token was.

Attempts hold token ids and log-probs, and their text. The page lays a heat under the text, so it
needs the length of every token's piece. They come from the model's own tokenizer.json, in a local
folder or in the hub's cache; nothing is downloaded, and no code of a model is run.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.questions import find_local
from pipeline.schema import ModelConfig

# Surprisal in bits as one character per token: level = round(12 sqrt(bits)), from "!" upwards
# without the backslash. Fine near 0, where most tokens are, and up to 60 bits.
STEPS, LEVELS, UNKNOWN = 12, 92, " "
_ALPHABET = "".join(chr(code) for code in range(33, 127) if chr(code) != "\\")
_MOST_JOINED = 16  # tokens that may share one character: its bytes


@lru_cache(maxsize=4)
def tokenizer(model_id: str, revision: str | None) -> Any:
    """The tokenizer of a model that is on this machine, or None."""
    path = _tokenizer_file(model_id, revision)
    if path is None:
        return None
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception:  # the library raises bare Exceptions; without it a strip chart is shown
        return None


def tokenizer_of(cfg: ModelConfig) -> Any:
    """As :func:`tokenizer`, for a model's settings."""
    return tokenizer(cfg.id, cfg.revision)


def lengths(text: str, token_ids: Sequence[int], decoder: Any) -> list[int] | None:
    """Characters of `text` that each token stands for; None where they do not fit together.

    Special tokens that the text leaves out get 0. Of tokens that share a character the last one
    gets it. What follows the last token must be white space.

    Args:
        text: the response, n characters.
        token_ids: its T tokens.
        decoder: a ``tokenizers.Tokenizer``.

    Returns:
        T lengths that add up to at most n.
    """
    pieces = _pieces(decoder)
    found: list[int] = []
    at = 0
    waiting: list[int] = []
    for token in token_ids:
        waiting.append(token)
        piece = pieces(tuple(waiting))
        if "\ufffd" in piece and not text.startswith(piece, at) and len(waiting) < _MOST_JOINED:
            found.append(0)
            continue
        if text.startswith(piece, at):
            found.append(len(piece))
        elif not at and text.startswith(piece.lstrip(" ")):  # some decoders drop the first space
            found.append(len(piece.lstrip(" ")))
        elif decoder.decode([token], skip_special_tokens=True) == "":
            found.append(0)
        else:
            return None
        at += found[-1]
        waiting = []
    return None if text[at:].strip() else found


def levels(logprobs: npt.ArrayLike) -> str:
    """Surprisal of T tokens, one character each.

    Args:
        logprobs: natural log-probs; NaN or infinite where there is none. Shape (T,).

    >>> levels([0.0, -0.6931472, float("nan")])
    '!- '
    """
    nats = np.asarray(logprobs, np.float64)
    known = np.isfinite(nats)
    bits = np.where(known, np.maximum(-nats, 0.0), 0.0) / math.log(2)
    level = np.minimum(np.rint(STEPS * np.sqrt(bits)), LEVELS).astype(int)
    letters = np.array(list(_ALPHABET))[level]
    return "".join(np.where(known, letters, UNKNOWN).tolist())


def utf16(text: str, positions: Sequence[int]) -> list[int]:
    r"""Positions in a Python string as positions in JavaScript, where some characters take two.

    >>> utf16("a\U0001d465b", [0, 2, 3])
    [0, 3, 4]
    """
    if text.isascii() or max(text) <= "\uffff":
        return list(positions)
    wide = np.array([ord(letter) > 0xFFFF for letter in text])
    before = np.concatenate([[0], np.cumsum(wide)])
    return [int(p + before[p]) for p in positions]


@lru_cache(maxsize=4)
def _pieces(decoder: Any) -> Any:
    @lru_cache(maxsize=1 << 18)
    def piece(ids: tuple[int, ...]) -> str:
        return str(decoder.decode(list(ids), skip_special_tokens=False))

    return piece


def _tokenizer_file(model_id: str, revision: str | None) -> Path | None:
    local = find_local(model_id)
    if local is not None:
        found = local / "tokenizer.json"
        return found if found.is_file() else None
    if model_id.count("/") != 1 or model_id.startswith(("/", ".", "~")):
        return None
    from huggingface_hub import try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(model_id, "tokenizer.json", revision=revision)
    except (ValueError, OSError):  # no valid hub id
        return None
    return Path(cached) if isinstance(cached, str) else None
