"""The command line: output, standard error and exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.cli import COMMANDS
from tests.cli.typed import CONFIG, Finished, Run, started
from tests.fork_server import FORKED


def test_no_command_shows_the_overview(run: Run) -> None:
    finished = run()
    assert finished.code == 2
    assert all(command in finished.out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_has_examples(run: Run, command: str) -> None:
    finished = run(command, "--help")
    assert finished.code == 0
    assert "examples:" in finished.out
    assert f"mcp-gateway {command}" in finished.out
    assert "\x1b" not in finished.out
    assert all(len(line) <= 100 for line in finished.out.splitlines())


def test_help_of_serve_names_each_variable_and_default(run: Run) -> None:
    text = " ".join(run("serve", "--help").out.split())
    for variable in ("HTTP", "STDIO", "ALLOW_ANONYMOUS", "SCOPES", "NO_WATCH", "POLL", "DRAIN_TIMEOUT", "LOG_LEVEL"):
        assert f"MCP_GATEWAY_{variable}" in text
    assert "default: 30s; MCP_GATEWAY_POLL" in text


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["help"], ["sevre"], []])
def test_overview_and_version_import_little(tmp_path: Path, words: list[str]) -> None:
    program = f"""
import sys
from gateway.cli import main
try:
    main({words!r})
except SystemExit:
    pass
heavy = "asyncio aiohttp dataclasses jinja2 jsonschema_rs msgspec orjson pydantic structlog uvloop yaml".split()
own = sorted(name for name in sys.modules if name.startswith("gateway."))
print("imported:", *sorted(set(heavy) & set(sys.modules)), len(own))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=30, check=True
    )
    *heavy, own = ended.stdout.splitlines()[-1].split()[1:]
    assert heavy == []
    assert int(own) < 15


def test_help_command_shows_the_overview(run: Run) -> None:
    assert run("help") == run("--help")


def test_help_command_shows_the_help_of_a_command(run: Run) -> None:
    assert run("help", "plan") == run("plan", "--help")


def test_printed_schema_equals_the_published_one(run: Run) -> None:
    assert run("schema").out == (Path(__file__).parents[2] / "config" / "schema.json").read_text()


def test_version_is_printed(run: Run) -> None:
    assert run("--version").out.startswith("mcp-gateway 0.")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["sevre"], "unknown command 'sevre'; did you mean `serve`?"),
        (["xyzzy"], "unknown command 'xyzzy'"),
        (["help", "sevre"], "unknown command 'sevre'; did you mean `serve`?"),
        (["serve", "--htpp", ":80"], "unrecognized arguments: --htpp"),
        (["call"], "the following arguments are required"),
        (["serve", "--poll", "soon"], "--poll: expected a duration"),
        (["serve", "--scopes", "ops"], "--scopes: needs --stdio"),
        (["list", "tool"], "tool: expected one of tools, resources, templates, prompts"),
        (["call", "greet", "name"], "name: expected key=text"),
        (["validate", "/nowhere.yaml"], "/nowhere.yaml"),
        (["list", "/nowhere.yaml"], "/nowhere.yaml"),
    ],
)
def test_usage_error_exits_with_two(run: Run, words: list[str], hint: str) -> None:
    finished = run(*words)
    assert finished.code == 2
    assert hint in finished.hints + finished.out
    assert "Traceback" not in finished.hints


@pytest.mark.parametrize("scopes", ["ops", ""])
def test_scopes_variable_without_stdio_is_rejected(run: Run, monkeypatch: pytest.MonkeyPatch, scopes: str) -> None:
    monkeypatch.setenv("MCP_GATEWAY_SCOPES", scopes)
    finished = run("serve", "--http", "127.0.0.1:0")
    assert finished.code == 2
    assert "MCP_GATEWAY_SCOPES: needs --stdio" in finished.hints
    assert run("validate").code == 0


def test_validate_reports_a_valid_file(run: Run) -> None:
    assert run("validate") == Finished(0, "", "config.yaml is valid\n")


def test_validate_reports_errors_with_location(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("tools:\n  a: {shel: {command: [true]}}\n  b: {content: x, tiemout: 3s}\n")
    finished = run("validate", "bad.yaml")
    assert finished.code == 2
    assert "bad.yaml:2:7: tools.a" in finished.out
    assert "bad.yaml:3:" in finished.out
    assert "bad.yaml cannot be served: " in finished.hints


def test_warnings_fail_only_with_strict(run: Run, tmp_path: Path) -> None:
    (tmp_path / "warn.yaml").write_text('tools: {a: {input: {unused: string}, shell: {command: ["true"]}}}\n')
    assert run("validate", "warn.yaml").code == 0
    assert run("validate", "--strict", "warn.yaml").code == 1


@pytest.mark.parametrize(
    ("file", "why"),
    [("nowhere/audit.log", "does not exist"), (".", "it is a directory"), ("pipe", "it is not a regular file")],
)
def test_unwritable_audit_log_is_an_error(run: Run, tmp_path: Path, file: str, why: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "audited.yaml").write_text(f"audit:\n  file: {file}\ntools: {{a: {{description: A., content: x}}}}\n")
    finished = run("validate", "audited.yaml")
    assert finished.code == 2
    assert "audited.yaml:2:9: audit.file: " in finished.out
    assert why in finished.out
    assert run("call", "audited.yaml", "a").out == "x\n"


def test_validate_does_not_create_the_audit_log(run: Run, tmp_path: Path) -> None:
    (tmp_path / "audited.yaml").write_text("audit: {file: audit.log}\ntools: {a: {description: A., content: x}}\n")
    assert run("validate", "audited.yaml").code == 0
    assert not (tmp_path / "audit.log").exists()


REJECTED_PATH = f"/tmp/{'x' * 300}"
"""A path that the system rejects with an error, like paths in an inaccessible directory."""


@pytest.mark.parametrize(
    ("definition", "place"),
    [
        ("audit: {file: PATH/audit.log}", "audit.file"),
        ("plugins: [PATH]", "plugins.0"),
        ("listen: {tls: {cert: PATH, key: PATH}}", "listen.tls.cert"),
        ("resources: {r: {files: 'PATH/*.md'}}", "resources.r.files"),
        ("resources: {r: {uri: 'r://x', file: PATH}}", "resources.r.file"),
        ("tools: {t: {description: T., content: {image: PATH.png}}}", "tools.t.content"),
        (
            "tools: {t: {description: T., shell: {script: x}, input: {p: {type: string, within: PATH}}}}",
            "tools.t.input.p",
        ),
        ("connections: {c: {base_url: 'https://h', tls: {ca: PATH}}}", "connections.c.tls"),
        ("include: [PATH.yaml]", "include"),
        ("prompt_files: [PATH.md]", "prompt_files"),
    ],
)
def test_inaccessible_path_is_reported_at_its_key(run: Run, tmp_path: Path, definition: str, place: str) -> None:
    (tmp_path / "config.yaml").write_text(definition.replace("PATH", REJECTED_PATH) + "\n")
    finished = run("validate", "--strict")
    assert finished.code in {1, 2}
    assert f": {place}" in finished.out.replace("warning: ", "")
    assert "unexpected error" not in finished.hints


def test_problems_are_printed_as_json(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("tools:\n  a: {shel: {}}\n")
    finished = run("validate", "--json", "bad.yaml")
    problem = json.loads(finished.out)[0]
    assert (problem["severity"], problem["line"]) == ("error", 2)
    assert problem["file"].endswith("bad.yaml")


def test_list_prints_all_definitions(run: Run) -> None:
    lines = run("list").out.splitlines()
    assert "tools" in lines
    assert any(line.split() == ["greet", "name", "[loud]", "Say", "hello."] for line in lines)
    assert any(line.startswith("about://this") for line in lines)
    assert any(line.startswith("item://{id}") for line in lines)
    assert any(line.startswith("ask") and "what [tone]" in line for line in lines)


def test_one_kind_is_listed_as_json(run: Run) -> None:
    listed = json.loads(run("list", "config.yaml", "tools", "--json").out)
    assert [tool["name"] for tool in listed["tools"]][:2] == ["greet", "add"]


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (["greet", "name=Ada"], "Hello, Ada\n"),
        (["config.yaml", "greet", "name=Ada", "loud=true"], "Hello, Ada!\n"),
        (["greet", "loud:=true", "--json", '{"name": "Bob"}'], "Hello, Bob!\n"),
        (["--json", '{"a": 1, "b": 2}', "add"], "3\n"),
        (["add", "a=40", "b=2"], "42\n"),
        (["figures"], '{"a":[1]}\n'),
    ],
)
def test_tool_is_called_with_words(run: Run, words: list[str], out: str) -> None:
    finished = run("call", *words)
    assert finished == Finished(0, out, "")


def test_tool_error_goes_to_standard_error_with_code_one(run: Run) -> None:
    assert run("call", "fail") == Finished(1, "", "It did not work.\n")


def test_invalid_arguments_are_named(run: Run) -> None:
    finished = run("call", "add", "a=one")
    assert finished.code == 1
    assert "/a" in finished.hints
    assert finished.out == ""


@pytest.mark.parametrize("words", [["call", "nothing"], ["read", "about://nothing"], ["prompt", "nothing"]])
def test_unknown_name_is_a_one_line_error(run: Run, words: list[str]) -> None:
    finished = run(*words)
    assert finished.code == 1
    assert finished.hints.startswith("error: ")
    assert len(finished.hints.splitlines()) == 1


UNAVAILABLE = """\
tools:
  here: {description: H., content: h}
  gone: {description: G., content: g, requires: {commands: [no-such-command]}}
resources:
  notes: {files: "*.md", requires: {env: [NOT_SET_ANYWHERE]}}
prompts:
  ask: {description: A., messages: [{user: Why?}], requires: {platforms: [plan9]}}
"""


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["call", "gone"], "tools.gone is not available here: the command no-such-command is not on PATH"),
        (["call", "gone", "--explain"], "tools.gone is not available here: the command no-such-command is not"),
        (["read", "notes:///a.md"], "resources.notes is not available here: the variable NOT_SET_ANYWHERE is not set"),
        (["read", "notes:///a.md", "--explain"], "resources.notes is not available here: the variable NOT_SET_"),
        (["prompt", "ask"], "prompts.ask is not available here: this platform is linux, not plan9"),
    ],
)
def test_unavailable_definition_is_an_error_with_reason(
    run: Run, tmp_path: Path, words: list[str], reason: str
) -> None:
    (tmp_path / "config.yaml").write_text(UNAVAILABLE)
    finished = run(*words)
    assert (finished.code, finished.out) == (1, "")
    assert finished.hints.startswith(reason)
    assert finished.hints.count("not available") == 1
    assert "not available" not in run("call", "here").hints


def test_file_with_unavailable_definitions_is_valid(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(UNAVAILABLE)
    finished = run("validate")
    assert finished.code == 0
    assert "tools.gone is not available here: the command no-such-command is not on PATH\n" in finished.hints


def test_list_reports_unavailable_definitions(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(UNAVAILABLE)
    finished = run("list")
    assert (finished.code, finished.out) == (0, "tools\nhere    H.\n")
    assert [line.split(" is ")[0] for line in finished.hints.splitlines()] == [
        "tools.gone",
        "resources.notes",
        "prompts.ask",
    ]


def test_progress_goes_to_standard_error(run: Run) -> None:
    finished = run("call", "steps")
    assert [line.split("] ")[1] for line in finished.hints.splitlines()] == ["one", "two"]


def test_bytes_are_written_to_a_file(run: Run, tmp_path: Path) -> None:
    assert "--output" in run("call", "picture").hints
    assert run("call", "picture", "-o", "picture.png").code == 0
    assert (tmp_path / "picture.png").read_bytes() == b"\0\1\2"
    assert run("call", "picture", "-o", "-") == (0, "\0\1\2", "")


def test_raw_option_prints_the_result(run: Run) -> None:
    result = json.loads(run("call", "fail", "--raw").out)
    assert result["isError"] is True


def test_missing_name_is_an_error(run: Run) -> None:
    assert run("call", "config.yaml").hints.startswith("TOOL: is missing")


def test_resource_is_read(run: Run) -> None:
    assert run("read", "about://this").out == "About this.\n"
    assert run("read", "config.yaml", "item://7").out == "Item 7\n"
    assert run("read", "config.yaml").hints.startswith("config.yaml: expected one URI, after CONFIG")


def test_prompt_is_printed(run: Run) -> None:
    assert run("prompt", "ask", "what=this").out == "user:\nWhat is this? Be kind.\nassistant:\nLet me think.\n"
    raw = json.loads(run("prompt", "ask", "what=this", "--raw").out)
    assert [message["role"] for message in raw["messages"]] == ["user", "assistant"]
    assert run("prompt", "ask", "what=this", "-o", "-").out == "What is this? Be kind.\nLet me think."


def test_init_writes_a_valid_file_with_working_commands(run: Run, tmp_path: Path) -> None:
    finished = run("init", "new/config.yaml")
    assert finished.code == 0
    assert "mcp-gateway serve new/config.yaml" in finished.out
    assert run("validate", "--strict", "new/config.yaml").code == 0
    assert run("call", "new/config.yaml", "hello", "name=Ada").out == "Hello, Ada!\n"
    assert (tmp_path / "new" / "config.yaml").stat().st_size < 2000


def test_init_overwrites_nothing(run: Run, tmp_path: Path) -> None:
    finished = run("init")
    assert finished.code == 2
    assert "already exists" in finished.hints
    assert (tmp_path / "config.yaml").read_text() == CONFIG


def test_variable_names_the_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.yaml").rename(tmp_path / "other.yaml")
    assert run("list").code == 2
    monkeypatch.setenv("MCP_GATEWAY_CONFIG", "other.yaml")
    assert run("call", "greet", "name=Ada").out == "Hello, Ada\n"


@pytest.mark.parametrize(
    ("words", "out"), [("call config.yaml chat", "said\n"), ("validate config.yaml --json", "[]\n")]
)
def test_plugin_output_goes_to_standard_error(tmp_path: Path, words: str, out: str) -> None:
    (tmp_path / "config.yaml").write_text('plugins: [plugins]\ntools: {chat: {python: "chat:chat"}}', encoding="utf-8")
    (tmp_path / "plugins").mkdir()
    plugin = """import os
print("loaded")
os.write(1, b"raw")
def startup(): print("started")
def shutdown(): print("stopped")
def chat() -> str:
    \'\'\'Chat.\'\'\'
    print("called")
    return "said"
"""
    (tmp_path / "plugins" / "chat.py").write_text(plugin, encoding="utf-8")
    done = subprocess.run(
        [FORKED, *words.split()],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, out)
    assert {"loaded", "raw"} <= set(done.stderr.replace("raw", "raw\n").split())


def test_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    with started("call", "flood", cwd=tmp_path) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "1\n"
        child.stdout.close()
        assert child.stderr.read() == ""
        assert child.wait(20) in {0, 141}


@pytest.mark.parametrize("words", [["schema"], ["--help"], ["serve", "--help"]])
def test_full_disk_is_reported(tmp_path: Path, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        finished = subprocess.run(
            [FORKED, *words], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    # The interpreter of the test can also fail to flush standard output when it exits.
    said = finished.stderr.partition("Exception ignored in")[0]
    assert (finished.returncode in {1, 120}, said) == (True, "error: cannot write: No space left on device\n")


INTERRUPTED_IMPORT = """
import os, runpy, signal, sys

class Typist:
    def find_spec(self, name, path=None, target=None):
        if name == "gateway.cli.parser":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Typist())
sys.argv = ["mcp-gateway", "list"]
runpy.run_module("gateway", run_name="__main__", alter_sys=True)
"""


def test_interrupt_during_import_prints_nothing(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (-signal.SIGINT, b"", b"")


def test_interrupted_call_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        CONFIG.replace('[sleep, "600"]', f"[sh, -c, 'touch {tmp_path}/up; exec sleep 600']")
    )
    with started("call", "hang", cwd=tmp_path) as child:
        wait_for(tmp_path / "up", child)
        child.send_signal(signal.SIGINT)
        out, hints = child.communicate(timeout=20)
    assert (child.returncode, out, hints) == (130, "", "")


def test_interrupt_ends_a_blocking_read(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    os.mkfifo(tmp_path / "name")
    # Opening the FIFO waits for its reader.
    with started("call", "greet", "name@=name", cwd=tmp_path) as child, (tmp_path / "name").open("w"):
        child.send_signal(signal.SIGINT)
        out, hints = child.communicate(timeout=20)
    assert (child.returncode, out, hints) == (130, "", "")


@pytest.mark.parametrize(
    ("words", "redirection"),
    [
        ("validate", "<&- >&- 2>&-"),
        ("call greet name@=-", "<&-"),
        pytest.param("list", ">&-", marks=pytest.mark.build),
        pytest.param("call nothing", "2>&-", marks=pytest.mark.build),
    ],
)
def test_closed_standard_streams_are_supported(tmp_path: Path, words: str, redirection: str) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    finished = subprocess.run(
        ["sh", "-c", f'"$0" -m gateway {words} {redirection}', sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert finished.returncode == (1 if words == "call nothing" else 0)
    assert finished.stderr == ""


def test_unencodable_text_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text('tools: {say: {description: Return a text., content: "“ü”"}}')
    finished = subprocess.run(
        [sys.executable, "-m", "gateway", "call", "say"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (finished.returncode, finished.stdout) == (0, "\\u201c\\xfc\\u201d\n")


def test_running_server_is_used_by_url(run: Run, tmp_path: Path) -> None:
    with started("serve", "--http", "127.0.0.1:0", cwd=tmp_path) as server:
        assert server.stderr is not None
        events = (json.loads(line) for line in server.stderr)
        url = next(event["url"] for event in events if event["event"] == "listening")
        assert run("call", "--url", url, "greet", "name=Ada") == Finished(0, "Hello, Ada\n", "")
        assert [line.split("] ")[1] for line in run("call", "steps", "--url", url).hints.splitlines()] == ["one", "two"]
        assert run("read", "--url", url, "item://7").out == "Item 7\n"
        assert run("prompt", "--url", url, "ask", "what=this").out.startswith("user:\nWhat is this?")
        assert "greet" in run("list", "--url", url, "tools").out
        assert run("call", "--url", url, "nothing").code == 1
        base = url.removesuffix("/mcp")
        assert run("status", "--url", base).code == 0
        assert json.loads(run("status", "--url", base, "--json").out)["state"] == "ready"
        (tmp_path / "config.yaml").write_text("tools: [")
        while (status := run("status", "--url", base)).code == 0:
            time.sleep(0.05)
        assert "config.yaml:" in status.out
        server.terminate()
        assert server.wait(20) == 0


def wait_for(path: Path, child: subprocess.Popen[str]) -> None:
    while child.poll() is None and not path.exists():
        time.sleep(0.02)


@pytest.mark.parametrize(("name", "guess"), [("gret", "; did you mean `greet`?"), ("nothing_like_it", "")])
def test_unknown_tool_has_a_suggestion(run: Run, name: str, guess: str) -> None:
    finished = run("call", name)
    assert (finished.code, finished.out, finished.hints) == (1, "", f"error: Unknown tool: {name}{guess}\n")
