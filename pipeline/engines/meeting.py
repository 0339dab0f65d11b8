"""The server of a run is met before it is used: asked what it is, tried, and judged."""

from collections.abc import Callable
from dataclasses import replace

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import Replaced, UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines import probe, served
from bayes_at_n.pipeline.engines.client import Pool
from bayes_at_n.pipeline.engines.served import ServedModel

_CHECKED = ("token_ids", "logprobs", "named")  # what every answer has if every probe had it


class Meeting:
    """The server of one run.

    Args:
        pool: the server.
        cfg: the configuration.
        longest: the most tokens of any request, prompt and completion together.
        chat: whether prompts are chat turns.
        tried: questions to try them on; none: they are only asked what they are.
        decode: text of an answer's token ids, or None without a tokenizer.
        keep: given how the server answers, returns how the run's model does: of several workers
            that begin at once the first decides.

    Attributes:
        found: what the probe found.
        lacking: what of the run's wishes is done without.
    """

    def __init__(
        self,
        pool: Pool,
        cfg: RunConfig,
        longest: int,
        chat: bool,
        tried: probe.Tried,
        keep: Callable[[probe.Findings], probe.Findings],
        decode: probe.Decode | None = None,
    ) -> None:
        self.pool, self.cfg, self.longest, self.chat = pool, cfg, longest, chat
        self.tried, self.keep, self.decode = tried, keep, decode
        self.found: probe.Findings = {"url": pool.server.url}
        self.known: probe.Findings = {}
        self.lacking: set[str] = set()

    async def begin(self) -> ServedModel:
        """Ask the server what it is and try it on the run's first and last question."""
        model = await self._served()
        if self.tried:
            found = await probe.probe(model, self.cfg, self.tried, self.decode)
            own = found.pop("known")
            self._judge(found)
            self.known = self.keep(own)
            if self.known != own:
                await self.compare(model)
            model.gives = frozenset(what for what in _CHECKED if found[what])
        return model

    async def compare(self, model: ServedModel) -> None:
        """Raises Replaced: the server has another model than the run's."""
        server = self.pool.server
        server.doubtful = False
        if not await probe.same(model, self.known, self.cfg.sampling):
            raise Replaced(
                f"{server.setting}: answers as another model than the one that this run began"
                " with; serve that one, or give a new run a tag=NAME"
            )

    async def _served(self) -> ServedModel:
        asked, server = self.cfg.engine.api, self.pool.server
        if self.tried and asked != "auto" and (asked == "chat") != self.chat:
            prompts = "chat turns" if self.chat else "token ids"
            raise UserError(
                f"engine.api={asked}: the prompts of this run are {prompts}; leave it out, or give"
                " a new run a tag=NAME"
            )
        facts = await served.facts(self.pool, self.cfg)
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

    def _judge(self, found: probe.Findings) -> None:
        """Say what the server lacks; refuse it where the run needs that."""
        server = self.pool.server
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
        self.lacking |= {name for name, _ in lacks}
        self.found = found
