"""Input and output of `shell:` backends."""

import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.config.models.backends import Shell
from gateway.config.secrets.redactor import Redactor
from gateway.errors import ExecutionError
from gateway.executors.invocation import Failure, RawOutput
from gateway.executors.shared_services import Services
from gateway.executors.shell.executor import compile_shell
from gateway.json_types import JsonObject
from gateway.processes.process_table import child_pids
from gateway.telemetry.trace import TraceContext, Untraced
from tests.executors.recording import RecordingContext, RecordingPermit, make_invocation, make_scope, messages_of
from tests.executors.shell_tool import SCHEMAS, Tool, text_of
from tests.programs import linux_only


def problems_in(config: JsonObject, services: Services, **schemas: JsonObject) -> list[str]:
    scope = make_scope(schemas or SCHEMAS)
    compile_shell(Shell.model_validate(config), scope=scope.at("shell"), services=services, redactor=Redactor())
    return messages_of(scope)


async def test_command_runs_in_the_directory_of_its_file(tool: Tool, tmp_path: Path) -> None:
    outcome = await tool({"command": ["sh", "-c", 'pwd; echo "$1"; echo no >&2', "sh", "{{ a }}"]}, a="x y")
    assert isinstance(outcome, RawOutput)
    assert outcome.data.decode() == f"{tmp_path}\nx y\n"
    assert outcome.variables == {"exit_code": 0, "stderr": "no\n"}
    assert (outcome.media_type, outcome.omitted) == (None, 0)


PYTHON = sys.executable


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("#!/usr/bin/env bash\nwords=(one two)\necho ${words[1]}\n", "two\n"),
        ("#!/bin/bash -u\necho ${unset-$-}\n", "huB\n"),
        ("#! /bin/bash\t \nfalse; echo $-\n", "hB\n"),
        (f"#!{PYTHON} -O\nprint(__debug__)\n", "False\n"),
        (f"#!/usr/bin/env -S A=b {PYTHON} -O\nimport os\nprint(__debug__, os.environ['A'])\n", "False b\n"),
        ("#!/bin/cat\nas it is\n", "#!/bin/cat\nas it is\n"),
        ("#!/bin/sh\necho $-\n", "e\n"),
        ("#!/usr/bin/env sh\necho $-\n", "e\n"),
        ("#!/bin/sh -u\necho $-\n", "u\n"),
        ("#!\necho $-\n", "e\n"),
        ("echo $- # !/bin/bash\n", "e\n"),
    ],
)
async def test_script_runs_with_the_interpreter_of_its_shebang(tool: Tool, script: str, text: str) -> None:
    assert text_of(await tool({"script": script})) == text


async def test_configured_interpreter_overrides_the_shebang(tool: Tool) -> None:
    assert text_of(await tool({"script": "#!/bin/cat\necho $-", "interpreter": ["sh", "-u"]})) == "u\n"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("/nowhere/python9", "/nowhere/python9"),
        ("/usr/bin/env python9", "python9"),
        ("/usr/bin/env -S A=b py9 -u", "py9"),
    ],
)
def test_missing_interpreter_is_a_warning(tool: Tool, line: str, named: str) -> None:
    [warning] = tool.problems({"script": f"#!{line}\n"})
    assert warning.endswith(f"the interpreter `{named}` in its first line does not exist")


async def test_working_directory_is_relative_to_the_file(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert text_of(await tool({"command": ["pwd"], "cwd": "{{ a }}"}, a="sub")) == f"{tmp_path}/sub\n"
    assert text_of(await tool({"command": ["pwd"], "cwd": "/"})) == "/\n"
    assert text_of(await tool({"command": ["pwd"], "cwd": "{{ a }}"})) == f"{tmp_path}\n"
    with pytest.raises(ExecutionError, match=f"cannot change to the working directory '{tmp_path}/gone': No such file"):
        await tool({"command": ["pwd"], "cwd": "gone"})


async def test_child_gets_few_variables_of_the_daemon(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "x")
    monkeypatch.setenv("WANTED", "w")
    monkeypatch.setenv("LC_TIME", "C")
    config = {"command": ["env"], "env": {"A": "={{ a }}", "N": "{{ n }}"}, "inherit_env": ["WANTED", "NOT_SET"]}
    lines = dict(
        line.split("=", 1) for line in text_of(await tool(config, a="é\n\nb=c", n=3)).split("\n") if "=" in line
    )
    assert set(lines) - {"HOME", "LANG", "TZ", "TMPDIR"} == {
        "PATH",
        "LC_TIME",
        "WANTED",
        "A",
        "b",
        "N",
        "MCP_GATEWAY_CALL",
    }
    assert (lines["A"], lines["N"]) == ("=é", "3")
    assert "A=" not in text_of(await tool(config)).replace("MCP_GATEWAY_CALL", "")


async def test_standard_input_is_a_template(tool: Tool) -> None:
    assert text_of(await tool({"command": ["cat"], "stdin": "[{{ a }}]\n"}, a="\0é")) == "[\0é]\n"
    assert text_of(await tool({"command": ["cat"], "stdin": "[{{ a }}]\n"})) == "[]\n"
    assert text_of(await tool({"command": ["cat"]})) == ""
    large = "x" * 200 * 1024
    assert text_of(await tool({"command": ["cat"], "stdin": "{{ a }}"}, a=large)) == large


SHOW = {"script": 'printf "%s|" "$INPUT_A" "$INPUT_N" "$INPUT_ITEMS" "$INPUT_USER_ID" "${INPUT_NONE-unset}"'}


async def test_script_gets_its_inputs_as_variables(tool: Tool) -> None:
    given = {"a": "$(id) `id`\n'\"", "n": 3, "items": [1, {"b": True}], "user-id": "u", "none": None}
    assert text_of(await tool(SHOW, **given)) == '$(id) `id`\n\'"|3|[1,{"b":true}]|u|unset|'
    assert text_of(await tool(SHOW)) == "||||unset|"


async def test_script_gets_its_inputs_as_json(tool: Tool) -> None:
    given = {"a": "é\0", "items": [None, 1.5], "user-id": None, "more": True}
    assert json.loads(text_of(await tool({"script": 'cat "$INPUTS_FILE"'}, **given))) == given
    assert json.loads(text_of(await tool({"script": 'printf %s "$INPUTS_JSON"'}, **given))) == given
    modes = {"script": 'stat -c %a "$INPUTS_FILE" "$(dirname "$INPUTS_FILE")" "$0"'}
    assert text_of(await tool(modes)) == "600\n700\n600\n"


async def test_inputs_over_96_kib_are_only_in_the_file(tool: Tool) -> None:
    show = {"script": 'echo "${INPUTS_JSON-unset}" | head -c 5; wc -c < "$INPUTS_FILE"'}
    large = ["x" * 1000] * 100
    assert text_of(await tool(show, items=large)) == f"unset{len(json.dumps(large, separators=(',', ':'))) + 10}\n"


@pytest.mark.parametrize("value", ["x" * 200 * 1024, "a\0b"])
async def test_input_too_large_for_a_variable_is_an_error_if_the_script_uses_it(tool: Tool, value: str) -> None:
    with pytest.raises(
        ExecutionError, match=r"INPUT_A contains a NUL character or exceeds 128 KiB. Use `stdin` or INPUTS_FILE"
    ):
        await tool({"script": 'rm -f "./$INPUT_A"'}, a=value)
    others = {"script": 'wc -c; wc -c < "$INPUTS_FILE"', "stdin": "{{ a }}"}
    assert (
        text_of(await tool(others, a=value))
        == f"{len(value)}\n{len(json.dumps({'a': value}, separators=(',', ':')))}\n"
    )
    with pytest.raises(ExecutionError, match="the environment variable X contains a NUL character or exceeds 128 KiB"):
        await tool({"command": ["true"], "env": {"X": "{{ a }}"}}, a=value)


async def test_undeclared_name_does_not_replace_a_declared_input(tool: Tool) -> None:
    given = {"A": "smuggled", "other": "o"}
    assert text_of(await tool({"script": 'echo "${INPUT_A-unset} $INPUT_OTHER"'}, **given)) == "unset o\n"


async def test_any_interpreter_runs_a_script(tool: Tool) -> None:
    script = "import os, sys\nprint(os.environ['INPUT_A'], sys.stdin.read())"
    config = {"script": script, "interpreter": ["python3", "-I"], "stdin": "in"}
    assert text_of(await tool(config, a="é")) == "é in\n"
    failed = await tool({"script": "false\necho reached"})
    assert failed == Failure(text="The command failed with exit code 1.")


async def test_trace_is_propagated(tool: Tool) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    executor = tool.compiled({"command": ["sh", "-c", "echo $TRACEPARENT $TRACESTATE"]})
    for given, seen in (
        (TraceContext(parent=trace), trace),
        (TraceContext(parent=trace, state="a=1"), f"{trace} a=1"),
        (None, ""),
    ):
        invocation = replace(make_invocation(), trace=Untraced(given))
        assert text_of(await executor.execute(invocation)) == f"{seen}\n"


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo out; echo err >&2; exit 3", "The command failed with exit code 3.\n\nstderr:\nerr\n\nstdout:\nout"),
        ("exit 255", "The command failed with exit code 255."),
        ("kill -TERM $$", "The command was ended by SIGTERM."),
        ("kill -40 $$", "The command was ended by signal 40."),
        ("printf '\\033[31mred\\033[0m\\a\\n' >&2; exit 1", "The command failed with exit code 1.\n\nstderr:\nred"),
        ("echo 'key correct-horse' >&2; exit 1", "The command failed with exit code 1.\n\nstderr:\nkey ***"),
        (
            "yes x | head -c 300000 >&2; echo end >&2; exit 1",
            "The command failed with exit code 1.\n\nstderr:\n… " + "x\n" * 1998 + "end",
        ),
    ],
)
async def test_failed_command_returns_the_end_of_its_output(tool: Tool, script: str, text: str) -> None:
    outcome = await tool.compiled({"script": script}, secrets=["correct-horse"]).execute(make_invocation())
    assert isinstance(outcome, Failure)
    assert outcome.text.replace("… \n", "… ") == text


async def test_directory_with_nul_is_an_error(tool: Tool) -> None:
    with pytest.raises(ExecutionError, match="`cwd` contains a NUL character"):
        await tool({"command": ["pwd"], "cwd": "{{ a }}"}, a="x\0y")


async def test_success_codes_are_configurable(tool: Tool) -> None:
    config = {"script": "echo out; exit $INPUT_N", "success_codes": [0, 1]}
    outcome = await tool(config, n=1)
    assert isinstance(outcome, RawOutput)
    assert outcome.variables["exit_code"] == 1
    assert isinstance(await tool(config, n=2), Failure)


async def test_head_and_tail_of_large_output_are_kept(tool: Tool) -> None:
    executor = tool.compiled({"script": "echo head; yes | head -c 1000000; echo tail"}, max_output=1000)
    outcome = await executor.execute(make_invocation())
    assert isinstance(outcome, RawOutput)
    assert (len(outcome.data), outcome.omitted) == (1000, 999_010)
    assert outcome.data.startswith(b"head\ny\n")
    assert outcome.data.endswith(b"y\ntail\n")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_lines_of_a_stream_are_progress(tool: Tool, context: RecordingContext, stream: str) -> None:
    to_stream = {"stdout": "", "stderr": ">&2"}[stream]
    config = {"script": f"for i in 1 2 3; do echo $i {to_stream}; done", "progress": stream}
    outcome = await tool.compiled(config).execute(make_invocation(context=context))
    assert context.progressed == [(1, None, "1"), (2, None, "2"), (3, None, "3")]
    assert isinstance(outcome, RawOutput)
    assert "1\n2\n3\n" in {outcome.data.decode(), outcome.variables["stderr"]}


async def test_progress_is_only_sent_on_request(tool: Tool) -> None:
    context = RecordingContext()
    invocation = make_invocation(context=context)
    invocation = replace(invocation, call=replace(invocation.call, wants_progress=False))
    await tool.compiled({"script": "echo x", "progress": "stdout"}).execute(invocation)
    assert context.progressed == []


async def test_timeout_error_contains_the_output_so_far(tool: Tool) -> None:
    for config, timeout, named in (({"timeout": 0.3}, 20.0, "0.3"), ({}, 0.3, "60.3")):
        executor = tool.compiled({"script": "echo so far; exec sleep 600", **config})
        permit = RecordingPermit()
        with pytest.raises(ExecutionError, match=rf"(?s)'sh' timed out after {named} s.*stdout:\nso far"):
            await executor.execute(make_invocation(timeout=timeout, waited=60.0, permit=permit))
        await permit.freed()


async def test_impossible_arguments_start_no_process(tool: Tool) -> None:
    for argument in ("-rf", "a\0", "x" * 200 * 1024):
        with pytest.raises(ExecutionError, match=r"the argument \{\{ a \}\}"):
            await tool({"command": ["ls", "{{ a }}"]}, a=argument)
    with pytest.raises(ExecutionError, match=r"the argument \{\{ items \}\} must not start with `-`"):
        await tool({"command": ["ls", "{{ items }}"]}, items=["x", "-la"])


@linux_only
async def test_full_disk_is_an_error_for_the_caller(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    with pytest.raises(ExecutionError, match="cannot create a directory for the call: "):
        await tool({"script": "true"})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"script": "echo {{ a }}"}, "shell.script: a script is not a template, so `{{` is not replaced"),
        (
            {"command": ["cat"], "env": {"A=B": "x"}},
            "shell.env.A=B: the name of an environment variable must not be empty",
        ),
        ({"command": ["cat"], "env": {"A": "{{ aa }}"}}, "shell.env.A: `aa` is not an input; did you mean `a`?"),
        ({"command": ["cat"], "cwd": "{{ aa }}"}, "shell.cwd: `aa` is not an input; did you mean `a`?"),
        ({"command": ["cat"], "stdin": "{{ aa }}"}, "shell.stdin: `aa` is not an input; did you mean `a`?"),
        ({"command": ["sh", "-c", "{{ a }}"]}, "shell.command.2: an expression here would be read as code by `sh -c`"),
        ({"command": ["sh"], "stdin": "{{ a }}"}, "shell.stdin: an expression here would be read as code by `sh`"),
        (
            {"command": ["sudo", "bash", "-s"], "stdin": "{{ a }}"},
            "shell.stdin: an expression here would be read as code",
        ),
        (
            {"command": ["at", "now"], "stdin": "{{ a }}"},
            "shell.stdin: an expression here would be read as code",
        ),
        (
            {"command": ["batch"], "stdin": "{{ a }}"},
            "shell.stdin: an expression here would be read as code",
        ),
        ({"command": ["ed", "-s", "x"], "stdin": "{{ a }}"}, "shell.stdin: an expression here would be read as code"),
        ({"command": ["psql", "db"], "stdin": "{{ a }}"}, "shell.stdin: an expression here would be read as code"),
        (
            {"command": ["docker", "exec", "-i", "app", "lua"], "stdin": "{{ a }}"},
            "shell.stdin: an expression here would be read as code by `lua`",
        ),
        ({"command": ["python3", "-"], "stdin": "{{ a }}"}, "shell.stdin: an expression here would be read as code"),
    ],
)
async def test_mistakes_are_load_errors(services: Services, config: JsonObject, message: str) -> None:
    found = problems_in(config, services)
    assert len(found) == 1
    assert found[0].startswith(message)


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "cat"],
        ["python3", "x.py"],
        ["python3", "-m", "x"],
        ["wc"],
        ["sudo", "wc"],
        ["at", "-f", "x", "now"],
        ["psql", "-c", "copy t from stdin"],
        ["docker", "exec", "-i", "app", "wc"],
    ],
)
async def test_standard_input_of_other_programs_is_data(services: Services, command: list[str]) -> None:
    assert problems_in({"command": command, "stdin": "{{ a }}"}, services) == []


async def test_inputs_whose_variables_clash_are_a_load_error(services: Services) -> None:
    assert problems_in({"script": "true"}, services, **{"user-id": {}, "user_id": {}}) == [
        "shell.script: the inputs `user-id` and `user_id` would both be INPUT_USER_ID. Rename one"
    ]


async def test_script_uses_every_input(services: Services) -> None:
    scope = make_scope(SCHEMAS)
    compile_shell(Shell.model_validate({"script": "true"}), scope=scope, services=services, redactor=Redactor())
    assert scope.used == set(SCHEMAS)


@pytest.mark.build
async def test_many_calls_leave_no_resources(tool: Tool, services: Services) -> None:
    executors = [
        tool.compiled(config)
        for config in (
            {"script": 'cat "$INPUTS_FILE"; echo x >&2', "progress": "stderr", "stdin": "x"},
            {"script": "sleep 600 & (setsid sleep 600 &); exit 3"},
            {"command": ["no-such-program", "{{ a }}"]},
            {"command": ["echo", "{{ a }}"]},
        )
    ]
    permit = RecordingPermit()

    async def calls() -> None:
        await asyncio.gather(
            *(executor.execute(make_invocation({"a": "x"}, permit=permit)) for executor in executors),
            return_exceptions=True,
        )
        with pytest.raises(ExecutionError):
            await executors[0].execute(make_invocation({"a": "-"}, permit=permit, timeout=0.0))
        await permit.freed()

    await calls()
    before = resources()
    for _ in range(40):
        await calls()
    assert resources() == before
    assert list(Path(tempfile.gettempdir()).glob("*/*")) == []
    assert (services.processes.running, services.processes.ending) == (0, 0)


def resources() -> tuple[int, int, int, int]:
    """The numbers of descriptors, threads, tasks and children."""
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return descriptors, threading.active_count(), len(asyncio.all_tasks()), len(child_pids())


async def test_thousand_templates_compile_quickly(services: Services) -> None:
    schemas = {f"input_{number}": {"type": "string"} for number in range(1000)}
    scope = make_scope(schemas)
    began = time.process_time()
    for name in schemas:
        config = {"command": ["tool", f"--{name}={{{{ {name} }}}}", f"{{{{ {name} | default('x') }}}}"], "cwd": "/srv"}
        compile_shell(Shell.model_validate(config), scope=scope, services=services, redactor=Redactor())
    assert messages_of(scope) == []
    assert time.process_time() - began < 2
