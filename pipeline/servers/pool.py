"""The servers of one model: which of them gets a request, and how often it is sent again."""

import asyncio
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pipeline.base.console import clock, note, warn
from pipeline.base.errors import TryAgain, UserError
from pipeline.config.engine import EngineConfig
from pipeline.servers import http
from pipeline.servers.http import Later

LONGEST_PAUSE_S = 30.0  # between two tries, unless the server asks for a longer one
_FIRST_PAUSE_S = 0.5
_STEP_S = 0.1  # between two looks whether a server is ready
_TRIAL_S = 5.0  # after a rest
_LEAST_TRIES = 3
_PROBE_S = 300.0  # the longest that one request of a probe may take
_CATALOGUE = 16 << 20  # bytes
_TELL_S = 60.0  # between two warnings of one reason

Read = TypeVar("Read")


class GaveUp(Exception):
    """One request was tried for `engine.patience_s` in vain, while others were answered."""


class Server:
    """One address and what is known of it; `setting` is how a user named it."""

    def __init__(self, url: str, key: str | None, group: str = "engine") -> None:
        self.url, self.setting = url.rstrip("/"), f"{group}.url={url}"
        self.root = self.url.removesuffix("/v1")
        self.lanes = http.Lanes(url, key)
        self.met = False  # whether it is known to have the model; before that nobody asks
        self.outstanding = 0
        self.failures = 0  # in a row; what was under way at one of them failed with it
        self.failed_at = 0.0  # monotonic
        self.rest_until = 0.0  # monotonic; before it nobody asks

    def address(self, path: str) -> str:
        """Of an interface: below what the user named if that is where /v1 is, else from the root.

        >>> server = Server("http://node1:8000/v1", None)
        >>> server.address("/v1/models"), server.address("/generate")
        ('http://node1:8000/v1/models', 'http://node1:8000/generate')
        >>> Server("https://host/api", None).address("/v1/models")
        'https://host/api/models'
        """
        if path.startswith("/v1/"):
            return self.url + path.removeprefix("/v1")
        return self.root + path


def _secret(variable: str) -> str | None:
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):  # httpx would show it with its complaint
        raise UserError(f"{variable}: has characters that no key has")
    return key or None


class Pool:
    """Every server of `engine.url`, with at most `limit` requests under way in all.

    Attributes:
        limit: `engine.in_flight`; halved when a server says 429, and slowly raised again.
        again: how often requests were sent again, by reason.
    """

    def __init__(self, cfg: EngineConfig) -> None:
        self.key = cfg.key  # of the settings
        secret = _secret(cfg.key_env)
        self.servers = [Server(url, secret, cfg.key) for url in cfg.url]
        self.patience_s, self.timeout_s = cfg.patience_s, cfg.timeout_s
        self.most = cfg.in_flight or cfg.batch_size
        self.limit: float = self.most
        self.sent = 0  # and not answered yet
        self.again: Counter[str] = Counter()
        self._told: dict[tuple[str, str], float] = {}
        self._answered = time.monotonic()  # when anything was last answered
        self._narrowed = 0.0

    async def ask(
        self,
        path: str,
        body: Mapping[str, Any],
        read: Callable[[Mapping[str, Any], str], Read],
        most_bytes: int = http.MOST_BYTES,
        server: Server | None = None,
    ) -> Read:
        """Send a request until it is answered.

        Args:
            path: of the interface, see `Server.address`.
            body: the JSON object to post.
            read: makes an answer of what came back to a request of that name; raises `Later` where
                it is none.
            most_bytes: the longest answer that is taken.
            server: the one to ask; by default the one with the fewest requests.

        Raises:
            Refused: a server does not take it.
            GaveUp: it failed again and again while others succeeded.
            TryAgain: nothing at all was answered for `engine.patience_s`.
        """
        first, tries = 0.0, 0
        while True:
            chosen = server or await self._free()
            began = time.monotonic()
            try:
                limit_s = self.timeout_s if server is None else min(self.timeout_s, _PROBE_S)
                answer = await self._send(chosen, path, body, read, most_bytes, limit_s)
            except (Later, TimeoutError) as error:
                failure = error if isinstance(error, Later) else Later("no answer in time")
                wait = self._failed(chosen, failure, began)
                now = time.monotonic()
                first, tries = first or began, tries + 1
                enough = tries >= _LEAST_TRIES or now - first >= self.timeout_s
                if now - first >= self.patience_s and enough:
                    if self._answered < first or server is not None:
                        raise TryAgain(self._silence(chosen, failure)) from error
                    raise GaveUp(failure.reason) from error
                if server or len(self.servers) == 1 or failure.crowded or tries >= _LEAST_TRIES:
                    pause = min(LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(tries, 10))
                    await asyncio.sleep(max(wait, pause * random.uniform(0.5, 1)))
                continue  # of several servers the one that failed rests, and another is asked
            self._answered, chosen.failures, chosen.rest_until = time.monotonic(), 0, 0.0
            self.limit = min(float(self.most), self.limit + 1 / self.limit)
            return answer

    async def _send(
        self,
        server: Server,
        path: str,
        body: Mapping[str, Any],
        read: Callable[[Mapping[str, Any], str], Read],
        most_bytes: int,
        limit_s: float,
    ) -> Read:
        """One try; the request gets a name, which a server may give back."""
        name = secrets.token_hex(8)
        server.outstanding, self.sent = server.outstanding + 1, self.sent + 1
        try:
            async with asyncio.timeout(limit_s):
                headers, url = {"X-Request-Id": name}, server.address(path)
                with server.lanes.one() as client:
                    return read(await http.ask(client, url, body, headers, most_bytes), name)
        finally:
            server.outstanding, self.sent = server.outstanding - 1, self.sent - 1

    async def get(self, server: Server, path: str, patience_s: float) -> dict[str, Any]:
        """What a server says of itself; one that is still starting is waited for.

        Raises:
            Refused: it does not say it.
            TryAgain: it is not there.
        """
        began = time.monotonic()
        while True:
            try:
                async with asyncio.timeout(http.CONNECT_S):
                    with server.lanes.one() as client:
                        return await http.ask(client, server.address(path), most_bytes=_CATALOGUE)
            except (Later, TimeoutError) as error:
                failure = str(error) or "no answer in time"
            left = began + patience_s - time.monotonic()
            if left <= 0:
                raise TryAgain(f"{server.setting}: {failure}; see whether a server runs there")
            if server.failures == 0:
                note(f"{server.setting}: {failure}; waiting for it, at most {clock(left)} ...")
            server.failures += 1
            await asyncio.sleep(min(left, 2.0))

    async def _free(self) -> Server:
        """The server with the fewest requests of those that are not resting.

        One that has failed gets one request after its rest, and others when that is answered or has
        not failed for a while: an answer may take long, a failure comes soon.
        """
        while True:
            now = time.monotonic()
            ready = [s for s in self.servers if s.met and s.rest_until <= now]
            if len(self.servers) > 1:
                trial = now - _TRIAL_S
                ready = [
                    s for s in ready if not (s.failures and s.outstanding and s.rest_until > trial)
                ]
            if ready and self.sent < max(1, int(self.limit)):  # those that are sent again, too
                return min(ready, key=lambda s: s.outstanding)
            await asyncio.sleep(_STEP_S)

    def _failed(self, server: Server, failure: Later, began: float) -> float:
        """Take note of a failure; the seconds that the server asks the request to wait."""
        now = time.monotonic()
        self.again[failure.reason] += 1
        wait = min(failure.wait or 0.0, max(self.patience_s, LONGEST_PAUSE_S))
        if failure.crowded:
            if began >= self._narrowed:  # one reply to a crowd of 429s
                self.limit, self._narrowed = max(1.0, self.limit / 2), now
        elif began >= server.failed_at:
            server.failures, server.failed_at = server.failures + 1, now
        rest = min(LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(server.failures - 1, 10))
        if len(self.servers) > 1 and server.failures:  # meanwhile the others are asked
            server.rest_until = now + max(rest, wait)
        told = (server.url, failure.reason)
        if now - self._told.get(told, -_TELL_S) >= _TELL_S:
            self._told[told] = now
            times = self.again[failure.reason]
            warn(f"{server.url}: {failure.reason} ({times} times so far); sent again")
        return wait

    def _silence(self, server: Server, failure: Later) -> str:
        hosts = ", ".join(urlsplit(s.url).netloc for s in self.servers)
        return (
            f"{server.setting}: {failure.reason}, and {hosts} answered nothing for"
            f" {self.patience_s:g} s ({self.key}.patience_s). Finished attempts are kept; see"
            " whether it runs, then the same command continues"
        )

    async def close(self) -> None:
        """Close all connections."""
        for server in self.servers:
            await server.lanes.close()
