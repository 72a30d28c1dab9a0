"""Seeded secrets never appear in responses, notifications, logs, the status, the audit log or the lock.

The framework searches every byte that the daemon sends or logs. These tests use every output that could contain a
secret, with a control that shows that text reaches this output.
"""

import base64
import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_plus

import pytest

from gateway.json_types import Json, JsonObject
from tests.attacks import seeds
from tests.attacks.seeds import SECRETS
from tests.attacks.tap import Scanner
from tests.attacks.target import Plan, Target
from tests.fork_server import FORKED

PLUGIN: Final = '''
import os
import threading
from gateway.plugin import Context, EmbeddedResource, ProtocolError, ResourceLink, ToolError

SECRET = os.environ["SEEDED_ENVIRONMENT"]

def raises() -> str:
    """Raise."""
    raise RuntimeError(f"refused: {SECRET!r}")

def chained() -> str:
    """Raise from another."""
    try:
        {}[SECRET]
    except KeyError as error:
        raise ToolError(f"no {SECRET}") from error

def protocol() -> str:
    """Raise for the protocol."""
    raise ProtocolError(-32000, SECRET, {SECRET: [SECRET]})

def thread() -> str:
    """Raise an error in a new thread."""
    def fail() -> None:
        raise RuntimeError(SECRET)
    started = threading.Thread(target=fail)
    started.start()
    started.join()
    return "joined"

def blocks() -> list[object]:
    """Content blocks."""
    return [ResourceLink("a:x", SECRET, title=SECRET), EmbeddedResource("a:x", SECRET)]

def structured() -> dict[str, object]:
    """Structure."""
    return {SECRET: [{"deep": f"<{SECRET}>"}]}

async def talks(context: Context) -> str:
    """Progress and log."""
    await context.progress(1, message=SECRET)
    context.log("error", {SECRET: (SECRET, {SECRET})}, logger=SECRET)
    return "talked"

async def asks(context: Context) -> str:
    """Ask."""
    return (await context.elicit("key", f"Is it {SECRET}?", {"type": "object", "properties": {}})).action

def messages() -> str:
    """A prompt."""
    return SECRET

def candidates(value: str) -> list[str]:
    return [SECRET]
'''

PLAN = Plan(
    file="""
    audit: {file: audit.log, arguments: full}
    plugins: [plugins]
    server: {instructions: "Ask for ${env:SEEDED_QUERY}."}
    connections:
      backend:
        base_url: "@backend@"
        allow_private: true
        headers: {X-Key: "${env:SEEDED_HEADER}", X-Other: "${env:SEEDED_KEY}"}
        query: {key: "${env:SEEDED_QUERY}"}
    tools:
      shown:
        description: Uses ${env:SEEDED_HEADER}.
        input: {name: {type: string, description: "Not ${env:SEEDED_BODY}", default: x}}
        content: "${env:SEEDED_HEADER} {{ name }}"
      get: {description: Get., http: {connection: backend, url: /}}
      form:
        description: Send a form.
        http: {connection: backend, url: /, form: {key: "${env:SEEDED_BODY}"}}
      body:
        description: Send a text.
        http: {connection: backend, url: /, body: "${file:plain.secret}", method: POST}
      stdin:
        description: Echo what comes in.
        shell: {command: [cat], stdin: "${file:lines.secret}"}
      argv:
        description: Echo an argument.
        shell: {command: [printf, "%s", "${file:plain.secret}"]}
      coded:
        description: Echo it in a form.
        input: {how: {type: string, enum: [base64, basic, url, form, json, nested, repr]}}
        shell: &coded
          interpreter: ["@python@", -IS]
          env: {A: "${env:SEEDED_ENVIRONMENT}", B: "${file:marks.secret}", C: "${file:lines.secret}"}
          script: |
            import base64, json, os, sys
            from urllib.parse import quote, quote_plus
            code = {
                "base64": lambda text: base64.b64encode(text.encode()).decode(),
                "basic": lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
                "url": lambda text: quote(text, safe=""),
                "form": quote_plus,
                "json": json.dumps,
                "nested": lambda text: json.dumps(json.dumps([text])),
                "repr": repr,
            }[os.environ["INPUT_HOW"]]
            for name in "ABC":
                print("<" + code(os.environ[name]) + ">")
      coded_failure:
        description: Fail with it.
        input: {how: {type: string, enum: [base64, url, json]}}
        shell:
          <<: *coded
          success_codes: [7]
      lines:
        description: Write it slowly.
        shell:
          interpreter: ["@python@", -IS]
          env: {A: "${env:SEEDED_ENVIRONMENT}", C: "${file:lines.secret}"}
          progress: stdout
          script: |
            import os, sys, time
            for character in os.environ["A"] + "\\n" + os.environ["C"] + "\\n":
                os.write(1, character.encode())
                if character in "5KN4\\n":
                    time.sleep(0.01)
      flood:
        description: Write a text repeatedly until it is truncated.
        shell:
          interpreter: ["@python@", -IS]
          env: {A: "${env:SEEDED_ENVIRONMENT}"}
          script: "import os; print('.' * int(os.environ['INPUT_BEFORE']) + os.environ['A'] * 400)"
        input: {before: {type: integer}}
        output: {max_size: 4KiB}
      flood_of_errors:
        description: Fail with so much output that it is truncated.
        shell:
          interpreter: ["@python@", -IS]
          env: {A: "${env:SEEDED_ENVIRONMENT}"}
          script: |
            import os
            os.write(2, (os.environ["A"] * 4000 + "." * int(os.environ["INPUT_AFTER"])).encode())
            raise SystemExit(1)
        input: {after: {type: integer}}
      bytes:
        description: Give it as bytes.
        shell: {command: [cat, plain.secret], cwd: .}
        output: {format: binary}
      raises: {python: "leaks:raises"}
      chained: {python: "leaks:chained"}
      protocol: {python: "leaks:protocol"}
      thread: {python: "leaks:thread"}
      blocks: {python: "leaks:blocks"}
      structured: {python: "leaks:structured"}
      talks: {python: "leaks:talks"}
      asks: {python: "leaks:asks"}
    resources:
      file: {uri: "s://file", file: lines.secret}
      spoken: {uri: "s://spoken", shell: {command: [cat, plain.secret], cwd: .}}
      broken: {uri: "s://broken", shell: {script: "cat plain.secret >&2; exit 1", cwd: .}}
      served: {uri: "s:///{+path}", files: "*.secret"}
    prompts:
      written: {description: W., messages: [{user: {resource: "s://file"}}]}
      spoken: {python: "leaks:messages"}
      filled: {description: F., arguments: {who: {description: Whom., complete: {python: "leaks:candidates"}}},
               messages: [{user: "{{ who }}"}]}
    """,
    files={"plugins/leaks.py": PLUGIN},
    flags=["--log-level", "debug"],
)
MASK: Final = "***"


def echo(text: str, *, status: str = "200 OK", media_type: str = "text/plain", more: str = "") -> bytes:
    """Set the response of the backend."""
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def test_secrets_reach_their_destination(target: Target) -> None:
    """Control: commands and requests receive the secrets."""
    target.backend.answer = echo("fine")
    assert target.client.text("get") == "fine"
    request = target.backend.requests[-1]
    assert f"X-Key: {SECRETS['env in a header']}".encode() in request
    assert f"key={SECRETS['env in a query']}".encode() in request.splitlines()[0]
    assert target.client.text("form") == "fine"
    assert f"key={SECRETS['env in a body']}".encode() in target.backend.requests[-1]
    assert target.client.text("body") == "fine"
    assert target.backend.requests[-1].endswith(SECRETS["file"].encode())


def test_lists_and_instructions_contain_no_secret(target: Target) -> None:
    tools = target.client.modern("tools/list").json["result"]["tools"]
    shown = next(tool for tool in tools if tool["name"] == "shown")
    assert shown["description"] == f"Uses {MASK}."
    assert shown["inputSchema"]["properties"]["name"]["description"] == f"Not {MASK}"
    discovered = target.client.modern("server/discover").json["result"]
    assert discovered["instructions"] == f"Ask for {MASK}."
    for method in ("resources/list", "resources/templates/list", "prompts/list"):
        assert target.client.modern(method).json["result"]


@pytest.mark.parametrize("how", ["base64", "basic", "url", "form", "json", "nested", "repr"])
def test_outputs_contain_no_encoded_secret(target: Target, how: str) -> None:
    said = target.client.text("coded", {"how": how})
    assert said.count("<") == said.count(">") == 3
    assert said.count(MASK) >= 3


@pytest.mark.parametrize("how", ["base64", "url", "json"])
def test_failures_contain_no_encoded_secret(target: Target, how: str) -> None:
    assert target.client.refusal("coded_failure", {"how": how}).count(MASK) >= 3


@pytest.mark.parametrize("tool", ["shown", "stdin", "argv"])
def test_echoed_secret_is_masked(target: Target, tool: str) -> None:
    assert MASK in target.client.text(tool)


def test_binary_content_with_a_secret_is_withheld(target: Target) -> None:
    assert "secret" in target.client.refusal("bytes")


@pytest.mark.parametrize("before", range(0, 48, 3))
def test_truncation_leaves_no_half_of_a_secret(target: Target, before: int) -> None:
    secret = SECRETS["env in an environment"]
    said = target.client.text("flood", {"before": before})
    assert MASK in said
    halves = [secret[:size] for size in range(4, len(secret))] + [secret[-size:] for size in range(4, len(secret))]
    assert [half for half in halves if half in said] == []


@pytest.mark.parametrize("after", range(0, 30, 3))
def test_truncated_failure_leaves_no_half_of_a_secret(target: Target, after: int) -> None:
    secret = SECRETS["env in an environment"]
    said = target.client.refusal("flood_of_errors", {"after": after})
    assert MASK in said
    assert [size for size in range(4, len(secret)) if secret[-size:] in said] == []


def test_progress_contains_no_split_secret(target: Target) -> None:
    params = {"name": "lines", "arguments": {}, "_meta": {"progressToken": "t"}}
    answer = target.client.modern("tools/call", params, fields=[("Accept", "application/json, text/event-stream")])
    told = [message["params"]["message"] for message in answer.messages[:-1]]
    assert told
    assert all(MASK in line for line in told)


FORMS: Final[Mapping[str, Callable[[str], str]]] = {
    "as it is": lambda text: text,
    "in a URL": lambda text: quote(text, safe=""),
    "in a form": quote_plus,
    "in JSON": json.dumps,
    "in base64": lambda text: base64.b64encode(text.encode()).decode(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "500 Internal Server Error"])
def test_backend_responses_are_masked(target: Target, form: str, status: str) -> None:
    echoed = "\n".join(FORMS[form](secret) for secret in SECRETS.values() if secret != SECRETS["signing key"])
    target.backend.answer = echo(echoed, status=status)
    result = target.client.call("get")
    assert result.get("isError", False) is not status.startswith("200")
    assert MASK in result["content"][0]["text"]


def test_json_result_is_masked_in_structure_and_text(target: Target) -> None:
    target.backend.answer = echo(
        json.dumps({SECRETS["file"]: [SECRETS["file with marks"]]}), media_type="application/json"
    )
    assert target.client.call("get")["structuredContent"] == {MASK: [MASK]}


def test_redirect_to_a_closed_port_leaks_no_secret(target: Target) -> None:
    location = f"http://127.0.0.1:9/?key={SECRETS['env in a query']}"
    target.backend.answer = echo("", status="302 Found", more=f"Location: {location}\r\n")
    assert "127.0.0.1" in target.client.refusal("get")


def test_reasons_and_header_fields_of_a_backend_are_masked(target: Target) -> None:
    secret = SECRETS["env in a header"]
    target.backend.answer = echo("no", status=f"418 {secret}", more=f"Location: /{secret}\r\n")
    assert MASK in target.client.refusal("get")


def test_invalid_http_response_leaks_no_secret(target: Target) -> None:
    target.backend.answer = f"{SECRETS['env in a header']} is not HTTP\r\n\r\n".encode()
    assert target.client.refusal("get")


@pytest.mark.parametrize("tool", ["raises", "chained", "thread", "blocks", "structured", "talks"])
def test_plugin_leaks_no_secret(target: Target, tool: str) -> None:
    target.tolerated |= {"plugin raised", "thread failed"}
    meta = {"io.modelcontextprotocol/logLevel": "debug", "progressToken": 1}
    answer = target.client.modern("tools/call", {"name": tool, "arguments": {}, "_meta": meta})
    assert "result" in answer.messages[-1], answer


def test_protocol_error_of_a_plugin_is_masked(target: Target) -> None:
    assert target.client.call("protocol") == {"code": -32000, "message": MASK, "data": {MASK: [MASK]}}


def test_exception_of_a_thread_is_only_logged(target: Target) -> None:
    target.tolerated.add("thread failed")
    before = len(target.log)
    assert target.client.text("thread") == "joined"
    assert MASK in target.event("thread failed", after=before)["exception"]


def test_question_contains_no_secret(target: Target) -> None:
    capabilities: JsonObject = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    answer = target.client.modern("tools/call", {"name": "asks", "arguments": {}, "_meta": capabilities})
    [question] = answer.json["result"]["inputRequests"].values()
    assert question["params"]["message"] == f"Is it {MASK}?"


@pytest.mark.parametrize("uri", ["s://file", "s://spoken", "s:///plain.secret", "s:///marks.secret"])
def test_resource_contains_no_secret(target: Target, uri: str) -> None:
    [contents] = target.client.modern("resources/read", {"uri": uri}).json["result"]["contents"]
    assert MASK in contents["text"]


def test_error_of_an_unreadable_resource_contains_no_secret(target: Target) -> None:
    assert MASK in target.client.modern("resources/read", {"uri": "s://broken"}).json["error"]["message"]


@pytest.mark.parametrize("name", ["written", "spoken"])
def test_prompt_contains_no_secret(target: Target, name: str) -> None:
    [message] = target.client.modern("prompts/get", {"name": name}).json["result"]["messages"]
    assert MASK in json.dumps(message)


def test_completion_suggests_no_secret(target: Target) -> None:
    reference = {"ref": {"type": "ref/prompt", "name": "filled"}, "argument": {"name": "who", "value": ""}}
    answer = target.client.modern("completion/complete", reference)
    assert answer.json["result"]["completion"]["values"] == [MASK]


@pytest.mark.parametrize("secret", SECRETS.values())
def test_secret_sent_by_a_caller_is_not_echoed_in_errors(target: Target, secret: str) -> None:
    """Logs and recordings must not show whether a caller's guess is right."""
    for params in (
        {"name": secret[:60].replace("\n", " ")},
        {"name": "shown", "arguments": {"name": 7, secret: secret}},
    ):
        answer = target.direct.modern("tools/call", params)
        assert answer.status in {200, 400}
    assert secret not in "".join(target.log)


@pytest.mark.parametrize("path", ["/-/status", "/-/config", "/-/ready", "/metrics"])
def test_operator_pages_contain_no_secret(target: Target, path: str) -> None:
    assert target.client.request("GET", path).status == 200


def test_invalid_file_leaks_no_secret(target: Target) -> None:
    target.tolerated.add("reload refused")
    main = target.folder / "main.yaml"
    text = main.read_text()
    try:
        main.write_text(
            f'{text}\nx-a: &a {{ci: "${{env:SEEDED_HEADER}}"}}\nlimits: {{sessions: "${{file:plain.secret}}"}}\n'
        )
        answer = target.client.request("POST", "/-/reload")
        assert answer.json["problems"]
        assert target.client.request("GET", "/-/status").json["problems"]
    finally:
        main.write_text(text)
        assert target.client.request("POST", "/-/reload").json["problems"] == []


def test_audit_log_and_lock_contain_no_secret(target: Target) -> None:
    target.client.text("shown", {"name": SECRETS["file"]})
    (target.folder / "main.yaml").read_text()
    finished = command(target.folder, "lock", str(target.folder))
    assert finished.returncode == 0, finished.stderr
    lock = target.folder / "mcp-gateway.lock"
    records = (target.folder / "audit.log").read_text()
    assert '"name":"shown"' in records
    assert f'"arguments":{{"name":"{MASK}"}}' in records
    assert secrets_in(records, lock.read_text()) == []
    lock.unlink()


def command(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [FORKED, *words],
        cwd=folder,
        env={**seeds.environment(unreachable="http://127.0.0.1:9"), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def secrets_in(*texts: str) -> list[str]:
    """Return the secrets that a text contains."""
    scanner = Scanner([*seeds.written_forms()])
    for text in texts:
        scanner.scan(b"", text.encode())
    return scanner.found


COMMANDS: Final = [
    (["validate", "."], 0),
    (["validate", "--json", "."], 0),
    (["list", "."], 0),
    (["list", ".", "--json"], 0),
    (["call", ".", "shown", "--log-level", "debug"], 0),
    (["call", ".", "argv", "--explain"], 0),
    (["call", ".", "get", "--explain", "--raw"], 0),
    (["call", ".", "form", "--explain"], 0),
    (["call", ".", "body", "--explain"], 0),
    (["call", ".", "stdin", "--explain", "--raw"], 0),
    (["call", ".", "coded", "how=json", "--explain"], 0),
    (["call", ".", "raises", "--log-level", "debug"], 1),
    (["read", ".", "s://file"], 0),
    (["prompt", ".", "spoken"], 0),
    (["lock", "--check", "."], 2),
    (["test", "."], 0),
    (["client-config", "vscode", "."], 0),
]


@pytest.fixture(scope="module")
def folder(daemon: Target) -> Path:
    return daemon.folder


@pytest.mark.parametrize(("words", "code"), COMMANDS, ids=[" ".join(words) for words, _ in COMMANDS])
def test_commands_print_no_secret(folder: Path, words: list[str], code: int) -> None:
    finished = command(folder, *words)
    assert finished.returncode == code, (finished.stdout, finished.stderr)
    assert finished.stdout + finished.stderr
    assert secrets_in(finished.stdout, finished.stderr) == []


def test_plan_shows_no_secret(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text("tools: {}")
    for flags in ([], ["--json"]):
        finished = command(folder, "plan", ".", str(tmp_path / "old.yaml"), *flags)
        assert finished.returncode == 0, finished.stderr
        assert "tools.shown" in finished.stdout
        assert secrets_in(finished.stdout, finished.stderr) == []


@pytest.mark.build
def test_problems_quote_no_short_secret(tmp_path: Path) -> None:
    (tmp_path / "pin").write_text("q7z\n")
    (tmp_path / "config.yaml").write_text(
        """
plugins: ["${file:pin}"]
connections: {c: {base_url: "https://x.example", tls: {ca: "${file:pin}"}}}
tools:
  a: {description: A, http: {connection: "${file:pin}", url: /}}
  b: {description: B, shell: {command: ["${file:pin}"], cwd: "${file:pin}", interpreter: ["${file:pin}"]}}
  c: {description: C, python: "${file:pin}"}
  d: {description: D, shell: {command: [ls]}, output: {select: "${file:pin}["}}
  e: {description: E, shell: {command: [ls]}, requires: {commands: ["${file:pin}"]}}
  f: {description: F, http: {connection: c, url: "/${file:pin}/{x}"}}
resources:
  r: {uri: "r:1", file: "${file:pin}"}
  s: {uri: "s:///{+p}", files: "${file:pin}/*.md"}
"""
    )
    finished = command(tmp_path, "validate", "config.yaml")
    assert finished.returncode == 2
    problems: list[Json] = [line for line in finished.stdout.splitlines() if line.startswith("config.yaml:")]
    assert len(problems) >= 8
    assert "q7z" not in finished.stdout + finished.stderr
