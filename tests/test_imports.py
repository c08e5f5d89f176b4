"""The walls of the house: who may import what, and who may move and remove files."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import jobrun

ROOT = Path(jobrun.__file__).parent
HEAVY = {"numpy", "zarr", "rich"}


@cache
def modules() -> dict[str, Path]:
    """Every module of jobrun with its file."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text())


class _Imports(ast.NodeVisitor):
    """The modules that one imports when it runs; ``lazy``: also within functions."""

    def __init__(self, lazy: bool) -> None:
        self.lazy = lazy
        self.found: set[str] = set()

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if self.lazy:
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self.found |= {alias.name for alias in node.names}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        assert node.level == 0, "imports are absolute"
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            self.found.add(full if full in modules() else str(node.module))


@cache
def imports(name: str, lazy: bool = True) -> frozenset[str]:
    visitor = _Imports(lazy)
    visitor.visit(tree(name))
    return frozenset(visitor.found)


def part(name: str) -> str:
    """The package of a module of jobrun, or its own name: ``checkpoint``, ``values``."""
    return name.split(".")[1] if "." in name else ""


# Arrows point down.

LAYERS = (
    {"core", "docs", "templates"},
    {"storage", "values", "model"},
    {"checkpoint", "data"},
    {"analysis"},
    {"conditions", "drawing", "remote"},
    {"runs", "usercode"},
    {"session", "jobspec", "report"},
    {"engine"},
    {"tools"},
    {"html_report"},
    {"cli"},
)
"""The packages of jobrun, bottom up.  A package imports packages of lower layers only."""

OF_CORE = {"errors", "_version"}
"""Modules at the top of the package that belong to ``core``."""


def package(name: str) -> str:
    """The package of a module of jobrun: ``core``, ``checkpoint``, …"""
    found = part(name)
    return "core" if found in OF_CORE else found


def layer(name: str) -> int:
    return next(i for i, packages in enumerate(LAYERS) if name in packages)


def test_each_package_has_its_layer() -> None:
    top = {p.name.removesuffix(".py") for p in ROOT.iterdir() if p.suffix in ("", ".py")}
    top -= {"__pycache__", "__init__", "__main__"}
    assert top == {*set().union(*LAYERS), *OF_CORE}


@pytest.mark.parametrize("name", sorted(set(modules()) - {"jobrun", "jobrun.__main__"}))
def test_packages_import_lower_layers_only(name: str) -> None:
    """Lazy imports included."""
    own = package(name)
    found = {package(m) for m in imports(name) if m.split(".")[0] == "jobrun"} - {own, ""}
    above = {other for other in found if layer(other) >= layer(own)}
    assert not above, f"{name} of {own} imports {sorted(above)}"


def test_no_modules_import_each_other() -> None:
    """Not even in a circle of many."""
    assert circles({n: imports(n, lazy=False) for n in modules()}) == []


def test_no_modules_of_the_model_know_each_other() -> None:
    """Not even lazily, or for type checkers alone."""
    own = [n for n in modules() if part(n) == "model"]
    assert circles({n: all_imports(n) for n in own}) == []


def all_imports(name: str) -> set[str]:
    """The modules that one imports anywhere."""
    found = {n for n in ast.walk(tree(name)) if isinstance(n, ast.ImportFrom)}
    return {str(n.module) for n in found} | {f"{n.module}.{a.name}" for n in found for a in n.names}


def circles(graph: Mapping[str, Collection[str]]) -> list[str]:
    """The modules that lie in a circle of imports, or above one."""
    left = {name: {m for m in found if m in graph and m != name} for name, found in graph.items()}
    while left:
        free = [n for n, needs in left.items() if not needs & set(left)]
        if not free:
            break
        for name in free:
            del left[name]
    return sorted(left)


# Libraries.


def users_of(library: str) -> set[str]:
    return {n for n in modules() if any(m.split(".")[0] == library for m in imports(n))}


def test_rich_is_used_for_showing_only() -> None:
    users = users_of("rich")
    assert users
    assert {part(n) for n in users} <= {"report", "cli"}


def test_zarr_is_the_oracle_and_a_source_of_data_only() -> None:
    users = users_of("zarr")
    assert "jobrun.checkpoint.zarr_view" in users
    assert {n for n in users if part(n) != "data"} == {"jobrun.checkpoint.zarr_view"}


_THREADED = {"checkpoint", "data", "remote", "report", "storage", "tools", "values"}
_WITH_JOBRUN = {"numpy", "jobrun", "rich", *sys.stdlib_module_names}


def late_imports(name: str) -> Iterator[tuple[ast.AST, bool]]:
    """The imports of other packages that a module makes in functions; whether no other does."""

    def walk(node: ast.AST, lazy: bool, alone: bool) -> Iterator[tuple[ast.AST, bool]]:
        lazy = lazy or isinstance(node, ast.FunctionDef)
        if isinstance(node, ast.With):
            alone = alone or any(ast.unparse(i) == "importing()" for i in node.items)
        wanted: list[str] = []
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            wanted = [str(node.module)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "import_module":
            wanted = [ast.unparse(node.args[0]).lstrip("f'\"")]
        if lazy and any(w.split(".")[0] not in _WITH_JOBRUN for w in wanted):
            yield node, alone
        for below in ast.iter_child_nodes(node):
            yield from walk(below, lazy, alone)

    yield from walk(tree(name), False, False)


def test_packages_that_threads_import_late_are_imported_by_one_at_a_time() -> None:
    """Two threads in a circle of imports fail, though each alone would not."""
    found = [(n, *i) for n in modules() if part(n) in _THREADED for i in late_imports(n)]
    assert {"jobrun.checkpoint.codecs", "jobrun.data.zarr_source"} <= {n for n, _, _ in found}
    assert [f"{n}: {ast.unparse(node)}" for n, node, alone in found if not alone] == []


def test_nothing_unpickles_or_evaluates() -> None:
    for library in ("pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"):
        assert not users_of(library)
    for name in modules():
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile", "__import__"), name
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant)
                assert node.value.value is False, name


def loaded_by(code: str, *arguments: str) -> set[str]:
    """The top-level modules that a new interpreter has loaded after ``code``."""
    return {name.partition(".")[0] for name in modules_after(code, *arguments)}


def modules_after(code: str, *arguments: str) -> set[str]:
    """The modules that a new interpreter has loaded after ``code``."""
    probe = f"{code}\nimport sys; print('loaded:', *sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", probe, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return set(done.stdout.rpartition("loaded:")[2].split())


def test_import_jobrun_is_light() -> None:
    found = loaded_by("import jobrun")
    assert "jobrun" in found
    assert not found & {*HEAVY, "click", "pydantic", "yaml"}


def test_checkpoints_are_listed_without_metadata_of_packages() -> None:
    """It was a fifth of the start of the commands that list."""
    assert "importlib.metadata" not in modules_after("import jobrun.checkpoint.catalog")


def test_building_a_job_is_light() -> None:
    code = "from jobrun import Job, Task\nwith Job('j') as job: Task(print, out='x')"
    assert not loaded_by(code) & HEAVY


TRAIN = """
import sys
sys.argv = ["jobrun", "train", "small.yaml"]
from jobrun.cli import main
try:
    main()
except SystemExit as end:
    assert end.code == 0
"""


def test_training_a_small_job_imports_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start is felt: no pipe, program, URL, worker or reader of data is there for nothing.

    Nor is the live view, since stderr is no terminal here.
    """
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(
        "name: small\ninit: [{call: small:begin, out: x}]\n"
        "epoch: [{call: small:step, in: x, out: x}]\nstop: {epochs: 1}\n"
    )
    Path("small.py").write_text("def begin(): return 0\ndef step(x): return x + 1\n")
    found = modules_after(TRAIN)
    assert {"jobrun.session.local", "small"} <= found
    idle = ("pipe", "shell.program", "workers", "dask", "load_task", "weights_task")
    parts = (
        *(f"jobrun.session.{name}" for name in idle),
        "jobrun.cli.sweep",
        "jobrun.remote.store",
        "jobrun.report.live",
        "jobrun.runs.overview",
        "jobrun.values.reduction",
    )
    assert [name for name in found if name.startswith((*parts, "jobrun.data.reader"))] == []
    assert not found & {"asyncio", "dask", "multiprocessing", "statistics", "subprocess", "zarr"}
    assert "difflib" not in found
    assert not found & {"rich", "jobrun.report.layout", "jobrun.report.terminal"}


# The public names.


def test_all_public_names_can_be_had() -> None:
    assert len(set(jobrun.__all__)) == len(jobrun.__all__)
    for name in jobrun.__all__:
        assert getattr(jobrun, name) is not None
    assert set(jobrun.__all__) == {*jobrun._HOMES, "__version__"}
    assert sorted(jobrun.__all__) == dir(jobrun)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = jobrun.nothing


def test_public_names_are_declared_for_type_checkers() -> None:
    declared = {
        alias.name
        for node in ast.walk(tree("jobrun"))
        if isinstance(node, ast.ImportFrom)
        and str(node.module).startswith("jobrun.")
        and node.module != "jobrun._version"
        for alias in node.names
    }
    assert declared == set(jobrun._HOMES)


@pytest.mark.parametrize("name", sorted(set(modules()) - {"jobrun.__main__"}))
def test_all_of_each_module_exists(name: str) -> None:
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith("jobrun.templates."):
            raise
        pytest.skip(f"the library of this template is not installed: {error.name}")
    listed = getattr(module, "__all__", [])
    assert len(set(listed)) == len(listed)
    assert all(hasattr(module, n) for n in listed)


# Files.

_OS = {
    "fsync", "fdatasync", "sync", "rename", "renames", "replace", "link", "unlink", "remove",
    "removedirs", "rmdir", "symlink",
}  # fmt: skip
_METHODS = {"rename", "link", "unlink", "fsync", "hardlink_to", "symlink_to", "rmdir"}
_MAY_TOUCH = {"jobrun.storage.fs", "jobrun.runs.rundir"}


def touches(name: str) -> Iterator[str]:
    """Calls by which files appear, vanish, move or become durable."""
    for node in ast.walk(tree(name)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner, method = ast.unparse(node.func.value), node.func.attr
        by_os = owner == "os" and method in _OS
        by_shutil = owner == "shutil" and method in ("rmtree", "move")
        by_path = method in _METHODS and owner.split(".")[-1] not in ("fs", "_fs", "DEFAULT")
        if by_os or by_shutil or by_path:
            yield f"{name}:{node.lineno}: {owner}.{method}"


def test_files_are_made_durable_moved_and_removed_in_two_places_only() -> None:
    found = [call for name in modules() if name not in _MAY_TOUCH for call in touches(name)]
    assert not found
    assert list(touches("jobrun.storage.fs")), "the search finds what is there"


_RAISE = {"exists", "is_file", "is_dir", "is_symlink"}


def pathlib_questions(name: str) -> Iterator[str]:
    """Calls of pathlib that raise where the machine does not let us look."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner, method = ast.unparse(node.func.value), node.func.attr
            if method in _RAISE and owner not in ("entry", "os.path") and not node.args:
                yield f"{name}:{node.lineno}: {owner}.{method}"


def test_a_folder_that_is_not_ours_is_no_bug() -> None:
    """Where nothing hangs on it ``os.path`` is asked, and else ``Fs.kind`` and ``Fs.is_gone``."""
    names = [n for n in modules() if part(n) not in ("session", "templates")]
    assert [call for name in names for call in pathlib_questions(name)] == []


# Style that the tools do not see.


@pytest.mark.parametrize("name", sorted(modules()))
def test_every_module_says_what_it_is_for(name: str) -> None:
    module = tree(name)
    if not module.body:
        return
    assert ast.get_docstring(module), "a docstring"
    futures = [n for n in module.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    assert futures or not imports(name), "from __future__ import annotations"
