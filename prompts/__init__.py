"""Turn a problem into the exact tokens a model sees: instruction, chat turns, chat template.

>>> fill("{problem}\\n\\nAnswer in \\\\boxed{}.", "What is 2+2?")
'What is 2+2?\\n\\nAnswer in \\\\boxed{}.'
>>> turns("What is 2+2?", system=None)
[{'role': 'user', 'content': 'What is 2+2?'}]
"""

import os
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bayes_at_n.prompts.bounded import PromptError as PromptError
from bayes_at_n.prompts.bounded import chat_texts

# Some tokenizers do not mark these as special: <|channel|>, <｜User｜>.
_CONTROL = re.compile(r"<[|\uff5c].+[|\uff5c]>")


class Rendered(NamedTuple):
    """The exact text of a prompt and its token ids, special tokens included."""

    text: str
    token_ids: list[int]


def control_tokens(tokenizer: Any, text: str) -> list[str]:
    """Return the tokenizer's control tokens that `text` spells out, such as ``<|im_end|>``.

    A tokenizer cannot tell them from those of the template: one would end the user's turn.
    """
    added = [t for t in tokenizer.get_added_vocab() if _CONTROL.fullmatch(t)]
    return sorted(t for t in {*tokenizer.all_special_tokens, *added} if t in text)


def fill(template: str, problem: str = "", **others: str) -> str:
    """Put the problem where the template says ``{problem}``; other braces are LaTeX and stay.

    So with `others` by their names; what is put in is never looked at again.

    >>> fill("{problem} Use \\\\boxed{}.", "Find $x$.")
    'Find $x$. Use \\\\boxed{}.'
    >>> fill("So \\\\boxed{{answer}}.", answer="{problem}")
    'So \\\\boxed{{problem}}.'
    """
    parts = {"problem": problem} | others
    return re.sub(f"{{({'|'.join(parts)})}}", lambda named: parts[named[1]], template)


def options(choices: Sequence[str], form: str = "{letter}) {option}") -> str:
    r"""Return options as the lines that a model sees, each in a form.

    >>> options(["4", "5"])
    'A) 4\nB) 5'
    """
    pairs = zip(string.ascii_uppercase, choices, strict=False)
    return "\n".join(fill(form, letter=letter, option=text) for letter, text in pairs)


def turns(
    user: str,
    system: str | None,
    system_role: str = "system",
    shots: Sequence[tuple[str, str]] = (),
) -> list[dict[str, str]]:
    """Return the chat as a list of turns.

    Without a `system` text the template may still add its own. With ``system_role="user"`` it
    stands in front of the user's turn, for chat templates that know no system role. `shots` are
    what a user asked before, and the answers.

    >>> turns("Hi", "Be brief.", "user")
    [{'role': 'user', 'content': 'Be brief.\\n\\nHi'}]
    """
    pairs = zip(("user", "assistant") * (len(shots) + 1), [*sum(shots, ()), user], strict=False)
    chat = [{"role": role, "content": content} for role, content in pairs]
    if system is not None and system_role == "user":
        chat[0]["content"] = f"{system}\n\n{chat[0]['content']}"
    elif system is not None:
        chat.insert(0, {"role": "system", "content": system})
    return chat


def render(
    tokenizer: Any,
    chats: Iterable[list[dict[str, str]]],
    template_kwargs: dict[str, Any] | None = None,
    date: str | None = None,
    prefix: str = "",
) -> Iterator[Rendered]:
    """Render chats with the tokenizer's own chat template, up to where the answer begins.

    A chat is turns as `turns` makes them, `template_kwargs` are options of the template, such as
    ``{"enable_thinking": True}``, and `date` is an ISO date for templates that print today's, so
    that a prompt stays the same. `prefix` follows where the answer begins. Raises PromptError: when
    there is no chat template, it refuses a chat, or takes time, memory or text without end.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise PromptError("the tokenizer has no chat template")
    for text in chat_texts(tokenizer, chats, dict(template_kwargs or {}), date):
        # The template writes every special token itself, so the tokenizer must add none.
        ids = tokenizer(text + prefix, add_special_tokens=False)["input_ids"]
        yield Rendered(text + prefix, list(ids))


def plain(tokenizer: Any, text: str) -> Rendered:
    """Return a text to continue, with what its tokenizer puts in front of any text.

    That is a beginning-of-sequence token or nothing, as its own files say. A text that begins with
    the token gets no second one; what a tokenizer puts behind a text is left out: it goes on.
    """
    bare = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    whole = list(tokenizer(text)["input_ids"])
    places = range(len(whole) - len(bare) + 1)
    front = whole[: next((i for i in places if whole[i : i + len(bare)] == bare), 0)]
    if bare[: len(front)] == front:
        return Rendered(text, bare)
    return Rendered(tokenizer.decode(front) + text, front + bare)


def difference(tokenizer: Any, text: str, token_ids: Sequence[int]) -> tuple[bool, str]:
    """Say where decoded token ids differ from their text, and whether much: words, 1 % of all.

    A normaliser's work is no difference, nor is white space beside added tokens, which some
    tokenizers write and others swallow. Returns False and an empty text where there is none.
    """
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)  # decodes in half the time
    if text == (decoded := backend.decode(token_ids, skip_special_tokens=False)):
        return False, ""
    added = sorted(filter(str.strip, tokenizer.get_added_vocab()), key=len, reverse=True)
    split = re.compile(f"({'|'.join(map(re.escape, added)) or '(?!)'})").split
    normal = getattr(getattr(backend, "normalizer", None), "normalize_str", str)
    a, b, c = (  # some normalisers write spaces as U+2581; what some do is not undone
        "".join(change(part.strip()).replace("\u2581", " ").strip() for part in split(whole))
        for whole, change in ((text, normal), (decoded, normal), (decoded, str))
    )
    if a in (b, c):
        return False, ""
    lost, more = Counter(a) - Counter(b), Counter(b) - Counter(a)
    words, left = (len(re.findall(r"\s\w", one)) for one in (a, b))
    at = max(0, len(os.path.commonprefix([a, b])) - 10)  # noqa: RUF071
    much = left < words or 100 * (lost or more).total() > len(a)
    return much, f"say {b[at : at + 40]!r} where it says {a[at : at + 40]!r}"
