"""Plugins: packages by content, references, imports and hooks."""

import hashlib
import json
import json.decoder
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.catalog.plugin_package import PREFIX, ImportFailedError, import_bounded
from gateway.catalog.plugins import Plugins, run_hook
from gateway.config.diagnostics.problems import Problems
from gateway.errors import ConfigError
from gateway.threads import DaemonThreadPool
from tests.captured_logs import capture_logs
from tests.executors.recording import OneFile

Write = Callable[[str, str], None]


Loaded = Callable[[], set[str]]


@pytest.fixture
def loaded() -> Loaded:
    """Return the modules of plugins that the test has loaded. Daemons of other tests can run in this process."""
    earlier = set(sys.modules)
    return lambda: {name for name in sys.modules if name.startswith(PREFIX)} - earlier


@pytest.fixture
def plugins(loaded: Loaded) -> Iterator[Plugins]:
    finders, paths = list(sys.meta_path), list(sys.path)
    plugins = Plugins()
    yield plugins
    plugins.close()
    assert loaded() == set()
    assert (sys.meta_path, sys.path) == (finders, paths)


@pytest.fixture
async def threads() -> AsyncIterator[DaemonThreadPool]:
    async with DaemonThreadPool(2) as threads:
        yield threads


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plugins").mkdir()
    return tmp_path


@pytest.fixture
def write(folder: Path) -> Write:
    def write(name: str, source: str) -> None:
        path = folder / "plugins" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))

    return write


def opened(plugins: Plugins, folder: Path, *directories: str) -> list[str]:
    problems = Problems(OneFile(folder))
    plugins.open(directories or ["plugins"], problems.at("plugins"))
    return [str(problem) for problem in problems]


def found(plugins: Plugins, reference: str) -> Any:
    problems = Problems(OneFile(Path("/")))
    function = plugins.function(reference, problems)
    assert function is not None, list(problems)
    return function


def problems_of(plugins: Plugins, reference: str, folder: Path = Path("/")) -> list[str]:
    problems = Problems(OneFile(folder))
    assert plugins.function(reference, problems) is None
    return [str(problem) for problem in problems]


def test_plugin_file_can_import_neighbours(plugins: Plugins, folder: Path, write: Write) -> None:
    write("scoring.py", "from . import helpers\nfrom .deep.below import C\ndef score(): return helpers.one() + C\n")
    write("helpers.py", "def one(): return 1\n")
    write("deep/below.py", "C = 10\nclass K:\n    @staticmethod\n    def two(): return 2\n")
    assert opened(plugins, folder) == []
    assert found(plugins, "scoring:score")() == 11
    assert found(plugins, "deep.below:K.two")() == 2
    assert "scoring" not in sys.modules


def test_dataclass_with_string_annotations_loads(plugins: Plugins, folder: Path, write: Write) -> None:
    write(
        "shapes.py",
        """
        from __future__ import annotations
        from dataclasses import dataclass

        @dataclass
        class Point:
            x: int

        def move(point: Point) -> Point:
            return point
        """,
    )
    opened(plugins, folder)
    signature = plugins.signature("shapes:move", Problems(OneFile(Path("/"))))
    assert signature is not None
    assert signature.output_schema is not None


def test_changed_plugin_is_imported_and_running_calls_keep_old_code(
    plugins: Plugins, folder: Path, write: Write
) -> None:
    write("late.py", "def value():\n    from . import helpers\n    return helpers.VALUE\n")
    write("helpers.py", "VALUE = 1\n")
    opened(plugins, folder)
    old = found(plugins, "late:value")
    stamp = (folder / "plugins" / "helpers.py").stat()
    write("helpers.py", "VALUE = 2\n")
    os.utime(folder / "plugins" / "helpers.py", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    opened(plugins, folder)
    assert found(plugins, "late:value")() == 2, "the same size and time do not hide a change"
    assert old() == 1, "a late import uses the module of its generation"


def test_plugin_directory_is_not_written_to(plugins: Plugins, folder: Path, write: Write) -> None:
    write("plain.py", "def f(): ...\n")
    opened(plugins, folder)
    found(plugins, "plain:f")
    assert list((folder / "plugins").iterdir()) == [folder / "plugins" / "plain.py"]


async def test_old_generations_are_unloaded(
    plugins: Plugins, loaded: Loaded, threads: DaemonThreadPool, folder: Path, write: Write
) -> None:
    packages = []
    for generation in range(5):
        write("plain.py", f"def f(): return {generation}\n")
        opened(plugins, folder)
        found(plugins, "plain:f")
        await plugins.start(threads)
        await plugins.shut_down(plugins.unload_unused(), threads)
        packages.append(len({name.partition(".")[0] for name in loaded()}))
    assert packages == [1, 2, 2, 2, 2]


def test_unreferenced_broken_plugin_is_ignored(plugins: Plugins, folder: Path, write: Write) -> None:
    write("broken.py", "def (\n")
    write("good.py", "def f(): return 1\n")
    assert opened(plugins, folder) == []
    assert found(plugins, "good:f")() == 1


def test_hidden_files_are_not_modules(plugins: Plugins, folder: Path, write: Write) -> None:
    for name in (".hidden.py", "a-b.py", "..2024/x.py", "__pycache__/y.py", "notes.txt"):
        write(name, "raise SystemExit\n")
    os.mkfifo(folder / "plugins" / "pipe.py")
    assert opened(plugins, folder) == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import nowhere_to_be_found\n", "ModuleNotFoundError: No module named 'nowhere_to_be_found' ({}:1)"),
        (
            "\nimport helpers\n",
            (
                "ModuleNotFoundError: No module named 'helpers' ({}:2); to import a neighbouring file, use "
                "`from . import helpers`"
            ),
        ),
        ("x = 1\n1 / 0\n", "ZeroDivisionError: division by zero ({}:2)"),
        ("def (\n", "SyntaxError: invalid syntax (broken.py, line 1) ({})"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3 ({}:2)"),
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt:  ({}:1)"),
        ("from . import worse\n", "ValueError: too bad ({}worse.py:1)"),
        ("x = '\ud800'\n", None),
    ],
)
def test_failed_import_is_located(
    plugins: Plugins, loaded: Loaded, folder: Path, write: Write, source: str, problem: str | None
) -> None:
    if problem is None:
        (folder / "plugins" / "broken.py").write_bytes(b"x = '\xff'\n")
    else:
        write("broken.py", source)
    write("helpers.py", "")
    write("worse.py", "raise ValueError('too bad')\n")
    opened(plugins, folder)
    (said,) = problems_of(plugins, "broken:f")
    assert said.startswith("the plugin broken could not be imported: ")
    if problem is not None:
        path = folder / "plugins" / ("" if "worse" in problem else "broken.py")
        place = f"{path}/" if "worse" in problem else str(path)
        assert said.removeprefix("the plugin broken could not be imported: ") == problem.format(place)
    assert [name for name in loaded() if name.endswith((".broken", ".worse"))] == []


def test_failed_import_is_reported_once(plugins: Plugins, folder: Path, write: Write) -> None:
    write("broken.py", "1 / 0\n")
    opened(plugins, folder)
    assert len(problems_of(plugins, "broken:f")) == 1
    assert problems_of(plugins, "broken:g") == []


def test_hanging_import_times_out(folder: Path, write: Write) -> None:
    write("hanging.py", "import threading\nthreading.Event().wait()\n")
    plugins = Plugins(import_seconds=0.05)
    opened(plugins, folder)
    assert problems_of(plugins, "hanging:f") == [
        "the plugin hanging could not be imported: did not finish within 0.05 s"
    ]
    plugins.close()


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("scorin:score", "unknown plugin scorin; did you mean `scoring`?"),
        ("scoring:scor", "the plugin scoring has no callable scor; did you mean `score`?"),
        ("scoring:Deep.nothing", "the plugin scoring has no callable Deep.nothing"),
        ("scoring:LIMIT", "scoring:LIMIT is not callable (its type is int)"),
        (
            "quite.another:f",
            "unknown plugin quite.another in {}, and no entry point or importable module has this name",
        ),
    ],
)
def test_unknown_reference_has_a_suggestion(
    plugins: Plugins, folder: Path, write: Write, reference: str, problem: str
) -> None:
    write("scoring.py", "LIMIT = 5\nclass Deep: ...\ndef score(): ...\n")
    opened(plugins, folder)
    assert problems_of(plugins, reference) == [problem.format(folder / "plugins")]


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("loose:f", "unknown plugin loose; to use loose.py, add `plugins: [.]`"),
        ("loose.py:f", "unknown plugin loose.py; to use loose.py, add `plugins: [.]`"),
        (
            "sub/deep:f",
            "unknown plugin sub/deep; to use sub/deep.py, add `plugins: [sub]`",
        ),
        (
            "nowhere:f",
            ("unknown plugin nowhere. `plugins:` lists no directory, and no entry point or module has this name"),
        ),
    ],
)
def test_file_outside_plugin_directories_is_explained(
    plugins: Plugins, folder: Path, write: Write, reference: str, problem: str
) -> None:
    write("../loose.py", "def f(): ...\n")
    write("../sub/deep.py", "def f(): ...\n")
    assert problems_of(plugins, reference, folder) == [problem]


def test_missing_plugin_directory_is_reported(plugins: Plugins, folder: Path) -> None:
    (folder / "file").touch()
    assert opened(plugins, folder, "nowhere", "file") == [
        f"plugins.0: directory {folder}/nowhere does not exist",
        "plugins.1: cannot be read: Not a directory",
    ]


def test_importable_modules_are_searched_last(plugins: Plugins, folder: Path, write: Write) -> None:
    write("json.py", "def dumps(): return 'ours'\n")
    opened(plugins, folder)
    assert found(plugins, "json:dumps")() == "ours"
    assert found(plugins, "os.path:basename") is os.path.basename


def test_code_of_an_importable_module_is_the_digest_of_its_file(plugins: Plugins) -> None:
    digests = [hashlib.sha256(Path(str(module.__file__)).read_bytes()).hexdigest() for module in (json, json.decoder)]
    assert [plugins.code_of(f"{name}:f") for name in ("json", "json.decoder")] == digests
    assert [plugins.code_of(f"{name}:f") for name in ("sys", "absent", "json.absent")] == ["", "", ""]


def test_entry_points_precede_importable_modules(plugins: Plugins, folder: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "acme-1.0.dist-info").mkdir(parents=True)
    (site / "acme-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (site / "acme-1.0.dist-info" / "entry_points.txt").write_text(
        "[mcp_gateway.plugins]\nacme = acme_tools.things\nbad = acme_tools.things:nothing\n"
    )
    (site / "acme_tools").mkdir()
    (site / "acme_tools" / "things.py").write_text("def thing(): return 'acme'\n")
    script = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(site)!r})
        from pathlib import Path
        from gateway.catalog.plugins import Plugins
        from gateway.config.diagnostics.problems import Problems
        from tests.executors.recording import OneFile
        plugins, problems = Plugins(), Problems(OneFile(Path("/")))
        plugins.open([], problems)
        print(plugins.function("acme:thing", problems)())
        plugins.function("bad:x", problems)
        print(*problems)
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines() == [
        "acme",
        (
            "the plugin bad could not be imported: its entry point acme_tools.things:nothing cannot be loaded: "
            "module 'acme_tools.things' has no attribute 'nothing'"
        ),
    ]


HOOKS = """
    events = []
    async def startup(): events.append("started {name}")
    def shutdown(): events.append("stopped {name}")
    def f(): return events
"""


async def test_hooks_run_once_while_a_module_is_in_use(
    plugins: Plugins, threads: DaemonThreadPool, folder: Path, write: Write
) -> None:
    write("a.py", HOOKS.format(name="a"))
    opened(plugins, folder)
    events = found(plugins, "a:f")()
    for _ in range(3):
        opened(plugins, folder)
        found(plugins, "a:f")
        await plugins.start(threads)
        await plugins.shut_down(plugins.unload_unused(), threads)
    assert events == ["started a"]
    opened(plugins, folder)
    await plugins.start(threads)
    await plugins.shut_down(plugins.unload_unused(), threads)
    assert events == ["started a", "stopped a"]


async def test_module_in_use_again_is_shut_down_only_after_its_latest_grace_time(
    plugins: Plugins, threads: DaemonThreadPool, folder: Path, write: Write
) -> None:
    unused = []
    for name in ("a", "b", "a", "b"):
        write("module.py", HOOKS.format(name=name))
        opened(plugins, folder)
        events = found(plugins, "module:f")()
        if name == "a":
            events_of_a = events
        await plugins.start(threads)
        unused.append(plugins.unload_unused())
    await plugins.shut_down(unused[1], threads)
    assert events_of_a == ["started a"]
    await plugins.shut_down(unused[3], threads)
    assert events_of_a == ["started a", "stopped a"]


async def test_shutdown_ignores_a_generation_that_is_being_compiled(
    plugins: Plugins, threads: DaemonThreadPool, folder: Path, write: Write
) -> None:
    """The compiler adds modules in another thread."""
    write("a.py", HOOKS.format(name="a"))
    opened(plugins, folder)
    events = found(plugins, "a:f")()
    await plugins.start(threads)
    plugins.unload_unused()
    opened(plugins, folder)
    await plugins.start(threads)
    unused = plugins.unload_unused()
    opened(plugins, folder)
    found(plugins, "a:f")
    await plugins.shut_down(unused, threads)
    await plugins.start(threads)
    assert events == ["started a", "stopped a", "started a"]


async def test_stop_runs_shutdown_hooks_in_reverse(
    plugins: Plugins, loaded: Loaded, threads: DaemonThreadPool, folder: Path, write: Write
) -> None:
    write("base.py", HOOKS.format(name="base"))
    write("top.py", "from .base import *\n" + textwrap.dedent(HOOKS).format(name="top").replace("events = []", ""))
    opened(plugins, folder)
    events = found(plugins, "top:f")()
    await plugins.start(threads)
    await plugins.stop(threads)
    assert sorted(events[:2]) == ["started base", "started top"]
    assert [event.split()[1] for event in events[2:]] == [event.split()[1] for event in reversed(events[:2])]
    assert loaded() == set()


async def test_imported_hook_runs_only_in_its_module(
    plugins: Plugins, threads: DaemonThreadPool, folder: Path, write: Write
) -> None:
    write("base.py", HOOKS.format(name="base"))
    write("top.py", "from .base import startup, f\n")
    opened(plugins, folder)
    events = found(plugins, "top:f")()
    await plugins.start(threads)
    assert events == ["started base"]


async def test_failed_startup_rejects_the_generation(
    plugins: Plugins, threads: DaemonThreadPool, folder: Path, write: Write
) -> None:
    write("a.py", HOOKS.format(name="a"))
    write("b.py", "from . import a\ndef startup(): raise SystemExit('no database')\ndef f(): return a.events\n")
    opened(plugins, folder)
    events = found(plugins, "a:f")()
    found(plugins, "b:f")
    with pytest.raises(ConfigError) as caught:
        await plugins.start(threads)
    (problem,) = caught.value.problems
    assert str(problem) == "plugins: startup() of b raised SystemExit: no database"
    assert events == ["started a", "stopped a"]


async def test_failed_shutdown_is_logged(
    plugins: Plugins, threads: DaemonThreadPool, folder: Path, write: Write
) -> None:
    write("a.py", HOOKS.format(name="a"))
    write("b.py", "def shutdown(): 1 / 0\ndef f(): ...\n")
    opened(plugins, folder)
    events = found(plugins, "a:f")()
    found(plugins, "b:f")
    await plugins.start(threads)
    with capture_logs() as logs:
        await plugins.stop(threads)
    assert events == ["started a", "stopped a"]
    assert [(entry["event"], entry["module"]) for entry in logs] == [("plugin shutdown failed", "b")]


@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_hanging_hook_times_out(
    plugins: Plugins, threads: DaemonThreadPool, folder: Path, write: Write, kind: str
) -> None:
    wait = "await asyncio.sleep(9)" if "async" in kind else "time.sleep(0.2)"
    write("a.py", f"import asyncio, time\n{kind} startup(): {wait}\ndef f(): ...\n")
    opened(plugins, folder)
    module = sys.modules[found(plugins, "a:f").__module__]
    problem = await run_hook(module, "startup", threads=threads, seconds=0.02)
    assert problem == "did not finish within 0.02 s"


def test_import_outside_plugin_directories_times_out() -> None:
    with pytest.raises(ImportFailedError):
        import_bounded("no.such.module.here", seconds=15)
