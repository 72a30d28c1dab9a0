"""Runs commands in this process or in another one, with a small file."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.fork_server import FORKED

CONFIG: Final = """\
server: {name: small}
tools:
  greet:
    description: |
      Say hello.
      And more.
    input: {name: string, loud: {type: boolean, default: false}}
    content: "Hello, {{ name }}{% if loud %}!{% endif %}"
  add:
    description: Add two numbers.
    input: {a: {type: integer, title: One}, b: {type: integer, title: Another}}
    shell: {script: 'echo $((INPUT_A + INPUT_B))'}
  figures:
    description: Some figures.
    shell: {command: [echo, '{"a": [1]}']}
    output: {schema: {type: object}}
  fail:
    description: Fail.
    content: It did not work.
    is_error: true
  steps:
    description: Take two steps.
    shell: {script: 'echo one; echo two', progress: stdout}
  picture:
    description: A picture.
    content: {image: {base64: AAEC, mime_type: image/png}}
  flood:
    description: Many lines.
    shell: {command: [seq, "100000"]}
    output: {max_size: 1MiB}
  hang:
    description: Never ends.
    shell: {command: [sleep, "600"]}
resources:
  about: {uri: "about://this", text: "About this.", mime_type: text/plain}
  item: {uri: "item://{id}", text: "Item {{ id }}"}
prompts:
  ask:
    description: Ask about something.
    arguments: {what: {required: true}, tone: {default: kind}}
    messages:
      - user: "What is {{ what }}? Be {{ tone }}."
      - assistant: Let me think.
"""


class Finished(NamedTuple):
    code: int
    out: str
    hints: str


Run = Callable[..., Finished]


@contextmanager
def started(*words: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [FORKED, *words],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("MCP_GATEWAY_")},
            "MCP_GATEWAY_STATE_DIR": "none",
        },
    ) as child:
        try:
            yield child
        finally:
            child.kill()
