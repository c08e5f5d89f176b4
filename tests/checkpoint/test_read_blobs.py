from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from checkpoint_helpers import CountingFs, VanishingFs, save

from jobrun.checkpoint.catalog import Catalog
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.read_blobs import load_blobs
from jobrun.errors import DamagedError, NotFoundError, UsageError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    save(tmp_path)
    save(tmp_path, epoch=1)
    return tmp_path


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    with CheckpointManager(tmp_path) as manager:
        for epoch, total in enumerate([100, 103, 115]):
            manager.save(epoch, {f"trainer_{i}": {"total": total + i} for i in range(3)})
    return tmp_path


def test_all_leaves_by_name(run: Path) -> None:
    found = load_blobs(run)
    assert list(found) == ["model/w", "model/b", "model/steps/0", "model/steps/1", "total"]
    assert found["model/w"].shape == (12, 4)
    assert not found["model/w"].flags.writeable
    assert (found["model/steps/0"], found["model/steps/1"], found["total"]) == (1, "two", 100)


def test_a_tree_gives_a_dict_and_a_glob_gives_leaves(run: Path) -> None:
    found = load_blobs(run, ["total", "model", "model/steps", "model/?", "*steps*"])
    assert list(found) == [
        "total", "model", "model/steps", "model/w", "model/b", "model/steps/0", "model/steps/1",
    ]  # fmt: skip
    assert list(found["model"]) == ["w", "b", "steps"]
    assert found["model"]["steps"] == [1, "two"] == found["model/steps"]
    assert np.array_equal(found["model"]["w"], found["model/w"])


def test_one_name_need_not_be_a_list(run: Path) -> None:
    assert load_blobs(run, "total") == {"total": 100}


def test_a_checkpoint_by_its_path_or_by_epoch_or_id(run: Path) -> None:
    assert load_blobs(run / "checkpoint_0", "total") == {"total": 100}
    with pytest.raises(UsageError, match="is one checkpoint"):
        load_blobs(run / "checkpoint_0", epoch=0)


def test_several_nodes_have_their_names_in_front(nodes: Path) -> None:
    assert load_blobs(nodes) == {
        "trainer_0:total": 115, "trainer_1:total": 116, "trainer_2:total": 117,
    }  # fmt: skip
    wanted = ["trainer_2:total", "trainer_1:total"]
    assert list(load_blobs(nodes, wanted, epoch=1)) == wanted
    assert load_blobs(nodes, ["*_1:*"], epoch=1) == {"trainer_1:total": 104}
    with pytest.raises(NotFoundError, match="did you mean"):
        load_blobs(nodes, "trainer_3:total")
    with pytest.raises(NotFoundError, match="there are trainer_0:total, trainer_1:total"):
        load_blobs(nodes, "x")


def test_a_name_without_a_node_means_the_blob_of_each(nodes: Path) -> None:
    found = load_blobs(nodes, ["trainer_2:total", "total"], epoch=0)
    assert found == {"trainer_2:total": 102, "trainer_0:total": 100, "trainer_1:total": 101}
    assert load_blobs(nodes, "t*", epoch=0) == load_blobs(nodes, epoch=0)


def test_of_one_node_its_name_may_stand_in_front(run: Path) -> None:
    assert load_blobs(run, "main:total") == {"total": 100}
    assert list(load_blobs(run, "*:model/?")) == ["model/w", "model/b"]


def test_a_pattern_of_a_tree_gives_its_leaves(run: Path) -> None:
    leaves = ["model/w", "model/b", "model/steps/0", "model/steps/1"]
    assert list(load_blobs(run, "mode?")) == leaves
    assert list(load_blobs(run, "model/")) == ["model"]


def test_a_missing_epoch_says_which_there_are(nodes: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no checkpoint of epoch 5; there are 0\.\.2") as error:
        load_blobs(nodes, epoch=5)
    assert error.value.exit_code == 5


@pytest.mark.parametrize("name", ["totl", "model/x", "[", "*nothing*", ""])
def test_a_missing_name_loads_nothing(run: Path, name: str) -> None:
    fs = CountingFs()
    with pytest.raises(NotFoundError, match="there is no blob"):
        load_blobs(run / "checkpoint_1", ["total", name], fs=fs)
    assert all("/main/" not in path for _, path in fs.done)


@pytest.mark.parametrize("path", ["none", "file", "empty"])
def test_what_holds_no_checkpoint_is_said(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match="there is no"):
        load_blobs(tmp_path / path)


def test_a_number_needs_no_file_of_its_own(run: Path) -> None:
    (run / "checkpoint_1/main/total/zarr.json").unlink()
    assert load_blobs(run / "checkpoint_1")["total"] == 100
    with pytest.raises(DamagedError, match=r"main/total/zarr\.json: it is missing"):
        load_blobs(run)  # of a run, it must be whole


def test_damage_is_found_only_where_it_is_read(run: Path) -> None:
    (run / "checkpoint_1/main/model/w/0.0").write_bytes(b"x")
    assert load_blobs(run / "checkpoint_1", "total") == {"total": 100}
    with pytest.raises(DamagedError, match=r"model/w/0\.0: it is 1 bytes long, but 196"):
        load_blobs(run / "checkpoint_1", "model")


@pytest.mark.parametrize("names", [None, ["model"]])
@pytest.mark.parametrize("newer", [False, True])
def test_a_checkpoint_may_be_removed_while_it_is_read(
    run: Path, names: list[str] | None, newer: bool
) -> None:
    fs = VanishingFs(run, newer)
    assert load_blobs(run, names, fs=fs)
    assert fs.chunks == 2
    assert Catalog(run).ids()[-1] == (2 if newer else 0)


@pytest.mark.parametrize("names", [None, ["model"]])
@pytest.mark.parametrize("how", ["epoch", "id", "path"])
def test_one_that_is_named_is_not_replaced_by_another(
    run: Path, names: list[str] | None, how: str
) -> None:
    choice = {} if how == "path" else {how: 1}
    where = run / "checkpoint_1" if how == "path" else run
    with pytest.raises(NotFoundError) as error:
        load_blobs(where, names, **choice, fs=VanishingFs(run, True))
    said = str(error.value)
    assert "checkpoint_1: it was removed while" in said or "no checkpoint of " in said


@pytest.mark.parametrize("choice", [{"epoch": 0}, {"id": 0}], ids=str)
def test_a_named_checkpoint_costs_the_named_blobs_alone(run: Path, choice: dict[str, int]) -> None:
    fs = CountingFs()
    assert load_blobs(run, "total", **choice, fs=fs) == {"total": 100}
    read = {p.removeprefix(f"{run}/checkpoint_0/") for op, p in fs.done if op == "open"}
    looked = [p for op, p in fs.done if op == "stat"]
    assert all(Path(p).parent == run for p in looked)
    others = {f"{run}/checkpoint_1/_SUCCESS"} if "epoch" in choice else set()
    assert read - others == {"_SUCCESS", "manifest.main.json"}


def test_a_blob_of_the_newest_checkpoint_costs_that_blob_alone(run: Path) -> None:
    fs = CountingFs()
    assert load_blobs(run, "total", fs=fs) == {"total": 100}
    read = {p.removeprefix(f"{run}/checkpoint_1/") for op, p in fs.done if op == "open"}
    assert read == {"_SUCCESS", "manifest.main.json"}


BOTH = ["trainer_1:total", "trainer_0:total"]


def test_a_newest_checkpoint_that_is_damaged_is_an_error(nodes: Path) -> None:
    (nodes / "checkpoint_2/manifest.trainer_0.json").unlink()
    assert load_blobs(nodes, "trainer_1:total") == {"trainer_1:total": 116}
    for names in ("trainer_0:total", BOTH, None, "*"):
        with pytest.raises(DamagedError, match=r"checkpoint_2/manifest\.trainer_0") as caught:
            load_blobs(nodes, names)
        assert "fallback=True" in caught.value.hint


def test_a_fallback_is_for_all_names_together(nodes: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no blob 'trainer_1:x'"):
        load_blobs(nodes, "trainer_1:x", fallback=True)
    (nodes / "checkpoint_2/manifest.trainer_0.json").unlink()
    assert load_blobs(nodes, "trainer_1:total", fallback=True) == {"trainer_1:total": 116}
    older = {"trainer_1:total": 104, "trainer_0:total": 103}
    assert load_blobs(nodes, BOTH, fallback=True) == older
    assert load_blobs(nodes, fallback=True) == {**older, "trainer_2:total": 105}
    (nodes / "checkpoint_1/_SUCCESS").write_text("")
    assert load_blobs(nodes, BOTH, fallback=True) == {
        "trainer_1:total": 101, "trainer_0:total": 100,
    }  # fmt: skip
    (nodes / "checkpoint_0/_SUCCESS").unlink()
    with pytest.raises(DamagedError, match="no checkpoint is whole:\n  checkpoint_2: "):
        load_blobs(nodes, BOTH, fallback=True)


@pytest.mark.parametrize("damage", ["text", "", None])
def test_a_newest_checkpoint_without_its_record_is_damaged_too(
    nodes: Path, damage: str | None
) -> None:
    success = nodes / "checkpoint_2/_SUCCESS"
    success.unlink() if damage is None else success.write_text(damage)
    for names in (None, BOTH):
        with pytest.raises(DamagedError, match="checkpoint_2"):
            load_blobs(nodes, names)
    assert load_blobs(nodes, fallback=True)["trainer_0:total"] == 103


def test_what_is_no_checkpoint_of_the_run_is_no_damage(nodes: Path) -> None:
    shutil.copytree(nodes / "checkpoint_1", nodes / "checkpoint_7")
    (nodes / "checkpoint_8").mkdir()
    (nodes / "checkpoint_9").symlink_to(nodes / "checkpoint_0")
    assert load_blobs(nodes)["trainer_0:total"] == 115
    assert load_blobs(nodes, BOTH)["trainer_0:total"] == 115


@pytest.mark.parametrize("choice", [{"epoch": 0}, {"id": 0}], ids=str)
def test_one_that_is_named_has_no_fallback(nodes: Path, choice: dict[str, int]) -> None:
    for place, more in ((nodes, choice), (nodes / "checkpoint_0", {})):
        with pytest.raises(UsageError, match="fallback is for the newest"):
            load_blobs(place, fallback=True, **more)


def test_of_several_nodes_only_those_that_are_named_are_looked_at(nodes: Path) -> None:
    fs = CountingFs()
    assert load_blobs(nodes, "trainer_1:total", id=1, fs=fs) == {"trainer_1:total": 104}
    read = {p.removeprefix(f"{nodes}/checkpoint_1/") for op, p in fs.done if op == "open"}
    assert read == {"_SUCCESS", "manifest.trainer_1.json"}
    for name in ("trainer_9:total", "trainer_1:totl"):
        with pytest.raises(NotFoundError, match=f"no blob '{name}'"):
            load_blobs(nodes, ["trainer_1:total", name], id=1)


def test_a_named_checkpoint_that_is_damaged_elsewhere_is_read(run: Path) -> None:
    (run / "checkpoint_0/main/model/w/0.0").unlink()
    assert load_blobs(run, "total", epoch=0) == {"total": 100}
    with pytest.raises(DamagedError, match=r"model/w/0\.0: it is missing"):
        load_blobs(run, "model", epoch=0)
    with pytest.raises(NotFoundError, match="did you mean 'total'"):
        load_blobs(run / "checkpoint_0", "totl")
    with pytest.raises(UsageError):
        load_blobs(run, "total", epoch=0, id=0)
