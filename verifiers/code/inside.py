"""What runs beside an untrusted program in its sandbox; it receives arguments and no test.

It is sent as text to a bare interpreter, so it imports little and nothing of this package. All of
it is at the program's mercy: nothing that it says is believed, except as the value of a result.
"""

from __future__ import annotations

import _json
import marshal
import os
import resource
import sys

TYPE_CHECKING = False  # to import typing takes longer than to start Python
if TYPE_CHECKING:
    from typing import Any

MOST = 8 << 20  # bytes of a result or an output
BUILD_S = 30  # processor seconds of a compiler
channel = os.dup(0) if __name__ == "__main__" else -1
objects: list[Any] = []  # those that cannot be sent, by number


def receive() -> Any:
    """Return the next request; the process ends where there is none."""
    parts, left = [], int.from_bytes(_read(8), "big")
    while left:
        parts.append(_read(min(left, 1 << 20)))
        left -= len(parts[-1])
    return marshal.loads(b"".join(parts))


def _read(size: int) -> bytes:
    data = os.read(channel, size)
    if not data:
        os._exit(0)
    return data


def send(text: str) -> None:
    """Send a JSON text."""
    data = text.encode()
    data = len(data).to_bytes(8, "big") + data
    while data:
        data = data[os.write(channel, data) :]


def encode(value: Any) -> str:
    """Return a value as JSON, in which an object has one key, the type of what it holds."""
    kind = type(value)
    if value is None or kind is bool:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        small = -(1 << 62) < value < 1 << 62
        return int.__repr__(int(value)) if small else f'{{"int": "{int(value):x}"}}'
    if isinstance(value, float):
        text = float.__repr__(value)
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text)
    if isinstance(value, str):
        return _json.encode_basestring_ascii(str(value))
    if kind is list:
        return f"[{','.join(map(encode, value))}]"
    if isinstance(value, dict):
        pairs = ",".join(f"[{encode(k)},{encode(v)}]" for k, v in value.items())
        return f'{{"dict": [{pairs}]}}'
    for base in (tuple, set, frozenset, list):
        if isinstance(value, base):
            return f'{{"{base.__name__}": [{",".join(map(encode, value))}]}}'
    if isinstance(value, bytes):
        return f'{{"bytes": "{value.hex()}"}}'
    if kind is complex:
        return f'{{"complex": [{encode(value.real)},{encode(value.imag)}]}}'
    if kind.__module__ in ("decimal", "fractions") and kind.__name__ in ("Decimal", "Fraction"):
        return f'{{"{kind.__name__}": "{value!s}"}}'
    if kind.__module__ == "numpy":
        return f'{{"array": {encode(value.tolist())}}}' if value.ndim else encode(value.item())
    if kind is range:
        return f'{{"range": [{value.start},{value.stop},{value.step}]}}'
    if hasattr(kind, "__next__"):
        return f'{{"iter": [{",".join(map(encode, value))}]}}'
    objects.append(value)
    return f'{{"object": {len(objects) - 1}}}'


def decode(value: Any) -> Any:
    """Return arguments, in which (..., n) stands for an object that was not sent."""
    if type(value) is tuple and len(value) == 2 and value[0] is ...:
        return objects[value[1]]
    if type(value) is dict:
        return {key: decode(item) for key, item in value.items()}
    return type(value)(map(decode, value)) if type(value) in (list, tuple) else value


def call(function: Any, given: Any, named: Any) -> str:
    """Return the result of a call, and with None the arguments that it changed in place."""
    kept = {i: _dump(a) for i, a in enumerate(given) if type(a) in (list, dict, set)}
    result = encode(function(*given, **named))
    changed = [i for i, was in kept.items() if result == "null" and _dump(given[i]) != was]
    after = ",".join(f"[{i},{encode(given[i])}]" for i in changed)
    return f'["value", {result}, [{after}]]'


def _dump(value: Any) -> bytes:
    try:
        return marshal.dumps(value, 2)
    except ValueError:
        return b""


def run(code: Any, text: str) -> str:
    """Return what the program prints for a standard input, in a process of its own.

    `code`: of a module, or a command.
    """
    outs, stdin, errors = os.pipe(), os.memfd_create("stdin"), os.memfd_create("stderr")
    with open(stdin, "wb", closefd=False) as file:
        file.write(text.encode())
    os.lseek(stdin, 0, 0)
    if not (pid := os.fork()):
        os.dup2(stdin, 0)
        os.dup2(outs[1], 1)
        for fd in (channel, stdin, *outs):
            os.close(fd)
        if type(code) is list:
            os.dup2(errors, 2)
            os.execvp(code[0], code)
        _run(code, errors)
    os.close(outs[1])
    parts, size = [], 0
    while size <= MOST and (data := os.read(outs[0], 1 << 16)):
        parts.append(data)
        size += len(data)
    if size > MOST:
        os.kill(pid, 9)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said = " ".join(os.pread(errors, 1000, 0).decode(errors="replace").split()) * bool(status)
    for fd in (stdin, outs[0], errors):
        os.close(fd)
    if size > MOST:
        raise OverflowError(f"more than {MOST >> 20} MiB of output")
    out = b"".join(parts).decode(errors="replace")
    return f'["ran", {encode(out)}, {status}, {encode(said)}]'


def _run(code: Any, errors: int) -> None:
    status = 0
    try:
        try:
            exec(code, sys.modules["__main__"].__dict__)
            if "threading" in sys.modules:
                sys.modules["threading"]._shutdown()
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else bool(error.code)
        sys.stdout.flush()
    except BaseException as error:
        os.write(errors, said(error).encode(errors="replace"))
        status = 1
    os._exit(status & 255)


def said(error: BaseException) -> str:
    """Return an exception in a line."""
    try:
        text = " ".join(f"{type(error).__name__}: {error}".split())
    except BaseException:
        text = type(error).__name__
    return text[:300]


def compiled(before: str, program: str) -> Any:
    """Return the program behind what it continues, or alone where these do not fit together."""
    try:
        return compile(before + program, "<program>", "exec")
    except SyntaxError:
        return compile(program, "<program>", "exec")


def build(file: str, command: list[str], program: str, memory: int, processes: int) -> str:
    """Write a program's file and build it; return what the compiler writes if it fails."""
    with open(file, "w", encoding="utf-8") as target:
        target.write(program)
    errors = os.memfd_create("stderr")
    if command and not (pid := os.fork()):
        limit(BUILD_S, memory, processes, written=True)
        os.dup2(errors, 2)
        os.execvp(command[0], command)
    status = os.waitpid(pid, 0)[1] if command else 0
    return f"CompileError: {os.pread(errors, 1000, 0).decode(errors='replace')}" if status else ""


def limit(cpu_s: int, memory: int, processes: int, written: bool = False) -> None:
    """Limit this process and those that it starts; with 0 processes any number may be started.

    `written`: limit memory that is written, not addresses, of which virtual machines reserve many.
    """
    for what, most in (
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_DATA if written else resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, 16 << 20),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, processes),
    ):
        if what != resource.RLIMIT_NPROC or most:
            hard = most + 1 if what == resource.RLIMIT_CPU else most  # SIGXCPU, then SIGKILL
            resource.setrlimit(what, (most, hard))


def main() -> None:
    """Answer requests until the program or the tests end."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    send('["ready"]')
    (cpu_s, memory, processes), before, program, of_runs, (file, command, start) = receive()
    failed = build(file, command, program, memory, processes) if file else ""
    limit(cpu_s, memory, processes, written=bool(file))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))  # a file in memory counts in none of these
    sys.set_int_max_str_digits(0)
    module = type(sys)("__main__" if of_runs else "program")
    sys.modules[module.__name__] = module
    code: Any = None
    while True:
        try:
            if code is None:
                if failed:
                    raise SyntaxError(failed)
                code = start or compiled(before, program)
                answer = '["value", null, []]'
                if not of_runs:
                    exec(code, module.__dict__)
            else:
                answer = replied(receive(), code, module)
        except BaseException as error:
            answer = f'["raised", {encode(type(error).__name__)}, {encode(said(error))}]'
        if len(answer) > MOST:
            answer = '["raised", "OverflowError", "OverflowError: more than 8 MiB of output"]'
        send(answer)


def replied(request: Any, code: Any, module: Any) -> str:
    """Return the answer to a request: to run, to read a name, or to call what it names."""
    kind, target, name, *rest = request
    if kind == "run":
        return run(code, name)
    owner = module if target is None else objects[target]
    found = getattr(owner, name) if name else owner
    if kind == "get":
        return f'["value", {encode(found)}, []]'
    given, named = rest if kind == "call" else map(decode, rest)
    return call(found, given, named)


if __name__ == "__main__":
    main()
