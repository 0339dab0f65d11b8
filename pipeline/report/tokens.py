"""Which part of a response belongs to which token, and how surprising each token was.

Attempts hold token ids and log-probs, and their text. The page lays a heat under the text, so it
needs the length of every token's piece. They come from the model's own tokenizer.json, in a local
folder or in the hub's cache; nothing is downloaded, and no code of a model is run.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bayes_at_n.pipeline.base.program import find_local
from bayes_at_n.scoring.numerics.inputs import Ints

# Surprisal in bits as one character per token: level = round(12 sqrt(bits)), from "!" upwards
# without the backslash. Fine near 0, where most tokens are, and up to 60 bits. Lengths likewise.
STEPS, LEVELS, UNKNOWN = 12, 92, " "
_ALPHABET = np.array([code for code in range(33, 127) if chr(code) != "\\"], np.uint8)


class Decoder(NamedTuple):
    """A tokenizer, and of each of its V ids what it stands for alone; V itself: any other id."""

    tokenizer: Any  # a ``tokenizers.Tokenizer``
    pieces: pa.Array  # V + 1 texts, of special tokens ""
    units: Ints  # their lengths in UTF-16
    split: npt.NDArray[np.bool_]  # whether it may be a part of a character


@lru_cache(maxsize=4)
def decoder(model_id: str, revision: str | None) -> Decoder | None:
    """The tokenizer of a model that is on this machine, or None."""
    from huggingface_hub import try_to_load_from_cache
    from tokenizers import Tokenizer

    try:
        own, name = find_local(model_id), "tokenizer.json"
        path = own / name if own else try_to_load_from_cache(model_id, name, revision=revision)
        return of_tokenizer(Tokenizer.from_file(str(path)))
    except Exception:  # the libraries raise bare ones; without a tokenizer a strip chart is shown
        return None


def of_tokenizer(tokenizer: Any) -> Decoder:
    """A ``tokenizers.Tokenizer`` with its pieces."""
    ids = range(1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1))
    pieces = [*tokenizer.decode_batch([[i] for i in ids], skip_special_tokens=True), ""]
    units = np.array([utf16(piece) for piece in pieces], np.int64)
    return Decoder(tokenizer, pa.array(pieces), units, np.array(["\ufffd" in p for p in pieces]))


def lengths(text: str, token_ids: npt.ArrayLike, decoder: Decoder) -> Ints | None:
    """Places in UTF-16 that each token takes of `text`; None where they do not fit together.

    Special tokens that the text leaves out get 0. Of tokens that share a character the last one
    gets it. What follows the last token must be white space; of the tokens of a stop string, which
    the text leaves out, nothing counts.

    `token_ids` are T tokens, at least one. Returns T lengths that add up to at most the text's.
    """
    raw = np.asarray(token_ids, np.int64)
    ids = np.where((raw < 0) | (raw >= len(decoder.units)), len(decoder.units) - 1, raw)
    pieces, units = decoder.pieces.take(pa.array(ids)), decoder.units[ids]
    try:
        split = np.flatnonzero(decoder.split[ids])
        if split.size:
            strings = pieces.to_pylist()
            for run in np.split(split, np.flatnonzero(np.diff(split) > 1) + 1):
                strings[run[0] : run[-1] + 1] = _characters(raw[run].tolist(), decoder.tokenizer)
            units[split] = [utf16(strings[place]) for place in split]
            whole = "".join(strings)
        else:
            whole = str(pieces.buffers()[2] or b"", "utf-8")
        if whole == text or (whole.startswith(text) and "\ufffd" not in whole):  # as most do
            ends = np.minimum(np.cumsum(units), utf16(text))
            return np.diff(ends, prepend=0)
        return _streamed(text, raw.tolist(), decoder)
    except Exception:  # the library raises bare ones where a decoder takes back what it gave
        return None


def _characters(token_ids: list[int], tokenizer: Any) -> list[str]:
    """What each of some tokens, which may be parts of characters, adds to the text before it."""
    from tokenizers.decoders import DecodeStream

    stream = DecodeStream(skip_special_tokens=True)
    pieces = [stream.step(tokenizer, token) or "" for token in token_ids]
    pieces[-1] += tokenizer.decode(token_ids).removeprefix("".join(pieces))  # no whole character
    return pieces


def _streamed(text: str, token_ids: list[int], decoder: Decoder) -> Ints | None:
    """As :func:`lengths`, where a piece depends on those before, or the text has special tokens."""
    from tokenizers.decoders import DecodeStream

    tokenizer, stream = decoder.tokenizer, DecodeStream(skip_special_tokens=False)
    special = {token for token in set(token_ids) if not tokenizer.decode([token])}
    units, at = [], 0
    for token in token_ids:
        piece = stream.step(tokenizer, token) or ""
        if token in special and not text.startswith(piece, at):
            piece = piece.removesuffix(tokenizer.id_to_token(token))
        if not text.startswith(piece, at):
            return None
        units.append(utf16(piece))
        at += len(piece)
    rest = text[at:].rstrip()
    units[-1] += utf16(rest)  # a character that the end of the completion cut off
    return None if rest.strip("\ufffd") else np.array(units)


def packed(lengths: Ints) -> str:
    """Lengths of T tokens, a letter each; 92, and what the next letter says, is written as "~".

    >>> packed(np.array([0, 1, 91, 92, 184]))
    '!"}~!~~!'
    """
    full, rest = np.divmod(lengths, LEVELS)
    letters = np.full(lengths.size + int(full.sum()), LEVELS)
    letters[np.cumsum(full + 1) - 1] = rest
    return str(_ALPHABET[letters].tobytes(), "ascii")


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
    letters = np.where(known, _ALPHABET[level], np.uint8(ord(UNKNOWN)))
    return str(letters.tobytes(), "ascii")


def utf16(text: str) -> int:
    r"""How many places a text takes in JavaScript, where some characters take two.

    >>> utf16("a\U0001d465b")
    4
    """
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
