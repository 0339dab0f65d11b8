"""The trust boundary: which settings of a folder count although the user did not type them.

Settings that run code, connect or name a secret count if a command of this user wrote the file,
which then has a keyed mark, if `configs/` has the same, or if the user typed `trust=true`.
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
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import kind
from bayes_at_n.pipeline.config.settings import RunConfig, own_metrics

_SAMPLES = "prepare generate equivalence submit"  # `submit` prepares
_USED_BY = {  # sensitive settings, and the verbs and stages that use them
    "model.id model.tokenizer model.adapter dataset.path prompt.shots_from": _SAMPLES,
    "model.trust_remote_code model.engine_args engine.args engine.url": _SAMPLES,
    "engine.key_env": f"{_SAMPLES} verify",
    "verifier.id verifier.prompt verifier.trust_remote_code": "verify",
    "verifier.engine.args verifier.engine.url verifier.engine.key_env": "verify",
    "dataset.answer grading.sandbox": "grade",
    "scoring.metrics": "score",
    "cluster.setup cluster.options cluster.cpu_jobs.options": "submit",
    "cluster.address": "generate submit",
    "track.to": "run generate",
}
_VERBS = {key: {*verbs.split()} for keys, verbs in _USED_BY.items() for key in keys.split()}
_PATH = re.compile(r"(model|verifier)\.id|.*\.(tokenizer|adapter|path|shots_from|prompt)")
_LOADS_CODE = re.compile("cls|plugin|process|format|code|execut|connect")
_NOT_HERE = {"url": ["http://not-imported.invalid/v1"], "answer": "python:not_imported.py:grade"}
_DEFAULT = RunConfig()
Trusted = Callable[[str, str], Iterable[RunConfig]]  # `compose.trusted`


def check(
    cfg: RunConfig, path: Path, trusted: Trusted, verb: str, typed: Collection[str] = ()
) -> None:
    """Stop a verb that would use an untrusted setting of the file `path`.

    On entry `cfg.trust` is what the user typed; on return, whether all settings are trusted. Raises
    UserError: naming file, keys, values and remedy.
    """
    word, cfg.trust = cfg.trust, "true"
    groups = ("verifier.",) * ("verifier" in typed)  # replaced as a whole
    values = _untrusted(cfg, trusted)
    values = {k: v for k, v in values.items() if k not in typed and not k.startswith(groups)}
    left = []
    for key in values:  # the word reveals no secret: as a key that is none, or to an unknown host
        own = cfg.verifier.engine.key_env if key.startswith("verifier.") else None
        variable = own or cfg.engine.key_env
        odd = key.endswith(".key_env") and not variable.endswith("_API_KEY")
        secret = odd or (key.endswith(".url") and bool(os.environ.get(variable)))
        left += [key] if word != "true" or secret else []
    used = {*verb.split(), *(cfg.stages if verb.startswith(("run", "submit")) else ())}
    listed = [f"{key}={values[key]!r:.200}" for key in left if used & _VERBS[key]]
    if listed and word != "submitted":  # in a job, `submit` has checked; but the folder stays as is
        more = "; trust=true reveals no secret" if word == "true" else ", or trust=true"
        text = f"{', '.join(listed)}: not from a command of yours or configs/; type it{more}"
        raise UserError(f"{path}: {text}")
    cfg.trust = "false" if left else "true"


def _untrusted(cfg: RunConfig, trusted: Trusted) -> dict[str, Any]:
    """Return sensitive settings by full key, except of groups that are so in a trusted file."""
    values = {}
    for key in _VERBS:
        value = attrgetter(key)(cfg)
        sensitive = bool(value) and value != attrgetter(key)(_DEFAULT)
        if sensitive and _PATH.fullmatch(key):
            sensitive = value[0] in "/~." or os.path.exists(value)
        elif key == "dataset.answer":
            sensitive = value.startswith("python:")
        elif key == "scoring.metrics":
            sensitive = bool(own_metrics(value))
        elif key == "engine.args" and kind(cfg.engine.name).served:
            sensitive = False  # they are fields of requests
        if sensitive:
            values[key] = value
    for group in {key.partition(".")[0] for key in values}:
        name, settings = str(getattr(getattr(cfg, group), "name", "")), _sensitive(cfg, group)
        if any(_sensitive(file, group) == settings for file in trusted(group, name)):
            values = {key: v for key, v in values.items() if not key.startswith(f"{group}.")}
    return values


def _sensitive(cfg: RunConfig, group: str) -> list[Any]:
    """Return the values of a group's sensitive settings, and its revision."""
    values = [attrgetter(key)(cfg) for key in _VERBS if key.startswith(f"{group}.")]
    return [*values, getattr(getattr(cfg, group), "revision", None)]


def drop(cfg: RunConfig, trusted: Trusted) -> list[str]:
    """Remove untrusted settings for `import`; return those that were removed, as KEY=VALUE.

    What defines the run stays: paths, and engine arguments that do not load code.
    """
    removed: dict[str, Any] = {}
    for key, value in _untrusted(cfg, trusted).items():
        if _PATH.fullmatch(key):
            continue
        group, _, name = key.rpartition(".")
        safe = _NOT_HERE.get(name, attrgetter(key)(_DEFAULT))
        if isinstance(value, dict):
            text = {k: f"{k} {v}" if isinstance(v, dict) else k for k, v in value.items()}
            safe = {k: v for k, v in value.items() if not _LOADS_CODE.search(text[k])}
            removed |= {f"{key}.{k}": v for k, v in value.items() if k not in safe}
        else:
            removed[key] = value
        setattr(attrgetter(group)(cfg), name, safe)
    return [f"{key}={value!r:.200}" for key, value in removed.items()]


def sign(text: str) -> str:
    """Return a text's HMAC under this user's key; empty, after a warning, if there is no key."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    key, data = _key(Path(state)), text.encode(errors="backslashreplace")
    return hmac.new(key, data, "sha256").hexdigest() if key else ""


def is_own(text: str, mark: object) -> bool:
    """Return whether `mark` is this user's `sign` of a text."""
    return bool(mark) and mark == sign(text)


@functools.cache  # one warning per command
def _key(state: Path) -> bytes:
    """Return the key in this user's home folder, which is created if missing; empty on failure."""
    path = state / "bayes-at-n" / "key"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent) as draft:  # with mode 0600
                draft.write(secrets.token_bytes(32))
                draft.flush()
                with suppress(FileExistsError):  # another process may create it, too
                    os.link(draft.name, path)
        return path.read_bytes()
    except OSError as error:
        warn(f"{path}: {error.strerror}; folders made without it may need trust=true later")
        return b""
