"""What test processes spare: composing the same again, asking git again, the disk, drawing."""

import contextlib
import functools
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

SPARING = "BAYES_AT_N_TESTS_SPARE"  # environment variable: forked commands spare, too
WHOLE: dict[str, Any] = {}  # what was replaced, by name
COMPOSING = {"test_command_line", "test_config", "test_install"}  # test Hydra itself


def spare() -> None:
    """Compose each choice of groups once in this process and its forks, and wait for no disk.

    Hydra itself composes, and itself applies values to a copy of what it made of the groups. The
    tests cut power by cutting files: whether a disk keeps its word is none of theirs.
    """
    import hydra
    from hydra.core.config_store import ConfigStore

    from bayes_at_n.pipeline.base import program
    from bayes_at_n.pipeline.config import checks, compose

    os.environ[SPARING] = "1"
    WHOLE.update(compose=hydra.compose, store=vars(ConfigStore)["store"])
    program.commit = functools.cache(program.commit)
    program.version = functools.cache(program.version)
    program.describe()  # remembered, and inherited
    os.fsync = lambda file: None
    hydra.compose = functools.partial(_compose, hydra.compose, {})
    ConfigStore.store = functools.partialmethod(_store, ConfigStore.store, {})
    checks.keys = compose.keys = functools.cache(checks.keys)
    WHOLE["spared"] = hydra.compose, vars(ConfigStore)["store"]


@contextlib.contextmanager
def composing() -> Iterator[None]:
    """Have Hydra compose everything anew, as outside of tests."""
    import hydra
    from hydra.core.config_store import ConfigStore

    if WHOLE:
        hydra.compose, ConfigStore.store = WHOLE["compose"], WHOLE["store"]
    try:
        yield
    finally:
        if WHOLE:
            hydra.compose, ConfigStore.store = WHOLE["spared"]


def _compose(
    whole: Callable[..., Any], made: dict[Any, Any], name: str, words: Sequence[str]
) -> Any:
    """As `hydra.compose`, faster where only packaged files take part."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    from bayes_at_n.pipeline.config import compose

    loader: Any = GlobalHydra.instance().config_loader()
    of: Any = ConfigStore.instance().repo
    places = [place.path for place in loader.get_search_path().get_path()]
    values = [word for word in words[1:] if "." in word.partition("=")[0] and "hydra" not in word]
    if words[0] != "hydra.searchpath=[]" or str(compose.CONFIGS.resolve()) not in places:
        return whole(name, words)
    groups = tuple(word for word in words if word not in values)
    key = OmegaConf.get_type(of["settings.yaml"].node), groups
    if key not in made:
        made[key] = pickle.dumps(whole(name, groups))
    node = pickle.loads(made[key])  # quicker than a copy
    ConfigLoaderImpl._apply_overrides_to_config([*map(compose.parse, values)], node)
    return node


def _store(
    self: Any, store: Callable[..., None], kept: dict[int, Any], name: str, node: Any, **more: Any
) -> None:
    """As `ConfigStore.store`, without another copy of a dataclass that was stored before."""
    if name != "settings":
        store(self, name, node, **more)
    else:
        if id(node) not in kept:
            store(self, name, node)
            kept[id(node)] = self.repo["settings.yaml"]
        self.repo["settings.yaml"] = kept[id(node)]


def empty(savefig: Callable[..., None]) -> Callable[..., None]:
    """`Figure.savefig` with empty PDF and PNG files: drawing takes longer than all else."""

    @functools.wraps(savefig)
    def without(figure: Any, file: Any, *, format: str, **more: Any) -> None:
        if format not in ("pdf", "png"):
            savefig(figure, file, format=format, **more)

    return without
