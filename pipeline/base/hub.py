"""Access to the Hugging Face hub: one attempt to reach it, and errors on one line."""

import contextlib
import functools
import os
from collections.abc import Iterator

from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.base.program import PROGRAM

OFFLINE = f"without a network, run `{PROGRAM} prefetch` first on a machine that has one"


class NotHere(UserError):
    """Only the hub has it, and the hub cannot be reached or HF_HUB_OFFLINE is set."""


@contextlib.contextmanager
def from_hub(what: str, remedy: str, online: bool = True, action: str = "loaded") -> Iterator[None]:
    """Turn exceptions about hub, network and files, of which there are many kinds, into one line.

    `online`: whether the block needs the hub. If it cannot be reached, it is not tried again.
    """
    reason = _unreachable() if online else ""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        message = reason if reason and isinstance(error, OSError) else one_line(error)
        if "gated" in str(error):
            message = one_line(error)
            remedy = (
                "Ask for access on its page at huggingface.co, then `hf auth login`, or HF_TOKEN in"
                " the environment"
            )
        offline = online and (reason or os.environ.get("HF_HUB_OFFLINE", "0") != "0")
        kind = NotHere if offline else UserError
        raise kind(f"{what}: could not be {action}: {message}. {remedy}") from error
    if reason:
        _note_once(f"{reason}; HF_HUB_OFFLINE=1 skips the attempt")


@functools.cache
def _unreachable() -> str:
    """Return why the hub cannot be reached, tried once per process; empty if it can, or if offline.

    Libraries would try each file six times, with pauses of 23 seconds, and have no common setting
    for that, but all of them respect HF_HUB_OFFLINE. If the hub can be reached, they do retry.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.is_offline_mode():
        return ""
    try:
        status = get_session().head(constants.ENDPOINT, timeout=10).status_code
        if status not in (500, 502, 503, 504):
            return ""
        reason = f"HTTP status {status}"
    except Exception as error:  # the network, a proxy, a certificate ...
        reason = one_line(error)
    constants.HF_HUB_OFFLINE = True
    os.environ["HF_HUB_OFFLINE"] = "1"  # for child processes, such as vLLM's
    return f"{constants.ENDPOINT} does not answer ({reason}), so only its local cache is used"


_note_once = functools.cache(note)
