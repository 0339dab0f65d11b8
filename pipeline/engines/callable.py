"""A Python function as the model, which takes prompts and returns texts: the simplest engine."""

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
_STEP_S = 0.2  # the longest that `generate` waits before it shows that it is alive
_known: dict[str, Function] = {}  # while a run of them is made, by `model.id`


def called(function: Function) -> str:
    """Return module and qualified name of a function; of another callable, its class's.

    >>> called(len)
    'builtins:len'
    """
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"


@contextlib.contextmanager
def known(function: Function | None) -> Iterator[None]:
    """Let runs whose `model.id` is `called(function)` call it while the block runs."""
    if function is None:
        yield
        return
    name = called(function)
    _known[name] = function
    try:
        yield
    finally:
        del _known[name]


def function_of(cfg: RunConfig) -> Function:
    """Return the function of a run; no name is ever imported. Raises UserError: it is not there."""
    if cfg.model.id in _known:
        return _known[cfg.model.id]
    raise UserError(
        f"engine=callable: {cfg.model.id} is a function of a Python program, which samples:"
        f" evaluate(model=FUNCTION, name={cfg.model.name!r}, ...); all that comes after works here"
    )


class CallableEngine(Engine):
    """A function that takes prompts and returns texts; see `pipeline.engines.Engine`.

    It is called with up to `engine.batch_size` prompts at a time, in a thread of its own: so it may
    take as long as it likes, and Ctrl-C works meanwhile. A prompt is the question as
    `prompt.template` asks it, after the system text and examples where there are any, with empty
    lines between. It has no tokens and no log-probs, and every text has ended by itself.
    """

    def __init__(self, cfg: RunConfig, longest: int, rows: Rows = ()) -> None:
        self.cfg, self.function = cfg, function_of(cfg)
        self.tokenizer = None

    def generate(self, requests: Iterable[Request | None]) -> Generator[Completion | None]:
        waiting, more, now = iter(requests), True, steady_clock()
        while more:
            taken, more = pull(waiting, int(self.cfg.engine.batch_size))
            started, answer = now(), Future[list[str]]()
            if taken:
                # A daemon: nothing ends a function, and a process that is to end waits for none.
                threading.Thread(target=self._call, args=(taken, answer), daemon=True).start()
            while taken and not answer.done():
                yield None
                wait([answer], _STEP_S)
            for request, text in zip(taken, answer.result() if taken else (), strict=True):
                kept = truncate(text, self.cfg.prompt.stop)
                yield Completion(request, kept, "stop", None, None, started, None, now())
            yield None

    def _call(self, taken: list[Request], answer: "Future[list[str]]") -> None:
        """Set what the function returns for some requests, checked, or what is wrong with it."""
        name = f"engine=callable: {self.cfg.model.id}"
        chats = [request.messages or [] for request in taken]
        try:
            returned = self.function(["\n\n".join(t["content"] for t in chat) for chat in chats])
            answer.set_result(_checked(returned, len(taken), name))
        except UserError as error:
            answer.set_exception(error)
        except BaseException as error:  # what a thread raises is shown nowhere else
            failed = f"{name} raised {type(error).__name__}: {one_line(error)}"
            again = TryAgain(f"{failed}. Finished attempts are kept; the same call goes on")
            again.__cause__ = error
            answer.set_exception(again)

    def prompt_logprobs(self, prompts: list[list[int]]) -> Any:
        raise UserError(f"engine=callable: {self.cfg.model.id} has no log-probs")

    next_logprobs: Any = prompt_logprobs

    def describe(self) -> dict[str, Any]:
        return {"engine": "callable", "function": self.cfg.model.id}


def _checked(returned: Any, prompts: int, name: str) -> list[str]:
    """Check that a function returned a text for each prompt. Raises UserError: it did not."""
    wanted = f"it gets a list of {prompts} prompts and must return a list of as many texts (str)"
    if isinstance(returned, Coroutine):
        returned.close()
        raise UserError(f"{name} is async; give lambda prompts: asyncio.run(FUNCTION(prompts))")
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes):
        raise UserError(f"{name} returned {type(returned).__name__}; {wanted}")
    if len(returned) != prompts:
        raise UserError(f"{name} returned {len(returned)} texts; {wanted}")
    for number, text in enumerate(returned, 1):
        if not isinstance(text, str):
            raise UserError(f"{name}: text {number} is {type(text).__name__}; {wanted}")
        if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
            raise UserError(f"{name}: text {number} holds half a character (a lone surrogate)")
    return [str(text) for text in returned]
