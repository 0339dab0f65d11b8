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
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

Plan = Callable[[int], str | None]
Body = dict[str, Any]
RETRY_S = 1  # of Retry-After
AWAY_S = 0.3  # how long a fault "refused" keeps the port closed
_SPACES = b" " * (1 << 16)


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


@dataclass
class Answer:
    """What the server said."""

    status: int
    body: bytes

    def edited(self, edit: Callable[[Body], Any]) -> "Answer":
        """The same with an edited body; errors stay as they are."""
        if self.status != 200:
            return self
        body = json.loads(self.body)
        edit(body)
        return Answer(200, json.dumps(body).encode())


@dataclass
class Proxy:
    """What a proxy is told and what it has counted; `plan` may be changed at any time."""

    upstream: str
    plan: Plan
    address: str = ""
    posts: int = 0  # came in
    forwarded: int = 0
    in_flight: int = 0  # forwarded, and not answered yet
    dropped: int = 0  # closed by the client before the end of the answer
    endless_bytes: int = 0
    keys: set[str] = field(default_factory=set)  # that clients have sent
    hits: collections.Counter[str] = field(default_factory=collections.Counter)
    first: Answer | None = None

    @property
    def url(self) -> str:
        """What `engine.url` takes."""
        return f"{self.address}/v1"

    def reset(self, plan: Plan | None = None) -> None:
        """Count from 0 again; without a plan nothing goes wrong."""
        self.plan = plan or always(None)
        self.posts = self.forwarded = self.dropped = self.endless_bytes = 0
        self.first = None
        self.hits.clear()
        self.keys.clear()

    def close(self) -> None:
        """Refuse connections and reset those that there are, until `open`."""
        self._do(self._close(everything=True))

    def open(self) -> None:
        """Listen again, on the same port."""
        self._do(self._listen())

    async def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
        )
        # Bound for good, so that nobody else is given the port while it is closed.
        self.port = socket.socket()
        self.port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.port.bind(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.port.getsockname()[1]}"
        self.server = web.Server(self._handle, handler_cancellation=True)
        self.runner = web.ServerRunner(self.server, shutdown_timeout=0)
        await self.runner.setup()
        await self._listen()

    async def stop(self) -> None:
        await self._close(everything=True)
        await self.runner.cleanup()
        await self.session.close()
        self.port.close()

    async def _listen(self) -> None:
        host, port = self.port.getsockname()
        self.site = web.TCPSite(self.runner, host, port, reuse_address=True, backlog=4096)
        await self.site.start()

    async def _close(self, everything: bool) -> None:
        if self.site in self.runner.sites:
            await self.site.stop()
        for connection in list(self.server.connections) if everything else ():
            if connection.transport is not None:
                _reset(connection.transport)

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self.loop).result()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        self.keys.add(request.headers.get("Authorization", ""))
        fault = None
        if request.method == "POST":
            self.posts += 1
            fault = self.plan(self.posts - 1)
        if fault is not None:
            self.hits[fault] += 1
        exchange = Exchange(self, request, body)
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

    async def forward(self, edit: Callable[[Body], Any] | None = None) -> Answer:
        """Ask the server; the connection to it is closed when the client closes its own."""
        body, proxy = self.body, self.proxy
        if edit is not None:
            fields = json.loads(body)
            edit(fields)
            body = json.dumps(fields).encode()
        kept = ("authorization", "content-type", "x-request-id")
        headers = {k: v for k, v in self.request.headers.items() if k.lower() in kept}
        target = proxy.upstream + self.request.path_qs
        proxy.forwarded += 1
        proxy.in_flight += 1
        try:
            async with proxy.session.request(
                self.request.method, target, data=body, headers=headers
            ) as answer:
                return Answer(answer.status, await answer.read())
        finally:
            proxy.in_flight -= 1

    async def stream(self, length: int | None) -> web.StreamResponse:
        """The head of an answer whose body follows piece by piece; None: of unknown length."""
        head = web.StreamResponse(headers={"Content-Type": "application/json"})
        head.content_length = length
        head.force_close()
        await head.prepare(self.request)
        return head

    def reset(self) -> web.StreamResponse:
        assert self.request.transport is not None
        _reset(self.request.transport)
        return web.Response()


Fault = Callable[[Exchange], Awaitable[web.StreamResponse]]


def _reset(transport: asyncio.BaseTransport) -> None:
    """End a connection with RST instead of FIN."""
    linger = struct.pack("ii", 1, 0)
    with contextlib.suppress(OSError):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()  # type: ignore[attr-defined]


def _response(answer: Answer) -> web.Response:
    response = web.Response(
        status=answer.status, body=answer.body, headers={"Content-Type": "application/json"}
    )
    # While `refused` closes the port, aiohttp may leave what a kept connection brings unread.
    response.force_close()
    return response


async def _pass_on(exchange: Exchange) -> web.Response:
    answer = await exchange.forward()
    if exchange.request.method == "POST" and answer.status == 200:
        exchange.proxy.first = exchange.proxy.first or answer
    return _response(answer)


def _status(code: int, retry_after: Callable[[], str] | None = None) -> Fault:
    """An error instead of an answer."""

    async def fault(exchange: Exchange) -> web.StreamResponse:
        said = {"message": f"the proxy says {code}", "type": "injected", "code": code}
        headers = {"Retry-After": retry_after()} if retry_after else {}
        return web.json_response({"error": said}, status=code, headers=headers)

    return fault


async def _quoting(exchange: Exchange) -> web.StreamResponse:
    key = exchange.request.headers.get("Authorization", "").removeprefix("Bearer ")
    return web.json_response({"error": {"message": f"Incorrect API key: {key}"}}, status=401)


def _ask(edit: Callable[[Body], Any]) -> Fault:
    """The answer to another question than the one that was asked."""

    async def fault(exchange: Exchange) -> web.StreamResponse:
        return _response(await exchange.forward(edit))

    return fault


def _answer(edit: Callable[[Body], Any]) -> Fault:
    """Another answer than the server's."""

    async def fault(exchange: Exchange) -> web.StreamResponse:
        return _response((await exchange.forward()).edited(edit))

    return fault


def _instead(body: bytes) -> Fault:
    """Something else, after the server has worked for nothing."""

    async def fault(exchange: Exchange) -> web.StreamResponse:
        return _response(Answer((await exchange.forward()).status, body))

    return fault


async def _reset_before(exchange: Exchange) -> web.StreamResponse:
    return exchange.reset()


async def _reset_after(exchange: Exchange) -> web.StreamResponse:
    await exchange.forward()
    return exchange.reset()


async def _refused(exchange: Exchange) -> web.StreamResponse:
    proxy = exchange.proxy
    if proxy.site in proxy.runner.sites:
        await proxy._close(everything=False)
        proxy.loop.call_later(AWAY_S, lambda: proxy.loop.create_task(proxy._listen()))
    return exchange.reset()


async def _hang(exchange: Exchange) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def _cut(exchange: Exchange) -> web.StreamResponse:
    answer = await exchange.forward()
    head = await exchange.stream(len(answer.body))
    await head.write(answer.body[: len(answer.body) // 2])
    assert exchange.request.transport is not None
    exchange.request.transport.close()
    return head


async def _endless(exchange: Exchange) -> web.StreamResponse:
    head = await exchange.stream(None)
    while True:
        await head.write(_SPACES)
        exchange.proxy.endless_bytes += len(_SPACES)
        await asyncio.sleep(0)


async def _gone(exchange: Exchange) -> web.StreamResponse:
    """The server is gone, until somebody opens it again."""
    await exchange.proxy._close(everything=True)
    return web.Response()


async def _same(exchange: Exchange) -> web.StreamResponse:
    """The first answer, to every question; only how long that was is right."""
    first, own = exchange.proxy.first, await _pass_on(exchange)
    if first is None:
        return own
    assert isinstance(own.body, bytes)
    count = json.loads(own.body)["usage"]["prompt_tokens"]
    return _response(first.edited(lambda body: body["usage"].update(prompt_tokens=count)))


def _choices(edit: Callable[[Body], Any]) -> Callable[[Body], None]:
    def all_of(body: Body) -> None:
        for choice in body.get("choices", ()):
            edit(choice)

    return all_of


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


async def _half_asked(exchange: Exchange) -> web.StreamResponse:
    silent = _without("prompt_token_ids")
    answer = (await exchange.forward(_half)).edited(silent)
    return _response(answer.edited(_choices(silent)))


async def _another(exchange: Exchange) -> web.StreamResponse:
    """What another model would: other tokens, and other log-probs of what it reads."""

    def less_likely(choice: Body) -> None:
        for token in (t for e in choice.get("prompt_logprobs") or () for t in (e or {}).values()):
            token["logprob"] -= 0.3
        if logprobs := choice.get("logprobs"):
            logprobs["token_logprobs"] = [value - 0.3 for value in logprobs["token_logprobs"]]

    if exchange.request.method == "GET":
        return await _pass_on(exchange)
    answer = await exchange.forward(lambda body: body.update(seed=body.get("seed", 0) + 1))
    return _response(answer.edited(_choices(less_likely)))


def _shorter(choice: Body) -> None:
    """One log-prob fewer than tokens."""
    for values in (choice.get("logprobs") or {}).values():
        if values:
            values.pop()


def _without(*names: str) -> Callable[[Body], None]:
    def drop(fields: Body) -> None:
        for name in names:
            fields.pop(name, None)

    return drop


# These end an attempt, or the run.
ERRORS: dict[str, Fault] = {str(n): _status(n) for n in (400, 401, 403, 404, 413, 422)}
# After these an attempt is asked for again.
PASSING: dict[str, Fault] = {
    **{str(n): _status(n) for n in (408, 429, 500, 501, 502, 503, 504, 529)},
    "429 with seconds": _status(429, lambda: str(RETRY_S)),
    "reset before": _reset_before,
    "reset after": _reset_after,
    "refused": _refused,
    "cut": _cut,
    "no JSON": _instead(b'{"choices": [{"text": "4'),
    "no object": _instead(b'["a", "list"]'),
    "empty choices": _answer(lambda body: body.update(choices=[])),
    "null choices": _answer(lambda body: body.update(choices=None)),
    **{
        reason: _answer(_choices(lambda choice, reason=reason: choice.update(finish_reason=reason)))
        for reason in ("abort", "error")
    },
    "unequal lengths": _answer(_choices(_shorter)),
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
    "empty": _answer(_choices(_empty)),
    "filtered": _answer(_choices(_filtered)),
    "half a prompt": _half_asked,
    "strange token": _answer(_choices(lambda choice: choice["token_ids"].__setitem__(0, 1 << 20))),
    "another": _another,
    # Servers that lack something, or add something.
    "no token ids": _answer(_choices(_without("token_ids", "prompt_token_ids"))),
    "echo only": _ask(_without("prompt_logprobs")),
    "no echo": _ask(_without("prompt_logprobs", "echo")),
    "no log-probs": _answer(_choices(lambda choice: choice.update(logprobs=None))),
}


@contextlib.contextmanager
def faulty(upstream: str, plan: Plan = always(None)) -> Iterator[Proxy]:  # noqa: B008
    """A proxy on a free port, in a thread of this process.

    Args:
        upstream: the server's address, without /v1.
        plan: see above.
    """
    proxy, loop = Proxy(upstream, plan), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(proxy.start(), loop).result()
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
