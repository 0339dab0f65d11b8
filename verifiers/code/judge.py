"""What runs tests, in a sandbox of its own, and asks an untrusted program's process for results.

It is sent as text to a bare interpreter that serves one job after another, each in a fork. What a
program sends is decoded into plain values, which tests compare here, where no program reaches; an
object of the program's own stays there, and has neither a truth value nor equals. So no test can
be passed but by right results.
"""

import ast
import builtins
import decimal
import fractions
import functools
import json
import marshal
import os
import resource
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

MOST = 32 << 20  # bytes of a message from a program
_SHAPES: dict[str, Any] = {
    "ready": [],
    "value": [object, list],
    "ran": [str, int, str],
}  # of messages, by kind
_SHOWN = 120  # characters of a value in a reason


class Gone(BaseException):
    """The program's process ended, or sent what cannot be read."""


class ProgramError(Exception):
    """What the program raised."""


class Failed(Exception):
    """A test failed: a word and a reason."""


class Channel:
    """Requests to a program's process and their answers."""

    def __init__(self, fd: int) -> None:
        self.socket = socket.socket(fileno=fd)
        self.last = ""  # what was called, and what it returned

    def ask(self, *request: Any) -> Any:
        """Send a request, and return the answer. Raises Gone, or a ProgramError."""
        data = marshal.dumps(request, 2)
        try:
            self.socket.sendall(len(data).to_bytes(8, "big") + data)
        except OSError:
            raise Gone from None
        return self.answer()

    def answer(self) -> Any:
        """Return the value of the next message."""
        size = int.from_bytes(self._read(8), "big")
        if size > MOST:
            raise Gone
        try:
            kind, *rest = json.loads(self._read(size), object_hook=self._decode)
            if kind == "raised" and all(type(part) is str for part in rest):
                raise _error(*rest)
            shapes = _SHAPES[kind]
            if not all(map(isinstance, rest, shapes)) or len(rest) != len(shapes):
                raise ValueError
            return rest
        except (ValueError, TypeError, KeyError, RecursionError, ArithmeticError) as error:
            if isinstance(error, ProgramError):
                raise
            raise Gone from None

    def _read(self, size: int) -> bytes:
        parts, left = list[bytes](), size
        while left:
            try:
                parts.append(self.socket.recv(min(left, 1 << 20)))
            except OSError:
                raise Gone from None
            if not parts[-1]:
                raise Gone
            left -= len(parts[-1])
        return b"".join(parts)

    def _decode(self, item: dict[str, Any]) -> Any:
        [(kind, value)] = item.items()
        if kind == "object":
            return Remote(self, int(value))
        return _DECODE[kind](value)


def _array(value: Any) -> Any:
    import numpy as np

    return np.array(value)


_DECODE: dict[str, Any] = {
    "int": lambda text: int(text, 16),
    "bytes": bytes.fromhex,
    "complex": lambda parts: complex(*parts),
    "Decimal": decimal.Decimal,
    "Fraction": fractions.Fraction,
    "array": _array,
    "iter": iter,
    "range": lambda ends: range(*ends),
} | {kind.__name__: kind for kind in (dict, tuple, set, frozenset, list)}


def _error(name: str, text: str) -> ProgramError:
    """Return what the program raised as an exception of the same name, if that is built in."""
    kind: Any = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            error: ProgramError = type(name, (ProgramError, kind), {})(text)
            return error
        except TypeError:
            pass
    return ProgramError(text)


class Remote:
    """A function, or an object, in the program's process."""

    def __init__(self, channel: Channel, number: int | None, name: str = "") -> None:
        self._at = (channel, number, name)

    def __call__(self, *given: Any, **named: Any) -> Any:
        channel, number, name = self._at
        try:
            result, changed = channel.ask("call", number, name, given, named)
        except ValueError as error:
            if isinstance(error, ProgramError):
                raise
            ours = [_sendable(part) for part in (given, named)]
            result, changed = channel.ask("call_objects", number, name, *ours)
        if result is None:  # else it could change what is expected
            for place, now in changed:
                _update(given[place], now)
        shown = ", ".join([*(f"{part!r:.{_SHOWN}}" for part in given), *named])
        channel.last = f"{name or 'it'}({shown:.{_SHOWN}}) returned {_show(result)}"
        return result

    def __getattr__(self, name: str) -> Any:
        channel, number, own = self._at
        if name.startswith("__") or own:
            raise AttributeError(name)
        result, _ = channel.ask("get", number, name)
        return result

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, Remote) and self._at[1] == other._at[1]:
            return self._at[2] == other._at[2]
        raise TypeError("the program returned an object that is no plain value")

    __ne__ = __eq__
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("the program returned an object that is no plain value")

    def __repr__(self) -> str:
        return "an object of its own"


def _show(value: Any) -> str:
    try:
        return f"{value!r:.{_SHOWN}}"
    except ValueError:  # an integer of very many digits
        return f"a value of type {type(value).__name__}"


def _sendable(value: Any) -> Any:
    """Return arguments in which (..., n) stands for an object of the program."""
    if type(value) is Remote:
        return (..., value._at[1])
    if type(value) is dict:
        return {key: _sendable(item) for key, item in value.items()}
    return type(value)(map(_sendable, value)) if type(value) in (list, tuple) else value


def _update(own: Any, now: Any) -> None:
    """Change an argument in place as the program did."""
    if type(own) is not type(now):
        raise Gone
    if type(own) is list:
        own[:] = now
    else:
        own.clear()
        own.update(now)


@functools.lru_cache(4)
def prepared(gold: str) -> tuple[dict[str, Any], list[Any], tuple[set[str], set[str]]]:
    """Return tests, the compiled setup, and the names that these do not define (`_unbound`)."""
    tests = json.loads(gold)
    setup = [code for code in (tests["before"], tests["setup"]) if code.strip()]
    compiled, trees = list[Any](), list[ast.AST]()
    for number, code in enumerate([*setup, *tests.get("tests", ())]):
        try:
            trees.append(ast.parse(code, "<test>"))
        except SyntaxError:  # a prompt that ends in the middle
            if number or not tests["before"]:
                raise
            continue
        if number < len(setup):
            name = "<setup>" if number or not tests["before"] else "<prompt>"
            compiled.append(compile(code, name, "exec"))
    tests["tests"] = [(code, compile(code, "<test>", "exec")) for code in tests.get("tests", ())]
    return tests, compiled, _unbound(trees, bool(tests["entry"]))


def _unbound(trees: list[ast.AST], named: bool) -> tuple[set[str], set[str]]:
    """Return names that tests use and do not define: of the program, and of Python's modules.

    If there is none of the program, it is the builtin that they test, unless they name a function.
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    loaded = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    bound |= {getattr(n, "name", "") or "" for n in nodes}
    for node in nodes:
        if isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
    called = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    modules = {*sys.stdlib_module_names} - called  # such as `math`, which the program imports
    names = loaded - bound - {*dir(builtins)}
    if named or names - modules:
        return names - modules, names & modules
    for node in nodes:  # such as `assert sum(10, 15) == 6`
        if isinstance(node, ast.Assert):
            left = node.test.left if isinstance(node.test, ast.Compare) else node.test
            if isinstance(left, ast.Call) and isinstance(left.func, ast.Name):
                names |= {left.func.id} - bound
    return names - modules, names & modules


def judge(gold: str, channel: Channel) -> tuple[str, str]:
    """Return a word for how the tests went, and the reason.

    After a failure the other tests run, too, for partial credit, while the program can go on.
    """
    tests, setup, names = prepared(gold)
    every: list[Any] = tests.get("runs") or tests.get("calls") or tests["tests"]

    def begin() -> Callable[[Any], None]:
        channel.answer()  # the program was run
        if "runs" in tests:
            return functools.partial(_run, channel)
        if "calls" in tests:
            return functools.partial(_call, channel, _function(tests["entry"], channel))
        space = _space(tests["entry"], setup, names, channel)
        return functools.partial(_assert, channel, space, tests["setup"])

    word, reason, test = _tried(begin)
    if word:
        return word, f"{reason} (before the tests)"
    first, passed = ("passed", ""), 0
    for number, one in enumerate(every, 1):
        word, reason, _ = _tried(functools.partial(test, one))
        passed += not word
        if word and first[0] == "passed":
            first = word, f"; test {number} of {len(every)}: {reason}"
        if word in ("cpu", "memory", "gone"):
            break
    return first[0], f"passed {passed} of {len(every)} tests{first[1]}"


def _tried(action: Callable[[], Any]) -> tuple[str, str, Any]:
    """Return the word and reason of a failure, or two empty texts and the result of an action."""
    try:
        return "", "", action()
    except Failed as error:
        return *error.args, None
    except ProgramError as error:
        return *_raised(*error.args), None
    except Gone:
        return "gone", "no answer", None
    except (Exception, SystemExit) as error:
        return "wrong", f"{type(error).__name__}: {error!s:.{_SHOWN}}", None


def _raised(*said: Any) -> tuple[str, str]:
    """Return word and reason for the arguments of an exception."""
    text = str(said[0]) if said else ""
    return ("memory" if text.startswith("MemoryError") else "raised"), text


def _run(channel: Channel, test: list[str]) -> None:
    """Compare what the program prints with what is expected. Raises Failed."""
    given, wanted = test
    out, status, said = channel.ask("run", None, given)
    if status in (-24, -9):
        raise Failed("cpu", "out of processor time")
    if said or status:
        ended = f"signal {-status}" if status < 0 else f"exit status {status}"
        raise Failed(*_raised(said or ended))
    if not _same_output(out, wanted):
        raise Failed("wrong", f"expected {_show(wanted)}, got {_show(out)}")


def _same_output(out: str, wanted: str) -> bool:
    """Compare line by line, without spaces around, and numbers by value."""
    lines, expected = (
        [line.strip() for line in text.strip().splitlines()] for text in (out, wanted)
    )
    if lines == expected:
        return True
    if len(lines) != len(expected):
        return False
    try:
        return all(
            [decimal.Decimal(word) for word in a.split()]
            == [decimal.Decimal(word) for word in b.split()]
            for a, b in zip(lines, expected, strict=True)
            if a != b
        )
    except ArithmeticError:
        return False


def _function(entry: str, channel: Channel) -> Remote:
    """Return the tested function: of the class `Solution`, if the program has one."""
    try:
        solution, _ = channel.ask("get", None, "Solution")
    except ProgramError:
        return Remote(channel, None, entry)
    return Remote(channel, solution()._at[1], entry)


def _call(channel: Channel, function: Remote, test: list[Any]) -> None:
    """Compare what a call returns with what is expected. Raises Failed."""
    given, wanted = test
    result = function(*given)
    result = list(result) if type(result) is tuple else result
    if result != wanted:
        raise Failed("wrong", f"{channel.last}, expected {_show(wanted)}")


def _space(
    entry: str, setup: list[Any], names: tuple[set[str], set[str]], channel: Channel
) -> dict[str, Any]:
    """Return the names that assertions see, after their setup has run."""
    space: dict[str, Any] = {"__name__": "tests"}
    space |= {name: __import__(name) for name in names[1]}
    if entry:
        for code in setup:
            if code.co_filename == "<prompt>":
                exec(code, space)
        space["candidate"] = space[entry] = Remote(channel, None, entry)
    for code in setup:
        if code.co_filename == "<setup>":
            exec(code, space)
    for name in names[0] - space.keys():
        space[name] = Remote(channel, None, name)
    return space


def _assert(channel: Channel, space: dict[str, Any], setup: str, test: tuple[str, Any]) -> None:
    """Run assertions. Raises Failed, with the line that failed."""
    text, code = test
    channel.last = ""
    try:
        exec(code, space)
    except ProgramError as error:
        word, reason = _raised(*error.args)
        raise Failed(word, f"{_line(error, setup, text)}: {reason}") from error
    except AssertionError as error:
        raise Failed("wrong", f"{_line(error, setup, text)}; {channel.last}") from error


def _line(error: BaseException, setup: str, test: str) -> str:
    """Return the line of a test that failed."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        lines = (setup if frame.filename == "<setup>" else test).splitlines()
        if frame.filename in ("<test>", "<setup>") and 0 < (frame.lineno or 0) <= len(lines):
            return str(lines[frame.lineno - 1].strip()[:_SHOWN])  # type: ignore[operator]
    return ""


def serve() -> None:
    """Judge jobs until there are no more: each a gold answer, with a socket to its program."""
    parent = socket.socket(fileno=os.dup(0))
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    sys.set_int_max_str_digits(0)
    while True:
        head, fds, _, _ = socket.recv_fds(parent, 8, 1)
        if not head:
            return
        size, parts = int.from_bytes(head, "big"), list[bytes]()
        while size:
            parts.append(parent.recv(size))
            size -= len(parts[-1])
        limits, gold = marshal.loads(b"".join(parts))
        fault = ""
        try:
            prepared(gold)
        except Exception as error:
            fault = f"the tests cannot be used: {type(error).__name__}: {error}"
        if not (pid := os.fork()):
            _job(parent, fds[0], limits, gold, fault)
        os.close(fds[0])
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status:
            _send(parent, "cpu" if status in (-24, -9) else "gone", "in the tests")


def _job(parent: Any, fd: int, limits: tuple[int, int, int], gold: str, fault: str) -> None:
    cpu_s, memory, processes = limits  # of the program, and of its tests, too
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    if processes:
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    channel, word, reason = Channel(fd), "nostart", ""
    try:
        if channel.answer() == []:
            word, reason = ("broken", fault) if fault else judge(gold, channel)
    except Gone:
        pass
    except MemoryError:
        word, reason = "memory", "the tests ran out of memory"
    except BaseException as error:
        word, reason = "broken", f"{type(error).__name__}: {error}"
    _send(parent, word, reason)
    os._exit(0)


def _send(parent: Any, word: str, reason: str) -> None:
    data = json.dumps([word, reason[:600]]).encode()
    parent.sendall(len(data).to_bytes(8, "big") + data)


if __name__ == "__main__":
    serve()
