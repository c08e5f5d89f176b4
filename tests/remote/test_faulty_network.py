"""An S3 store behind a network that throttles, resets, delays and damages."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from faulty_network import FaultyNetwork, Rule, faulty_network, rates

from jobrun import CheckpointManager, load_blobs
from jobrun.checkpoint.scrub import Survey
from jobrun.core.notices import received_by
from jobrun.errors import DamagedError, StoreError
from jobrun.remote.files import RemoteFs
from jobrun.remote.find import find_at
from jobrun.remote.store import open_store
from jobrun.remote.upload import upload_checkpoint, upload_files
from jobrun.runs.fetch import fetch

BLOBS = {f"w{i}": np.arange(1000.0) + i for i in range(12)}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "run.json").write_text('{"name": "walk", "created": "then", "next_id": 1}')
    with CheckpointManager(folder) as manager:
        manager.save(0, {"main": BLOBS})
        return manager.path(0)


@pytest.fixture(scope="module")
def proxy(s3: str) -> Iterator[FaultyNetwork]:
    """A proxy in front of the server, by which all S3 file systems of this module go.

    Pauses between attempts take a hundredth of their time.
    """
    fsspec = pytest.importorskip("fsspec")
    sleep = asyncio.sleep
    with pytest.MonkeyPatch.context() as patch:
        with faulty_network(os.environ["AWS_ENDPOINT_URL"]) as (network, url):
            patch.setenv("AWS_ENDPOINT_URL", url)
            patch.setattr("asyncio.sleep", lambda seconds, *result: sleep(seconds / 100, *result))
            fsspec.get_filesystem_class("s3").clear_instance_cache()
            yield network
        fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.fixture
def network(proxy: FaultyNetwork) -> FaultyNetwork:
    """The proxy, which does no harm yet."""
    proxy.rule = always("")
    proxy.forget()
    return proxy


@pytest.fixture
def place(s3: str, request: pytest.FixtureRequest) -> str:
    """An empty place in the bucket; faults at random depend on its name."""
    return f"{s3}/{re.sub('[^a-z0-9]+', '-', request.node.name)}"


@pytest.fixture
def uploaded(network: FaultyNetwork, place: str, checkpoint: Path) -> str:
    """The URL of a checkpoint that was uploaded without faults."""
    upload_checkpoint(checkpoint, open_store(place))
    network.forget()
    return f"{place}/checkpoint_0"


def always(fault: str, end: str = "", times: int = 1 << 30) -> Rule:
    """A fault of the first requests for each path that ends so."""
    return lambda method, path, number: fault if path.endswith(end) and number < times else ""


def assert_whole(url: str) -> None:
    found = load_blobs(url)
    assert found.keys() == BLOBS.keys()
    assert all(np.array_equal(found[name], value) for name, value in BLOBS.items())


RULES = {
    "throttle 10 %": rates(1, throttle=0.1),
    "reset 20 %": rates(2, reset=0.2),
    "cut 20 %": rates(3, cut=0.2),
    "short 20 %": rates(4, short=0.2),
    "flip 20 %": rates(8, flip=0.2),
    "all": rates(6, throttle=0.05, reset=0.05, flip=0.05, cut=0.05, delay=0.05),
}


@pytest.mark.parametrize("name", RULES)
def test_an_upload_and_a_load_get_through(
    network: FaultyNetwork, place: str, checkpoint: Path, name: str
) -> None:
    network.rule = RULES[name]
    upload_checkpoint(checkpoint, open_store(place))
    assert sum(network.met.values()) > network.met["whole"] > 0
    network.rule = always("")
    assert_whole(f"{place}/checkpoint_0")
    network.rule = RULES[name]
    network.forget()
    assert_whole(f"{place}/checkpoint_0")
    assert sum(network.met.values()) > network.met["whole"] > 0


def test_an_upload_resumes_through_throttling(
    network: FaultyNetwork, place: str, checkpoint: Path
) -> None:
    store = open_store(place)
    for name in ("main/zarr.json", "main/w3/0"):
        store.write(f"checkpoint_0/{name}", (checkpoint / name).read_bytes())
    network.rule = rates(7, throttle=0.2)
    assert upload_checkpoint(checkpoint, store).sent > 2
    assert network.met["throttle"] > 5
    network.rule = always("")
    assert_whole(f"{place}/checkpoint_0")


def test_throttling_is_reported_once(network: FaultyNetwork, uploaded: str) -> None:
    network.rule = rates(1, throttle=0.2)
    notices: list[str] = []
    with received_by(notices.append):
        assert_whole(uploaded)
    assert network.met["throttle"] > 3
    bucket = "/".join(uploaded.split("/")[:3])
    assert notices == [
        f"{bucket} is slow: it asks for fewer requests (503); they are repeated after pauses"
    ]


@pytest.mark.parametrize(
    ("variable", "value", "attempts"),
    [("AWS_MAX_ATTEMPTS", "1", 1), ("AWS_MAX_ATTEMPTS", "7", 7), ("AWS_RETRY_MODE", "standard", 3)],
)
def test_attempts_are_those_of_the_environment(
    network: FaultyNetwork, uploaded: str, monkeypatch: pytest.MonkeyPatch,
    variable: str, value: str, attempts: int,
) -> None:  # fmt: skip
    """botocore makes that number in each of the five rounds of s3fs; its default is five."""
    monkeypatch.setenv(variable, value)
    clear = pytest.importorskip("fsspec").get_filesystem_class("s3").clear_instance_cache
    clear()
    network.rule = always("throttle")
    notices: list[str] = []
    with (
        received_by(notices.append),
        pytest.raises(StoreError, match="reduce your request rate") as caught,
    ):
        open_store(uploaded).read("_SUCCESS")
    clear()
    assert network.met["throttle"] == attempts * 5
    assert "is slow: it asks for fewer requests (503)" in notices[0]
    assert "AWS_MAX_ATTEMPTS" in caught.value.hint


def test_what_the_network_damaged_is_read_again(network: FaultyNetwork, uploaded: str) -> None:
    for fault in ("flip", "short"):
        network.rule = always(fault, times=1)
        network.forget()
        assert_whole(uploaded)
        assert network.met[fault] >= len(BLOBS)


def test_damage_that_stays_is_reported(network: FaultyNetwork, uploaded: str) -> None:
    network.rule = always("flip", "/w5/0")
    with pytest.raises(DamagedError) as caught:
        load_blobs(uploaded)
    assert str(caught.value.where).endswith("/w5/0")
    assert load_blobs(uploaded, "w4")["w4"][0] == 4


def test_a_verification_continues_past_bad_files(network: FaultyNetwork, uploaded: str) -> None:
    bad = {"/w2/0": "flip", "/w5/zarr.json": "short", "/w7/0": "expired", "/w9/0": "cut"}
    network.rule = lambda method, path, number: next(
        (fault for end, fault in bad.items() if path.endswith(end)), ""
    )
    (verdict,) = Survey(RemoteFs()).verify([uploaded])
    assert {fault.file for fault in verdict.faults} == {f"main{end}" for end in bad}
    reasons = {fault.blob: fault.reason for fault in verdict.faults}
    assert "expired" in reasons["w7"]


def test_a_verification_ends_where_the_store_does(network: FaultyNetwork, uploaded: str) -> None:
    network.rule = lambda method, path, number: "" if path.endswith("/_SUCCESS") else "expired"
    survey = Survey(RemoteFs())
    survey._delivered = True
    with pytest.raises(StoreError, match="expired"):
        list(survey.verify([uploaded] * 30))


@pytest.mark.parametrize("what", ["read", "write", "list"])
def test_an_expired_token_says_what_to_do(network: FaultyNetwork, uploaded: str, what: str) -> None:
    network.rule = always("expired")
    store = open_store(uploaded)
    calls = {
        "read": lambda: store.read("_SUCCESS"),
        "write": lambda: store.write("x", b"1"),
        "list": store.folders,
    }
    with pytest.raises(StoreError, match="The provided token has expired") as caught:
        calls[what]()
    assert caught.value.hint == "the credentials have expired: renew them and run the command again"


def test_small_files_of_a_run_are_verified(
    network: FaultyNetwork, place: str, checkpoint: Path
) -> None:
    network.rule = lambda method, path, number: "flip" if method == "PUT" and not number else ""
    upload_files(checkpoint.parent, ["run.json"], open_store(place))
    assert open_store(place).read("run.json") == (checkpoint.parent / "run.json").read_bytes()


def test_a_run_is_fetched_over_a_network_that_damages(
    network: FaultyNetwork, uploaded: str, checkpoint: Path, tmp_path: Path
) -> None:
    above = uploaded.rpartition("/")[0]
    upload_files(checkpoint.parent, ["run.json"], open_store(above))
    network.rule = always("flip", times=1)
    network.forget()
    run = fetch(find_at(above), tmp_path)
    assert network.met["flip"] > len(BLOBS)
    assert_whole(str(run.path / "checkpoint_0"))
