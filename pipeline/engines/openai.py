"""The engine `openai`: a server with an OpenAI-like interface, local or a company's."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bayes_at_n.pipeline.base import lease, untrusted
from bayes_at_n.pipeline.base.console import note, warn
from bayes_at_n.pipeline.base.errors import Replaced, TryAgain, UserError, one_line
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines import (
    Completion,
    Engine,
    Logprobs,
    OnStep,
    Request,
    Rows,
    probe,
    pull,
    served,
    steady_clock,
)
from bayes_at_n.pipeline.engines.client import Client, Exhausted, Rejected
from bayes_at_n.pipeline.engines.served import Response, SampleRequest
from bayes_at_n.pipeline.engines.text import Parser, decode, ended, joined, truncate
from bayes_at_n.pipeline.prepare import models, questions_table
from bayes_at_n.pipeline.prepare.models import Facts
from bayes_at_n.pipeline.store import runfolder

PROBE_S, SUSPECT_S = 600.0, 60.0  # between two probes; of a server that has failed since the last
_STEP_S = 0.2  # the longest that `generate` waits before it yields
# Required of every response if the probe had it.
_CHECKED = ("token_ids", "logprobs", "prompt_logprobs", "named")

Result = TypeVar("Result")


class OpenAIEngine(Engine):
    """A model behind a server; see `pipeline.engines.Engine`.

    One thread, one event loop, at most `engine.in_flight` requests in flight. Answers come whole,
    so the time of the first token is not known.
    """

    def __init__(self, cfg: RunConfig, longest: int, rows: Rows = ()) -> None:
        self.cfg, self.longest = cfg, longest
        chat = bool(rows) and rows[0]["prompt_token_ids"] is None
        self.tokenizer = None if chat else models.tokenizer(cfg.model)
        named = cfg.model.reasoning_parser and self.tokenizer
        self.parser = Parser(cfg, self.tokenizer) if named else None
        self.bounded = 0  # log-probs of labels that are upper bounds
        self.loop = asyncio.new_event_loop()
        self.client = Client(cfg.engine)
        self.findings: probe.Findings = {"url": self.client.url}
        self.reference: probe.Findings = {}  # by which the run's model is recognized
        try:
            self.model = self._run(self._connect(rows))
            if self.tokenizer is not None:
                self.model.vocabulary = max(self.tokenizer.get_vocab().values()) + 1
        except BaseException:
            self.close()
            raise

    @staticmethod
    def facts(cfg: RunConfig, token_ids: list[int] | None) -> Facts:
        """Return what the server is; `token_ids`: any prompt, None without a tokenizer."""

        async def choose() -> Facts:
            client = Client(cfg.engine)
            try:
                return await served.choose(client, await served.facts(client, cfg), token_ids)
            finally:
                await client.close()

        return asyncio.run(choose())

    async def _connect(self, rows: Rows) -> served.Model:
        """Connect to the server and probe it on the run's first and last question."""
        model = await served.connect(self.client, self.cfg, self.longest, rows)
        self.client.suspect = False  # failures while it started do not count
        if rows:
            prompts = [
                (questions_table.messages(row) or row["prompt_token_ids"], row["max_tokens"])
                for row in (rows[0], rows[-1])
            ]
            text = self._text if self.tokenizer is not None else None
            try:
                findings, reference = await probe.probe(model, self.cfg, prompts, text)
            except Rejected as error:
                if self.tokenizer is None:
                    raise
                raise UserError(f"{error}. {served.CHAT}, in a new run (tag=NAME)") from error
            probe.judge(model, findings, self.cfg)
            self.findings, self.reference = findings, self._store(reference)
            if self.reference != reference:
                await self._compare(model)
            model.gives = frozenset(name for name in _CHECKED if findings.get(name))
        return model

    def _store(self, reference: probe.Findings) -> probe.Findings:
        """Store the reference of the run's model; return the stored one if another worker did."""
        path = Path(self.cfg.run_dir).expanduser() / runfolder.SERVER
        lease.create(path, json.dumps(reference))
        try:
            stored = untrusted.read_json(path)
            return stored | {"prompt": stored["prompt"], "looks": stored["looks"]}
        except (ValueError, KeyError) as error:
            raise UserError(f"{path}: {one_line(error)}; delete it, then run again") from None

    async def _compare(self, model: served.Model) -> None:
        """Probe the server again. Raises Replaced: it has another model than the run's."""
        self.client.suspect = False
        if not await probe.is_same_model(model, self.reference, self.cfg.sampling):
            raise Replaced(
                f"{self.client.setting}: answers as another model than the one that this run"
                " started with; serve that one, or start a new run with tag=NAME"
            )

    def probe_due(self, since: float) -> bool:
        recovered = self.client.suspect and not self.client.failures
        return since > (SUSPECT_S if recovered else PROBE_S)

    def has_run_model(self, limit_s: float) -> bool:
        try:
            self._run(asyncio.wait_for(self._compare(self.model), limit_s))
        except (TimeoutError, TryAgain):
            return False
        return True

    def generate(self, requests: Iterable[Request | None]) -> Generator[Completion | None]:
        waiting, more = iter(requests), True
        tasks: set[asyncio.Task[Completion]] = set()
        try:
            while True:
                free = int(self.client.limit) - len(tasks)
                taken: list[Request] = []
                if more and free > 0:
                    taken, more = pull(waiting, free)
                tasks |= {self.loop.create_task(self._attempt(request)) for request in taken}
                if tasks:
                    first = asyncio.FIRST_COMPLETED
                    done, tasks = self._run(asyncio.wait(tasks, timeout=_STEP_S, return_when=first))
                    for task in done:
                        yield task.result()
                if not (tasks or taken or more):
                    return
                yield None
        finally:
            for task in tasks:
                task.cancel()  # this closes its connection, and the server stops
            if tasks:
                self._run(asyncio.wait(tasks))

    async def _attempt(self, request: Request) -> Completion:
        s, stop, now = self.cfg.sampling, self.cfg.stops, steady_clock()
        started, prompt = now(), request.messages or request.context
        sample = SampleRequest(
            prompt, request.max_tokens, request.seed, s, logprobs=s.logprobs, stop=stop
        )
        try:
            response = await self.model.send(sample)
            if request.begun and not response.token_ids:  # the stored tokens cannot be continued
                response = Response(text="", finish_reason="no token ids")
        except Exhausted as error:
            response = Response(text="", finish_reason=str(error))
        values, reason = response.logprobs if s.logprobs else None, response.finish_reason
        fields: Any = {"finish_reason": reason, "token_ids": response.token_ids, "logprobs": values}
        if self.tokenizer is not None and response.token_ids:
            fields = ended(
                self.tokenizer, self.cfg, request, response.token_ids, values, reason, self.parser
            )
        else:
            fields["text"] = truncate(self._text(response), stop)
        return Completion(
            request=request,
            **fields,
            started=started,
            first_token=None,
            finished=now(),
            prompt_tokens=response.prompt_tokens,
            completion_tokens=response.completion_tokens,
        )

    def _text(self, response: Response) -> str:
        """Return the decoded tokens if they are known, else the server's text.

        Reasoning that the server split off is joined to the answer again as the model wrote it, so
        that the end of the reasoning can be found as in any other text.
        """
        if self.tokenizer is not None and response.token_ids:
            stopped = response.finish_reason == "stop"
            return decode(self.tokenizer, response.token_ids, stopped, self.cfg)
        if not response.reasoning:
            return response.text or ""
        end, stopped = self.cfg.model.reasoning_end, response.finish_reason == "stop"
        return joined(response.reasoning, response.text, end, stopped)

    def prompt_logprobs(
        self, prompts: list[list[int]], after: Sequence[int] = ()
    ) -> list[Logprobs]:
        s = self.cfg.sampling
        responses = self._all([SampleRequest(p, 1, None, s, prompt_logprobs=True) for p in prompts])
        return [np.array(response.prompt_logprobs, dtype=np.float32) for response in responses]

    def next_logprobs(
        self, prompts: Sequence[list[int]], token_ids: list[int], on_step: OnStep
    ) -> Logprobs:
        s = self.cfg.sampling
        requests = [SampleRequest(p, 1, None, s, labels=token_ids) for p in prompts]
        assert self.tokenizer is not None
        names = {token: self.tokenizer.decode([token]) for token in token_ids}
        values = np.empty((len(prompts), len(token_ids)), dtype=np.float32)
        for row, response in zip(values, self._all(requests, on_step), strict=True):
            top = response.top_logprobs
            if not top:
                raise UserError(
                    f"{self.client.setting}: gives no log-probs of the next token, so it cannot"
                    " run a verifier"
                )
            least = min(top.values())  # an upper bound for tokens that are not listed
            for i, token in enumerate(token_ids):
                value = top.get(f"token_id:{token}", top.get(names[token]))
                row[i] = least if value is None else value
                self.bounded += value is None
        return values

    def _all(
        self, requests: Sequence[SampleRequest], on_step: Callable[[], None] = lambda: None
    ) -> list[Response]:
        """Return responses in the order of the requests; the first error cancels the others."""
        free = asyncio.Semaphore(self.client.in_flight)

        async def one(request: SampleRequest) -> Response:
            async with free:
                response = await self.model.send(request)
            on_step()
            return response

        async def all_of_them() -> list[Response]:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(request)) for request in requests]
            return [task.result() for task in tasks]

        try:
            return self._run(all_of_them())
        except BaseExceptionGroup as errors:
            first = errors.exceptions[0]
            if isinstance(first, Exhausted):
                raise TryAgain(f"{self.client.key}.url: {first}, repeatedly") from None
            raise first from None

    def describe(self) -> dict[str, Any]:
        return {
            "engine": "openai",
            "servers": [self.findings],
            "in_flight": self.client.in_flight,
            "args": dict(self.cfg.engine.args),
        }

    def close(self) -> None:
        if retries := self.client.retries:
            times = ", ".join(f"{reason} {n} times" for reason, n in retries.most_common())
            note(f"requests were retried: {times}")
        if self.bounded:
            warn(
                f"{self.bounded} log-probs of labels are upper bounds: the server lists the"
                " likeliest tokens only"
            )
        self._run(self.client.close())
        self.loop.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(work)
