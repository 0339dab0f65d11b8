"""The engine `callable`: a Python function that takes prompts and returns texts."""

import contextlib
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from typing import Any

from bayes_at_n.pipeline.base.errors import TryAgain, UserError, one_line
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines import Completion, Engine, Request, Rows, pull, steady_clock
from bayes_at_n.pipeline.engines.text import truncate

Function = Callable[[list[str]], Sequence[str]]
_STEP_S = 0.2  # the longest that `generate` waits before it yields
_registered: dict[str, Function] = {}  # by `model.id`


def name_of(function: Function) -> str:
    """Return module and qualified name of a function, or of the class of another callable.

    >>> name_of(len)
    'builtins:len'
    """
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"


@contextlib.contextmanager
def registered(function: Function | None) -> Iterator[None]:
    """Let runs whose `model.id` is `name_of(function)` call it within the block."""
    if function is None:
        yield
        return
    name = name_of(function)
    _registered[name] = function
    try:
        yield
    finally:
        del _registered[name]


def function_of(cfg: RunConfig) -> Function:
    """Return the function of a run; nothing is imported. Raises UserError: not registered."""
    if cfg.model.id in _registered:
        return _registered[cfg.model.id]
    raise UserError(
        f"engine=callable: {cfg.model.id} is a function of a Python program; sample there with"
        f" evaluate(model=FUNCTION, name={cfg.model.name!r}, ...). Later stages can run here"
    )


class CallableEngine(Engine):
    """A function that takes prompts and returns texts; see `pipeline.engines.Engine`.

    It is called with up to `engine.batch_size` prompts at a time, in its own thread, so that it may
    take as long as it likes and Ctrl-C works meanwhile. A prompt is the rendered `prompt.template`,
    after the system text and examples if there are any, separated by empty lines. There are no
    tokens and no log-probs, and every finish reason is "stop".
    """

    def __init__(self, cfg: RunConfig, longest: int, rows: Rows = ()) -> None:
        self.cfg, self.function = cfg, function_of(cfg)
        self.tokenizer = None

    def generate(self, requests: Iterable[Request | None]) -> Generator[Completion | None]:
        waiting, more, now = iter(requests), True, steady_clock()
        while more:
            taken, more = pull(waiting, int(self.cfg.engine.batch_size))
            started, texts = now(), Future[list[str]]()
            if taken:
                # A daemon: a function cannot be ended, and must not keep the process from ending.
                threading.Thread(target=self._call, args=(taken, texts), daemon=True).start()
            while taken and not texts.done():
                yield None
                wait([texts], _STEP_S)
            for request, text in zip(taken, texts.result() if taken else (), strict=True):
                kept = truncate(text, self.cfg.stops)
                yield Completion(request, kept, "stop", None, None, started, None, now())
            yield None

    def _call(self, batch: list[Request], texts: "Future[list[str]]") -> None:
        """Call the function on some requests; set its checked texts or its exception."""
        name = f"engine=callable: {self.cfg.model.id}"
        chats = [request.messages or [] for request in batch]
        try:
            returned = self.function(["\n\n".join(t["content"] for t in chat) for chat in chats])
            texts.set_result(_checked(returned, len(batch), name))
        except UserError as error:
            texts.set_exception(error)
        except BaseException as error:  # in a thread it would be lost
            failed = f"{name} raised {type(error).__name__}: {one_line(error)}"
            again = TryAgain(f"{failed}. Finished attempts are kept; the same call continues")
            again.__cause__ = error
            texts.set_exception(again)

    def prompt_logprobs(self, prompts: list[list[int]], after: Sequence[int] = ()) -> Any:
        raise UserError(f"engine=callable: {self.cfg.model.id} has no log-probs")

    next_logprobs: Any = prompt_logprobs

    def describe(self) -> dict[str, Any]:
        return {"engine": "callable", "function": self.cfg.model.id}


def _checked(returned: Any, prompts: int, name: str) -> list[str]:
    """Return what a function returned, if that is a text for each prompt. Raises UserError: not."""
    expected = f"it gets a list of {prompts} prompts and must return a list of as many texts (str)"
    if isinstance(returned, Coroutine):
        returned.close()
        raise UserError(f"{name} is async; give lambda prompts: asyncio.run(FUNCTION(prompts))")
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes):
        raise UserError(f"{name} returned {type(returned).__name__}; {expected}")
    if len(returned) != prompts:
        raise UserError(f"{name} returned {len(returned)} texts; {expected}")
    for number, text in enumerate(returned, 1):
        if not isinstance(text, str):
            raise UserError(f"{name}: text {number} is {type(text).__name__}; {expected}")
        if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
            raise UserError(f"{name}: text {number} holds half a character (a lone surrogate)")
    return [str(text) for text in returned]
