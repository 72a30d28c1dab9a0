"""Tests for shutting down replaced plugins."""

from datetime import timedelta
from pathlib import Path

from tests.reload.pipelines import opened, refused, reload

PLUGIN = """\
from pathlib import Path

def shutdown():
    with Path(__file__).with_name("log").open("a") as log:
        log.write("down VERSION\\n")

def say() -> str:
    "Says."
    return "VERSION"
"""


async def test_replaced_plugin_is_shut_down_at_an_immediate_exit(tmp_path: Path) -> None:
    plugins, main = tmp_path / "plugins", tmp_path / "config.yaml"
    plugins.mkdir()
    main.write_text('plugins: [plugins]\ntools: {say: {python: "words:say"}}\n')
    (plugins / "words.py").write_text(PLUGIN.replace("VERSION", "one"))
    async with opened(main, grace=timedelta(hours=1)) as pipeline:
        (plugins / "words.py").write_text(PLUGIN.replace("VERSION", "another"))
        await reload(pipeline)
    assert sorted((plugins / "log").read_text().split("\n")) == ["", "down another", "down one"]


HOOKED = """\
from pathlib import Path

LOG = Path(__file__).with_name("log")

def note(what):
    with LOG.open("a") as log:
        log.write(what + " VERSION\\n")

def startup():
    note("up")

def shutdown():
    note("down")

def say() -> str:
    "Says."
    return "VERSION"
"""


async def test_reverted_change_keeps_the_plugin_running(tmp_path: Path) -> None:
    plugins, main = tmp_path / "plugins", tmp_path / "config.yaml"
    plugins.mkdir()
    main.write_text('plugins: [plugins]\ntools: {say: {python: "words:say"}}\n')

    def save(version: str) -> None:
        (plugins / "words.py").write_text(HOOKED.replace("VERSION", version))

    save("one")
    async with opened(main, grace=timedelta(hours=1)) as pipeline:
        for version in ("two", "one", "two", "one"):
            save(version)
            await reload(pipeline)
        assert (plugins / "log").read_text().splitlines() == ["up one", "up two"]
    assert sorted((plugins / "log").read_text().splitlines()) == ["down one", "down two", "up one", "up two"]


async def test_reverted_change_in_a_rejected_file_leaves_no_plugin_running(tmp_path: Path) -> None:
    plugins, main = tmp_path / "plugins", tmp_path / "config.yaml"
    plugins.mkdir()
    main.write_text('plugins: [plugins]\ntools: {say: {python: "words:say"}}\n')
    (plugins / "words.py").write_text(HOOKED.replace("VERSION", "one"))
    async with opened(main, grace=timedelta(hours=1)) as pipeline:
        (plugins / "words.py").write_text(HOOKED.replace("VERSION", "two"))
        await reload(pipeline)
        (plugins / "words.py").write_text(HOOKED.replace("VERSION", "one"))
        (tmp_path / "more").mkdir()
        (tmp_path / "more" / "bad.py").write_text("def startup(): 1 / 0\ndef f() -> str:\n    return ''\n")
        main.write_text('plugins: [plugins, more]\ntools: {say: {python: "words:say"}, f: {python: "bad:f"}}\n')
        [problem] = await refused(pipeline)
        assert "startup() of bad raised" in problem
    assert sorted((plugins / "log").read_text().splitlines()) == ["down one", "down two", "up one", "up two"]
