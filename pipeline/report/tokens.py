"""Which part of a response belongs to which token, and how surprising each token was.

Attempts hold token ids and log-probs, and their text. The page lays a heat under the text, so it
needs the length of every token's piece. They come from the model's own tokenizer.json, in a local
folder or in the hub's cache; nothing is downloaded, and no code of a model is run.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.prepare.questions import find_local

# Surprisal in bits as one character per token: level = round(12 sqrt(bits)), from "!" upwards
# without the backslash. Fine near 0, where most tokens are, and up to 60 bits.
STEPS, LEVELS, UNKNOWN = 12, 92, " "
_ALPHABET = "".join(chr(code) for code in range(33, 127) if chr(code) != "\\")
_MOST_JOINED = 16  # tokens that may share one character: its bytes


@lru_cache(maxsize=4)
def tokenizer(model_id: str, revision: str | None) -> Any:
    """The tokenizer of a model that is on this machine, or None."""
    from huggingface_hub import try_to_load_from_cache
    from tokenizers import Tokenizer

    try:
        if folder := find_local(model_id):
            return Tokenizer.from_file(str(folder / "tokenizer.json"))
        return Tokenizer.from_file(
            try_to_load_from_cache(model_id, "tokenizer.json", revision=revision)
        )
    except Exception:  # the libraries raise bare ones; without a tokenizer a strip chart is shown
        return None


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
    singles, special = _singles(decoder, token_ids)
    plain = [singles[token] for token in token_ids]
    bare = ["" if token in special else singles[token] for token in token_ids]
    if "".join(bare) == text:  # as most do
        return list(map(len, bare))
    characters: list[int] = []
    at = i = 0
    while i < len(plain):
        piece, joined = plain[i], 1
        if "\ufffd" in piece:
            piece, joined = _join(text, at, token_ids[i : i + _MOST_JOINED], plain[i:], decoder)
        if text.startswith(piece, at):
            length = len(piece)
        elif not at and text.startswith(piece.lstrip(" ")):  # some decoders drop the first space
            length = len(piece.lstrip(" "))
        elif decoder.decode([token_ids[i]], skip_special_tokens=True) == "":
            length, joined = 0, 1
        else:
            return None
        characters += [0] * (joined - 1) + [length]
        at += length
        i += joined
    return None if text[at:].strip() else characters


def _join(
    text: str, at: int, token_ids: Sequence[int], plain: Sequence[str], decoder: Any
) -> tuple[str, int]:
    """What the first tokens, each a part of a character, are together, and how many they are.

    The fewest that make whole characters; where the text itself holds U+FFFD, those that leave the
    fewest of it, and of these the most: a U+FFFD that was written may have three tokens, too.
    """
    best, fewest = (plain[0], 1), len(text) + 1
    for joined in range(1, len(token_ids) + 1):
        if "\ufffd" not in plain[joined - 1]:
            break
        piece = str(decoder.decode(list(token_ids[:joined]), skip_special_tokens=False))
        marks = piece.count("\ufffd")
        if marks <= fewest and text.startswith(piece, at):
            best, fewest = (piece, joined), marks
        if not fewest:
            break
    return best


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


def _singles(decoder: Any, token_ids: Sequence[int]) -> tuple[dict[int, str], set[int]]:
    """What each token is alone, kept since most come again; and the special tokens."""
    known, special = _known(decoder)
    new = list(set(token_ids) - known.keys())
    texts = decoder.decode_batch([[token] for token in new], skip_special_tokens=False)
    known.update(zip(new, texts, strict=True))
    return known, special


@lru_cache(maxsize=4)
def _known(decoder: Any) -> tuple[dict[int, str], set[int]]:
    """Nothing yet, and the special tokens of a decoder."""
    added = decoder.get_added_tokens_decoder()
    return {}, {number for number, token in added.items() if token.special}
