"""The server of a model: how many requests it gets at a time, and how often one is sent again."""

import asyncio
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bayes_at_n.pipeline.base.console import clock, note, warn
from bayes_at_n.pipeline.base.errors import TryAgain, UserError
from bayes_at_n.pipeline.config.resources import EngineConfig
from bayes_at_n.pipeline.engines import http
from bayes_at_n.pipeline.engines.http import Later

LONGEST_PAUSE_S = 30.0  # between two tries, unless the server asks for a longer one
_FIRST_PAUSE_S = 0.5
_STEP_S = 0.1  # between two looks whether a server is ready
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
        self.failures = 0  # in a row
        self.doubtful = False  # whether it failed since it was last probed: it may be another now

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
    """The server at `engine.url`, with at most `limit` requests under way.

    Attributes:
        limit: `engine.in_flight`; halved when a server says 429, and slowly raised again.
        again: how often requests were sent again, by reason.
    """

    def __init__(self, cfg: EngineConfig) -> None:
        self.key = cfg.key  # of the settings
        secret = _secret(cfg.key_env)
        self.server = Server(cfg.url[0], secret, cfg.key)
        self.patience_s, self.timeout_s = cfg.patience_s, cfg.timeout_s
        self.most = cfg.in_flight or cfg.batch_size
        self.limit: float = self.most
        self.sent = 0  # and not answered yet
        self.again: Counter[str] = Counter()
        self._told: dict[str, float] = {}
        self._answered = time.monotonic()  # when anything was last answered
        self._narrowed = 0.0

    async def ask(
        self,
        path: str,
        body: Mapping[str, Any],
        read: Callable[[Mapping[str, Any], str], Read],
        most_bytes: int = http.MOST_BYTES,
        probing: bool = False,
    ) -> Read:
        """Send a request until it is answered.

        Args:
            path: of the interface, see `Server.address`.
            body: the JSON object to post.
            read: makes an answer of what came back to a request of that name; raises `Later` where
                it is none.
            most_bytes: the longest answer that is taken.
            probing: whether the answer is short and waited for, and all else is not.

        Raises:
            Refused: a server does not take it.
            GaveUp: it failed again and again while others succeeded.
            TryAgain: nothing at all was answered for `engine.patience_s`.
        """
        first, tries, server = 0.0, 0, self.server
        limit_s = min(self.timeout_s, _PROBE_S) if probing else self.timeout_s
        while True:
            while not probing and self.sent >= max(1, int(self.limit)):  # with those sent again
                await asyncio.sleep(_STEP_S)
            began = time.monotonic()
            try:
                answer = await self._send(path, body, read, most_bytes, limit_s)
            except (Later, TimeoutError) as error:
                failure = error if isinstance(error, Later) else Later("no answer in time")
                wait = self._failed(failure, began)
                now = time.monotonic()
                first, tries = first or began, tries + 1
                enough = tries >= _LEAST_TRIES or now - first >= self.timeout_s
                if now - first >= self.patience_s and enough:
                    if self._answered < first or probing:
                        raise TryAgain(self._silence(failure)) from error
                    raise GaveUp(failure.reason) from error
                pause = min(LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(tries, 10))
                await asyncio.sleep(max(wait, pause * random.uniform(0.5, 1)))
                continue
            self._answered, server.failures = time.monotonic(), 0
            self.limit = min(float(self.most), self.limit + 1 / self.limit)
            return answer

    async def _send(
        self,
        path: str,
        body: Mapping[str, Any],
        read: Callable[[Mapping[str, Any], str], Read],
        most_bytes: int,
        limit_s: float,
    ) -> Read:
        """One try; the request gets a name, which a server may give back."""
        name = secrets.token_hex(8)
        self.sent += 1
        try:
            async with asyncio.timeout(limit_s):
                headers, url = {"X-Request-Id": name}, self.server.address(path)
                with self.server.lanes.one() as client:
                    return read(await http.ask(client, url, body, headers, most_bytes), name)
        finally:
            self.sent -= 1

    async def get(self, path: str, patience_s: float) -> dict[str, Any]:
        """What the server says of itself; one that is still starting is waited for.

        Raises:
            Refused: it does not say it.
            TryAgain: it is not there.
        """
        began, server = time.monotonic(), self.server
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

    def _failed(self, failure: Later, began: float) -> float:
        """Take note of a failure; the seconds that the server asks the request to wait."""
        now = time.monotonic()
        self.again[failure.reason] += 1
        wait = min(failure.wait or 0.0, max(self.patience_s, LONGEST_PAUSE_S))
        if failure.crowded:
            if began >= self._narrowed:  # one reply to a crowd of 429s
                self.limit, self._narrowed = max(1.0, self.limit / 2), now
        else:
            self.server.doubtful, self.server.failures = True, self.server.failures + 1
        if now - self._told.get(failure.reason, -_TELL_S) >= _TELL_S:
            self._told[failure.reason] = now
            times = self.again[failure.reason]
            warn(f"{self.server.url}: {failure.reason} ({times} times so far); sent again")
        return wait

    def _silence(self, failure: Later) -> str:
        return (
            f"{self.server.setting}: {failure.reason}, and nothing was answered for"
            f" {self.patience_s:g} s ({self.key}.patience_s). Finished attempts are kept; see"
            " whether it runs, then the same command continues"
        )

    async def close(self) -> None:
        """Close all connections."""
        await self.server.lanes.close()
