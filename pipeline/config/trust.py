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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import overrides
from bayes_at_n.pipeline.config.settings import RunConfig

_PATHS = "model.id model.tokenizer dataset.path prompt.shots_from verifier.id verifier.prompt"
_SAMPLE = "model.trust_remote_code model.engine_args engine.args engine.url engine.key_env"
_SAMPLE += " model.id model.tokenizer dataset.path prompt.shots_from"
_VERIFY = "verifier.trust_remote_code verifier.engine.args verifier.engine.url engine.key_env"
_USED_BY = {  # the settings in question, by the verb or stage that uses them
    **dict.fromkeys(("prepare", "equivalence"), _SAMPLE),
    "generate": f"{_SAMPLE} track.to",
    "run": "track.to",
    "grade": "dataset.answer",
    "verify": f"{_VERIFY} verifier.engine.key_env verifier.id verifier.prompt",
    "submit": f"{_SAMPLE} cluster.setup cluster.options cluster.cpu_jobs.options",  # it prepares
}
_NAMES = sorted({name for names in _USED_BY.values() for name in names.split()})
# Of what a run is, its paths and arguments, `import` drops only arguments that load code.
_KEPT = re.compile(
    rf"({_PATHS.replace(' ', '|')}|(?!.*(cls|plugin|process|format|code|execut|connect)).*args.*)"
)
_NOT_HERE = {"url": ["http://not-imported.invalid/v1"], "answer": "python:not_imported.py:grade"}
Own = Callable[[str, str], Iterable[RunConfig]]  # what files in `configs/` say: of a group, a name


def check(cfg: RunConfig, path: Path, own: Own, verb: str, typed: Collection[str] = ()) -> None:
    """Stop a verb that would use a setting of the file `path` for which nobody vouches.

    `cfg.trust` is the user's word, and afterwards whether all settings are the user's own. Raises
    UserError: naming file, keys, values and remedy.
    """
    word, cfg.trust = cfg.trust, "true"
    found = _foreign(cfg, own).items()
    left = {k: v for k, v in found if k not in typed and (word != "true" or _leaks(cfg, k))}
    used = verb.split() + (cfg.stages if verb.startswith(("run", "submit")) else [])
    names = " ".join(_USED_BY.get(of, "") for of in used).split()
    shown = [f"{key}={value!r:.200}" for key, value in left.items() if _below(key, names)]
    if shown and word != "submitted":  # in a job: `submit` has asked, which makes nothing one's own
        what = f"{', '.join(shown)}: not from a command of yours or configs/; type it"
        more = "; trust=true gives no key away" if word == "true" else ", or trust=true"
        raise UserError(f"{path}: {what}{more}")
    cfg.trust = "false" if left else "true"


def _leaks(cfg: RunConfig, key: str) -> bool:
    """Whether a setting names what may be no key, or a host that would get one."""
    of_verifier = key.startswith("verifier.") and cfg.verifier.engine.key_env
    variable = of_verifier or cfg.engine.key_env
    odd = key.endswith(".key_env") and not variable.endswith("_API_KEY")
    return odd or (key.endswith(".url") and bool(os.environ.get(variable)))


def _foreign(cfg: RunConfig, own: Own) -> dict[str, Any]:
    """The settings in question by full key, but for groups that stand so in an own file."""
    found = {key: value for key, value in _values(cfg).items() if _matters(cfg, key, value)}
    for group in {key.split(".")[0] for key in found}:
        name = str(getattr(getattr(cfg, group), "name", ""))
        if any(_values(cfg, group) == _values(file, group) for file in own(group, name)):
            found = {key: value for key, value in found.items() if not _below(key, [group])}
    return found


def _below(key: str, names: Iterable[str]) -> bool:
    return f"{key}.".startswith(tuple(f"{name}." for name in names))


def _values(cfg: RunConfig, group: str = "") -> dict[str, Any]:
    """The settings in question, arguments of engines one by one; of a group, and its revision."""
    names = [name for name in (*_NAMES, f"{group}.revision") if name.startswith(group)]
    return {key: value for key, value in overrides.flat(asdict(cfg)) if _below(key, names)}


def _matters(cfg: RunConfig, key: str, value: Any) -> bool:
    """Whether a value executes, connects, names a secret or is a local path."""
    if key not in _NAMES:  # an argument; of a server it is a field of requests
        return not (key.startswith("engine.args.") and kind(cfg.engine.name).served)
    if key in _PATHS.split():
        return bool(value) and (value[0] in "/~." or os.path.exists(value))
    if key == "dataset.answer":
        return str(value).startswith("python:")
    return bool(value) and value != _values(RunConfig())[key]


def drop(cfg: RunConfig, own: Own) -> list[str]:
    """Take out of settings what `import` does not keep; returns what that was, KEY=VALUE."""
    found = _foreign(cfg, own)
    gone = [n for n in _NAMES if any(_below(k, [n]) and not _KEPT.fullmatch(k) for k in found)]
    for name in gone:
        *groups, field = name.split(".")
        value = _NOT_HERE.get(field, _values(RunConfig())[name])
        setattr(functools.reduce(getattr, groups, cfg), field, value)
    return [f"{key}={value!r:.200}" for key, value in found.items() if _below(key, gone)]


def sign(text: str) -> str:
    """The HMAC of a text under this user's key; empty, with a warning, if no key can be kept."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    key, data = _key(Path(state)), text.encode(errors="backslashreplace")  # as files are written
    return hmac.new(key, data, "sha256").hexdigest() if key else ""


def is_own(text: str, mark: object) -> bool:
    """Whether this user's `sign` gave that mark to a text."""
    return bool(mark) and mark == sign(text)


@functools.cache  # one warning for all the folders that a command reads
def _key(state: Path) -> bytes:
    """This user's random key, the same on all machines with one home; empty if there is none."""
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
