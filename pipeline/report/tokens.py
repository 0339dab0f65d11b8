"""The part of a response that belongs to each token, and each token's surprisal.

Attempts have token ids, log-probs and text. The page draws a heat map behind the text, so it needs
the length of every token's piece. These come from the model's own tokenizer.json, in a local folder
or the hub's cache; nothing is downloaded, and no code of a model is run.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bayes_at_n.pipeline.base.program import find_local
from bayes_at_n.scoring.numerics.inputs import Ints


class Decoder(NamedTuple):
    """A tokenizer, and the text of each of its V ids alone; id V is any other."""

    tokenizer: Any  # a ``tokenizers.Tokenizer``
    pieces: pa.Array  # V + 1 texts, "" for special tokens
    units: Ints  # their lengths in UTF-16


@lru_cache(maxsize=4)
def decoder(model_id: str, revision: str | None) -> Decoder | None:
    """Load the tokenizer of a model if it is on this machine; else None."""
    from huggingface_hub import try_to_load_from_cache
    from tokenizers import Tokenizer

    try:
        own, name = find_local(model_id), "tokenizer.json"
        path = own / name if own else try_to_load_from_cache(model_id, name, revision=revision)
        return of_tokenizer(Tokenizer.from_file(str(path)))
    except Exception:  # the libraries raise this type; the page then has no token heat
        return None


def of_tokenizer(tokenizer: Any) -> Decoder:
    """Decode every id of a ``tokenizers.Tokenizer`` alone."""
    ids = range(1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1))
    pieces = [*tokenizer.decode_batch([[i] for i in ids], skip_special_tokens=True), ""]
    return Decoder(tokenizer, pa.array(pieces), np.array([*map(utf16, pieces)], np.int64))


def lengths(text: str, token_ids: npt.ArrayLike, decoder: Decoder) -> Ints | None:
    """Return the length of each token's part of `text` in UTF-16; None if they do not match.

    Special tokens and those of a stop string, which are not in the text, get 0. A character of
    several tokens counts for the last one. After the last token only white space may follow.

    `token_ids` are T tokens, at least one. Returns T lengths that add up to at most the text's.
    """
    ids, unknown = np.asarray(token_ids, np.int64), len(decoder.units) - 1
    ids = np.where((ids < 0) | (ids > unknown), unknown, ids)
    try:
        whole = str(decoder.pieces.take(pa.array(ids)).buffers()[2] or b"", "utf-8")
        if whole.startswith(text) and "\ufffd" not in whole:  # as most do
            ends = np.minimum(np.cumsum(decoder.units[ids]), utf16(text))
            return np.diff(ends, prepend=0)
        return _streamed(text, ids.tolist(), decoder)
    except Exception:  # the library raises this type if a decoder revises its output
        return None


def _streamed(text: str, token_ids: list[int], decoder: Decoder) -> Ints | None:
    """Return :func:`lengths` token by token: tokens that share characters, special ones in texts.

    It takes 1.5 µs per token, fifty times as long as the fast way.
    """
    from tokenizers.decoders import DecodeStream

    tokenizer, stream = decoder.tokenizer, DecodeStream(skip_special_tokens=False)
    known = {token for token in token_ids if token < len(decoder.units) - 1}
    special = {token for token in known if not tokenizer.decode([token])}
    units, at = [], 0
    for token in token_ids:
        piece = (stream.step(tokenizer, token) or "") if token in known else ""
        if token in special and not text.startswith(piece, at):
            piece = piece.removesuffix(tokenizer.id_to_token(token))
        if not text.startswith(piece, at):
            if not piece.startswith(text[at:]):
                return None
            piece = text[at:]  # a stop string begins
        units.append(utf16(piece))
        at += len(piece)
    rest = text[at:].rstrip()
    units[-1] += utf16(rest)  # a character that the end of the completion cut off
    return None if rest.strip("\ufffd") else np.array(units)


def surprisal(logprobs: npt.ArrayLike) -> Ints:
    """Convert log-probs of T tokens to surprisal in hundredths of a bit, -1 for none.

    `logprobs`: in nats, shape (T,); NaN or infinite for none.

    >>> surprisal([0.0, -0.6931472, float("nan")]).tolist()
    [0, 100, -1]
    """
    nats = np.asarray(logprobs, np.float64)
    known = np.isfinite(nats)
    bits = np.where(known, np.maximum(-nats, 0.0), 0.0) / math.log(2)
    return np.where(known, np.rint(100 * bits), -1).astype(np.int64)


def utf16(text: str) -> int:
    r"""Return the length of a text in JavaScript, where some characters count twice.

    >>> utf16("a\U0001d465b")
    4
    """
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
