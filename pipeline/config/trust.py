"""The trust boundary: which settings of a folder count that nobody typed in this command.

Settings that execute, connect or name a secret count if a command of this user wrote the file,
which then has a keyed mark, if they stand so in `configs/`, or if the user typed `trust=true`.
"""

import functools
import hmac
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.scoring import own_metrics
from bayes_at_n.pipeline.config.settings import RunConfig

_SAMPLES = "prepare generate equivalence submit"  # `submit` prepares
_USED_BY = {  # the settings in question: verbs and stages that use them
    "model.id model.tokenizer dataset.path prompt.shots_from": _SAMPLES,
    "model.trust_remote_code model.engine_args engine.args engine.url": _SAMPLES,
    "engine.key_env": f"{_SAMPLES} verify",
    "verifier.id verifier.prompt verifier.trust_remote_code": "verify",
    "verifier.engine.args verifier.engine.url verifier.engine.key_env": "verify",
    "dataset.answer": "grade",
    "scoring.metrics": "score",
    "cluster.setup cluster.options cluster.cpu_jobs.options": "submit",
    "cluster.address": "generate submit",
    "track.to": "run generate",
}
_VERBS = {key: {*verbs.split()} for keys, verbs in _USED_BY.items() for key in keys.split()}
_PATH = re.compile(r"(model|verifier)\.id|.*\.(tokenizer|path|shots_from|prompt)")
_LOADS_CODE = re.compile("cls|plugin|process|format|code|execut|connect")
_NOT_HERE = {"url": ["http://not-imported.invalid/v1"], "answer": "python:not_imported.py:grade"}
_DEFAULT = RunConfig()
Own = Callable[[str, str], Iterable[RunConfig]]  # what files in `configs/` say: of a group, a name


def check(cfg: RunConfig, path: Path, own: Own, verb: str, typed: Collection[str] = ()) -> None:
    """Stop a verb that would use a setting of the file `path` for which nobody vouches.

    `cfg.trust` is the user's word, and afterwards whether all settings are the user's own. Raises
    UserError: naming file, keys, values and remedy.
    """
    word, cfg.trust = cfg.trust, "true"
    found = {key: value for key, value in _foreign(cfg, own).items() if key not in typed}
    left = [key for key in found if word != "true" or _gives_a_key_away(cfg, key)]
    used = {*verb.split(), *(cfg.stages if verb.startswith(("run", "submit")) else ())}
    shown = [f"{key}={found[key]!r:.200}" for key in left if used & _VERBS[key]]
    if shown and word != "submitted":  # in a job: `submit` has asked, which makes nothing one's own
        more = "; trust=true gives no key away" if word == "true" else ", or trust=true"
        what = f"{', '.join(shown)}: not from a command of yours or configs/; type it{more}"
        raise UserError(f"{path}: {what}")
    cfg.trust = "false" if left else "true"


def _gives_a_key_away(cfg: RunConfig, key: str) -> bool:
    """Return whether a setting names what may be no key, or a host that would get one."""
    variable = (key.startswith("verifier.") and cfg.verifier.engine.key_env) or cfg.engine.key_env
    odd = key.endswith(".key_env") and not variable.endswith("_API_KEY")
    return odd or (key.endswith(".url") and bool(os.environ.get(variable)))


def _foreign(cfg: RunConfig, own: Own) -> dict[str, Any]:
    """Return the settings in question by full key, but for groups that stand so in an own file."""
    found = {}
    for key in _VERBS:
        value = attrgetter(key)(cfg)
        acts = bool(value) and value != attrgetter(key)(_DEFAULT)
        if acts and _PATH.fullmatch(key):
            acts = value[0] in "/~." or os.path.exists(value)
        elif key == "dataset.answer":
            acts = value.startswith("python:")
        elif key == "scoring.metrics":
            acts = bool(own_metrics(value))
        elif key == "engine.args" and kind(cfg.engine.name).served:
            acts = False  # they are fields of requests
        if acts:
            found[key] = value
    for group in {key.partition(".")[0] for key in found}:
        name = str(getattr(getattr(cfg, group), "name", ""))
        if any(_said(file, group) == _said(cfg, group) for file in own(group, name)):
            found = {key: value for key, value in found.items() if not key.startswith(f"{group}.")}
    return found


def _said(cfg: RunConfig, group: str) -> list[Any]:
    """Return the settings in question of a group, and its revision."""
    known = [attrgetter(key)(cfg) for key in _VERBS if key.startswith(f"{group}.")]
    return [*known, getattr(getattr(cfg, group), "revision", None)]


def drop(cfg: RunConfig, own: Own) -> list[str]:
    """Take out of settings what `import` does not keep; returns what that was, KEY=VALUE.

    What a run is stays: paths, and arguments of engines but for those that load code.
    """
    gone: dict[str, Any] = {}
    for key, value in _foreign(cfg, own).items():
        if _PATH.fullmatch(key):
            continue
        group, _, name = key.rpartition(".")
        kept = _NOT_HERE.get(name, attrgetter(key)(_DEFAULT))
        if isinstance(value, dict):
            text = {k: f"{k} {v}" if isinstance(v, dict) else k for k, v in value.items()}
            kept = {k: v for k, v in value.items() if not _LOADS_CODE.search(text[k])}
            gone |= {f"{key}.{k}": v for k, v in value.items() if k not in kept}
        else:
            gone[key] = value
        setattr(attrgetter(group)(cfg), name, kept)
    return [f"{key}={value!r:.200}" for key, value in gone.items()]


def sign(text: str) -> str:
    """Return a text's HMAC under this user's key; empty, with a warning, if no key can be kept."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    key, data = _key(Path(state)), text.encode(errors="backslashreplace")  # as files are written
    return hmac.new(key, data, "sha256").hexdigest() if key else ""


def is_own(text: str, mark: object) -> bool:
    """Return whether this user's `sign` gave that mark to a text."""
    return bool(mark) and mark == sign(text)


@functools.cache  # one warning for all the folders that a command reads
def _key(state: Path) -> bytes:
    """Return this user's key, the same on all machines with one home; empty if there is none."""
    path = state / "bayes-at-n" / "key"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent) as draft:  # with mode 0600
                draft.write(secrets.token_bytes(32))
                draft.flush()
                with suppress(FileExistsError):  # of two first processes one makes it
                    os.link(draft.name, path)
        return path.read_bytes()
    except OSError as error:
        warn(f"{path}: {error.strerror}; folders made without it may need trust=true later")
        return b""
