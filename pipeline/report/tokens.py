"""Which part of a response belongs to which token, and how surprising each token was.

Attempts hold token ids and log-probs, and their text. The page lays a heat under the text, so it
needs the length of every token's piece. They come from the model's own tokenizer.json, in a local
folder or in the hub's cache; nothing is downloaded, and no code of a model is run.
"""

import itertools
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
    gets it. What follows the last token must be white space; of the tokens of a stop string, which
    the text leaves out, nothing counts.

    `text` has n characters, `token_ids` T tokens, at least one, and `decoder` is a
    ``tokenizers.Tokenizer``. Returns T lengths that add up to at most n.
    """
    known = list(set(token_ids))
    decoded = decoder.decode_batch([[token] for token in known], skip_special_tokens=True)
    pieces = dict(zip(known, decoded, strict=True))
    whole = "".join(pieces[token] for token in token_ids)
    if whole == text or (whole.startswith(text) and "\ufffd" not in whole):  # as most do
        ends = itertools.accumulate((len(pieces[token]) for token in token_ids), initial=0)
        return [b - a for a, b in itertools.pairwise(min(end, len(text)) for end in ends)]
    try:
        return _streamed(text, token_ids, {token for token in known if not pieces[token]}, decoder)
    except Exception:  # the library raises bare ones where a decoder takes back what it gave
        return None


def _streamed(
    text: str, token_ids: Sequence[int], special: set[int], decoder: Any
) -> list[int] | None:
    """As :func:`lengths`, where a character may take several tokens, or depend on those before."""
    from tokenizers.decoders import DecodeStream

    stream = DecodeStream(skip_special_tokens=False)
    characters, at = [], 0
    for token in token_ids:
        piece = stream.step(decoder, token) or ""
        if token in special and not text.startswith(piece, at):
            piece = piece.removesuffix(decoder.id_to_token(token))
        if not text.startswith(piece, at):
            return None
        characters.append(len(piece))
        at += len(piece)
    rest = text[at:].rstrip()
    characters[-1] += len(rest)  # a character that the end of the completion cut off
    return None if rest.strip("\ufffd") else characters


def levels(logprobs: npt.ArrayLike) -> str:
    """Surprisal of T tokens, one character each.

    `logprobs`: natural log-probs; NaN or infinite where there is none. Shape (T,).

    >>> levels([0.0, -0.6931472, float("nan")])
    '!- '
    """
    nats = np.asarray(logprobs, np.float64)
    known = np.isfinite(nats)
    bits = np.where(known, np.maximum(-nats, 0.0), 0.0) / math.log(2)
    level = np.minimum(np.rint(STEPS * np.sqrt(bits)), LEVELS).astype(int)
    letters = np.array(list(_ALPHABET))[level]
    return "".join(np.where(known, letters, UNKNOWN).tolist())


def utf16(text: str) -> Sequence[int]:
    r"""Where each character of a text, and its end, is in JavaScript, where some take two places.

    >>> utf16("a\U0001d465b")
    [0, 1, 3, 4]
    """
    if text.isascii() or max(text) <= "\uffff":
        return range(len(text) + 1)
    return [0, *itertools.accumulate(1 + (letter > "\uffff") for letter in text)]
