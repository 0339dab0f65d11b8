"""A reverse proxy before a real server of OpenAI's protocol, which goes wrong on order.

    with faulty(server.address, spread(FAULTS, times=4)) as proxy: ...

A plan says for the n-th POST, counted from 0, which fault it meets; None: it is passed on as it is.
"""

import asyncio
import collections
import contextlib
import json
import random
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

Plan = Callable[[int], str | None]
Body = dict[str, Any]
Edit = Callable[[Body], Any]
RETRY_S = 1  # of Retry-After
AWAY_S = 0.3  # how long a fault "refused" keeps the port closed
KEPT = ("authorization", "content-type", "x-request-id")  # headers


def at(faults: Mapping[int, str]) -> Plan:
    """These requests meet these faults."""
    return faults.get


def always(fault: str | None) -> Plan:
    """All requests meet one fault."""
    return lambda number: fault


def spread(faults: Iterable[str], times: int = 1, every: float = 2, seed: int = 0) -> Plan:
    """Every fault so many times, in an order of chance, one for every so many requests."""
    order = [fault for fault in faults for _ in range(times)]
    random.Random(seed).shuffle(order)
    return {int(number * every): fault for number, fault in enumerate(order)}.get


class Proxy:
    """What a proxy is told and has counted; `plan` and `upstream` may be changed at any time."""

    def __init__(self, upstream: str) -> None:
        self.upstream, self.loop = upstream, asyncio.new_event_loop()
        self.in_flight = 0  # forwarded, and not answered yet
        self.keys = set[str]()  # that clients have sent
        self.hits = collections.Counter[str]()
        # Bound for good, so that nobody else is given the port while it is closed.
        self.port = socket.socket()
        self.port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.port.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.port.getsockname()[1]}/v1"
        self.reset()

    def reset(self, plan: Plan | None = None) -> None:
        """Count from 0 again; without a plan nothing goes wrong."""
        self.plan = plan or always(None)
        self.posts = self.endless_bytes = 0
        self.dropped = 0  # closed by the client before the end of the answer
        self.first: web.Response | None = None
        self.hits.clear()
        self.keys.clear()

    def open(self) -> None:
        """Listen again, on the same port."""
        asyncio.run_coroutine_threadsafe(self.listen(), self.loop).result()

    async def start(self) -> None:
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
        )
        self.server = web.Server(self._handle, handler_cancellation=True)
        self.runner = web.ServerRunner(self.server, shutdown_timeout=0)
        await self.runner.setup()
        await self.listen()

    async def stop(self) -> None:
        await self.close(everything=True)
        await self.runner.cleanup()
        await self.session.close()
        self.port.close()

    async def listen(self) -> None:
        host, port = self.port.getsockname()
        self.site = web.TCPSite(self.runner, host, port, reuse_address=True, backlog=4096)
        await self.site.start()

    async def close(self, everything: bool) -> None:
        """Refuse connections, and reset those that there are."""
        if self.site in self.runner.sites:
            await self.site.stop()
        for connection in list(self.server.connections) if everything else ():
            _reset(connection.transport)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        exchange = Exchange(self, request, await request.read())
        self.keys.add(request.headers.get("Authorization", ""))
        fault = None
        if request.method == "POST":
            self.posts += 1
            fault = self.plan(self.posts - 1)
        if fault is not None:
            self.hits[fault] += 1
        try:
            return await (FAULTS[fault] if fault else _pass_on)(exchange)
        except (asyncio.CancelledError, ConnectionError):
            self.dropped += 1
            raise


@dataclass
class Exchange:
    """One request on its way."""

    proxy: Proxy
    request: web.BaseRequest
    body: bytes

    async def forward(self, edit: Edit | None = None) -> web.Response:
        """Ask the server; the connection to it is closed when the client closes its own."""
        proxy, body = self.proxy, self.body
        if edit is not None:
            edit(fields := json.loads(body))
            body = json.dumps(fields).encode()
        headers = {k: v for k, v in self.request.headers.items() if k.lower() in KEPT}
        target = proxy.upstream + self.request.path_qs
        proxy.in_flight += 1
        try:
            sent = proxy.session.request(self.request.method, target, data=body, headers=headers)
            async with sent as answer:
                return _response(answer.status, await answer.read())
        finally:
            proxy.in_flight -= 1

    async def stream(self, length: int | None) -> web.StreamResponse:
        """The head of an answer whose body follows piece by piece; None: of unknown length."""
        head = web.StreamResponse(headers={"Content-Type": "application/json"})
        head.content_length = length
        head.force_close()
        await head.prepare(self.request)
        return head


Fault = Callable[[Exchange], Awaitable[web.StreamResponse]]


def _reset(transport: asyncio.BaseTransport | None) -> None:
    """End a connection with RST instead of FIN."""
    if transport is None:
        return
    linger = struct.pack("ii", 1, 0)
    with contextlib.suppress(OSError):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()  # type: ignore[attr-defined]


def _response(status: int, body: bytes) -> web.Response:
    made = web.Response(status=status, body=body, headers={"Content-Type": "application/json"})
    # While `refused` closes the port, aiohttp may leave what a kept connection brings unread.
    made.force_close()
    return made


def _edited(answer: web.Response, edit: Edit) -> web.Response:
    """The same answer with an edited body; errors stay as they are."""
    if answer.status != 200:
        return answer
    edit(body := json.loads(_bytes(answer)))
    return _response(200, json.dumps(body).encode())


def _bytes(answer: web.Response) -> bytes:
    assert isinstance(answer.body, bytes)
    return answer.body


async def _pass_on(exchange: Exchange) -> web.Response:
    answer = await exchange.forward()
    if exchange.request.method == "POST" and answer.status == 200:
        exchange.proxy.first = exchange.proxy.first or answer
    return answer


def _status(code: int, **headers: str) -> Fault:
    """An error instead of an answer."""

    async def fault(exchange: Exchange) -> web.StreamResponse:
        said = {"message": f"the proxy says {code}", "type": "injected", "code": code}
        of = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response({"error": said}, status=code, headers=of)

    return fault


async def _quoting(exchange: Exchange) -> web.StreamResponse:
    key = exchange.request.headers.get("Authorization", "").removeprefix("Bearer ")
    return web.json_response({"error": {"message": f"Incorrect API key: {key}"}}, status=401)


def _with(answer: Edit | None = None, ask: Edit | None = None) -> Fault:
    """Another answer than the server's, or the answer to another question."""

    async def fault(exchange: Exchange) -> web.StreamResponse:
        made = await exchange.forward(ask)
        return _edited(made, answer) if answer else made

    return fault


def _instead(body: bytes) -> Fault:
    """Something else, after the server has worked for nothing."""

    async def fault(exchange: Exchange) -> web.StreamResponse:
        return _response((await exchange.forward()).status, body)

    return fault


async def _reset_before(exchange: Exchange) -> web.StreamResponse:
    _reset(exchange.request.transport)
    return web.Response()


async def _reset_after(exchange: Exchange) -> web.StreamResponse:
    await exchange.forward()
    return await _reset_before(exchange)


async def _refused(exchange: Exchange) -> web.StreamResponse:
    proxy = exchange.proxy
    if proxy.site in proxy.runner.sites:
        await proxy.close(everything=False)
        proxy.loop.call_later(AWAY_S, lambda: proxy.loop.create_task(proxy.listen()))
    return await _reset_before(exchange)


async def _hang(exchange: Exchange) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def _cut(exchange: Exchange) -> web.StreamResponse:
    body = _bytes(await exchange.forward())
    head = await exchange.stream(len(body))
    await head.write(body[: len(body) // 2])
    assert exchange.request.transport is not None
    exchange.request.transport.close()
    return head


async def _endless(exchange: Exchange) -> web.StreamResponse:
    head, spaces = await exchange.stream(None), b" " * (1 << 16)
    while True:
        await head.write(spaces)
        exchange.proxy.endless_bytes += len(spaces)
        await asyncio.sleep(0)


async def _gone(exchange: Exchange) -> web.StreamResponse:
    """The server is gone, until somebody opens it again."""
    await exchange.proxy.close(everything=True)
    return web.Response()


async def _same(exchange: Exchange) -> web.StreamResponse:
    """The first answer, to every question; only how long that was is right."""
    first, own = exchange.proxy.first, await _pass_on(exchange)
    if first is None:
        return own
    count = json.loads(_bytes(own))["usage"]["prompt_tokens"]
    return _edited(first, lambda body: body["usage"].update(prompt_tokens=count))


def _choices(edit: Edit) -> Edit:
    return lambda body: [edit(choice) for choice in body.get("choices", ())]


def _empty(choice: Body) -> None:
    choice["finish_reason"] = "stop"
    if "message" in choice:
        choice["message"] |= {"content": ""}
    if "text" in choice:
        choice["text"] = ""
    if choice.get("token_ids"):
        choice["token_ids"] = []
    if choice.get("logprobs"):
        choice["logprobs"] = {key: [] for key in choice["logprobs"]}


def _filtered(choice: Body) -> None:
    _empty(choice)
    choice["finish_reason"] = "content_filter"


def _half(body: Body) -> None:
    """Half of the prompt, as a router that cuts what is too long for it."""
    for name in {"prompt", "token_ids"} & set(body):
        body[name] = body[name][len(body[name]) // 2 :]
    for turn in body.get("messages", ()):
        turn["content"] = turn["content"][len(turn["content"]) // 2 :]


def _less_likely(choice: Body) -> None:
    for token in (t for e in choice.get("prompt_logprobs") or () for t in (e or {}).values()):
        token["logprob"] -= 0.3
    if logprobs := choice.get("logprobs"):
        logprobs["token_logprobs"] = [value - 0.3 for value in logprobs["token_logprobs"]]


def _shorter(choice: Body) -> None:
    """One log-prob fewer than tokens."""
    for values in (choice.get("logprobs") or {}).values():
        if values:
            values.pop()


def _without(*names: str) -> Edit:
    return lambda fields: [fields.pop(name, None) for name in names]


def _silent(body: Body) -> None:
    """Neither answer nor choices tell which prompt was read."""
    for of in (body, *body.get("choices", ())):
        of.pop("prompt_token_ids", None)


# These end an attempt, or the run.
ERRORS: dict[str, Fault] = {str(n): _status(n) for n in (400, 401, 403, 404, 413, 422)}
# After these an attempt is asked for again.
PASSING: dict[str, Fault] = {
    **{str(n): _status(n) for n in (408, 429, 500, 501, 502, 503, 504, 529)},
    "429 with seconds": _status(429, Retry_After=str(RETRY_S)),
    "reset before": _reset_before,
    "reset after": _reset_after,
    "refused": _refused,
    "cut": _cut,
    "no JSON": _instead(b'{"choices": [{"text": "4'),
    "no object": _instead(b'["a", "list"]'),
    "empty choices": _with(lambda body: body.update(choices=[])),
    "null choices": _with(lambda body: body.update(choices=None)),
    "abort": _with(_choices(lambda choice: choice.update(finish_reason="abort"))),
    "error": _with(_choices(lambda choice: choice.update(finish_reason="error"))),
    "unequal lengths": _with(_choices(_shorter)),
}
FAULTS: dict[str, Fault] = {
    **ERRORS,
    **PASSING,
    "401 with the key": _quoting,
    # Only a client that bounds time and memory comes back from these.
    "hang": _hang,
    "endless": _endless,
    "gone": _gone,
    # These look like answers.
    "same": _same,
    "empty": _with(_choices(_empty)),
    "filtered": _with(_choices(_filtered)),
    "half a prompt": _with(_silent, ask=_half),
    "strange token": _with(_choices(lambda choice: choice["token_ids"].__setitem__(0, 1 << 20))),
    # What another model would: other tokens, and other log-probs of what it reads.
    "another": _with(
        _choices(_less_likely), lambda body: body.update(seed=body.get("seed", 0) + 1)
    ),
    # Servers that lack something, or add something.
    "no token ids": _with(_choices(_without("token_ids", "prompt_token_ids"))),
    "echo only": _with(ask=_without("prompt_logprobs")),
    "no echo": _with(ask=_without("prompt_logprobs", "echo")),
    "no log-probs": _with(_choices(lambda choice: choice.update(logprobs=None))),
}


@contextlib.contextmanager
def faulty(upstream: str, plan: Plan | None = None) -> Iterator[Proxy]:
    """A proxy on a free port, in a thread of this process.

    Args:
        upstream: the server's address, without /v1.
        plan: see above.
    """
    proxy = Proxy(upstream)
    proxy.reset(plan)
    thread = threading.Thread(target=proxy.loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(proxy.start(), proxy.loop).result()
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(proxy.stop(), proxy.loop).result()
        proxy.loop.call_soon_threadsafe(proxy.loop.stop)
        thread.join()
        proxy.loop.close()
