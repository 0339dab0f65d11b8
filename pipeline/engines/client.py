"""The HTTP client of a model server: limits on requests in flight, and retries.

Responses are hostile until parsed: their size is bounded, redirects are not followed, cookies are
not kept, and the API key never appears in a message.
"""

import asyncio
import json
import os
import random
import secrets
import socket
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import TryAgain, UserError, one_line
from bayes_at_n.pipeline.config.resources import EngineConfig

CONNECT_S = 10.0
MOST_BYTES = 1 << 20  # of a response, besides its tokens
LONGEST_PAUSE_S = 30.0  # between retries, unless the server asks for a longer one
_FIRST_PAUSE_S = 0.5
_STARTING_S = 2.0  # the longest pause while a server is starting
_STEP_S = 0.1  # between two checks whether a request may be sent
_LEAST_ATTEMPTS = 3
_PROBE_S = 300.0  # the longest that one request of a probe may take
_CATALOGUE_BYTES = 16 << 20  # of /v1/models
_WARN_S = 60.0  # between two warnings with one reason
_RETRIED = {408, 409, 425, 429}  # and all from 500 on
_WORDS = 300  # characters of a server's message
_REMEDIES = {
    401: ". The key is read from the environment variable that key_env names",
    404: ". Check that url ends in /v1, and served_name",
}
_REMEDIES[403] = _REMEDIES[401]

Read = TypeVar("Read")


class Rejected(UserError):
    """The server rejects the request for good: status 3xx or 4xx."""

    def __init__(self, message: str, status: int, words: str) -> None:
        super().__init__(message)
        self.status, self.words = status, words


class Retryable(Exception):
    """A failure that may pass: the request can be sent again.

    Attributes:
        reason: what happened, in a few words, the same for all failures of a kind.
        wait: seconds that the server asks to wait.
        crowded: whether the server has too many requests.
        words: the server's message, which may differ from failure to failure.
    """

    def __init__(
        self, reason: str, wait: float = 0.0, crowded: bool = False, words: str = ""
    ) -> None:
        super().__init__(f"{reason}: {words}" if words else reason)
        self.reason, self.wait, self.crowded = reason, wait, crowded


class Exhausted(Exception):
    """One request failed for `engine.patience_s`, while others succeeded."""


class Client:
    """The server at `engine.url`, with at most `limit` requests in flight.

    Attributes:
        setting: key and value that name the server, for messages.
        limit: `engine.in_flight`; halved after a 429, and slowly raised again.
        retries: how often requests were sent again, by reason.
        failures: how many in a row.
        suspect: whether it has failed since the last probe, and may serve another model now.
    """

    def __init__(self, cfg: EngineConfig) -> None:
        self.key = cfg.key
        self.url, self.setting = cfg.url[0].rstrip("/"), f"{cfg.key}.url={cfg.url[0]}"
        self.patience_s, self.timeout_s = cfg.patience_s, cfg.timeout_s
        self.in_flight = cfg.in_flight or cfg.batch_size
        self.limit: float = self.in_flight
        self.retries: Counter[str] = Counter()
        self.failures, self.suspect = 0, False
        self._secret = os.environ.get(cfg.key_env, "").strip()
        if not (self._secret.isascii() and self._secret.isprintable()):
            raise UserError(f"{cfg.key_env}: has characters that are not allowed in a key")
        self._open = 0  # requests sent and not answered
        self._warned_at: dict[str, float] = {}
        self._answered_at = time.monotonic()
        self._narrowed_at = 0.0  # when `limit` was last halved

    async def send(
        self,
        path: str,
        body: Mapping[str, Any] | None,
        read: Callable[[bytes, str], Read],
        most_bytes: int = MOST_BYTES,
        probing: bool = False,
        patience_s: float | None = None,
    ) -> Read:
        """Send a request until it is answered; return what `read` makes of the response.

        Args:
            path: of the interface, below `engine.url`.
            body: the JSON object to post; None: a GET, which should be answered at once.
            read: parses a response, given the name of its request; raises `Retryable` if it is not
                valid.
            most_bytes: the longest response that is accepted.
            probing: whether this is a short request that need not wait for `limit`.
            patience_s: how long to retry, three times at least; 0: not at all. Default: `engine`'s.

        Raises:
            Rejected: the server rejects the request.
            Exhausted: the request failed all the time while others succeeded.
            TryAgain: no request was answered for that long.
        """
        failing_since, attempts = 0.0, 0
        limit_s = CONNECT_S if body is None else _PROBE_S if probing else self.timeout_s
        patience_s = self.patience_s if patience_s is None else patience_s
        while True:
            while not probing and self._open >= max(1, int(self.limit)):  # retries count, too
                await asyncio.sleep(_STEP_S)
            began, name = time.monotonic(), secrets.token_hex(8)
            self._open += 1
            try:
                async with asyncio.timeout(min(limit_s, self.timeout_s)):
                    result = read(await self._request(path, body, most_bytes, name), name)
            except (Retryable, TimeoutError) as error:
                failure = error if isinstance(error, Retryable) else Retryable("no answer in time")
                failing_since, attempts = failing_since or began, attempts + 1
                failing_s = time.monotonic() - failing_since
                wait = self._note_failure(failure, began)
                enough = attempts >= _LEAST_ATTEMPTS or failing_s >= self.timeout_s
                if not patience_s or (failing_s >= patience_s and enough):
                    if self._answered_at >= failing_since and not probing:
                        raise Exhausted(failure.reason) from error
                    raise TryAgain(
                        f"{self.setting}: {failure}, and no request was answered for"
                        f" {patience_s:g} s ({self.key}.patience_s). Finished attempts are kept;"
                        " check the server, then the same command continues"
                    ) from error
            else:
                self._answered_at, self.failures = time.monotonic(), 0
                self.limit = min(float(self.in_flight), self.limit + 1 / self.limit)
                return result
            finally:
                self._open -= 1
            longest = _STARTING_S if body is None else LONGEST_PAUSE_S
            pause = min(longest, _FIRST_PAUSE_S * 2 ** min(attempts, 10))
            await asyncio.sleep(max(wait, pause * random.uniform(0.5, 1)))

    async def models(self) -> list[Any]:
        """Return the entries of /v1/models, none if there is no such path; wait for the server.

        Raises:
            Rejected: the server rejects the request.
            TryAgain: it does not answer.
        """

        def read(data: bytes, _: str) -> list[Any]:
            try:
                listed = dict(json.loads(data)).get("data")
            except (ValueError, TypeError, RecursionError) as error:
                raise Retryable("answer that is no JSON object") from error
            return listed if isinstance(listed, list) else []

        try:
            return await self.send("/models", None, read, _CATALOGUE_BYTES, probing=True)
        except Rejected as error:
            if error.status not in (404, 405):
                raise
            return []

    async def _request(
        self, path: str, body: Mapping[str, Any] | None, most_bytes: int, name: str
    ) -> bytes:
        """Send one request of this name, a POST if it has a body; return the response's body."""
        method, headers = "GET" if body is None else "POST", {"X-Request-Id": name}
        try:
            async with self._session.request(
                method, self.url + path, json=body, headers=headers, allow_redirects=False
            ) as response:
                data = bytearray()
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise Retryable("compressed answer")  # not requested; it may be a zip bomb
                async for piece in response.content.iter_any():
                    data += piece
                    if len(data) > most_bytes:
                        raise Retryable(f"answer of more than {most_bytes >> 20} MiB")
        except aiohttp.ClientError as error:
            raise Retryable(type(error).__name__, words=one_line(error)) from error
        if response.status >= 300:
            raise self._failure(response, bytes(data))
        return bytes(data)

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        """Open the session, within the event loop that uses it."""
        headers = {"Accept-Encoding": "identity"}  # compressing costs more time than it saves
        if self._secret:
            headers["Authorization"] = f"Bearer {self._secret}"
        url, proxies = urlsplit(self.url), urllib.request.getproxies()
        proxy = proxies.get(url.scheme)
        if proxy and urllib.request.proxy_bypass(url.hostname or ""):
            proxy = None
        return aiohttp.ClientSession(
            headers=headers,
            # uvicorn closes connections that have been idle for five seconds.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0, socket_factory=_socket),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            proxy=proxy,  # aiohttp's own look-up would also send passwords from ~/.netrc
        )

    def _failure(self, response: aiohttp.ClientResponse, data: bytes) -> Exception:
        """Return the exception for a status from 300 on."""
        status, headers = response.status, response.headers
        words = " ".join(data.decode(errors="replace").split()) or response.reason or ""
        if 300 <= status < 400:
            words = f"redirected; use {headers.get('Location', 'another address')}"
        if self._secret:
            words = words.replace(self._secret, "[key]")
        if status in _RETRIED or status >= 500:
            wait = 0.0
            with suppress(ValueError):  # a date
                wait = max(0.0, float(headers.get("Retry-After", "0")))
            return Retryable(f"HTTP {status}", wait, status == 429, words[:_WORDS])
        message = f"{response.url}: HTTP {status}: {words[:_WORDS]}{_REMEDIES.get(status, '')}"
        return Rejected(message, status, words)

    def _note_failure(self, failure: Retryable, began: float) -> float:
        """Count a failure of a request sent at `began`; return how many seconds to wait."""
        now = time.monotonic()
        self.retries[failure.reason] += 1
        if failure.crowded:
            if began >= self._narrowed_at:  # many 429s at once halve it once
                self.limit, self._narrowed_at = max(1.0, self.limit / 2), now
        else:
            self.suspect, self.failures = True, self.failures + 1
        if now - self._warned_at.get(failure.reason, -_WARN_S) >= _WARN_S:
            self._warned_at[failure.reason] = now
            times = self.retries[failure.reason]
            warn(f"{self.url}: {failure} ({times} times so far); retrying")
        return min(failure.wait, max(self.patience_s, LONGEST_PAUSE_S))

    async def close(self) -> None:
        """Close all connections, upon which the server stops their requests."""
        if "_session" in vars(self):
            await self._session.close()


def _socket(address: Any) -> socket.socket:
    """Return a socket that notices a lost machine within minutes: answers may take an hour."""
    sock = socket.socket(*address[:3])
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):  # macOS lacks the first
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock
