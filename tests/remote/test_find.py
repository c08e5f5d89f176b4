"""Which checkpoint of another place is meant: the newest whole one, or the one that is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobrun import CheckpointManager
from jobrun.checkpoint.catalog import Catalog
from jobrun.errors import DamagedError, NotFoundError, UsageError
from jobrun.remote.files import RemoteFs
from jobrun.remote.find import find_at
from jobrun.remote.store import join, open_store
from jobrun.remote.upload import upload_checkpoint


@pytest.fixture
def uploaded(tmp_path: Path, place: str) -> str:
    """Checkpoints of the epochs 1, 2, 3 with the ids 0, 1, 2."""
    store = open_store(place)
    with CheckpointManager(tmp_path / "run") as manager:
        for epoch in (1, 2, 3):
            manager.save(epoch, {node: {"total": epoch} for node in ("a", "b")})
            upload_checkpoint(manager.path(epoch), store)
    return store.place


def test_the_newest_or_a_named_one(uploaded: str) -> None:
    assert (find_at(uploaded).name, find_at(uploaded).record.epoch) == ("checkpoint_2", 3)
    assert find_at(uploaded, epoch=2).name == "checkpoint_1"
    assert find_at(uploaded, id=0).record.epoch == 1
    by_url = find_at(join(uploaded, "checkpoint_1"))
    assert (by_url.record.epoch, by_url.store.place) == (2, uploaded)
    assert by_url.url == join(uploaded, "checkpoint_1")


def test_what_is_not_there(uploaded: str) -> None:
    with pytest.raises(NotFoundError, match=r"no checkpoint of epoch 9; there are 1\.\.3"):
        find_at(uploaded, epoch=9)
    with pytest.raises(NotFoundError, match=r"no checkpoint of id 9; there are 0\.\.2"):
        find_at(uploaded, id=9)
    with pytest.raises(NotFoundError, match="there is no checkpoint"):
        find_at(join(uploaded, "nothing"))
    with pytest.raises(NotFoundError, match="there is no _SUCCESS"):
        find_at(join(uploaded, "checkpoint_7"))


def test_names_that_cannot_be_together(uploaded: str) -> None:
    with pytest.raises(UsageError, match="is one checkpoint"):
        find_at(join(uploaded, "checkpoint_1"), epoch=2)
    with pytest.raises(UsageError, match="not by both"):
        find_at(uploaded, epoch=1, id=1)


def test_what_is_only_named_like_one_is_passed_over(uploaded: str) -> None:
    store = open_store(uploaded)
    store.write("checkpoint_7/zarr.json", b"{}")
    store.write("checkpoint_8/_SUCCESS", b"nonsense")
    store.write("checkpoint_9/_SUCCESS", store.read("checkpoint_1/_SUCCESS"))
    assert [record.id for record in Catalog(uploaded, RemoteFs()).listed()] == [0, 1, 2]
    assert find_at(uploaded).name == "checkpoint_2"


def test_one_that_lacks_a_file_is_passed_over_unless_it_is_named(uploaded: str) -> None:
    store = open_store(uploaded)
    store.write("checkpoint_2/b/total/zarr.json", b"{}")
    found = find_at(uploaded)
    assert found.name == "checkpoint_1"
    (skipped,) = found.skipped
    assert skipped.id == 2
    path = join(uploaded, "checkpoint_2/b/total/zarr.json")
    assert skipped.reason.startswith(f"{path}: it is 2 bytes long")
    assert find_at(uploaded, id=2).name == "checkpoint_2"
    for id in (0, 1):
        store.write(f"checkpoint_{id}/manifest.a.json", b"{}")
    with pytest.raises(DamagedError, match="no checkpoint is whole"):
        find_at(uploaded)
