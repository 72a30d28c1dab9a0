"""Calls of commands that exceed limits, flood their output or do not exit end in time, and leave nothing behind."""

import os
import select
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attacks.client import TIMEOUT_SECONDS
from tests.attacks.target import PYTHON, Plan, Target
from tests.examples import examples
from tests.messages import MODERN, modern_request
from tests.programs import need, need_sandboxes

MIB = 2**20
PLAN = Plan(
    file=f"""
    tools:
      run:
        description: Run code that ends.
        input: {{code: string}}
        shell: &run {{script: 'eval "$INPUT_CODE"', interpreter: [sh], timeout: 60s}}
      brief:
        description: Run code without end, and not for long.
        input: {{code: string}}
        shell: {{<<: *run, timeout: 200ms}}
      limited:
        description: Run code with low limits.
        input: {{code: string}}
        shell: &limited
          script: 'import os; exec(os.environ["INPUT_CODE"])'
          interpreter: ["@python@", -IS]
          timeout: 60s
          limits: {{memory: 256MiB, cpu: 1s, file_size: 1MiB}}
      boxed:
        description: Run code with low limits in a sandbox.
        input: {{code: string}}
        shell: {{<<: *limited, sandbox: {{readable: ["{sys.base_prefix}"]}}}}
      fed:
        description: Run code that is fed.
        input: {{code: string, text: string}}
        shell: &fed {{<<: *run, stdin: "{{{{ text }}}}"}}
        output: {{max_size: 4MiB}}
      fed_briefly:
        description: Run code that is fed, and does not end.
        input: {{code: string, text: string}}
        shell: {{<<: *fed, timeout: 200ms}}
      watched:
        description: Run code without end, with progress lines.
        input: {{code: string}}
        shell: {{<<: *run, timeout: 200ms, progress: stdout}}
    """
)


@pytest.fixture(autouse=True)
def _programs() -> None:
    need("prlimit")
    need_sandboxes()


# Limits

GREEDY = {
    "memory": ("x = bytearray(2**30)", "MemoryError"),
    "memory, in small steps": ("x = []\nwhile True: x.append(bytes(2**20))", "MemoryError"),
    "memory, mapped": ("import mmap; x = mmap.mmap(-1, 2**30)", "Cannot allocate memory"),
    "file_size": (
        "f = open(os.environ['INPUTS_FILE'] + '.full', 'wb', 0)\nwhile True: f.write(bytes(2**16))",
        "File too large",
    ),
    "file_size, by truncation": (
        "os.truncate(os.open(os.environ['INPUTS_FILE'] + '2', os.O_CREAT | os.O_RDWR), 2**40)",
        "File too large",
    ),
}
GREEDY_INSIDE = {
    **GREEDY,
    # These use CPU seconds. The other half is tested in `tests/executors/test_limits.py`.
    "cpu": ("while True: pass", "its limit `shell.limits.cpu`"),
    "cpu, ignores the signal": (
        "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        "exit code 137",
    ),
    "file_size": ("f = open('/tmp/full', 'wb', 0)\nwhile True: f.write(bytes(2**16))", "File too large"),
    "file_size, by truncation": (
        "os.truncate(os.open('/tmp/cut', os.O_CREAT | os.O_RDWR), 2**40)",
        "File too large",
    ),
}


@pytest.mark.parametrize(
    "what",
    # Of the two tests that use seconds of CPU time, one runs only in CI.
    [pytest.param(each, marks=[pytest.mark.build] * (each == "cpu")) for each in GREEDY_INSIDE],
)
def test_command_over_its_limit_is_stopped(target: Target, what: str) -> None:
    for tool, codes in (("limited", GREEDY), ("boxed", GREEDY_INSIDE)):
        if what not in codes:
            continue
        code, said = codes[what]
        text = target.client.refusal(tool, {"code": code})
        assert said in text, text


MODEST = "x = bytes(50 * 2**20); sum(range(10**6)); open('/dev/null', 'wb').write(x); print(len(x))"


@pytest.mark.parametrize("tool", ["limited", "boxed"])
def test_command_below_its_limit_succeeds(target: Target, tool: str) -> None:
    assert target.client.text(tool, {"code": MODEST}) == f"{50 * MIB}\n"


RAISE = "import resource\nresource.setrlimit(resource.RLIMIT_{name}, (resource.RLIM_INFINITY,) * 2)\nprint('raised')"


@pytest.mark.parametrize("name", ["AS", "CPU", "FSIZE", "CORE"])
def test_command_cannot_raise_its_limits(target: Target, name: str) -> None:
    code = RAISE.format(name=name)
    assert "raised" not in target.client.refusal("boxed", {"code": code})
    if os.geteuid():  # without a sandbox, root can raise limits
        assert "raised" not in target.client.refusal("limited", {"code": code})
    lower = code.replace("(resource.RLIM_INFINITY,) * 2", "(0, 0)")
    assert name in {"AS", "CPU"} or target.client.text("limited", {"code": lower}) == "raised\n"


def test_crashed_command_leaves_no_core_file(target: Target) -> None:
    """A core file contains secrets from memory."""
    for tool in ("limited", "boxed"):
        assert (
            target.client.text(tool, {"code": "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))"})
            == "(0, 0)\n"
        )


# Endless commands

ENDLESS = (
    "sleep 600",
    "trap '' TERM HUP INT; while :; do sleep 1; done",
    "kill -STOP $$",
    "exec >&- 2>&-; sleep 600",
    "sleep 600 & wait",
    "setsid sleep 600 & wait",
    "(setsid sh -c 'trap \"\" TERM; sleep 600' &); sleep 600",
    "(sleep 600 &) ; (sleep 600 &) ; cat /dev/zero > /dev/null",
    "yes",
    "yes >&2",
    "cat /dev/zero",
    "tr '\\0' x < /dev/zero",
    "while :; do echo x; done",
    "while :; do (sleep 600 &); sleep 0.05; done",
    'sh -c \'trap "" TERM; while :; do sh -c "sleep 600" & sleep 0.1; done\'',
)


def test_endless_commands_are_killed(target: Target) -> None:
    before = target.rss()
    with ThreadPoolExecutor(len(ENDLESS)) as callers:
        texts = callers.map(lambda code: target.client.refusal("brief", {"code": code}), ENDLESS)
        for code, text in zip(ENDLESS, texts, strict=True):
            assert "timed out after 0.2 s" in text, (code, text)
    assert target.rss() - before < 128 * MIB
    assert target.client.text("run", {"code": "echo still here"}) == "still here\n"


LEFT = (
    "sleep 600 &",
    "setsid sleep 600 &",
    "(trap '' TERM; sleep 600) &",
    "yes &",
    "(sleep 600 > /dev/null 2>&1 &)",
    "nohup setsid sh -c 'while :; do sleep 1; done' > /dev/null 2>&1 &",
    "for n in 1 2 3 4 5 6 7 8 9; do (setsid sleep 600 &); done",
    "(env -i setsid sleep 600 &)",
    "setsid -f env -i sleep 600",
    "(env -u MCP_GATEWAY_CALL setsid sleep 600 &)",
    "(MCP_GATEWAY_CALL=1.2.3.0123456789abcdef-1 setsid sleep 600 &)",
    "((((env -i setsid sleep 600 &) &) &) &)",
)
HOPS = "import os\nfor _ in range(100):\n  if os.getsid(0) != os.getpid(): os.setsid()\n  if os.fork(): os._exit(0)"


def test_background_processes_of_commands_are_killed(target: Target) -> None:
    for code in LEFT:
        assert "done" in target.client.text("run", {"code": f"{code}\necho done"}), code


def test_zombie_processes_are_reaped(target: Target) -> None:
    """The daemon must reap them sooner than `assert_unharmed` requires."""

    def reaped() -> int:
        return int(target.direct.request("GET", "/-/status", fields=target.operator).json["orphans_reaped"])

    before, deadline = reaped(), time.monotonic() + TIMEOUT_SECONDS
    # The pipe is closed when the last process has exited.
    target.client.text("run", {"code": f"'{PYTHON}' -ISc '{HOPS}' | cat"})
    while reaped() < before + 99:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_command_ends_when_its_caller_disconnects(target: Target) -> None:
    for code in ENDLESS:
        body = orjson.dumps(modern_request("tools/call", {"name": "run", "arguments": {"code": code}}))
        fields = ["Content-Type: application/json", f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/call"]
        fields += ["Mcp-Name: run", f"Host: 127.0.0.1:{target.client.port}", f"Content-Length: {len(body)}"]
        for pause in (0.0, 0.1):
            with target.client.connection() as connection:
                connection.sendall("\r\n".join(["POST /mcp HTTP/1.1", *fields, "", ""]).encode() + body)
                select.select([connection], [], [], pause)


# Large output and input


def test_many_progress_lines_are_throttled(target: Target) -> None:
    before = target.rss()
    target.client.refusal("watched", {"code": "yes progress"})
    target.client.refusal("watched", {"code": "tr '\\0' x < /dev/zero"})
    assert target.rss() - before < 64 * MIB


def test_unread_standard_input_does_not_block(target: Target) -> None:
    text = "x" * 900_000
    assert target.client.text("fed", {"code": "true", "text": text}) == ""
    assert "timed out after" in target.client.refusal("fed_briefly", {"code": "yes", "text": text})
    assert "x" * 1000 in target.client.text("fed", {"code": "cat", "text": text})


@given(text=st.text(st.characters(max_codepoint=0x9F), max_size=40))
@examples(30)
@pytest.mark.build
def test_output_contains_no_terminal_escapes(target: Target, text: str) -> None:
    octal = "".join(f"\\{byte:03o}" for byte in text.encode())
    said = target.client.text("run", {"code": f"printf '{octal}\\033]0;title\\007\\033[31mred'"})
    assert not [character for character in said if ord(character) < 32 and character not in "\t\n"]
    assert not [character for character in said if 0x7F <= ord(character) <= 0x9F]
    assert said.endswith("red")
