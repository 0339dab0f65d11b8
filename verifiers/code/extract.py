"""Find the program in a response."""

import re

from bayes_at_n.verifiers.code.languages import LANGUAGES
from bayes_at_n.verifiers.maths.boxed import Extraction

MAX_CHARS = 100_000  # of a program
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})[ \t]*([\w+#.-]*)")
_PYTHON = ("python", "py", "python3")
_LANGUAGE = re.compile(r'\{"language": "(\w+)"')  # of `tests.pack`, too
_CODE = re.compile(r"^(?:def|class|import|from|print|for|while|if|@|\w+ *=)", re.M)
_ENTRY = re.compile(r'\{"entry": "(\w+)"')  # of `tests.pack`, whose text may be megabytes


def find(text: str, gold: str) -> Extraction:
    r"""Return the last fenced block of the language, else a whole text that looks like a program.

    Blocks of another language do not count; blocks of none do where no block is marked as of it.
    If the tests name a function, the last block that defines it is preferred, since examples of
    its use may follow. A block at the end may lack its closing fence. Without a block, a text that
    continues the prompt (`tests.pack`), or has a statement at the start of a line, is the program.

    Args:
        text: the final part of a response.
        gold: the packed tests.

    >>> find("So:\n```python\ndef f(x):\n    return x\n```\nDone.", "")
    Extraction(answer='def f(x):\n    return x\n', reason='boxed', how='')
    >>> find("I do not know.", "").answer is None
    True
    """
    blocks, named = _blocks(text), _LANGUAGE.match(gold)
    fences = LANGUAGES[named[1]].fences if named else _PYTHON
    chosen = [b for lang, b in blocks if lang in fences] or [b for lang, b in blocks if not lang]
    if entry := _ENTRY.match(gold):
        defines = re.compile(rf"^[ \t]*(?:async )?(?:def|class) {entry[1]}\b|^{entry[1]} *=", re.M)
        chosen = [block for block in chosen if defines.search(block)] or chosen
    program, how = (chosen[-1], "") if chosen else (text, "the whole text is the program")
    if not program.strip() or (blocks and not chosen):
        return Extraction(
            None, "no_box", f"there is no program in {named[1] if named else 'Python'}"
        )
    if not blocks and not entry and not named and not _CODE.search(text):
        return Extraction(None, "no_box", "there is no program")
    if len(program) > MAX_CHARS:
        return Extraction(None, "no_box", f"the program has more than {MAX_CHARS} characters")
    return Extraction(program, "boxed", how)


def _blocks(text: str) -> list[tuple[str, str]]:
    """Return language and content of each fenced block, in time linear in the text."""
    blocks, fence, language, inside = list[tuple[str, str]](), "", "", list[str]()
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if not fence and mark:
            fence, language, inside = mark[1], mark[2].lower(), []
        elif fence and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            blocks.append((language, "".join(inside)))
            fence = ""
        elif fence:
            inside.append(line)
    return blocks + [(language, "".join(inside))] * bool(fence)
