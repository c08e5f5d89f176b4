from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from checkpoint_helpers import save

from jobrun.checkpoint.zarr_view import open_checkpoint
from jobrun.errors import NotFoundError


def test_a_checkpoint_is_a_read_only_zarr_group(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*vlen-utf8")  # zarr 3.1.0, at every text
        group = open_checkpoint(save(tmp_path, epoch=4, job="demo"))
        assert list(group) == ["main"]
        assert group.attrs["jobrun"] == {"format": 1, "job": "demo", "id": 0, "epoch": 4}
        members = {name for name, _ in group.members(max_depth=None)}
        weights = group["main/model/w"]
        assert members == {
            "main", "main/model", "main/model/w", "main/model/b", "main/model/steps",
            "main/model/steps/0", "main/model/steps/1", "main/total",
        }  # fmt: skip
        assert np.array_equal(weights[...], np.arange(48, dtype="f4").reshape(12, 4))
        with pytest.raises(Exception, match="read-only"):
            weights[0, 0] = 1


def test_what_is_no_checkpoint_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no checkpoint"):
        open_checkpoint(tmp_path)
