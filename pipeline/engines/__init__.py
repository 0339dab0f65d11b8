"""The interface of engines, which sample attempts; `base/program.py` lists the engines.

An engine is loaded once, takes requests as it has capacity, and yields each completion as soon as
it finishes, in any order.

A loaded engine may take the weights of another checkpoint, where that is proven to work: it may
report success and keep a part of the old weights (vLLM 0.32 on a CPU does not update a tied output
layer). So an engine first loads the weights of a checkpoint that another engine was loaded with,
and must reproduce that one's log-probs of a fixed text to the last bit; a part of its own weights
would show. In a series of checkpoints two are loaded, and the others swapped.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import TryAgain, UserError, one_line
from bayes_at_n.pipeline.base.program import find_local, kind
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.prepare.solved import Option

Rows = Sequence[Mapping[str, Any]]  # of the questions table
Logprobs = npt.NDArray[np.float32]
OnStep = Callable[[], None]  # called after every step

# Prefixes of the names of files that determine how an engine uses weights and tokens.
_DECISIVE = (
    *("config", "generation_config", "tokenizer", "special_tokens", "added_tokens"),
    *("vocab", "merges", "chat_template", "preprocessor"),
)
_TEXT = "What is 12 + 34? 12 + 34 = 46, so the answer is 46."
_MOST = 64  # tokens of it
_loads: dict[str, tuple[RunConfig, Logprobs]] = {}  # by family: a loaded model, its log-probs
_proven: dict[str, bool] = {}  # by family: whether weights can be swapped


@dataclass(frozen=True)
class Request:
    """One attempt to sample: its key, prompt, seed, and how many more tokens it may have."""

    question_id: str
    trial: int
    prompt_token_ids: list[int] | None
    max_tokens: int
    seed: int | None
    messages: list[dict[str, str]] | None = None  # chat turns, if there are no token ids
    begun: Mapping[str, Any] | None = None  # the row of a cut attempt that is to continue
    run: int = 0  # index of its run among those that the engine serves
    cfg: RunConfig | None = None  # settings of its run; by default the engine's
    options: Sequence[Option] = ()  # texts to score instead of sampling one

    @property
    def name(self) -> str:
        """Return a name that is unique among the requests of an engine."""
        return f"{self.run}/{self.question_id}/{self.trial}"

    def so_far(self, token_ids: list[int]) -> list[int]:
        """Return the tokens sampled before, followed by `token_ids`."""
        return token_ids if self.begun is None else [*self.begun["token_ids"], *token_ids]

    @property
    def context(self) -> list[int]:
        """Return the tokens that the model continues: the prompt and those sampled before."""
        return (self.prompt_token_ids or []) + self.so_far([])


@dataclass(frozen=True)
class Completion:
    """The result of a request; log-probs are natural, of the sampled tokens.

    It is a finished attempt if its reason is one of `store.columns.FINISHED`. With any other reason
    (abort, error, or another of an engine) the other fields mean nothing and the attempt stays
    pending. A continued attempt has its whole text, but only the new tokens and log-probs. Times
    are Unix seconds: of the request, of the first token (None if the response came whole), and of
    the last token. A server may count tokens without giving their ids.
    """

    request: Request
    text: str
    finish_reason: str  # "stop", "length", "repetition"; any other: not finished
    token_ids: list[int] | None
    logprobs: list[float] | None
    started: float
    first_token: float | None
    finished: float
    prompt_tokens: int | None = None  # as counted by a server
    completion_tokens: int | None = None
    options: list[dict[str, Any]] | None = None  # of `columns.OPTIONS`, if it scored texts

    @property
    def tokens(self) -> int | None:
        """Return how many tokens this request sampled; None if that is not known."""
        return self.completion_tokens if self.token_ids is None else len(self.token_ids)


class NotSupported(Exception):
    """An engine does not support an operation for which there is another way."""


class Engine(Protocol):
    """What the stages need of an engine; subclasses inherit the defaults.

    Attributes:
        cfg: the configuration that it was loaded with.
        tokenizer: the model's; None if a server's is not known.
    """

    cfg: RunConfig
    tokenizer: Any

    def __init__(self, cfg: RunConfig, longest: int, rows: Rows = ()) -> None:
        """Load the model; see `load`."""

    @staticmethod
    def label_args(cfg: RunConfig) -> dict[str, Any]:
        """Return the `engine.args` that are best for many long prompts, one prefill each."""
        return {}

    def generate(self, requests: Iterable[Request | None]) -> Generator[Completion | None]:
        """Yield completions as they finish, and None after every step, so that the caller can stop.

        Every request taken is completed once, even if the engine aborts it. Requests are taken
        lazily, at most `engine.in_flight` at a time; a None among them means that there is none
        right now but may be later.
        """

    def prompt_logprobs(
        self, prompts: list[list[int]], after: Sequence[int] = ()
    ) -> list[Logprobs]:
        """Score the n tokens of each prompt given those before: float32 [n], NaN at position 0.

        `after`: how many tokens at the start of each need no score, which may be NaN. An engine may
        prefill these once for consecutive prompts that have them in common.
        """

    def next_logprobs(
        self, prompts: Sequence[list[int]], token_ids: list[int], on_step: OnStep
    ) -> Logprobs:
        """Score some tokens as the next one of each prompt: float32 [prompts, tokens].

        Natural, over the full vocabulary, before any temperature; one prefill each, no sampling.
        `on_step` is called after every step, which tells long work from a hang.
        """

    def load_weights(self, cfg: RunConfig) -> None:
        """Load the weights of another model of the same architecture; nothing may be in flight.

        Raises NotSupported: it cannot, and may hold a part of them; close it and load it again.
        """
        raise NotSupported(f"{type(self).__name__} cannot change its weights")

    def probe_due(self, since: float) -> bool:
        """Return whether to call `has_run_model` again, `since` seconds after the last time."""
        return False

    def has_run_model(self, limit_s: float) -> bool:
        """Return whether its server has the run's model; False: it does not respond in `limit_s`.

        Raises Replaced: it has another model.
        """
        return True

    def describe(self) -> dict[str, Any]:
        """Return version, device and effective settings, for the session's record."""

    def close(self) -> None:
        """Free the memory, so that another model can be loaded in this process."""


def steady_clock() -> Callable[[], float]:
    """Return a clock of Unix seconds that no change of the system's clock affects."""
    ahead = time.time() - time.monotonic()
    return lambda: ahead + time.monotonic()


def load(cfg: RunConfig, longest: int, rows: Rows = ()) -> Engine:
    """Load the engine that the configuration names, or return the one that this process keeps.

    Args:
        cfg: the run's configuration.
        longest: the most tokens, prompt and completion together, of any request.
        rows: the questions table, on which a server is probed first.

    Raises UserError: there is no such engine, or it is not installed, finds no device, or cannot
    load the model.
    """
    if engine := loaded(cfg, longest):
        return engine
    if _kept and _kept.engine and longest <= _kept.longest and _swap(_kept, cfg):
        _kept.key = _key(cfg)
        return _kept.engine
    if _kept:
        _kept.close()
    make: type[Engine] = kind(cfg.engine.name).made_by
    engine = make(cfg, longest, rows)
    if _kept and not kind(cfg.engine.name).served:
        family = _family(cfg)  # now: the model's folder may be gone when the next one is loaded
        _kept.key, _kept.longest, _kept.engine, _kept.family = _key(cfg), longest, engine, family
        if family and family not in _loads:
            with contextlib.suppress(NotSupported):
                _loads[family] = cfg, _read(engine)
    return engine


def load_verifier(cfg: RunConfig, longest: int) -> Engine:
    """Load the model of `cfg`, a verifier, for `next_logprobs` of many long prompts.

    In bfloat16 the log-probs of two engines differ by rounding. `longest`: the most tokens of any
    prompt, plus one. Raises UserError: see `load`.
    """
    make: type[Engine] = kind(cfg.engine.name).made_by
    engine = replace(cfg.engine, args=make.label_args(cfg) | dict(cfg.engine.args))
    cfg = replace(cfg, engine=engine)
    if not loaded(cfg, longest):
        note(f"loading verifier {cfg.model.name} with {engine.name} ...")
    return load(cfg, longest)


def loaded(cfg: RunConfig, longest: int) -> Engine | None:
    """Return the engine that this process keeps, if `load` would return it."""
    if _kept and _kept.key == _key(cfg) and longest <= _kept.longest:
        return _kept.engine
    return None


def _key(cfg: RunConfig) -> Any:
    return cfg.model, replace(cfg.engine, batch_size=1, in_flight=None)


@dataclass
class _Kept:
    """The engine that this process keeps loaded."""

    key: Any = None
    longest: int = 0
    engine: Engine | None = None
    family: str = ""  # see `_family`

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()
        self.engine = None


_kept: _Kept | None = None


@contextlib.contextmanager
def keeping() -> Iterator[None]:
    """Keep the engine that was loaded last within the block, so that `load` can return it again."""
    global _kept
    if _kept is not None:  # a block around this one does
        yield
        return
    kept = _kept = _Kept()
    try:
        yield
    finally:
        _kept = None
        kept.close()


def _swap(kept: _Kept, cfg: RunConfig) -> bool:
    """Load the weights of another model into the idle engine, if that is proven to work."""
    family, engine = _family(cfg), kept.engine
    if engine is None or family != kept.family or not _proven.get(family, family in _loads):
        return False
    try:
        if family not in _proven:
            other, values = _loads[family]
            if find_local(other.model.id) is None:  # deleted: another load must prove it
                del _loads[family]
                return False
            if np.array_equal(_read(engine), values, equal_nan=True):  # this proves nothing
                return False
            engine.load_weights(other)
            if not np.array_equal(_read(engine), values, equal_nan=True):
                raise NotSupported("log-probs after a swap are not those of a load")
            _proven[family] = True
        engine.load_weights(cfg)
    except NotSupported as error:
        note(f"each model is loaded separately: {error}")
        _proven[family] = False
        return False
    return True


def _family(cfg: RunConfig) -> str:
    """Return a key that models share if one engine can swap their weights; empty: it cannot.

    It holds the settings of the model but for name and location, those of the engine, and a hash of
    the configuration and tokenizer files of its folder.
    """
    if kind(cfg.engine.name).served or cfg.model.trust_remote_code or cfg.model.adapter:
        return ""
    folder = Path(models.locate(cfg.model))
    if not folder.is_absolute():
        return ""
    names = sorted(path.name for path in folder.iterdir() if path.name.startswith(_DECISIVE))
    unnamed: dict[str, Any] = {"name": "", "id": "", "checkpoint": None}
    unnamed |= {"table_id": None, "short_name": None}
    _, engine = _key(cfg)
    return repr((models.fingerprint(cfg.model, names), replace(cfg.model, **unnamed), engine))


def _read(engine: Engine) -> Logprobs:
    """Return log-probs of the fixed text, float32 [tokens]. Raises NotSupported: there are none."""
    try:
        ids = engine.tokenizer(_TEXT, add_special_tokens=False)["input_ids"]
        return engine.prompt_logprobs([ids[:_MOST]])[0]
    except Exception as error:  # engines raise whatever their parts raise
        raise NotSupported(f"no log-probs of a text: {error}") from error


def leave(engine: Engine) -> None:
    """Free an engine, unless this process keeps it; one that has just failed is not kept."""
    if _kept is None or _kept.engine is not engine:
        engine.close()
    elif sys.exc_info()[0] is not None:
        _kept.close()


def pull(requests: Iterator[Request | None], most: int) -> tuple[list[Request], bool]:
    """Take up to `most` requests that are available now; return them, and whether more may come.

    >>> pull(iter([None, None]), 2)
    ([], True)
    >>> pull(iter([]), 2)
    ([], False)
    """
    taken: list[Request] = []
    while len(taken) < most:
        try:
            request = next(requests)
        except StopIteration:
            return taken, False
        if request is None:
            break
        taken.append(request)
    return taken, True


@contextlib.contextmanager
def load_errors(cfg: RunConfig) -> Iterator[None]:
    """Turn an exception while a model is loaded into one readable line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # engines raise whatever their parts raise
        reason = one_line(error)
        raise (UserError if "driver on your system is too old" in reason else TryAgain)(
            f"{cfg.engine.key}={cfg.engine.name}: could not load {cfg.model.id}: {reason}"
            + _remedy(reason, cfg)
        ) from error


def _remedy(reason: str, cfg: RunConfig) -> str:
    low, engine, model = reason.lower(), cfg.engine, cfg.model
    if "out of memory" in low or "no available memory" in low or "kv cache" in low:
        return (
            f". Less memory: raise {engine.key}.tensor_parallel_size (more GPUs), lower"
            f" {engine.lighter}, or free the GPU"
        )
    if "root cause above" in low:  # vLLM's engine core prints its traceback to the same place
        return ". The cause is the last line of its traceback, above this line"
    if "trust_remote_code" in low:
        return f". If you trust the model's own code, set {model.key}.trust_remote_code=true"
    if "unexpected keyword" in low or "unrecognized" in low:
        keys = f"{engine.key}.args" + f" and {model.key}.engine_args" * bool(model.engine_args)
        return f". Check {keys}: {dict(model.engine_args) | dict(engine.args)}"
    return ""
