"""Ask the Hugging Face hub through its libraries: one attempt to reach it, errors in a line."""

import contextlib
import functools
import os
from collections.abc import Iterator

from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.base.program import PROGRAM

OFFLINE = f"without a network, run `{PROGRAM} prefetch` first on a machine that has one"


class NotHere(UserError):
    """Only the hub has it, and the hub does not answer or is not to be asked."""


@contextlib.contextmanager
def from_hub(what: str, remedy: str, online: bool = True, action: str = "loaded") -> Iterator[None]:
    """Turn what libraries raise about hub, network and files into one line; they raise many kinds.

    `online`: whether the hub is asked. Where it does not answer the first time, it is not again.
    """
    why = _unreachable() if online else ""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        message = why if why and isinstance(error, OSError) else one_line(error)
        if "gated" in str(error):
            message = one_line(error)
            remedy = (
                "Ask for access on its page at huggingface.co, then `hf auth login`, or HF_TOKEN in"
                " the environment"
            )
        offline = online and (why or os.environ.get("HF_HUB_OFFLINE", "0") != "0")
        kind = NotHere if offline else UserError
        raise kind(f"{what}: could not be {action}: {message}. {remedy}") from error
    if why:
        _note_once(f"{why}, HF_HUB_OFFLINE=1 spares the attempt")


@functools.cache
def _unreachable() -> str:
    """Return why the hub cannot be asked, tried once in a process; empty where it can, or is not.

    Libraries would try each file six times, with pauses of 23 seconds, and have no common setting
    for that; all know HF_HUB_OFFLINE. Where the hub answers, they do retry: weights are large.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.is_offline_mode():
        return ""
    try:
        status = get_session().head(constants.ENDPOINT, timeout=10).status_code
        if status not in (500, 502, 503, 504):
            return ""
        why = f"HTTP status {status}"
    except Exception as error:  # of the network, a proxy, a certificate
        why = one_line(error)
    constants.HF_HUB_OFFLINE = True
    os.environ["HF_HUB_OFFLINE"] = "1"  # of processes that are started, such as vLLM's
    return f"{constants.ENDPOINT} does not answer ({why}), so only what is in its cache can be had"


_note_once = functools.cache(note)
