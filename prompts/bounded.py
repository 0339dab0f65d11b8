"""A chat template is a program that came with a model: it runs in a process of its own, bounded.

Jinja's sandbox keeps it from files and from Python, but not from loops, products and powers without
end; and nothing in a process can stop one multiplication of large numbers. A kill can.
"""

import contextlib
import datetime
import itertools
import json
import os
import pickle
import resource
import signal
import socket
import sys
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 10.0  # of processor time that one chat may take
MEMORY = 512 << 20  # bytes beside those that this process holds
MOST_TEXT = 4 << 20  # characters of one prompt; a million tokens of any language
_TOGETHER = 64  # chats that are asked for at once: what waits costs more than what is written
_WAIT_S = 600  # for an answer: a machine that stands still, or a lock that a fork has caught


class PromptError(ValueError):
    """A prompt that cannot be rendered; the message says which part failed and why."""


class _Child(NamedTuple):
    parent: int  # only this process has it
    pid: int
    pipe: Any  # a file of both directions
    template: Any  # of the tokenizer when it was forked


_children: "weakref.WeakKeyDictionary[Any, _Child]" = weakref.WeakKeyDictionary()


def chat_texts(
    tokenizer: Any, chats: Iterable[Any], kwargs: dict[str, Any], date: str | None
) -> Iterator[str]:
    """Chats as their tokenizer's template writes them, up to where the answer begins.

    The first chat of a tokenizer forks its process, which ends with the tokenizer or with this
    process. Raises PromptError: the template refuses a chat, or goes beyond a limit.
    """
    chats = iter(chats)
    while some := list(itertools.islice(chats, _TOGETHER)):
        yield from _texts(tokenizer, some, kwargs, date)


def _texts(tokenizer: Any, chats: list[Any], kwargs: Any, date: str | None) -> Iterator[str]:
    child = _children.get(tokenizer)
    if child is None or (child.parent, child.template) != (os.getpid(), tokenizer.chat_template):
        child = _children[tokenizer] = _fork(tokenizer)
        weakref.finalize(tokenizer, _end, child)
    left = len(chats)
    try:
        pickle.dump((chats, kwargs, date), child.pipe)
        child.pipe.flush()
        while left and (line := child.pipe.readline()).endswith(b"\n"):
            answer, left = json.loads(line), left - 1
            if "why" in answer:
                raise PromptError(f"the chat template failed: {answer['why']}")
            yield answer["text"]
    except OSError:  # it is gone, or does not answer
        pass
    finally:
        if left:  # answers that nobody will read
            _children.pop(tokenizer, None)
            killed = _end(child)
    if left:
        limit = f"{SECONDS:g} s of processor time" if killed == signal.SIGPROF else "any measure"
        raise PromptError(f"the chat template took more than {limit} (signal {killed})")


def _fork(tokenizer: Any) -> _Child:
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    if pid := os.fork():
        theirs.close()
        ours.settimeout(_WAIT_S)
        return _Child(parent, pid, ours.makefile("rwb"), tokenizer.chat_template)
    try:
        _serve(theirs, tokenizer)
    finally:
        os._exit(0)


def _end(child: _Child) -> int:
    """Close a child's pipe, and end it; returns the signal that did, perhaps one of before."""
    if not child.pipe.closed and child.parent == os.getpid():  # its number may be another's now
        child.pipe.close()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(child.pid, signal.SIGKILL)
            return os.WTERMSIG(os.waitpid(child.pid, 0)[1])
    return 0


def _serve(theirs: socket.socket, tokenizer: Any) -> None:
    """Answer until the socket is closed; what else the parent holds open is not held here."""
    pipe = theirs.makefile("rwb")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # the parent's business
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # kills, whatever the process is at
    os.closerange(3, theirs.fileno())
    os.closerange(theirs.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
    while True:
        chats, kwargs, date = pickle.load(pipe)
        if date is not None:  # shadows the function that the template would call
            kwargs["strftime_now"] = datetime.date.fromisoformat(date).strftime
        for chat in chats:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            answer = json.dumps(_answer(tokenizer, chat, kwargs)).encode()
            signal.setitimer(signal.ITIMER_PROF, 0)
            pipe.write(answer + b"\n")
        pipe.flush()


def _answer(tokenizer: Any, chat: Any, kwargs: Any) -> dict[str, str]:
    try:
        text = tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=True, **kwargs
        )
    except MemoryError:
        return {"why": f"it took more than {MEMORY >> 20} MiB of memory"}
    except Exception as error:  # templates raise whatever their author chose
        return {"why": str(error).strip()[:200]}
    if len(text) > MOST_TEXT:
        return {"why": f"it wrote {len(text)} characters; a prompt has at most {MOST_TEXT}"}
    return {"text": text}
