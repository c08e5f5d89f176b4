"""Which files of the user's code a run uses, and which have changed."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

from jobrun.usercode.code_hash import changed_code, digests, loaded_code


def test_loaded_modules_below_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "codetest_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "steps.py").write_text("x = 1\n")
    (tmp_path / "codetest_unused.py").write_text("x = 1\n")
    importlib.import_module("codetest_package.steps")
    try:
        code = loaded_code(tmp_path)
    finally:
        for name in ("codetest_package", "codetest_package.steps"):
            del sys.modules[name]
    assert list(code) == ["codetest_package/__init__.py", "codetest_package/steps.py"]
    assert changed_code(code, tmp_path) == ()
    (package / "steps.py").write_text("x = 2\n")
    assert changed_code(code, tmp_path) == ("codetest_package/steps.py",)
    (package / "__init__.py").unlink()
    assert changed_code(code, tmp_path) == tuple(code)


def test_a_module_is_where_its_links_lead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home/inner").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "home/inner/codetest_here.py").write_text("x = 1\n")
    (tmp_path / "elsewhere/codetest_there.py").write_text("x = 1\n")
    (tmp_path / "home/codetest_there.py").symlink_to(tmp_path / "elsewhere/codetest_there.py")
    (tmp_path / "way").symlink_to(tmp_path / "home", target_is_directory=True)
    monkeypatch.syspath_prepend(str(tmp_path / "way"))
    monkeypatch.syspath_prepend(str(tmp_path / "way/inner"))
    names = ("codetest_here", "codetest_there")
    for name in names:
        importlib.import_module(name)
    try:
        found = {way: list(loaded_code(tmp_path / way)) for way in ("home", "way", "elsewhere")}
    finally:
        for name in names:
            del sys.modules[name]
    here = ["inner/codetest_here.py"]
    assert found == {"home": here, "way": here, "elsewhere": ["codetest_there.py"]}


def test_installed_packages_are_not_the_users_code() -> None:
    root = Path(pytest.__file__).parents[2]
    assert not any("site-packages" in f or f.startswith("pytest/") for f in loaded_code(root))


def test_other_files_are_named_below_the_folder_or_by_their_path(tmp_path: Path) -> None:
    folder, other = tmp_path / "job", tmp_path / "base.npz"
    folder.mkdir()
    (folder / "w.npz").write_bytes(b"1")
    other.write_bytes(b"2")
    found = digests([folder / "w.npz", folder / "../base.npz", folder / "gone.npz"], folder)
    assert list(found) == ["w.npz", str(other.resolve()), "gone.npz"]
    assert changed_code(found, folder) == ()
    other.write_bytes(b"3")
    assert changed_code(found, folder) == (str(other.resolve()),)


def test_size_and_time_stand_for_the_content_of_a_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobrun.usercode.code_hash._LARGEST", 10)
    file = tmp_path / "w.npz"
    file.write_bytes(b"x" * 20)
    os.utime(file, ns=(1, 1))
    found = digests([file], tmp_path)
    assert found["w.npz"]
    file.write_bytes(b"x" * 20)
    os.utime(file, ns=(1, 1))
    assert changed_code(found, tmp_path) == ()
    os.utime(file, ns=(1, 2))
    assert changed_code(found, tmp_path) == ("w.npz",)
