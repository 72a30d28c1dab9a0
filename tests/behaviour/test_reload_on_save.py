"""Every way to change a file causes exactly one reload and one notification on each kind of stream."""

import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from gateway.json_types import JsonObject
from tests.behaviour.cells import HTTP, LATEST, Cell
from tests.behaviour.following import CHANGED, UPDATED, Followed, Listener, following, save
from tests.certificates import Authority

MODERN: Final = Cell(binding=HTTP, revision=LATEST)
MAIN: Final = """
    include: [tools.d/*.yaml]
    plugins: [plugins]
    prompt_files: [prompts/*.md]
    skills: [skills/*]
    tools:
      plain: {description: Plain., content: [{text: plain}]}
      counted: {python: "words:counted"}
      secret:
        description: Returns the length of the secret.
        shell: {script: 'printf %s "$KEY" | wc -c', env: {KEY: "${file:secrets/key}"}}
    resources:
      docs: {description: Pages., files: "docs/**/*.md"}
      note: {description: A note., uri: "note:one", text: first}
      page: {description: A page., uri: "page:one", file: page.txt}
"""
FILES: Final = {
    "config.yaml": MAIN,
    "tools.d/one.yaml": "tools: {one: {description: One., content: [{text: one}]}}",
    "plugins/words.py": 'def counted() -> str:\n    """Counts."""\n    return "1"\n',
    "prompts/hello.md": "---\ndescription: Hello.\n---\nhello\n",
    "secrets/key": "12345",
    "docs/a.md": "one",
    "docs/deep/b.md": "one",
    "page.txt": "one",
    "skills/one/SKILL.md": "---\nname: one\ndescription: One.\n---\n",
    "skills/one/references/a.md": "one",
}
WATCHED: Final = ("docs:///a.md", "note:one", "page:one")
TOOLS, PROMPTS, RESOURCES = (CHANGED.format(kind) for kind in ("tools", "prompts", "resources"))

Edit = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        save(tmp_path / name, text)
    return tmp_path


def replaced(name: str, old: str, new: str) -> Edit:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        save(folder / name, text.replace(old, new))

    return edit


def in_place(name: str, old: str, new: str) -> Edit:
    return lambda folder: (folder / name).write_text((folder / name).read_text().replace(old, new))


def added(name: str, text: str) -> Edit:
    def edit(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        save(folder / name, text)

    return edit


def several(folder: Path) -> None:
    save(folder / "prompts/hello.md", "---\ndescription: Hi.\n---\nhello\n")
    save(folder / "docs/a.md", "three")
    save(folder / "docs/z.md", "new")
    save(folder / "tools.d/one.yaml", "tools: {won: {description: Won., content: []}}")


EDITS: Final[dict[str, tuple[Edit, Sequence[str]]]] = {
    "save by rename": (replaced("config.yaml", "plain: {", "renamed: {"), [TOOLS]),
    "write in followed": (in_place("config.yaml", "plain: {", "renamed: {"), [TOOLS]),
    "description alone": (replaced("config.yaml", "Plain.", "Plainer."), [TOOLS]),
    "unchanged": (replaced("config.yaml", "Plain.", "Plain."), []),
    "touched": (lambda folder: os.utime(folder / "config.yaml"), []),
    "a comment": (in_place("config.yaml", "Plain.,", "Plain.,   "), []),
    "included file": (replaced("tools.d/one.yaml", "One.", "The one."), [TOOLS]),
    "new included file": (added("tools.d/two.yaml", "tools: {two: {description: Two., content: []}}"), [TOOLS]),
    "removed included file": (lambda folder: (folder / "tools.d/one.yaml").unlink(), [TOOLS]),
    "plugin's docstring": (replaced("plugins/words.py", "Counts.", "Counts up."), [TOOLS]),
    "plugin's code": (replaced("plugins/words.py", 'return "1"', 'return "2"'), []),
    "new file of the plugin": (added("plugins/more.py", "MORE = 1"), []),
    "secret": (in_place("secrets/key", "12345", "1234567"), []),
    "prompt alone": (replaced("prompts/hello.md", "Hello.", "Hello!"), [PROMPTS]),
    "new prompt file": (added("prompts/bye.md", "bye\n"), [PROMPTS]),
    "prompt's text": (replaced("prompts/hello.md", "\nhello", "\nhello!"), []),
    "new file of a glob": (added("docs/c.md", "one"), [RESOURCES]),
    "new file in a new directory": (added("docs/new/c.md", "one"), [RESOURCES]),
    "removed file of a glob": (lambda folder: (folder / "docs/deep/b.md").unlink(), [RESOURCES]),
    "written file": (in_place("docs/a.md", "one", "two"), [UPDATED]),
    "replaced file": (replaced("docs/a.md", "one", "two"), [UPDATED]),
    "written file without subscriptions": (in_place("docs/deep/b.md", "one", "two"), []),
    "written file of one resource": (in_place("page.txt", "one", "two"), [UPDATED]),
    "resource's text": (replaced("config.yaml", "text: first", "text: second"), [UPDATED]),
    "resource's description": (replaced("config.yaml", "A note.", "The note."), [RESOURCES]),
    "written file of a skill": (in_place("skills/one/references/a.md", "one", "two"), [RESOURCES]),
    "replaced SKILL.md": (replaced("skills/one/SKILL.md", "One.", "The one."), [RESOURCES]),
    "touched file of a skill": (lambda folder: os.utime(folder / "skills/one/references/a.md"), []),
    "new file of a skill": (added("skills/one/b.md", "one"), [RESOURCES]),
    "new skill": (added("skills/two/SKILL.md", "---\nname: two\ndescription: Two.\n---\n"), [RESOURCES]),
    "removed skill": (lambda folder: shutil.rmtree(folder / "skills/one"), [RESOURCES]),
    "everything at once": (several, [TOOLS, PROMPTS, RESOURCES, UPDATED]),
}


@pytest.mark.parametrize(("edit", "told"), EDITS.values(), ids=EDITS)
async def test_edit_is_one_reload_and_announced_once(folder: Path, edit: Edit, told: Sequence[str]) -> None:
    async with following(folder / "config.yaml") as followed:
        listeners = await followed.listeners(*WATCHED)
        edit(folder)
        await one_more_generation(followed, listeners, told)


async def one_more_generation(followed: Followed, listeners: list[Listener], told: Sequence[str]) -> None:
    """Check that an edit causes exactly one notification. A second edit shows that there was no other."""
    for listener in listeners:
        for method in told:
            await listener.notification(method)
    before = (await followed.until(lambda status: status["generation"] > 1))["generation"]
    assert before == 2
    save(followed.config.parent / "prompts" / "last.md", "last\n")
    for listener in listeners:
        await listener.notification(PROMPTS)
        assert listener.received() == []
    assert await followed.generation() == before + 1


async def test_new_code_and_secrets_are_used_without_announcements(folder: Path) -> None:
    async with following(folder / "config.yaml") as followed:
        client = await followed.client(MODERN)
        assert [(await client.call(tool)).text.strip() for tool in ("counted", "secret")] == ["1", "5"]
        replaced("plugins/words.py", 'return "1"', 'return "2"')(folder)
        in_place("secrets/key", "12345", "1234567")(folder)
        await followed.until(lambda status: status["generation"] > 1)
        assert [(await client.call(tool)).text.strip() for tool in ("counted", "secret")] == ["2", "7"]


async def test_configmap_update_is_one_reload(tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    for version in ("..v1", "..v2"):
        (mounted / version / "tools.d").mkdir(parents=True)
        (mounted / version / "config.yaml").write_text("include: [tools.d/*.yaml]")
        (mounted / version / "tools.d" / "x.yaml").write_text(f"tools: {{{version.strip('.')}: {{content: []}}}}")
    (mounted / "..data").symlink_to("..v1")
    for name in ("config.yaml", "tools.d"):
        (mounted / name).symlink_to(f"..data/{name}")
    async with following(mounted / "config.yaml") as followed:
        listeners = await followed.listeners()
        (mounted / "..data_tmp").symlink_to("..v2")
        (mounted / "..data_tmp").replace(mounted / "..data")
        shutil.rmtree(mounted / "..v1")
        for listener in listeners:
            await listener.notification(TOOLS)
        status = await followed.until(lambda status: status["generation"] > 1)
        assert list(status["tools"]) == ["v2"]
        (mounted / "..v2" / "tools.d" / "y.yaml").write_text("tools: {later: {content: []}}")
        for listener in listeners:
            await listener.notification(TOOLS)
            assert listener.received() == []
        assert await followed.generation() == 3


@pytest.mark.parametrize("directory", ["tools.d", "docs", "plugins"])
async def test_recreated_directory_is_watched_again(folder: Path, directory: str) -> None:
    files = {name: text for name, text in FILES.items() if name.startswith(f"{directory}/")}
    async with following(folder / "config.yaml") as followed:
        shutil.rmtree(folder / directory)
        await followed.until(lambda status: status["generation"] > 1 or bool(status["problems"]))
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            save(folder / name, text)
        await followed.until(lambda status: not status["problems"] and "one" in status["tools"])
        listener = await followed.listener("listen")
        name = {"tools.d": "tools.d/one.yaml", "plugins": "plugins/words.py", "docs": "docs/new.md"}[directory]
        save(folder / name, files.get(name, "").replace("One.", "Won.").replace("Counts.", "Sums."))
        await listener.notification(RESOURCES if directory == "docs" else TOOLS)


async def test_recreated_root_directory_is_watched_again(folder: Path) -> None:
    etc = folder / "etc"
    etc.mkdir()
    save(etc / "config.yaml", "tools: {one: {content: []}}")
    async with following(etc / "config.yaml") as followed:
        for name in ("two", "three"):
            shutil.rmtree(etc)
            await followed.until(lambda status: bool(status["problems"]))
            etc.mkdir()
            save(etc / "config.yaml", f"tools: {{{name}: {{content: []}}}}")
            await followed.until(partial(_serves, name))


async def test_file_replaced_by_a_directory_and_back_is_one_reload_each(tmp_path: Path) -> None:
    config, directory, aside = tmp_path / "config.yaml", tmp_path / "aside", tmp_path / "former"
    save(config, "tools: {one: {content: []}}")
    directory.mkdir()
    save(directory / "a.yaml", "tools: {two: {content: []}}")
    async with following(config) as followed:
        listeners = await followed.listeners()
        for generation, tool in ((2, "two"), (3, "one")):
            config.rename(aside)
            directory.rename(config)
            aside.rename(directory)
            for listener in listeners:
                await listener.notification(TOOLS)
            await followed.until(partial(_serves, tool))
            assert await followed.generation() == generation
        assert [listener.received() for listener in listeners] == [[]] * len(listeners)


async def test_included_file_replaced_by_a_directory_is_a_problem(folder: Path) -> None:
    included = folder / "tools.d" / "one.yaml"
    async with following(folder / "config.yaml") as followed:
        listener = await followed.listener("listen")
        included.rename(folder / "kept.yaml")
        included.mkdir()
        status = await followed.until(lambda status: bool(status["problems"]))
        assert "is a directory" in status["problems"][0]
        included.rmdir()
        save(included, "tools: {back: {description: Back., content: []}}")
        await listener.notification(TOOLS)
        assert (await followed.until(partial(_offers, "back")))["problems"] == []
        assert listener.received() == []


def _offers(tool: str, status: JsonObject) -> bool:
    return tool in status["tools"]


def _serves(tool: str, status: JsonObject) -> bool:
    return list(status["tools"]) == [tool]


async def test_creating_a_missing_file_repairs_a_rejected_configuration(folder: Path) -> None:
    async with following(folder / "config.yaml") as followed:
        save(folder / "config.yaml", 'include: [more.yaml]\nresources: {wiki: {files: "pages/*.md"}}')
        await followed.until(lambda status: bool(status["problems"]))
        (folder / "pages").mkdir()
        save(folder / "more.yaml", "tools: {more: {content: []}}")
        await followed.until(lambda status: not status["problems"] and list(status["tools"]) == ["more"])


NAMES: Final = {
    "a picture": ("tools: {show: {content: [{image: art/it.png}]}}", "art/it.png"),
    "an embedded file": ("tools: {show: {content: [{resource: {uri: 'x:y', file: it.txt}}]}}", "it.txt"),
    "a prompt's recording": ("prompts: {show: {messages: [user: {audio: it.wav}]}}", "it.wav"),
    "a connection's authority": ("connections: {api: {base_url: 'https://example.com', tls: {ca: ca.pem}}}", "ca.pem"),
}


@pytest.mark.parametrize(("text", "name"), NAMES.values(), ids=NAMES)
async def test_creating_a_named_file_repairs_the_configuration(folder: Path, text: str, name: str) -> None:
    async with following(folder / "config.yaml") as followed:
        save(folder / "config.yaml", text)
        status = await followed.until(lambda status: bool(status["problems"]))
        assert name in status["problems"][0]
        added(name, Authority().pem)(folder)
        await followed.until(lambda status: not status["problems"])


async def test_renewed_client_certificate_is_used(folder: Path) -> None:
    authority = Authority()
    names = [folder / "ours.pem", folder / "ours.key"]
    authority.issue(*names)
    save(
        folder / "config.yaml",
        "connections: {api: {base_url: 'https://example.com', tls: {cert: ours.pem, key: ours.key}}}",
    )
    async with following(folder / "config.yaml") as followed:
        authority.issue(*names)
        await followed.until(lambda status: status["generation"] == 2 and not status["problems"])
