"""Encode what a run with `sampling.likelihood` scores: options or gold texts after prompts."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.verifiers import LETTERS

Encoded = tuple[list[int], list[int]]  # a context, and the tokens that are scored after it


class Option(NamedTuple):
    """A text to score after a prompt, and alone."""

    text: str
    after_prompt: Encoded
    alone: Encoded


def answer(cfg: RunConfig, choices: Sequence[str] | None, gold: str) -> str:
    """Return the right answer as it is scored: a letter if the prompt lists options, or a text."""
    if choices and "{choices}" not in cfg.prompt.template:
        return choices[LETTERS.index(gold)]
    return gold


def options(cfg: RunConfig, tokenizer: Any, row: Mapping[str, Any]) -> list[Option]:
    """Return what is scored of a row of the questions table.

    The options in their order, as letters or texts (see `answer`), or with likelihood=gold the gold
    answer alone. Each stands in `prompt.solved`, of which nothing after it is scored.
    """
    choices = row["choices"] or ()
    letters = LETTERS[: len(choices)]
    texts = [answer(cfg, choices, letter) for letter in letters]
    if cfg.sampling.likelihood == "gold":
        texts = [answer(cfg, choices, row["gold"])]
    prompt, front, bos = row["prompt"], list[int](), tokenizer.bos_token
    if cfg.prompt.kind == "plain" and bos and prompt.startswith(bos):  # the tokenizer's own
        prompt, front = prompt.removeprefix(bos), [tokenizer.bos_token_id]
    found, before = list[Option](), cfg.prompt.solved.partition("{answer}")[0]
    for text in texts:
        context, tokens = encoded(tokenizer, prompt, before + text)
        alone = encoded(tokenizer, "", before + text)
        found.append(Option(text, (front + context, tokens), alone))
    return found


def encoded(tokenizer: Any, context: str, text: str) -> Encoded:
    r"""Encode a text after its context, with the border where lm-evaluation-harness has it.

    White space at the end of the context counts as the beginning of the text. Context and text are
    encoded together; the text's tokens are those after as many as the context has by itself, even
    if a token spans the border. An empty context is the BOS token, or EOS. Source: `_encode_pair`
    in lm_eval/api/model.py, version 0.4.13. Raises UserError: it has neither.

    >>> import re
    >>> words = lambda text, add_special_tokens: {"input_ids": re.findall(r" ?\w+|\W", text)}
    >>> encoded(words, "Answer: ", "Paris"), encoded(words, "Answer:\nPar", "is")
    ((['Answer', ':'], [' Paris']), (['Answer', ':', '\n', 'Par'], []))
    """

    before = _ids(tokenizer, context.rstrip())
    whole = list(tokenizer(context + text, add_special_tokens=False)["input_ids"])
    if before:
        return [*before], whole[len(before) :]
    start = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    if start is None:
        raise UserError("sampling.likelihood: the tokenizer has neither BOS nor EOS token")
    return [start], whole[whole[:1] == [start] :]


@functools.lru_cache(maxsize=2)  # all options of a question have the same two contexts
def _ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def most_tokens(cfg: RunConfig, tokenizer: Any, context: int | None, row: Mapping[str, Any]) -> int:
    """Return one token more than the longest option of a row has, as its `max_tokens`.

    Raises UserError: an option has no token of its own, or is too long for the model's context.
    """
    found = options(cfg, tokenizer, row)
    if empty := [option.text for option in found if not option.after_prompt[1]]:
        raise UserError(
            f"{row['question_id']}: the option {empty[0][:40]!r} has no token after its prompt; end"
            " prompt.template with a space or a line break, or begin prompt.solved with one"
        )
    most = 1 + max(len(option.after_prompt[1]) for option in found)
    if context is not None and len(found[0].after_prompt[0]) + most > context:
        raise UserError(
            f"{row['question_id']}: prompt and option have over {context} tokens, the context of"
            f" {cfg.model.name}; use fewer examples (prompt.shots), or leave the question out"
        )
    return most


def shown(options: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> str:
    """Write options with their log-probs, for people.

    >>> one = {"logprob": -1.25, "tokens": 2, "bytes": 5, "unconditional": -9.5}
    >>> shown([one], ["Paris"])
    'A) Paris: log-prob -1.2500 (2 tokens, 5 bytes; without the prompt -9.5000)'
    """
    return "\n".join(
        f"{letter}) {text}: log-prob {one['logprob']:.4f} ({one['tokens']} tokens, {one['bytes']}"
        f" bytes; without the prompt {one['unconditional']:.4f})"
        for letter, text, one in zip(LETTERS, texts, options, strict=False)
    )
