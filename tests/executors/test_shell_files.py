"""Files of callers for commands and scripts: private paths that are removed afterwards."""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gateway.config.models.backends import Shell
from gateway.config.secrets.redactor import Redactor
from gateway.deadline import DeadlineExceededError
from gateway.errors import ExecutionError
from gateway.executors.invocation import Executor
from gateway.executors.shared_services import Services
from gateway.executors.shell.executor import compile_shell
from gateway.json_types import Json, JsonObject
from gateway.language.files.file_argument import FileArgument
from gateway.language.scope import Inputs, Scope
from tests.executors.recording import RecordingPermit, make_invocation, make_scope, messages_of
from tests.executors.shell_tool import failure_of, text_of
from tests.programs import linux_only, need_sandboxes
from tests.waiting import until

PHOTO = FileArgument(b"\x89PNG\r\n\x1a\n...", media_type="image/png", name="--help; rm -rf ~.png")
BIG = FileArgument(bytes(3 * 2**20))


def compiled(services: Services, config: JsonObject, folder: Path = Path("/")) -> Executor:
    made = make_scope(folder=folder)
    inputs = Inputs(schemas={"photo": {"type": "file"}, "more": {"type": "array"}}, has_files=True)
    scope = Scope(inputs=inputs, problems=made.problems)
    executor = compile_shell(Shell.model_validate(config), scope=scope, services=services, redactor=Redactor())
    assert [message for message in messages_of(scope) if "set-user-ID" not in message] == []
    return executor


def left() -> list[Path]:
    """The temporary directories of calls."""
    return [*Path(tempfile.gettempdir()).iterdir()]


@pytest.mark.parametrize(
    "config",
    [
        {"command": ["stat", "-c", "%a %s %n", "{{ photo }}"]},
        {"command": ["sh", "-c", 'stat -c "%a %s %n" "$PHOTO"'], "env": {"PHOTO": "{{ photo }}"}},
        {"script": 'stat -c "%a %s %n" "$INPUT_PHOTO"'},
        {"command": ["xargs", "stat", "-c", "%a %s %n"], "stdin": "{{ photo }}"},
    ],
)
async def test_file_input_is_a_private_path_of_the_call(services: Services, config: JsonObject) -> None:
    said = text_of(await compiled(services, config).execute(make_invocation({"photo": PHOTO}))).split()
    assert said[:2] == ["600", str(len(PHOTO.data))]
    assert Path(said[2]).name == "photo.png"  # never the caller's name
    assert left() == []


@pytest.mark.parametrize(
    "more",
    [
        [FileArgument(b"a"), {"x/../y": FileArgument(b"b"), "x_.._y": FileArgument(b"c")}],
        [{"_-2": FileArgument(b"a"), ".": FileArgument(b"b"), "!": FileArgument(b"c")}],
    ],
)
async def test_files_in_lists_and_objects_each_have_a_path(services: Services, more: Json) -> None:
    given: JsonObject = {"more": more}
    script = 'set -e; for f in $(echo "$INPUT_MORE" | tr -d "[]{}\\"" | tr ",:" "\\n\\n" | grep ^/); do cat $f; done'
    assert text_of(await compiled(services, {"script": script}).execute(make_invocation(given))) == "abc"


@linux_only
async def test_sandbox_shows_the_files_of_its_call(services: Services) -> None:
    need_sandboxes()
    executor = compiled(services, {"command": ["cat", "{{ photo }}"], "sandbox": {}})
    assert text_of(await executor.execute(make_invocation({"photo": FileArgument(b"seen")}))) == "seen"
    changing = compiled(services, {"command": ["tee", "{{ photo }}"], "sandbox": {}})
    assert "Read-only" in failure_of(await changing.execute(make_invocation({"photo": FileArgument(b"seen")})))


@pytest.mark.parametrize("file", [PHOTO, BIG])
async def test_files_are_removed_after_a_timeout_or_cancellation(services: Services, file: FileArgument) -> None:
    executor, permit = compiled(services, {"command": ["tail", "-f", "{{ photo }}"]}), RecordingPermit()
    with pytest.raises((ExecutionError, DeadlineExceededError)):
        await executor.execute(make_invocation({"photo": file}, timeout=0.3, permit=permit))
    await permit.freed()
    call = asyncio.create_task(executor.execute(make_invocation({"photo": file}, permit=permit)))
    async with asyncio.timeout(30):
        while not left() and not call.done():
            await asyncio.sleep(0.005)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await permit.freed()
    await until(lambda: not left())


async def test_unwritable_directory_is_an_error_of_the_call(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = compiled(services, {"command": ["cat", "{{ photo }}"]})
    monkeypatch.setattr(tempfile, "tempdir", "/dev/full/none")
    with pytest.raises(ExecutionError, match="cannot create a directory for the call"):
        await executor.execute(make_invocation({"photo": PHOTO}))


async def test_full_disk_is_an_error_of_the_call(tmp_path: Path) -> None:
    limited = f"""
import asyncio, resource, signal, sys, tempfile
from tests.executors.test_shell_files import *
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
tempfile.tempdir = {str(tmp_path)!r}
async def main():
    from gateway.executors.shared_services import running_services
    async with running_services() as services:
        executor = compiled(services, {{"command": ["cat", "{{{{ photo }}}}"]}})
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
        for file in (FileArgument(b"fits"), BIG):
            try:
                print('answer:', text_of(await executor.execute(make_invocation({{"photo": file}}))))
            except ExecutionError as error:
                print('answer:', error)
asyncio.run(main())
"""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", limited],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        timeout=60,
        check=True,
    )
    # A start can also log that it ended processes of another test.
    answers = [line for line in done.stdout.decode().splitlines() if line.startswith("answer: ")]
    assert answers == ["answer: fits", "answer: cannot write the files of the call: File too large"]
    assert list(tmp_path.iterdir()) == []


async def test_explanation_names_files_without_writing_them(services: Services) -> None:
    executor = compiled(services, {"command": ["cat", "--", "{{ photo }}"]})
    assert executor.explain(make_invocation({"photo": PHOTO})).facts["argv"] == ["cat", "--", "files/photo.png"]
    assert left() == []


async def test_explanation_without_files_shows_the_command_unchanged(services: Services) -> None:
    shell = Shell.model_validate({"command": ["cat", "--", "None/notes"]})
    executor = compile_shell(shell, scope=make_scope(), services=services, redactor=Redactor())
    assert executor.explain(make_invocation({})).facts["argv"] == ["cat", "--", "None/notes"]
