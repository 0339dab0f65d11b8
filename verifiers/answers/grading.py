r"""Grade pairs of gold and extracted answer, each unique pair once, whatever the answers hold.

Cheap layers with bounded cost run in the calling process; what they leave open is parsed and
compared by math_verify in worker processes with a memory limit and a clock that starts when the
work starts. If every pair is decided cheaply, no process is started.

>>> grades = grade([("25", "025"), ("7", "8"), ("7", " "), ("25", "025")])
>>> [(pair, grades[pair].outcome) for pair in grades]
[(('25', '025'), 'correct'), (('7', '8'), 'wrong'), (('7', ' '), 'unparsable')]
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import ForkServerContext, ForkServerProcess
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from bayes_at_n.verifiers.answers import kinds, own
from bayes_at_n.verifiers.maths.boxed import unboxed
from bayes_at_n.verifiers.maths.compare import decide, readable
from bayes_at_n.verifiers.maths.conventions import STRICT, Conventions, Grade, Outcome
from bayes_at_n.verifiers.maths.form import same_form
from bayes_at_n.verifiers.maths.lexer import MAX_CHARS, clean

if TYPE_CHECKING:
    from pebble import ProcessPool

_WALL = 10  # seconds of the clock for one of processor time, before a task counts as hanging
START_S = 120  # for the first worker, which imports SymPy; far more than a busy machine needs

_starting = threading.Lock()
Pair = tuple[str, str]
_REASONS: dict[str, dict[Outcome, str]] = {
    layer: {"correct": correct, "wrong": wrong, "unparsable": "math_verify cannot compare it"}
    for layer, correct, wrong in (
        ("text", "the same text", ""),
        ("number", "the same number", "another number"),
        ("word", "the same word", "another word"),
        ("expression", "the same value, exactly or to very many digits", "another value"),
        ("rounded", "the value, rounded to the digits of the other side", ""),
        ("relation", "the same relation or set", "another relation or set"),
        ("list", "the same items", "other items"),
        ("unit", "", "another unit"),
        ("algebra", "equal by algebra", "not equal by algebra"),
        ("plain", "math_verify accepts the text", "math_verify rejects the text"),
    )
}


def grade(
    pairs: Iterable[Pair],
    *,
    answer: str = "math",
    conventions: Conventions = STRICT,
    plain: bool = False,
    workers: int | None = None,
    timeout_s: float = 3,
    memory_mb: int = 1024,
    sandbox: str = "bubblewrap",
    image: str | None = None,
) -> dict[Pair, Grade]:
    """Grade every unique (gold, answer) pair; the grades are in the order of first appearance.

    "unparsable": the gold or the answer is blank, longer than 1,000 characters (unless both are the
    same text), or cannot be read or compared as mathematics. "timeout": the comparison ran out of
    its time or memory, or its worker died. "error": the grader raised an exception, which is the
    reason. "no_answer" is for callers that found no box.

    Workers are fresh interpreters (fork server), safe beside threads of torch or vLLM.

    Args:
        pairs: (gold, answer) texts, in this order; for `python` the second is `own.packed`.
        answer: the kind of answer, as `dataset.answer` has it; of `python` the path is whole.
        conventions: what counts as the same where mathematics leaves it open.
        plain: take the second text for a whole completion and ask math_verify alone, with its
            defaults, as other harnesses do: to see why a number moved.
        workers: processes at most; default: one a CPU.
        timeout_s: seconds of processor time for one pair; ten times as many of the clock end it.
        memory_mb: address space of one worker in MiB; at least about 512 is needed.
        sandbox: what shuts in the programs of `code`: bubblewrap, a container, or none.
        image: of a container, with this Python's version.

    Raises RuntimeError: worker processes or sandboxes cannot be started.
    """
    unique = dict.fromkeys(pairs)
    limits: dict[str, Any] = {"workers": workers, "timeout_s": timeout_s, "memory_mb": memory_mb}
    if answer == "code" and not plain:
        from bayes_at_n.verifiers.code import run  # few questions need it

        return run.grade(unique, box=sandbox, image=image, **limits)
    kind = "plain" if plain else "python" if kinds.of(answer) == "python" else "algebra"
    name = "math_verify" if plain else own.grader(answer)
    cheap = {
        pair: _grade_cheaply(*pair, answer, conventions) if kind == "algebra" else None
        for pair in unique
    }
    more = {"plain": (), "python": (answer,), "algebra": (conventions,)}[kind]
    pending = [(*pair, *more) for pair, decided in cheap.items() if decided is None]
    dear = iter(_run(kind, pending, **limits) if pending else ())
    return {
        pair: (decided or _said(kind, next(dear)))._replace(grader=name)
        for pair, decided in cheap.items()
    }


def _said(kind: str, result: Any) -> Grade:
    """What a worker returned as a grade; None where it was stopped."""
    if result is None:
        return Grade("timeout", "limits", "the comparison ran out of time or memory")
    outcome, reason = result if type(result) is tuple else (result, _REASONS[kind][result])
    return Grade(outcome, kind, reason)


def failed(error: Exception) -> Grade:
    """The grade of an attempt on which the grader raised an exception.

    >>> failed(ValueError("no\\nnumber"))[:3]
    ('error', 'limits', 'ValueError: no number')
    """
    return Grade("error", "limits", " ".join(f"{type(error).__name__}: {error}".split())[:300])


def grade_answer(
    gold: str, answer: str, *, conventions: Conventions = STRICT, **limits: Any
) -> Grade:
    r"""Grade one answer; for many, `grade` is far faster.

    `answer` is the candidate's, without the box: for a whole completion, `extract` it first.
    `limits` are `timeout_s` and `memory_mb` of `grade`.

    >>> grade_answer(r"\frac{1}{2}", "0.5")
    Grade(outcome='correct', layer='number', reason='the same number', grader='math')
    >>> grade_answer("2", r"2\%").outcome
    'wrong'
    """
    pair = (gold, answer)
    return grade([pair], conventions=conventions, **limits)[pair]


def in_form(grade: Grade, gold: str, answer: str) -> Grade:
    r"""The grade of a pair where the question asks for the form of the gold answer, see `form`.

    >>> in_form(grade_answer("2/3", "4/6"), "2/3", "4/6")
    Grade(outcome='wrong', layer='form', reason='equal value in another form', grader='math')
    """
    try:
        if grade.outcome != "correct" or grade.grader != "math" or same_form(gold, answer):
            return grade
    except Exception as error:
        return failed(error)
    return Grade("wrong", "form", "equal value in another form")


def check_golds(golds: Iterable[str], *, answer: str = "math") -> dict[str, str | None]:
    """Say in a few words why each gold answer cannot be graded against, or None if it can.

    >>> check_golds(["025", "  "])
    {'025': None, '  ': 'it is empty'}
    """
    if answer != "math":
        return {gold: kinds.KINDS[kinds.of(answer)].gold(gold) for gold in golds}
    return {gold: _refusal(unboxed(gold)) for gold in dict.fromkeys(golds)}


def _refusal(text: str) -> str | None:
    """Why a text is not read, or None if it is."""
    if not text.strip():
        return "it is empty"
    if len(text.strip()) > MAX_CHARS:
        return f"it has more than {MAX_CHARS} characters"
    return None if readable(clean(text)) else "it is no mathematics that the grader can read"


def _grade_cheaply(gold: str, answer: str, kind: str, conventions: Conventions) -> Grade | None:
    try:
        if compare := kinds.KINDS[kind].compare:
            said, why = compare(gold, answer, conventions)
            return Grade(said, kind, why)
        decision = decide(gold, answer, conventions)
        if decision is not None:
            outcome: Outcome = "correct" if decision.equal else "wrong"
            return Grade(outcome, decision.layer, _REASONS[decision.layer][outcome])
        # A refused text can still be the same text; anything else about it is unknown.
        for side, text in (("gold answer", unboxed(gold)), ("answer", answer)):
            if reason := _refusal(text):
                return Grade("unparsable", "limits", f"the {side} is not read: {reason}")
    except Exception as error:  # whatever hostile text brings about is the outcome of that text
        return failed(error)
    return None


def _work(kind: str, task: Sequence[Any], cpu_s: float) -> Any:
    """Run one task in a worker: an outcome, or None for out of memory."""
    from bayes_at_n.verifiers.maths import symbolic  # heavy, and only ever wanted in a worker

    functions: dict[str, Callable[..., Any]] = {
        "algebra": symbolic.judge,
        "plain": symbolic.plain,
        "python": own.call,
    }
    symbolic.limit_cpu(cpu_s)
    try:
        return functions[kind](*task)
    except MemoryError:
        return None
    except Exception as error:  # whatever a parser may raise on hostile text
        return "error", failed(error).reason


def _start(memory_mb: int, function: str | None) -> None:
    from bayes_at_n.verifiers.maths import symbolic  # so that no task's clock pays for it

    symbolic.init_worker(memory_mb)
    if function:
        with contextlib.suppress(Exception, SystemExit):  # a task says what is wrong
            own.load(function)


class _Process(ForkServerProcess):
    """A worker that does not import the main script, which may have no guard."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        with _starting:
            main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
            try:
                return ForkServerProcess._Popen(process_obj)
            finally:
                sys.modules["__main__"] = main


class _Context(ForkServerContext):
    Process: ClassVar[type[ForkServerProcess]] = _Process


def _run(
    kind: str, tasks: Sequence[Any], workers: int | None, timeout_s: float, memory_mb: int
) -> list[Any]:
    """What `_work` returns for each task, from killable workers; None for one that was killed."""
    from pebble import ProcessPool  # with asyncio; few questions need it

    context = _Context()
    # Imported once in the server, so that replacing a killed worker costs milliseconds. Ignored
    # if the program already runs a fork server; then each worker imports it anew.
    context.set_forkserver_preload(["bayes_at_n.verifiers.maths.symbolic"])
    pool = ProcessPool(
        max_workers=min(workers or os.cpu_count() or 1, len(tasks)),
        context=context,
        initializer=_start,
        initargs=(memory_mb, tasks[-1][-1] if kind == "python" else None),
    )
    try:
        _await_start(pool)
        futures = [
            pool.schedule(_work, args=(kind, task, timeout_s), timeout=_WALL * timeout_s)
            for task in tasks
        ]
        results = [_result(future) for future in futures]
        pool.close()
        return results
    except BaseException:
        pool.stop()  # on Ctrl-C no worker outlives the call
        raise
    finally:
        pool.join()  # a worker that was just replaced is not torn down half-started


def _await_start(pool: "ProcessPool") -> None:
    """Fail with a readable error where workers cannot start, instead of replacing them for ever."""
    from pebble import ProcessExpired

    try:
        pool.schedule(os.getpid).result(timeout=START_S)
    except (FutureTimeout, ProcessExpired, BrokenProcessPool) as error:
        raise RuntimeError(
            f"grading: worker processes do not start ({type(error).__name__}); memory_mb must"
            " leave room for SymPy (about 512)"
        ) from error


def _result(future: Future[Any]) -> Any:
    from pebble import ProcessExpired

    try:
        return future.result()
    except (FutureTimeout, ProcessExpired, MemoryError):
        return None
