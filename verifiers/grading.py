r"""Grade pairs of gold and extracted answer, each unique pair once, whatever the answers hold.

Cheap layers with bounded cost run in the calling process; what they leave open is parsed and
compared by math_verify in worker processes with a memory limit and a clock that starts when the
work starts. If every pair is decided cheaply, no process is started.

>>> grade([("25", "025"), ("7", "8"), ("7", " "), ("25", "025")])
{('25', '025'): 'correct', ('7', '8'): 'wrong', ('7', ' '): 'unparsable'}
"""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures import TimeoutError as FutureTimeout
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Literal

from pebble import ProcessExpired, ProcessPool

from verifiers.compare import compare, reduce_pair
from verifiers.exact import read_number
from verifiers.latex import MAX_CHARS, clean, refusal

START_S = 120  # for the first worker, which imports SymPy; far more than a busy machine needs

Outcome = Literal["correct", "wrong", "no_answer", "unparsable", "timeout"]
Pair = tuple[str, str]


def grade(
    pairs: Iterable[Pair],
    *,
    workers: int | None = None,
    timeout_s: float = 10,
    memory_mb: int = 2048,
    on_done: Callable[[Pair, Outcome], None] | None = None,
) -> dict[Pair, Outcome]:
    """Grade every unique (gold, answer) pair.

    Outcomes: "correct" and "wrong" are verdicts. "unparsable": the gold or the answer is blank,
    longer than 1,000 characters (unless both are the same text), or cannot be read or compared
    as mathematics. "timeout": the comparison ran out of its time or memory, or its worker
    died. "no_answer" is never returned; it is for callers whose extraction found no box.

    Workers are fresh interpreters (fork server), so this is safe beside threads of torch or vLLM;
    as with all such processes a script needs the `if __name__ == "__main__"` guard.

    Args:
        pairs: (gold, answer) texts; duplicates are graded once. The order of comparison
            matters: gold first.
        workers: processes at most; default: the CPUs this process may use.
        timeout_s: seconds of wall time for one pair, counted from the start of its work.
        memory_mb: address space of one worker in MiB; at least about 512 is needed.
        on_done: called in the calling thread after each pair, for progress or durable storage.

    Returns:
        A dict from pair to outcome, in the order of first appearance.

    Raises:
        RuntimeError: worker processes cannot be started.
    """
    outcomes: dict[Pair, Outcome | None] = {}
    owed: list[Pair] = []
    for pair in pairs:
        if pair in outcomes:
            continue
        outcome = outcomes[pair] = _grade_cheaply(*pair)
        if outcome is None:
            owed.append(pair)
        elif on_done:
            on_done(pair, outcome)

    def finish(index: int, result: Any) -> None:
        outcome: Outcome = "timeout" if result is None else result
        outcomes[owed[index]] = outcome
        if on_done:
            on_done(owed[index], outcome)

    tasks = [reduce_pair(*pair) for pair in owed]
    _run("judge", tasks, finish, workers, timeout_s, memory_mb)
    return outcomes  # type: ignore[return-value]  # every None has been replaced


def check_gold(gold: str) -> str | None:
    r"""Say in a few words why a gold answer cannot be graded against, or None if it can.

    >>> check_gold("025"), check_gold("  ")
    (None, 'it is empty')
    """
    return check_golds([gold])[gold]


def check_golds(
    golds: Iterable[str],
    *,
    workers: int | None = None,
    timeout_s: float = 10,
    memory_mb: int = 2048,
) -> dict[str, str | None]:
    """Do `check_gold` for many golds with one set of worker processes."""
    reasons: dict[str, str | None] = {}
    owed = []
    for gold in dict.fromkeys(golds):
        reasons[gold] = reason = _refuse(gold)
        if reason is None and read_number(clean(gold)) is None:
            owed.append(gold)

    def finish(index: int, result: Any) -> None:
        reasons[owed[index]] = "reading it takes too long" if result is None else result[0]

    tasks = [(gold,) for gold in owed]
    _run("check", tasks, finish, workers, timeout_s, memory_mb)
    return reasons


def _refuse(text: str) -> str | None:
    if len(text.strip()) > MAX_CHARS:
        return f"it has more than {MAX_CHARS} characters"
    cleaned = clean(text)
    return None if read_number(cleaned) else refusal(cleaned)


def _grade_cheaply(gold: str, answer: str) -> Outcome | None:
    verdict = compare(gold, answer)
    if verdict is not None:
        return "correct" if verdict else "wrong"
    # A refused text can still be the same text; anything else about it is unknown.
    return "unparsable" if _refuse(gold) or _refuse(answer) else None


def _work(kind: str, task: Sequence[str]) -> Any:
    """Run one task in a worker: an outcome, a 1-tuple with a reason, or None for out of memory."""
    from verifiers import symbolic  # heavy, and only ever wanted in a worker

    try:
        if kind == "check":
            return (symbolic.why_unreadable(task[0]),)
        return symbolic.judge(task[0], task[1])
    except MemoryError:
        return None
    except Exception as error:  # whatever a parser may raise on hostile text
        return (f"reading it fails: {type(error).__name__}",) if kind == "check" else "unparsable"


def _await_start(pool: ProcessPool) -> None:
    """Fail with a readable error where workers cannot start, instead of replacing them for ever."""
    try:
        pool.schedule(os.getpid).result(timeout=START_S)
    except (FutureTimeout, ProcessExpired, BrokenProcessPool) as error:
        raise RuntimeError(
            f"grading: worker processes do not start ({type(error).__name__}); a script that "
            'grades needs an `if __name__ == "__main__":` guard and cannot be read from standard '
            "input, and memory_mb must leave room for SymPy (about 512)"
        ) from error


def _start(memory_mb: int) -> None:
    from verifiers import symbolic  # imported here so that no task's clock pays for it

    symbolic.init_worker(memory_mb)


def _run(
    kind: str,
    tasks: Sequence[Any],
    finish: Callable[[int, Any], None],
    workers: int | None,
    timeout_s: float,
    memory_mb: int,
) -> None:
    """Run tasks in killable workers; `finish(index, result)` gets None for a killed one."""
    if not tasks:
        return
    context = multiprocessing.get_context("forkserver")
    # Imported once in the server, so that replacing a killed worker costs milliseconds. Ignored
    # if the program already runs a fork server; then each worker imports it anew.
    context.set_forkserver_preload(["verifiers.symbolic"])
    pool = ProcessPool(
        max_workers=min(workers or os.cpu_count() or 1, len(tasks)),
        context=context,
        initializer=_start,
        initargs=(memory_mb,),
    )
    try:
        _await_start(pool)
        futures: dict[Future[Any], int] = {
            pool.schedule(_work, args=(kind, task), timeout=timeout_s): index
            for index, task in enumerate(tasks)
        }
        for future in as_completed(futures):
            try:
                result = future.result()
            except (FutureTimeout, ProcessExpired, MemoryError):
                result = None
            finish(futures[future], result)
    finally:
        pool.stop()  # also on Ctrl-C: no worker outlives the call
        pool.join()
