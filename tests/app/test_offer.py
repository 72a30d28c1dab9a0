"""What is said of the files that are served: a digest of each, and one that is the same wherever the same is served."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.app.offer import Offer
from gateway.config.loader import load
from gateway.config.reading import interpolation
from gateway.executors.services import running_services

FILE = """\
include: [tools.yaml]
plugins: [plugins]
connections: {api: {base_url: https://api.example.com, headers: {Authorization: "${file:token}"}}}
"""
PLUGIN = "def second() -> str:\n    'Second.'\n    return 'WORD'\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "config.yaml").write_text(FILE)
    (tmp_path / "tools.yaml").write_text('tools: {second: {python: "words:second"}}\n')
    (tmp_path / "plugins" / "words.py").write_text(PLUGIN)
    (tmp_path / "token").write_text("hunter2-hunter2")
    return tmp_path


@asynccontextmanager
async def offered(folder: Path) -> AsyncIterator[Offer]:
    async with running_services() as services:
        loaded = load(folder / "config.yaml")
        offer = Offer(folder / "config.yaml", redactor=loaded.redactor, services=services, grace=timedelta(0))
        await offer.open(loaded)
        yield offer
        await offer.close()


async def test_every_file_and_every_directory_of_plugins_has_a_digest(folder: Path) -> None:
    async with offered(folder) as offer:
        files = dict(offer.served.files)
        assert set(files) == {folder / name for name in ("config.yaml", "tools.yaml", "token", "plugins")}
        (folder / "plugins" / "words.py").write_text(PLUGIN.replace("WORD", "another"))
        renewed = (await offer.build()).files
    assert {path.name for path in files if files[path] != renewed[path]} == {"plugins"}


async def test_the_digest_of_all_tells_of_files_and_code(folder: Path) -> None:
    async with offered(folder) as offer:
        seen = [offer.served.digest]
        for name, old, new in (("tools.yaml", "second:", "other:"), ("plugins/words.py", "WORD", "another")):
            changed = folder / name
            changed.write_text(changed.read_text().replace(old, new))
            seen.append((await offer.build()).digest)
    assert len(set(seen)) == 3


async def test_the_digest_of_all_is_the_same_in_every_process_that_serves_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest of a secret has a key that each process draws for itself, so that nobody tries secrets out on it."""
    async with offered(folder) as offer:
        here = offer.served
    monkeypatch.setattr(interpolation, "_KEY", b"of another process")
    async with offered(folder) as offer:
        there = offer.served
    assert here.files[folder / "token"] != there.files[folder / "token"]
    assert here.digest == there.digest
