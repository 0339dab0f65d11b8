"""Run a chat template, a program that came with a model, in a process of its own, bounded.

Jinja's sandbox keeps it from files and Python, but not from powers without end, and nothing in a
process can stop one multiplication of large numbers. A kill can. The process is forked: importing
transformers takes seconds. Every chat has its own limit: a template may loop for one question only.
"""

import contextlib
import datetime
import itertools
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

SECONDS = 10.0  # of processor time that one chat may take
MEMORY = 512 << 20  # bytes beside those that this process holds
MOST_TEXT = 4 << 20  # characters of one prompt; a million tokens of any language
_TOGETHER = 64  # chats that are asked for at once: what waits costs more than what is written
_WAIT_S = 600  # for an answer: a machine that stands still, or a lock that a fork has caught


class PromptError(ValueError):
    """A prompt that cannot be rendered; the message says which part failed and why."""


def chat_texts(
    tokenizer: Any, chats: Iterable[Any], kwargs: dict[str, Any], date: str | None
) -> Iterator[str]:
    """Yield chats as their tokenizer's template writes them, up to where the answer begins.

    Their process is forked before the first, and ends with the last, or when nobody wants more.
    Raises PromptError: the template refuses a chat, or goes beyond a limit.
    """
    if date is not None:  # shadows the function that the template would call
        kwargs["strftime_now"] = datetime.date.fromisoformat(date).strftime
    chats, left, killed = iter(chats), 0, 0
    pid, pipe = _fork(tokenizer, kwargs)
    try:
        while not left and (some := list(itertools.islice(chats, _TOGETHER))):
            left = len(some)
            with contextlib.suppress(OSError):  # it is gone, or does not answer
                pipe.write(json.dumps(some).encode() + b"\n")
                pipe.flush()
                while left and (line := pipe.readline()).endswith(b"\n"):
                    answer, left = json.loads(line), left - 1
                    if "why" in answer:
                        raise PromptError(f"the chat template failed: {answer['why']}")
                    yield answer["text"]
    finally:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            killed = os.WTERMSIG(os.waitpid(pid, 0)[1])
            pipe.close()
    if left:
        limit = f"{SECONDS:g} s of processor time" if killed == signal.SIGPROF else "any measure"
        raise PromptError(f"the chat template took more than {limit} (signal {killed})")


def _fork(tokenizer: Any, kwargs: dict[str, Any]) -> tuple[int, Any]:
    """Start a process that answers; returns its id and a file of both directions."""
    ours, theirs = socket.socketpair()
    if pid := os.fork():
        theirs.close()
        ours.settimeout(_WAIT_S)
        return pid, ours.makefile("rwb")
    try:
        _serve(theirs, tokenizer, kwargs)
    finally:
        os._exit(0)


def _serve(theirs: socket.socket, tokenizer: Any, kwargs: dict[str, Any]) -> None:
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
    for line in pipe:
        for chat in json.loads(line):
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
