"""One request to a server and what became of it: an answer, a refusal, or a failure that may pass.

Whatever a server sends is hostile until it is parsed: bodies are bounded, redirects are not
followed, and nothing of the key that it was sent comes back in a message.
"""

import contextlib
import email.utils
import json
import socket
import ssl
import time
import urllib.request
from collections.abc import Iterator, Mapping
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import urlsplit

import httpx

from bayes_at_n.pipeline.base.errors import UserError, one_line

CONNECT_S = 10.0
_LANE = 4  # connections of one client
MOST_BYTES = 1 << 20  # of an answer that is not of a known length
_PASSING = {408, 409, 425, 429}  # and all from 500 on
_WORDS = 300  # characters of what a server says
_CAUSES = {
    httpx.ConnectTimeout: "no connection in time",
    httpx.TimeoutException: "no answer in time",
    httpx.ConnectError: "no connection",
    httpx.ReadError: "connection broken",
    httpx.WriteError: "connection broken",
    httpx.RemoteProtocolError: "answer cut off",
}


class Refused(UserError):
    """The server does not take the request, and will not take it later either: status 4xx."""

    def __init__(self, message: str, status: int, words: str) -> None:
        super().__init__(message)
        self.status, self.words = status, words


class Later(Exception):
    """A failure that may pass: the request was not answered, and can be sent again.

    Attributes:
        reason: what happened, in a few words that are the same for all of its kind.
        wait: seconds that the server asks to wait, or None.
        crowded: whether the server has too many requests.
    """

    def __init__(self, reason: str, wait: float | None = None, crowded: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.wait, self.crowded = reason, wait, crowded


class Lanes:
    """Any number of requests to one server at a time.

    A client of httpx looks through all its connections at every step, so hundreds of requests at a
    time get many clients of a few connections each.

    `url`: the server. `key`: sent as a bearer token and never shown.
    """

    def __init__(self, url: str, key: str | None) -> None:
        self._url, self._key = url, key
        self._trusted = ssl.create_default_context()  # making one takes as long as ten requests
        self._clients: list[httpx.AsyncClient] = []
        self._busy: list[int] = []

    @contextlib.contextmanager
    def one(self) -> Iterator[httpx.AsyncClient]:
        """A client with room for one more request."""
        lane = next((i for i, busy in enumerate(self._busy) if busy < _LANE), len(self._busy))
        if lane == len(self._busy):
            self._clients.append(_client(self._url, self._key, self._trusted))
            self._busy.append(0)
        self._busy[lane] += 1
        try:
            yield self._clients[lane]
        finally:
            self._busy[lane] -= 1

    async def close(self) -> None:
        """Close all connections; the server then stops what it was at for them."""
        for client in self._clients:
            await client.aclose()


def _client(url: str, key: str | None, trusted: ssl.SSLContext) -> httpx.AsyncClient:
    headers = {"Accept-Encoding": "identity"}  # packing costs both sides more than the network
    if key:
        headers["Authorization"] = f"Bearer {key}"
    # Servers of uvicorn close what has been idle for five seconds.
    limits = httpx.Limits(keepalive_expiry=2.0)
    transport = None
    proxied = not {urlsplit(url).scheme, "all"}.isdisjoint(urllib.request.getproxies())
    if urllib.request.proxy_bypass(urlsplit(url).hostname or "") or not proxied:
        # A request may be silent for an hour. If the machine at the other end is gone, the kernel
        # notices in two minutes.
        transport = httpx.AsyncHTTPTransport(
            verify=trusted, limits=limits, socket_options=_keep_alive()
        )
    timeout = httpx.Timeout(None, connect=CONNECT_S)
    client = httpx.AsyncClient(
        headers=headers, limits=limits, transport=transport, timeout=timeout, verify=trusted
    )
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # none is sent back
    return client


def _keep_alive() -> list[tuple[int, int, int]]:
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):  # macOS lacks the first
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


async def ask(
    client: httpx.AsyncClient,
    url: str,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    most_bytes: int = MOST_BYTES,
) -> dict[str, Any]:
    """Send one request, a POST where there is a body, and return the JSON object of the answer.

    Raises:
        Refused: the server will not take it.
        Later: anything else; the request may be sent again.
    """
    try:
        async with client.stream(
            "GET" if body is None else "POST", url, json=body, headers=headers
        ) as response:
            data = bytearray()
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise Later("answer that is packed")  # unasked; a little may hold a lot
            async for piece in response.aiter_raw():
                data += piece
                if len(data) > most_bytes:
                    raise Later(f"answer of more than {most_bytes >> 20} MiB")
    except (httpx.HTTPError, httpx.InvalidURL, OverflowError) as error:
        for kind, cause in _CAUSES.items():
            if isinstance(error, kind):
                raise Later(cause) from error
        raise Later(f"{type(error).__name__}: {one_line(error)}") from error
    if response.status_code >= 300:
        raise _failure(url, response, bytes(data), client.headers.get("Authorization", ""))
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Later("answer that is no JSON") from error
    if not isinstance(answer, dict):
        raise Later("answer that is no JSON object")
    return answer


def _failure(url: str, response: httpx.Response, data: bytes, key: str) -> Exception:
    status = response.status_code
    if status in _PASSING or status >= 500:
        return Later(f"HTTP {status}", _wait(response.headers.get("Retry-After")), status == 429)
    place = response.headers.get("Location", "another place")
    secret = key.removeprefix("Bearer ")
    if secret:
        data, place = data.replace(secret.encode(), b"[key]"), place.replace(secret, "[key]")
    words = _words(data).rstrip(".") or response.reason_phrase
    if status < 400:
        words = f"it is at {place[:_WORDS]}; use that"
    return Refused(f"{url}: HTTP {status}: {words}{_remedy(status)}", status, words)


def _remedy(status: int) -> str:
    if status in (401, 403):
        return ". The key is read from the environment variable that key_env names"
    if status == 404:
        return ". Is url the address that ends in /v1, and served_name right?"
    return ""


def _words(data: bytes) -> str:
    """What the server says of an error, wherever servers of different makers put it.

    >>> _words(b'{"error": {"message": "no such model"}}'), _words(b'{"detail": "gone"}')
    ('no such model', 'gone')
    >>> _words(b"<html>bad  gateway")
    '<html>bad gateway'
    """
    text = data.decode(errors="replace")
    try:
        value = json.loads(text)
        while isinstance(value, dict):
            value = next(
                (value[k] for k in ("error", "message", "detail", "object") if value.get(k)), ""
            )
        text = value if isinstance(value, str) else json.dumps(value)
    except (ValueError, RecursionError):
        pass
    return " ".join(text.split())[:_WORDS]


def _wait(header: str | None) -> float | None:
    """The seconds of a Retry-After header, a number or a date; None where there is no sense in it.

    >>> _wait("7"), _wait("soon"), _wait(None), _wait("Wed, 21 Oct 2015 07:28:00 GMT")
    (7.0, None, None, 0.0)
    """
    try:
        return max(0.0, float(header or ""))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header or "").timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
