"""Functions by name, and scripts that are imported."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jobrun.errors import BindError
from jobrun.usercode import reference as references
from jobrun.usercode.reference import forbid_while_importing, import_main, main_module, reference


class Thing:
    """Has functions."""

    def method(self) -> None:
        """A function that a class holds."""

    @staticmethod
    def static() -> None:
        """Likewise."""

    def __call__(self) -> None:
        """An object that can be called."""


def test_functions_are_named_by_module_and_path() -> None:
    assert reference(json.dumps) == "json:dumps"
    assert reference(Thing) == f"{__name__}:Thing"
    assert reference(Thing.method) == f"{__name__}:Thing.method"
    assert reference(Thing.static) == f"{__name__}:Thing.static"


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda: 0, "as a lambda"),
        (partial(print), "an object of type partial"),
        (Thing(), "an object of type Thing"),
        (Thing().method, "is another object"),
    ],
)
def test_what_cannot_be_found_by_name_is_said(function: Any, why: str) -> None:
    with pytest.raises(LookupError, match=why):
        reference(function)


def test_a_function_inside_of_another_has_no_name() -> None:
    def inside() -> None: ...

    with pytest.raises(LookupError, match="inside a function"):
        reference(inside)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What ``__main__`` is for this test."""
    path = tmp_path / "script"
    path.write_text("def f(): return __name__\n")
    main = type(sys)("__main__")
    main.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.delitem(sys.modules, "__mp_main__", raising=False)
    return path


def test_a_script_is_imported_under_another_name(script: Path) -> None:
    kind, name = main_module()
    assert (kind, name) == ("file", str(script))
    module = sys.modules[import_main((kind, name))]
    assert module.f() == "__mp_main__"
    del sys.modules["__mp_main__"]


def test_a_module_that_is_run_is_imported_under_its_own(script: Path) -> None:
    sys.modules["__main__"].__spec__ = json.__spec__
    assert main_module() == ("module", "json")
    assert import_main(("module", "json")) == "json"


def test_what_was_typed_at_a_prompt_cannot_be_imported(script: Path) -> None:
    script.unlink()
    with pytest.raises(LookupError, match="at a prompt or in a notebook"):
        main_module()


def test_while_a_script_is_imported_no_job_is_run(script: Path) -> None:
    script.write_text("from jobrun.usercode.reference import forbid_while_importing as f\nf()\n")
    with pytest.raises(BindError, match="runs a job when it is imported") as caught:
        import_main(("file", str(script)))
    assert 'if __name__ == "__main__":' in caught.value.hint
    forbid_while_importing()
    assert not references._importing
    del sys.modules["__mp_main__"]
