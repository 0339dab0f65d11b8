"""Which folders are checkpoints, and in which order."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from helpers import Capsys
from made_windows import checkpoint

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.training import checkpoints
from bayes_at_n.pipeline.training.checkpoints import INDEX, MANIFEST, WEIGHTS


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    return [checkpoint(tmp_path / f"step-{n}") for n in (1, 2, 3)]


def names(patterns: Sequence[Path | str], last: int | None = None) -> list[str]:
    return [c.name for c in checkpoints.find([str(p) for p in patterns], last)]


def test_folders_in_order(tmp_path: Path, capsys: Capsys) -> None:
    steps = [checkpoint(tmp_path / "training" / f"step-{n}") for n in (900, 1000, 20)]
    (tmp_path / "training" / "logs").mkdir()
    found = checkpoints.find([str(tmp_path / "training")])
    assert [c.step for c in found] == [20, 900, 1000] and not capsys.readouterr().err
    each_once = [steps[1], tmp_path / "training" / "step-*0"]
    assert names(each_once) == ["step-1000", "step-20", "step-900"]


def test_a_link_beside_the_folders_is_not_the_folder(tmp_path: Path, three: list[Path]) -> None:
    (tmp_path / "latest").symlink_to("step-3")
    (tmp_path / "a").symlink_to(three[0])
    wanted = ["step-1", "step-2", "step-3"]
    assert names([tmp_path]) == names([f"{tmp_path}/*"]) == wanted
    assert names([tmp_path], last=2) == wanted[1:]
    assert names([tmp_path / "latest", tmp_path]) == ["step-3", "step-1", "step-2"]
    assert names([tmp_path / "latest"]) == ["latest"]
    (tmp_path / "elsewhere").mkdir()
    for i, path in enumerate(three):
        (tmp_path / "elsewhere" / f"link-{9 - i}").symlink_to(path)
    assert names([tmp_path / "elsewhere"]) == ["link-7", "link-8", "link-9"]


INCOMPLETE: list[Callable[[Path], object]] = [
    lambda folder: (folder / "config.json").unlink(),
    lambda folder: (folder / WEIGHTS).unlink(),
    lambda folder: (folder / INDEX).write_text('{"weight_map": {"v": "model-2.safetensors"}}'),
]


@pytest.mark.parametrize("spoil", INCOMPLETE)
def test_an_incomplete_checkpoint_does_not_shift_the_window(
    tmp_path: Path, three: list[Path], capsys: Capsys, spoil: Callable[[Path], None]
) -> None:
    spoil(three[0])
    assert names([tmp_path]) == ["step-2", "step-3"]
    assert "left out: " in capsys.readouterr().err
    spoil(three[1])  # the first complete one is step-3
    assert names([f"{tmp_path}/step-*"]) == ["step-3"]
    shutil.copytree(three[2], tmp_path / "step-1", dirs_exist_ok=True)
    (tmp_path / "step-1" / INDEX).unlink(missing_ok=True)
    with pytest.raises(UserError, match="step-2: not a complete"):
        names([tmp_path])
    assert names([tmp_path], last=1) == ["step-3"]


def test_means_are_left_out_unless_named(tmp_path: Path, three: list[Path], capsys: Capsys) -> None:
    mean = checkpoint(tmp_path / "step-9-mean")
    (mean / MANIFEST).write_text("sources: []")
    for pattern in (tmp_path, f"{tmp_path}/*"):
        assert names([pattern]) == ["step-1", "step-2", "step-3"]
        assert str(mean) in capsys.readouterr().err.replace("\n", "")
    assert names([f"{tmp_path}/step-[0-9]", mean])[-1] == mean.name
    assert not capsys.readouterr().err
    with pytest.raises(UserError, match=MANIFEST):
        names([f"{tmp_path}/*-mean"])
