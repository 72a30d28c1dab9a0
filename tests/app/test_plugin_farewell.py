"""A plugin that a reload replaced is shut down, even if the daemon ends in the next moment."""

from datetime import timedelta
from pathlib import Path

from gateway.app.offer import Offer
from gateway.config.loader import load
from gateway.executors.services import running_services

PLUGIN = """\
from pathlib import Path

def shutdown():
    with Path(__file__).with_name("log").open("a") as log:
        log.write("down VERSION\\n")

def say() -> str:
    "Says."
    return "VERSION"
"""


async def test_a_replaced_plugin_is_shut_down_where_the_end_follows_at_once(tmp_path: Path) -> None:
    plugins, main = tmp_path / "plugins", tmp_path / "config.yaml"
    plugins.mkdir()
    main.write_text('plugins: [plugins]\ntools: {say: {python: "words:say"}}\n')
    (plugins / "words.py").write_text(PLUGIN.replace("VERSION", "one"))
    async with running_services() as services:
        loaded = load(main)
        offer = Offer(main, redactor=loaded.redactor, services=services, grace=timedelta(hours=1))
        await offer.open(loaded)
        (plugins / "words.py").write_text(PLUGIN.replace("VERSION", "another"))
        await offer.serve(await offer.build())
        await offer.close()
    assert sorted((plugins / "log").read_text().split("\n")) == ["", "down another", "down one"]
