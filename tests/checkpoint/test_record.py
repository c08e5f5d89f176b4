from __future__ import annotations

import json
import math
import pickle
import struct
from dataclasses import replace
from typing import Any

import crc32c
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.checkpoint.record import (
    Record,
    RecordFields,
    check_fields,
    decode_listed,
    decode_record,
    encode_record,
)
from jobrun.core.position import PipeState, Position, ReaderState
from jobrun.errors import DamagedError, UsageError

POSITION = Position(
    epochs=4,
    tasks=("main/train",),
    pipes={"main/p": PipeState(3, {"loss": ("mean", math.inf, 12)})},
    readers={"main/p": ReaderState(1, 7, 100, {"x": "<f8"})},
)


def record(**changes: object) -> Record:
    fields: dict[str, object] = {
        "id": 7,
        "time": "2026-01-02T03:04:05.000006Z",
        "position": POSITION,
        "run_seconds": 12.5,
        "metrics": {"loss": 0.25, "ok": True, "n": 3, "none": None},
        "stops": ({"kind": "patience", "state": {"best": math.inf, "wait": 2}},),
        "decision": {"outcome": "stop", "reason": "epochs: 4"},
        "versions": {"numpy": "2.0"},
        "job": "dïgits",
        "digest": "abc",
        "manifests": {"main": "01234567", "b": "89abcdef"},
        "root": "00000000",
        "bytes": 1000,
        "files": 12,
        "extra": {"a": [1, {"b": -math.inf}]},
    }
    return Record(**{**fields, **changes})  # type: ignore[arg-type]


def stop(best: float) -> dict[str, Any]:
    return {"kind": "patience", "metric": "x", "state": {"best": best, "wait": 0}}


def test_a_record_comes_back() -> None:
    found = decode_record(encode_record(record()), "_SUCCESS")
    assert found == record()
    assert (found.epoch, found.at_boundary, found.nodes) == (4, False, ("main", "b"))


def test_one_that_is_listed_is_the_same() -> None:
    for written in (record(), record(position=Position(4))):
        data = encode_record(written)
        listed = decode_listed(data, "")
        copied = pickle.loads(pickle.dumps(listed))
        assert listed.stops == written.stops
        assert listed == copied == replace(listed) == written
    with pytest.raises(AttributeError, match="a record has no 'nothing'"):
        _ = listed.nothing  # type: ignore[attr-defined]


def test_one_that_is_listed_shows_a_malformed_field_once_it_is_used() -> None:
    data = proven(encode_record(record()).replace(b'{"numpy": "2.0"}', b'{"numpy": 2.0}'))
    with pytest.raises(DamagedError, match="'versions' cannot be"):
        decode_record(data, "")
    listed = decode_listed(data, "there")
    assert (listed.id, listed.decision) == (7, {"outcome": "stop", "reason": "epochs: 4"})
    with pytest.raises(DamagedError, match="'versions' cannot be") as raised:
        _ = listed.extra
    assert raised.value.where == "there"


def test_lines_in_another_order_are_the_same_record() -> None:
    *lines, _ = encode_record(record()).splitlines(keepends=True)
    data = proven(b"".join([lines[0], *reversed(lines[1:])]) + b"crc32c: ")
    assert decode_listed(data, "") == decode_record(data, "") == record()


def proven(data: bytes) -> bytes:
    """The bytes of a record with the checksum that they should have."""
    body = data.rpartition(b"crc32c: ")[0]
    return body + f"crc32c: {crc32c.crc32c(body):08x}\n".encode()


def test_inside_an_epoch_it_has_no_metrics_whatever_it_was_given_or_written_with() -> None:
    assert record().metrics == {}
    ended = record(position=Position(4))
    assert decode_record(encode_record(ended), "").metrics == ended.metrics != {}
    inside = json.dumps(POSITION.to_json(), allow_nan=True).replace(
        "Infinity", '{"float": "Infinity"}'
    )
    lines = encode_record(ended).decode().splitlines(keepends=True)[:-1]
    body = "".join(f"position: {inside}\n" if x.startswith("position:") else x for x in lines)
    written = body.encode() + f"crc32c: {crc32c.crc32c(body.encode()):08x}\n".encode()
    found = decode_record(written, "")
    assert (found.position, found.metrics) == (POSITION, {})


def test_it_is_text_and_yaml_with_a_checksum_at_the_end() -> None:
    data = encode_record(record())
    lines = data.decode("ascii").splitlines()
    assert lines[-1].startswith("crc32c: ")
    assert yaml.safe_load(data)["id"] == 7
    for line in lines[:-1]:
        name, value = line.split(": ", 1)
        assert name.isidentifier()
        json.loads(value, parse_constant=pytest.fail)


@settings(deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_every_float_keeps_its_bits(bits: int) -> None:
    value = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
    boundary = {"position": Position(4), "metrics": {"x": value}}
    given_record = record(**boundary, extra={"x": [value]}, stops=[stop(value)])
    found = decode_record(encode_record(given_record), "")
    for seen in (found.metrics["x"], found.extra["x"][0], found.stops[0]["state"]["best"]):
        assert struct.pack(">d", seen) == bits.to_bytes(8, "big")


def test_numpy_scalars_are_kept_as_numbers() -> None:
    given_record = record(
        position=Position(4),
        metrics={"x": np.float32(0.1), "n": np.int64(3), "nan": np.float64("nan")},
    )
    found = decode_record(encode_record(given_record), "")
    assert found.metrics["x"] == float(np.float32(0.1))
    assert found.metrics["n"] == 3
    assert math.isnan(found.metrics["nan"] or 0)


def test_every_flipped_bit_and_every_cut_is_found() -> None:
    data = encode_record(record())
    for place in range(len(data)):
        for bit in (0, 5):
            broken = bytearray(data)
            broken[place] ^= 1 << bit
            with pytest.raises(DamagedError):
                decode_record(bytes(broken), "_SUCCESS")
        with pytest.raises(DamagedError):
            decode_record(data[:place], "_SUCCESS")
    with pytest.raises(DamagedError):
        decode_record(data + b"\n", "_SUCCESS")


def test_a_newer_format_is_refused_by_name() -> None:
    head = encode_record(record()).replace(b"format: 1", b"format: 2").rpartition(b"crc32c: ")[0]
    data = head + f"crc32c: {crc32c.crc32c(head):08x}\n".encode()
    with pytest.raises(DamagedError, match="format 2; this jobrun reads format 1"):
        decode_record(data, "_SUCCESS")


@pytest.mark.parametrize("text", [b"", b"hello\n", b"id: [\n", b"format: 1\nid: 3\n"])
def test_other_files_are_no_records(text: bytes) -> None:
    for data in (text, text + f"crc32c: {crc32c.crc32c(text):08x}\n".encode()):
        with pytest.raises(DamagedError):
            decode_record(data, "_SUCCESS")


def test_extra_may_look_like_one_of_our_floats() -> None:
    for extra in ({"float": "abc"}, {"float": None}, {"x": {"float": "NaNs"}}, {"float": 1.5}):
        assert decode_record(encode_record(record(extra=extra)), "").extra == extra


@pytest.mark.parametrize(
    "fields",
    [
        {"metrics": {"x": "abc"}},
        {"metrics": {"x": np.ones(2)[:0]}},
        {"metrics": {"x": 1j}},
        {"extra": {"x": object()}},
        {"extra": {"x": {1, 2}}},
    ],
)
def test_what_cannot_be_written_down_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        check_fields(RecordFields(**fields))
