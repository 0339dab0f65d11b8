"""Servers with an OpenAI-like interface: vLLM, SGLang, llama.cpp, a colleague's or a company's."""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bayes_at_n.pipeline.base import foreign, lease
from bayes_at_n.pipeline.base.console import note, warn
from bayes_at_n.pipeline.base.errors import TryAgain, UserError, one_line
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines import (
    Completion,
    Engine,
    GotOn,
    Logprobs,
    Request,
    Rows,
    pull,
    served,
    steady,
    text_of,
)
from bayes_at_n.pipeline.engines.client import GaveUp, Pool
from bayes_at_n.pipeline.engines.dialects import Answer, Ask
from bayes_at_n.pipeline.engines.doubt import Doubt
from bayes_at_n.pipeline.engines.ending import cut, ending
from bayes_at_n.pipeline.engines.meeting import Meeting
from bayes_at_n.pipeline.prepare import models, questions_table
from bayes_at_n.pipeline.prepare.served import Facts
from bayes_at_n.pipeline.store import runfolder

PROBE_S, DOUBT_S = 600.0, 60.0  # between two probes; if it has failed and come back
_STEP_S = 0.2  # the longest that `generate` waits before it shows that it is alive

Result = TypeVar("Result")


class OpenAIEngine(Engine):
    """A model behind a server; see `pipeline.engines.Engine`.

    One thread, one event loop, at most `engine.in_flight` requests under way. An answer comes
    whole, so when its first token was sampled is not known.
    """

    def __init__(self, cfg: RunConfig, longest: int, rows: Rows = ()) -> None:
        self.cfg = cfg
        self.chat = bool(rows) and rows[0]["prompt_token_ids"] is None
        self.tokenizer = None if self.chat else models.tokenizer(cfg.model)
        self.bounded = 0  # log-probs of labels of which only a bound is known
        self.loop = asyncio.new_event_loop()
        self.pool = Pool(cfg.engine)
        tried = [(_prompt(row), row["max_tokens"]) for row in (*rows[:1], *rows[-1:])]
        decode = None if self.chat else self._text
        self.meeting = Meeting(self.pool, cfg, longest, self.chat, tried, self._keep, decode)
        try:
            self.model = self._run(self.meeting.begin())
            if self.tokenizer is not None:
                self.model.vocabulary = max(self.tokenizer.get_vocab().values()) + 1
        except BaseException:
            self.close()
            raise

    @staticmethod
    def facts(cfg: RunConfig, token_ids: list[int] | None) -> Facts:
        """Ask the server what it is; `token_ids`: some, None without a tokenizer."""

        async def ask() -> Facts:
            pool = Pool(cfg.engine)
            try:
                return await served.choose(pool, await served.facts(pool, cfg), token_ids)
            finally:
                await pool.close()

        return asyncio.run(ask())

    def generate(self, requests: Iterable[Request | None]) -> Generator[Completion | None]:
        waiting, more = iter(requests), True
        tasks: set[asyncio.Task[None]] = set()
        ended: deque[Completion | BaseException] = deque()
        rung, doubt = asyncio.Event(), Doubt()
        try:
            while True:
                room = int(self.pool.limit) - len(tasks)
                taken: list[Request] = []
                if more and room > 0:
                    taken, more = pull(waiting, room)
                for request in taken:
                    task = self.loop.create_task(self._into(request, ended, rung))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                if tasks:
                    self._run(_wait(rung))
                while ended:
                    item = ended.popleft()
                    if isinstance(item, BaseException):
                        raise item
                    yield from doubt.hold(item)
                if not tasks and not taken:  # there is nothing to compare it with right now
                    yield from doubt.release()
                    if not more:
                        return
                yield None
        finally:
            for task in tasks:
                task.cancel()  # its connection is closed, and the server stops
            self._run(_gather(tasks))

    async def _into(
        self,
        request: Request,
        ended: deque[Completion | BaseException],
        rung: asyncio.Event,
    ) -> None:
        try:
            ended.append(await self._attempt(request))
        except Exception as error:
            ended.append(error)
        rung.set()

    async def _attempt(self, request: Request) -> Completion:
        s, now = self.cfg.sampling, steady()
        started = now()
        prompt = request.messages or request.context
        wanted = s.logprobs and "logprobs" not in self.meeting.lacking
        try:
            answer = await self.model.ask(
                Ask(
                    prompt,
                    request.max_tokens,
                    request.seed,
                    s,
                    logprobs=wanted,
                    stop=self.cfg.prompt.stop,
                )
            )
            if request.begun and not answer.token_ids:  # of no use after those that are there
                answer = Answer(text="", finish_reason="no token ids")
        except GaveUp as error:
            answer = Answer(text="", finish_reason=str(error))
        logprobs, ids = answer.logprobs if wanted else None, answer.token_ids
        ended: Any = {"finish_reason": answer.finish_reason, "token_ids": ids, "logprobs": logprobs}
        if self.tokenizer is not None and ids:
            reason = answer.finish_reason
            ended = ending(self.tokenizer, self.cfg, request, ids, logprobs, reason)
        else:
            ended["text"] = cut(self._text(answer), self.cfg.prompt.stop)
        return Completion(
            request=request,
            **ended,
            started=started,
            first_token=None,
            finished=now(),
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
        )

    def _keep(self, known: dict[str, Any]) -> dict[str, Any]:
        path = Path(self.cfg.run_dir).expanduser() / runfolder.SERVER
        lease.create(path, json.dumps(known))  # of workers that begin at once one does
        try:
            known = foreign.read_json(path)
            return known | {"prompt": known["prompt"], "looks": known["looks"]}
        except (ValueError, KeyError) as error:
            raise UserError(f"{path}: {one_line(error)}; delete it to begin anew") from None

    def doubtful(self, since: float) -> bool:
        back = self.pool.server.doubtful and not self.pool.server.failures
        return since > (DOUBT_S if back else PROBE_S)

    def same(self, limit_s: float) -> bool:
        try:
            self._run(asyncio.wait_for(self.meeting.compare(self.model), limit_s))
        except (TimeoutError, TryAgain):
            return False
        return True

    def _text(self, answer: Answer) -> str:
        """Of the tokens where they are known, as every engine; else as the server says it.

        What a server took apart, the reasoning and the answer, is put together as the model wrote
        it, so that the final part is found as in any other text.
        """
        if self.tokenizer is not None and answer.token_ids:
            stopped = answer.finish_reason == "stop"
            return text_of(self.tokenizer, answer.token_ids, stopped, self.cfg)
        if not answer.reasoning:
            return answer.text or ""
        if not answer.text:
            return answer.reasoning
        return f"{answer.reasoning}{self.cfg.model.reasoning_end or '</think>'}{answer.text}"

    def prompt_logprobs(self, prompts: list[list[int]]) -> list[Logprobs]:
        asks = [Ask(p, 1, None, self.cfg.sampling, prompt_logprobs=True) for p in prompts]
        answers = self._run(self._all(asks))
        return [np.array(answer.prompt_logprobs, dtype=np.float32) for answer in answers]

    def next_logprobs(
        self, prompts: Sequence[list[int]], token_ids: list[int], got_on: GotOn
    ) -> Logprobs:
        asks = [Ask(p, 1, None, self.cfg.sampling, labels=token_ids) for p in prompts]
        assert self.tokenizer is not None
        names = {token: self.tokenizer.decode([token]) for token in token_ids}
        values = np.empty((len(prompts), len(token_ids)), dtype=np.float32)
        for row, answer in zip(values, self._run(self._all(asks, got_on)), strict=True):
            if not answer.tops:
                raise UserError(
                    f"{self.pool.server.setting}: gives no log-probs of the next token,"
                    " so it cannot run a verifier"
                )
            least = min(answer.tops.values())  # what is not among them is at most that likely
            for place, token in enumerate(token_ids):
                known = answer.tops.get(f"token_id:{token}", answer.tops.get(names[token]))
                row[place] = least if known is None else known
                self.bounded += known is None
        return values

    async def _all(
        self, asks: Sequence[Ask], got_on: Callable[[], None] = lambda: None
    ) -> list[Answer]:
        """Answers in the order of the questions; the first error ends all."""
        free = asyncio.Semaphore(self.pool.most)

        async def one(ask: Ask) -> Answer:
            async with free:
                answer = await self.model.ask(ask)
            got_on()
            return answer

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(ask)) for ask in asks]
        except BaseExceptionGroup as errors:
            first = errors.exceptions[0]
            if isinstance(first, GaveUp):
                raise TryAgain(f"{self.pool.key}.url: {first}, again and again") from None
            raise first from None
        return [task.result() for task in tasks]

    def describe(self) -> dict[str, Any]:
        return {
            "engine": "openai",
            "servers": [self.meeting.found],
            "in_flight": self.pool.most,
            "lacking": sorted(self.meeting.lacking),
            "args": dict(self.cfg.engine.args),
        }

    def close(self) -> None:
        if self.pool.again:
            times = ", ".join(f"{reason} {n} times" for reason, n in self.pool.again.most_common())
            note(f"requests were sent again: {times}")
        if self.bounded:
            warn(
                f"{self.bounded} log-probs of labels were not among the likeliest tokens that the"
                " server gives: the least of these stands for them, an upper bound"
            )
        self._run(self.pool.close())
        self.loop.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(work)


def _prompt(row: Mapping[str, Any]) -> Any:
    return questions_table.messages(row) or row["prompt_token_ids"]


async def _wait(rung: asyncio.Event) -> None:
    """Until something has ended, or a step is over."""
    try:
        async with asyncio.timeout(_STEP_S):
            await rung.wait()
    except TimeoutError:
        pass
    rung.clear()


async def _gather(tasks: Iterable[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
