"""Every server of a run is met before it is used: asked what it is, tried, and judged."""

import asyncio
from dataclasses import replace
from typing import Any

from pipeline.base.console import warn
from pipeline.base.errors import TryAgain, UserError
from pipeline.config.settings import RunConfig
from pipeline.servers import probe, served
from pipeline.servers.pool import LONGEST_PAUSE_S, Pool, Server
from pipeline.servers.served import ServedModel

_CHECKED = ("token_ids", "logprobs", "named")  # what every answer has if every probe had it


class Meeting:
    """The servers of one run.

    Args:
        pool: the servers.
        cfg: the configuration.
        longest: the most tokens of any request, prompt and completion together.
        chat: whether prompts are chat turns.
        tried: questions to try them on; none: they are only asked what they are.
        decode: text of an answer's token ids, or None without a tokenizer.
        reading: log-probs of the last of these prompts, as the run has them, or None.

    Attributes:
        found: what the probe of each found.
        lacking: what of the run's wishes is done without.
    """

    def __init__(
        self,
        pool: Pool,
        cfg: RunConfig,
        longest: int,
        chat: bool,
        tried: probe.Tried,
        reading: Any,
        decode: probe.Decode | None = None,
    ) -> None:
        self.pool, self.cfg, self.longest, self.chat = pool, cfg, longest, chat
        self.tried, self.reading, self.decode = tried, reading, decode
        self.found: list[probe.Findings] = []
        self.lacking: set[str] = set()

    async def all(self) -> ServedModel:
        """Try every server; one that is not there yet is tried again while others work."""
        servers, model = self.pool.servers, None
        for server in servers:
            needed = model is None and server is servers[-1]
            try:
                model = await self._join(server, model, self.pool.patience_s if needed else 0.0)
            except TryAgain as error:
                if needed:
                    raise
                warn(f"{error}; it is used when it is there")
        assert model is not None
        return model

    async def _join(
        self, server: Server, model: ServedModel | None, patience_s: float
    ) -> ServedModel:
        """Ask a server what it is and try it on the run's first and last question."""
        own = await self._served(server, patience_s)
        model = model or own
        if own.facts.served_name != model.facts.served_name:
            names = f"{own.facts.served_name} and not {model.facts.served_name}"
            raise UserError(f"{server.setting}: serves {names}, as another one does")
        if self.tried:
            self._judge(await probe.probe(model, server, self.cfg, self.tried, self.decode), server)
            given = [what for what in _CHECKED if all(known[what] for known in self.found)]
            model.gives = frozenset(given)
        server.met = True
        return model

    async def late(self, model: ServedModel) -> None:
        """Servers that were not there join when they are."""
        waiting = [server for server in self.pool.servers if not server.met]
        while waiting:
            await asyncio.sleep(LONGEST_PAUSE_S)
            for server in list(waiting):
                try:
                    await self._join(server, model, 0.0)
                except TryAgain:
                    continue
                except UserError as error:
                    warn(f"{error}; it is left out")
                waiting.remove(server)

    async def _served(self, server: Server, patience_s: float) -> ServedModel:
        asked = self.cfg.engine.api
        if self.tried and asked != "auto" and (asked == "chat") != self.chat:
            prompts = "chat turns" if self.chat else "token ids"
            raise UserError(
                f"engine.api={asked}: the prompts of this run are {prompts}; leave it out, or give"
                " a new run a tag=NAME"
            )
        facts = await served.facts(self.pool, server, self.cfg, patience_s)
        facts = replace(facts, api="chat" if self.chat else served.of_tokens(facts))
        if facts.context is not None and facts.context < self.longest:
            raise UserError(
                f"{server.setting}: has room for {facts.context} tokens, and {self.longest} are"
                " needed; serve it with more (vLLM: --max-model-len), or lower sampling.max_tokens"
            )
        extra = dict(self.cfg.engine.args)
        if self.chat and self.cfg.model.chat_template_kwargs:
            extra["chat_template_kwargs"] = dict(self.cfg.model.chat_template_kwargs)
        if not self.cfg.model.skip_special_tokens:
            extra["skip_special_tokens"] = False
        return ServedModel(self.pool, facts, extra)

    def _judge(self, found: probe.Findings, server: Server) -> None:
        """Say what a server lacks; refuse it where the run needs that, or it is another model."""
        lacks = probe.missing(found, self.cfg)
        for line in [*(why for _, why in lacks), *probe.remarks(found, self.cfg)]:
            warn(f"{server.url} {line}")
        refused = [name for name, _ in lacks if name not in self.cfg.engine.allow_missing]
        if refused:
            without = " ".join(f"sampling.{name}=false" for name in refused)
            raise UserError(
                f"{server.setting}: lacks what this run asks for ({', '.join(refused)}); to go on"
                f" without: engine.allow_missing=[{','.join(refused)}], or {without} with a"
                " tag=NAME"
            )
        others = self.found[0].get("reading") if self.found else self.reading
        if probe.another(found, others):
            whose = f"the one at {self.found[0]['url']}" if self.found else "this run's attempts"
            raise UserError(
                f"{server.setting}: reads a question of this run as another model than {whose};"
                " serve the same one, or give a new run a tag=NAME"
            )
        self.lacking |= {name for name, _ in lacks}
        self.found.append(found)
