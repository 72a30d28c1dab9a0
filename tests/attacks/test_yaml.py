"""Hostile files are rejected, and the last valid file stays in service."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attacks import seeds
from tests.attacks.client import Answer
from tests.attacks.target import Plan, Target
from tests.fork_server import FORKED

PLAN = Plan(
    file="""
    tools:
      echo:
        description: Repeat a text.
        input: {text: string}
        content: [{text: "{{ text }}"}]
    """,
    flags=("--no-watch",),
    tolerated=frozenset({"reload refused"}),
)

TOOL: Final = "{description: x, content: [{text: x}]}"
LAUGHS: Final = "x-0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n" + "".join(
    f"x-{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)
MERGES: Final = "x-0: &m0 {a: 1}\n" + "".join(
    f"x-{level}: &m{level}\n  k{level}: {{<<: [{', '.join([f'*m{level - 1}'] * 9)}], n: *m{level - 1}}}\n"
    for level in range(1, 12)
)
WIDE: Final = f"x-a: &a [{', '.join(['x'] * 20_000)}]\nx-b: [{', '.join(['*a'] * 20_000)}]\n"


def tool(member: str, *, text: str = "x") -> str:
    description = "" if member.startswith("description") else "description: x, "
    return f'tools: {{a: {{{description}{member}, content: [{{text: "{text}"}}]}}}}'


def header(value: str) -> str:
    return f"connections: {{c: {{base_url: 'https://x.example', headers: {{A: '{value}'}}}}}}"


REJECTED: Final[dict[str, str | bytes]] = {
    "a bomb of aliases": LAUGHS + "tools: {bomb: {description: x, meta: {a: *a11}, content: [{text: x}]}}",
    "a bomb of merges": MERGES + "tools: {bomb: {description: x, meta: *m11, content: [{text: x}]}}",
    "a wide bomb": WIDE + "tools: {bomb: {description: x, meta: {a: [*a, *a]}, content: [{text: x}]}}",
    "an alias of itself": f"tools: {{bomb: &b {{description: x, meta: {{a: *b}}, content: []}}, t: {TOOL}}}",
    "a merge of itself": "tools: &t {<<: *t}",
    "unclosed nesting": "x-deep: " + "[" * 100_000,
    "closed nesting": "x-deep: " + "[" * 5000 + "]" * 5000,
    "nesting by dashes": "x-deep:\n " + "- " * 5000 + "x",
    "nesting by question marks": "? " * 5000 + "x",
    "an endless file": "x-long: " + "a" * (11 * 2**20),
    "a Python object": "tools: !!python/object/apply:os.system ['touch @payload_file@']",
    "a Python name": "tools: {t: {description: !!python/name:os.environ '', content: []}}",
    "a Python module": "tools: {t: !!python/module:os ''}",
    "a local tag": "tools: {t: !include seeded.yaml}",
    "a tag of Python": "%TAG ! tag:evil.example,2000:\n---\ntools: {t: !run x}",
    "binary": "tools: {t: {description: !!binary aGk=, content: [{text: x}]}}",
    "a set": "tools: !!set {a, b}",
    "a timestamp": "tools: {t: {description: !!timestamp 2001-12-14, content: [{text: x}]}}",
    "a list as a key": "? [a, b]\n: c",
    "a mapping as a key": "? {a: b}\n: c",
    "a number as a key": "tools: {1: {}}",
    "a duplicate key": f"tools: {{a: {TOOL}, a: {TOOL}}}",
    "a duplicate key by a merge": f"x-a: &a {{a: {TOOL}}}\ntools: {{<<: *a, <<: *a}}",
    "a name in two files": f"tools: {{echo: {TOOL}}}",
    "two documents": f"tools: {{a: {TOOL}}}\n---\ntools: {{b: {TOOL}}}",
    "YAML of the future": "%YAML 9.9\n---\ntools: {}",
    "a key of Python's": f"__class__: {{}}\ntools: {{a: {TOOL}}}",
    "a section of the main file": "listen: {http: 0.0.0.0:1}\nserver: {name: other}\nlimits: {}\nauth: {}",
    "NUL": b"tools: {a\0: {}}",
    "a control character": b"tools: {a\x07b: {}}",
    "a terminal escape": b"tools: {'\x1b[2J': {}}",
    "UTF-16": "tools: {}".encode("utf-16"),
    "no UTF-8": b"tools: {\xff\xfe: {}}",
    "Latin-1": "tools: {ä: {}}".encode("latin-1"),
    "a surrogate": b"tools: {\xed\xa0\x80: {}}",
    "tabs": "tools:\n\ta: x",
    "an include of itself": "include: [attack.yaml]",
    "an indirect include of itself": "include: [included/back.yaml]",
    "an include of a link to itself": "include: [included/self.yaml]",
    "an include of a directory": "include: [included/folder.yaml]",
    "an include of a pipe": "include: [included/pipe.yaml]",
    "an include of a device": "include: [included/zero.yaml]",
    "an include of a missing file": "include: [included/none.yaml]",
    "an include of another file type": "include: [@canary@]",
    "an include with NUL": 'include: ["a\\0.yaml"]',
    "an include of a URL": "include: ['http://127.0.0.1:@port@/x.yaml']",
    "a secret in a field visible to clients": tool("description: '${file:@canary@}'"),
    "a secret in a prompt": "prompts: {a: {messages: [{user: '${file:@canary@}'}]}}",
    "a secret in a text": "resources: {a: {uri: 'a:b', text: '${file:@canary@}'}}",
    "a secret in a schema": tool("input: {b: {const: '${file:@canary@}'}}"),
    "a secret in fixed content": "tools: {a: {description: x, content: [{text: '${file:@canary@}'}]}}",
    "a secret in a key": "tools: {'${file:@canary@}': {description: x, content: [{text: x}]}}",
    "a secret from a pipe": header("${file:included/pipe.yaml}"),
    "a secret from a device": header("${file:/dev/zero}"),
    "a secret from a directory": header("${file:/}"),
    "a secret from a missing file": header("${file:/nowhere/at/all}"),
    "a secret within a secret": header("${file:${env:HOME}}"),
    "a command in braces": "tools: {a: {description: '${sh:touch @payload_file@}', content: [{text: x}]}}",
    "prompts from a pipe": "prompt_files: [included/pipe.md]",
    "prompts from a device": "prompt_files: [included/zero.md]",
    "prompts with an alias bomb": "prompt_files: [included/bomb.md]",
    "prompts with a Python object": "prompt_files: [included/object.md]",
    "prompts with unclosed front matter": "prompt_files: [included/open.md]",
    "plugins from a pipe": "plugins: [included/pipe.yaml]",
    "an invalid pattern": tool("input: {b: {type: string, pattern: '(a'}}"),
    "a catastrophic pattern": tool("input: {b: {type: string, pattern: '((a{1000}){1000}){1000}'}}"),
    "a template with a call": tool("title: x", text="{{ [].append(1) }}"),
    "a template with a multiplication": tool("title: x", text="{{ 'x' * 10 ** 9 }}"),
    "a template with an include": tool("title: x", text="{% include '@canary@' %}"),
    "a schema from a URL": tool("input_schema: {type: object, $ref: 'http://127.0.0.1:@port@/s.json'}"),
    "a schema from a file": tool("input_schema: {type: object, $ref: 'file://@canary@'}"),
}


@contextmanager
def attacked(target: Target, text: str | bytes) -> Iterator[Answer]:
    """Reload with an additional file, and return the error. The file is removed afterwards."""
    path = target.folder / "attack.yaml"
    if isinstance(text, str):
        for name, value in (
            ("canary", target.canary.file),
            ("payload_file", target.canary.payload_file),
            ("port", target.canary.port),
        ):
            text = text.replace(f"@{name}@", str(value))
        text = text.encode()
    path.write_bytes(text)
    try:
        yield target.client.request("POST", "/-/reload")
    finally:
        path.unlink()


@pytest.fixture(scope="module", autouse=True)
def _included(daemon: Target) -> None:
    folder = daemon.folder / "included"
    folder.mkdir()
    (folder / "folder.yaml").mkdir()
    (folder / "back.yaml").write_text("include: [../attack.yaml]")
    (folder / "self.yaml").symlink_to("../attack.yaml")
    for suffix in ("yaml", "md"):
        os.mkfifo(folder / f"pipe.{suffix}")
        (folder / f"zero.{suffix}").symlink_to("/dev/zero")
    (folder / "bomb.md").write_text(f"---\n{LAUGHS}description: *a11\n---\ntext")
    (folder / "object.md").write_text(
        f"---\ndescription: !!python/object/apply:os.system ['touch {daemon.canary.payload_file}']\n---\ntext"
    )
    (folder / "open.md").write_text("---\ndescription: x\n")


@pytest.mark.parametrize("text", REJECTED.values(), ids=list(REJECTED))
def test_hostile_file_is_rejected_and_the_last_valid_one_stays(target: Target, text: str | bytes) -> None:
    with attacked(target, text) as answer:
        assert (answer.status, bool(answer.json["problems"])) == (422, True), answer
        assert sum(map(len, answer.json["problems"])) < 2**20
        assert target.client.text("echo", {"text": "still"}) == "still"
        assert target.client.modern("tools/list").json["result"]["tools"]
    assert target.client.request("POST", "/-/reload").status == 200


ACCEPTED: Final[dict[str, str]] = {
    "anchors and merges": "x-a: &a {description: x, content: [{text: x}]}\ntools: {a: *a, b: {<<: *a, title: b}}",
    "an include of a parent directory": "include: [included/../included/good.yaml]",
    "names of JavaScript": f"tools: {{constructor: {TOOL}, toString: {TOOL}}}",
    "braces of other templates": "tools: {a: {description: '$${file:/etc/passwd}', content: [{text: x}]}}",
    "words that YAML 1.1 took for something else": f"tools: {{'no': {TOOL}, y: {TOOL}, 'null': {TOOL}}}",
    "nesting below the limit": "x-deep: " + "[" * 30 + "]" * 30,
    "a long text": f"tools: {{a: {{description: '{'long ' * 20_000}', content: [{{text: x}}]}}}}",
}


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=list(ACCEPTED))
def test_file_that_only_looks_hostile_is_served(target: Target, text: str) -> None:
    (target.folder / "included" / "good.yaml").write_text(f"tools: {{good: {TOOL}}}")
    with attacked(target, text) as answer:
        assert (answer.status, answer.json["problems"]) == (200, [])
    assert target.client.request("POST", "/-/reload").status == 200


@given(
    text=st.text(alphabet=st.sampled_from(list("tools:ab{}[]&*!|>%@`'\"#,?-<\n \t\x00\x85\ufeff${}~=")), max_size=80)
)
def test_any_characters_are_a_valid_file_or_a_problem(target: Target, text: str) -> None:
    with attacked(target, text) as answer:
        assert answer.status in {200, 422}
        assert (answer.status == 422) == bool(answer.json["problems"])


@pytest.mark.build
def test_escape_in_a_file_does_not_reach_the_terminal(target: Target) -> None:
    """Problems contain names from files of other authors."""
    names = r'"\e[31m": 1, "\u009b31m": 1, "a\nb": 1, "\u202e": 1, "\a": 1'
    text = f"tools: {{a: {{description: x, {names}, content: [{{text: x}}]}}}}"
    with attacked(target, text) as answer:
        assert (answer.status, len(answer.json["problems"])) == (422, 5)
        known = seeds.environment(unreachable="http://x")
        command = [FORKED, "validate", str(target.folder)]
        shown = subprocess.run(command, check=False, capture_output=True, text=True, env=known)
    assert shown.returncode == 2
    assert len(shown.stderr + shown.stdout) > 200
    assert all(line.isprintable() for line in (shown.stderr + shown.stdout).split("\n"))
    assert all(line.rstrip("\n").isprintable() for line in target.log)
