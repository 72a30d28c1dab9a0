"""Plugin functions that never return can block other plugin functions, but not the daemon."""

from pathlib import Path

from tests.behaviour.daemons import one_process
from tests.behaviour.following import STREAMS, following

FILE = """
listen: {http: "127.0.0.1:0"}
plugins: [plugins]
limits: {threads: 2}
tools:
  hangs: {python: "house:hangs", timeout: 200ms, concurrency: 8}
  version: {python: "house:version"}
  much: {description: Prints much., shell: {command: [seq, "300000"]}}
resources:
  note: {uri: "note:a", file: note.txt}
  docs: {files: docs/*.md}
"""
PLUGIN = """
import threading

def hangs() -> str:
    "Wait forever."
    threading.Event().wait()
    return "at last"

async def version() -> str:
    "Return the version of the code."
    return VERSION

VERSION = "first"
"""
FIXED = PLUGIN.replace('"first"', '"none"') + "\ndef startup():\n    global VERSION\n    VERSION = 'started'\n"


@one_process("the calls must fill the threads of one process")
async def test_hung_functions_do_not_block_other_work(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(FILE)
    for name, text in {"plugins/house.py": PLUGIN, "note.txt": "a note", "docs/a.md": "a page"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    async with following(tmp_path / "config.yaml") as followed:
        client = await followed.client(STREAMS["listen"])
        for _ in range(2):
            assert "timed out" in (await client.call("hangs")).text
        status = await followed.until(lambda status: status["threads_stuck"] == 2)
        assert (status["threads"], status["worker_threads"], status["worker_threads_stuck"]) == (2, 0, 0)
        assert "all plugin threads were busy" in (await client.call("hangs")).text
        for uri, text in (("note:a", "a note"), ("docs:///a.md", "a page")):
            assert (await client.ask("resources/read", {"uri": uri})).result["contents"][0]["text"] == text
        assert (await client.call("much")).text.startswith("1\n2\n")
        (tmp_path / "plugins" / "house.py").write_text(FIXED)
        await followed.until(lambda status: status["generation"] > 1 or bool(status["problems"]))
        assert (await client.call("version")).text == "started"
