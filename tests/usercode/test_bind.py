"""Binding functions: each way in which it can fail is told apart, in the user's own lines."""

from __future__ import annotations

import builtins
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun.errors import BindError, Where
from jobrun.model.job import Job, Pipe, Task
from jobrun.usercode.bind import bind, bind_job
from jobrun.usercode.traces import user_trace

WHERE = Where("spec.yaml", 3, 9, "  - call: job:step", 8)


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def error_of(fn: str, folder: Path) -> BindError:
    with pytest.raises(BindError) as caught:
        bind(fn, folder, WHERE)
    assert caught.value.exit_code == 4
    return caught.value


def test_a_function_beside_the_spec(tmp_path: Path) -> None:
    write(tmp_path, bound_a="def step(x):\n    return x + 1\n")
    assert bind("bound_a:step", tmp_path, WHERE)(1) == 2
    assert sys.path[0] == str(tmp_path)
    bind("bound_a:step", tmp_path, WHERE)
    assert sys.path.count(str(tmp_path)) == 1


def test_attributes_packages_and_installed_modules(tmp_path: Path) -> None:
    write(tmp_path, bound_b="class A:\n    @staticmethod\n    def f():\n        return 7\n")
    write(tmp_path / "bound_pkg", __init__="", part="def g():\n    return 8\n")
    assert bind("bound_b:A.f", tmp_path)() == 7
    assert bind("bound_pkg.part:g", tmp_path)() == 8
    assert bind("numpy:zeros", tmp_path) is np.zeros
    assert bind("numpy:linalg.norm", tmp_path) is np.linalg.norm
    assert bind("numpy.random:default_rng") is np.random.default_rng


def test_a_callable_is_itself() -> None:
    assert bind(len) is len
    with pytest.raises(BindError, match="3 cannot be called"):
        bind(3)  # type: ignore[arg-type]
    with pytest.raises(BindError, match="names no function"):
        bind("job")


def test_no_such_module(tmp_path: Path) -> None:
    write(tmp_path, other="")
    error = error_of("bound_digits:step", write(tmp_path, bound_digitz=""))
    assert error.message == "there is no module 'bound_digits'"
    assert error.where == WHERE
    assert error.hint == "did you mean 'bound_digitz'?"
    assert f"in {tmp_path}: bound_digitz.py, other.py" in error_of("zzz:f", tmp_path).hint
    assert "no .py file" in error_of("zzz:f", write(tmp_path / "empty")).hint
    assert error_of("other.deep:f", tmp_path).message == "there is no module 'other.deep'"


def test_a_module_that_fails_on_import_shows_its_own_lines(tmp_path: Path) -> None:
    write(tmp_path, bound_c="def helper():\n    return 1 / 0\n\n\nvalue = helper()\n")
    error = error_of("bound_c:step", tmp_path)
    assert (
        error.message == "the module 'bound_c' fails on import: ZeroDivisionError: division by zero"
    )
    assert "value = helper()" in error.trace
    assert "return 1 / 0" in error.trace
    assert "importlib" not in error.trace
    assert "bind.py" not in error.trace


def test_a_package_that_is_not_installed(tmp_path: Path) -> None:
    write(tmp_path, bound_d="import no_such_package_xyz\n")
    error = error_of("bound_d:step", tmp_path)
    assert "fails on import: ModuleNotFoundError" in error.message
    assert "'no_such_package_xyz' is not installed" in error.hint
    assert "import no_such_package_xyz" in error.trace


def test_a_syntax_error_has_its_line(tmp_path: Path) -> None:
    write(tmp_path, bound_e="def step(x):\n    return (x +\n")
    error = error_of("bound_e:step", tmp_path)
    assert isinstance(error.where, Where)
    assert error.where.file == str(tmp_path / "bound_e.py")
    assert error.where.line == 2
    assert "return (x +" in str(error)
    assert error.message.startswith("syntax error: ")


def test_a_module_that_exits(tmp_path: Path) -> None:
    write(tmp_path, bound_f="import sys\nsys.exit(3)\n")
    error = error_of("bound_f:step", tmp_path)
    assert "fails on import: SystemExit: 3" in error.message
    assert "must not call sys.exit" in error.hint


def test_an_interrupt_during_import_is_one(tmp_path: Path) -> None:
    write(tmp_path, bound_g="raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        bind("bound_g:step", tmp_path)


def test_no_such_attribute(tmp_path: Path) -> None:
    write(tmp_path, bound_h="def step():\n    pass\n\n\ndef accuracy():\n    pass\n")
    error = error_of("bound_h:stap", tmp_path)
    assert error.message == "'bound_h' has no 'stap'"
    assert error.hint == "did you mean 'step'?"
    assert error_of("bound_h:zzz", tmp_path).hint == "it has accuracy, step"


def test_an_attribute_that_cannot_be_called(tmp_path: Path) -> None:
    write(tmp_path, bound_i="rate = 0.1\n")
    error = error_of("bound_i:rate", tmp_path)
    assert error.message == "bound_i:rate is of type float and cannot be called"
    assert "is a module and cannot be called" in error_of("numpy:linalg", tmp_path).message


def test_an_attribute_that_fails(tmp_path: Path) -> None:
    write(tmp_path, bound_j="def __getattr__(name):\n    raise RuntimeError('later')\n")
    error = error_of("bound_j:step", tmp_path)
    assert "raised an error for 'step': RuntimeError: later" in error.message
    assert "raise RuntimeError('later')" in error.trace


def test_a_name_that_python_has_is_refused(tmp_path: Path) -> None:
    write(tmp_path, random="def step():\n    pass\n")
    error = error_of("random:step", tmp_path)
    assert error.message == (
        f"{tmp_path / 'random.py'} cannot be imported, since Python's own module 'random' "
        "has its name"
    )
    assert error.hint == "rename it"


def test_a_name_that_a_loaded_package_has_is_refused(tmp_path: Path) -> None:
    write(tmp_path, numpy="def step():\n    pass\n")
    error = error_of("numpy:step", tmp_path)
    assert str(tmp_path / "numpy.py") in error.message
    assert str(Path(np.__file__)) in error.message


def test_a_file_that_hides_pythons_own_is_named(tmp_path: Path) -> None:
    write(tmp_path, this="", bound_k="import this\nthis.s\n")
    assert (
        "this.py beside the spec hides Python's own 'this'" in error_of("bound_k:f", tmp_path).hint
    )


def test_a_folder_of_data_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "numpy").mkdir()
    assert bind("numpy:zeros", tmp_path) is np.zeros


def test_two_specs_with_modules_of_one_name_each_get_their_own(tmp_path: Path) -> None:
    text = "import bound_help\n\n\ndef step():\n    return bound_help.name\n"
    one = write(tmp_path / "one", bound_l=text, bound_help="name = 'one'\n")
    two = write(tmp_path / "two", bound_l=text, bound_help="name = 'two'\n")
    first = bind("bound_l:step", one)
    second = bind("bound_l:step", two)
    assert (first(), second()) == ("one", "two")
    assert bind("bound_l:step", one)() == "one"
    assert bind("bound_l:step", two)() == "two"
    assert sys.path[0] == str(two)


def test_two_specs_in_two_threads_each_get_their_own(tmp_path: Path) -> None:
    """The second came first on the path while the first was imported, and gave it its helper."""
    text = "import bound_help\n\n\ndef step():\n    return bound_help.name\n"
    bound: dict[str, Any] = {}
    begun, ended = threading.Event(), threading.Event()
    pausing = "import builtins\nbuiltins.pause_of_a_test()\n"
    one = write(tmp_path / "one", bound_l=pausing + text, bound_help="name = 'one'\n")
    two = write(tmp_path / "two", bound_l=text, bound_help="name = 'two'\n")

    def pause() -> None:
        begun.set()
        ended.wait(0.3)  # it cannot end meanwhile

    def bind_two() -> None:
        begun.wait()
        bound["two"] = bind("bound_l:step", two)
        ended.set()

    thread = threading.Thread(target=bind_two)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "pause_of_a_test", pause, raising=False)
        bound["one"] = bind("bound_l:step", one)
        thread.join()
    assert {name: step() for name, step in bound.items()} == {"one": "one", "two": "two"}


def test_a_file_written_after_the_first_look_is_found(tmp_path: Path) -> None:
    write(tmp_path, bound_m="def f():\n    return 1\n")
    bind("bound_m:f", tmp_path)
    error_of("bound_n:f", tmp_path)
    write(tmp_path, bound_n="def f():\n    return 2\n")
    assert bind("bound_n:f", tmp_path)() == 2


# Jobs.


def two(x: Any, y: Any = 1) -> None: ...


def test_a_job_is_bound_as_a_whole(tmp_path: Path) -> None:
    write(tmp_path, bound_o="def f(x):\n    pass\n\n\ndef g():\n    pass\n")
    with Job("test") as job:
        Task("bound_o:f", "x")
        Pipe({"x": "x"}, do=[Task("bound_o:g"), Task(two, "x")])
    bound = bind_job(job, tmp_path)
    assert set(bound) == {"bound_o:f", "bound_o:g"}


def test_all_that_is_wrong_with_a_job_comes_at_once(tmp_path: Path) -> None:
    write(tmp_path, bound_p="def f(x):\n    pass\n", bound_q="1 / 0\n")
    with Job("test") as job:
        Task("bound_p:f")
        Task("bound_p:gg")
        Task("bound_q:f")
        Task("bound_q:g")
        Pipe({"x": "x"}, do=[Task("bound_p:f", {"y": "x"})])
    with pytest.raises(BindError) as caught:
        bind_job(job, tmp_path)
    text = str(caught.value)
    assert "    1 / 0" in caught.value.trace
    for part in ("has no 'gg'", "ZeroDivisionError", "also needs 'x'", "no parameter 'y'"):
        assert part in text
    assert text.count("fails on import") == 1


def test_one_problem_is_the_error_itself(tmp_path: Path) -> None:
    write(tmp_path, bound_r="def f(x):\n    pass\n")
    with Job("test") as job:
        Task("bound_r:f", where=WHERE, marks={"call": WHERE})
    with pytest.raises(BindError) as caught:
        bind_job(job, tmp_path)
    assert caught.value.where == WHERE
    assert "bound_r:f(x) also needs 'x'" in caught.value.message


# Traces.


def test_a_trace_begins_with_the_users_first_line(tmp_path: Path) -> None:
    text = "def outer():\n    inner()\n\n\n"
    text += "def inner():\n    raise ValueError('no') from OSError('x')\n"
    function = bind("bound_t:outer", write(tmp_path, bound_t=text))
    with pytest.raises(ValueError, match="no") as caught:
        function()
    lines = user_trace(caught.value).splitlines()
    assert lines[0] == "OSError: x"
    assert lines[-1] == "ValueError: no"
    assert f'  File "{tmp_path / "bound_t.py"}", line 6, in inner' in lines


def test_a_trace_has_no_frames_of_jobrun(tmp_path: Path) -> None:
    write(
        tmp_path,
        bound_s="from jobrun.conditions.expression import Expression as E\n\n\n"
        "def f():\n    E.parse('<')\n",
    )
    function = bind("bound_s:f", tmp_path)
    with pytest.raises(ValueError, match="not an expression") as caught:
        function()
    trace = user_trace(caught.value)
    assert "E.parse('<')" in trace
    assert "expression.py" not in trace
