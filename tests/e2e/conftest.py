"""A configuration with tools that misbehave in many ways."""

from pathlib import Path
from textwrap import dedent

import pytest

from tests.programs import IS_PORTABLE

PLUGIN = """
    import asyncio, os, subprocess, sys, threading, time

    print("import: this must not reach the wire")
    os.write(1, b"import: nor must this\\n")

    def noisy(text: str = "") -> str:
        print("call: this must not reach the wire")
        sys.stdout.write("call: without a line end")
        sys.stdout.flush()
        os.write(1, b"call: straight to the descriptor\\n")
        os.system("echo call: a child of a plugin")
        subprocess.run(["cat"], check=True)  # standard input must be empty, not the wire
        print("left in the buffer until exit", end="")
        return text

    def stuck() -> str:
        time.sleep(3600)
        return "never"

    async def stubborn() -> str:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass

    async def blocking(path: str) -> str:
        with open(path, "w") as file:
            file.write("blocked\\n")
        time.sleep(3600)
        return "never"

    def thread() -> str:
        threading.Thread(target=time.sleep, args=(3600,)).start()
        return "a thread was left behind"

    async def slow(seconds: float = 0.3) -> str:
        await asyncio.sleep(seconds)
        return "slept"

    def quits() -> str:
        sys.exit(3)
"""

CONFIG = """
    plugins: [plugins]
    limits: {threads: 8}
    listen: {http: "127.0.0.1:0"}
    tools:
      echo:
        description: Repeat a text.
        input: {text: string}
        content: [{text: "{{ text }}"}]
      noisy: {python: "house:noisy"}
      stuck: {python: "house:stuck"}
      stubborn: {python: "house:stubborn"}
      blocking: {python: "house:blocking"}
      thread: {python: "house:thread"}
      slow: {python: "house:slow"}
      quits: {python: "house:quits"}
      shout:
        description: A child that writes to both outputs.
        shell: {script: "echo out; echo err >&2"}
      sleepy:
        description: A child that sleeps, after it has written who it is.
        input: {path: string}
        shell:
          script: |
            echo $$ > "$INPUT_PATH"
            exec sleep 3600
      deaf:
        description: A child that ignores TERM and leaves a child process.
        input: {path: string}
        shell:
          script: |
            trap '' TERM
            setsid sleep 3600 &
            echo $$ $! > "$INPUT_PATH"
            while :; do sleep 3600; done
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "house.py").write_text(dedent(PLUGIN))
    path = tmp_path / "config.yaml"
    # Without facilities of Linux, a child in a separate session survives its call.
    path.write_text(dedent(CONFIG).replace("setsid ", "" if IS_PORTABLE else "setsid "))
    return path
