"""A lock pins every part of a definition, but no secrets, and nothing that depends on the machine."""

import json
from pathlib import Path

import pytest

from gateway.catalog.compile.compiler import compile_catalog
from gateway.catalog.digests import DefinitionDigests
from gateway.catalog.lock import Lock, differences, parsed, read_lock, rendered
from gateway.catalog.plugins import Plugins
from gateway.config.loader import load
from gateway.errors import ConfigError, Severity
from gateway.executors.shared_services import Services

FILES = {
    "config.yaml": """
        server: {instructions: Be careful.}
        include: [more/*.yaml]
        plugins: [plugins]
        connections:
          c: {base_url: "https://c.example", headers: {Authorization: "Bearer ${file:token}"}}
        tools:
          a: {description: A, shell: {command: [echo, "${env:PLACE}"], cwd: .}}
          h: {description: H, http: {connection: c, url: /}}
          p: {python: "sums:add"}
        resources:
          r: {uri: "r://x", text: R}
          f: {uri: "f:///{+path}", files: "*.yaml"}
        prompts:
          q:
            description: Q
            arguments: {n: {description: N, complete: {python: "sums:names"}}}
            messages: [{user: "{{ n }}"}]
        prompt_files: [m.md]
        skills: [skills/*]
    """,
    "skills/s/SKILL.md": "---\nname: s\ndescription: S\n---\n",
    "skills/s/data/a.txt": "one",
    "more/b.yaml": "tools: {b: {description: B, content: b}}",
    "m.md": "---\ndescription: M\n---\nTell a story.",
    "token": "a-first-secret",
    "plugins/sums.py": 'def add(n: int) -> int:\n    "Add."\n    return n\ndef names(value): return []\n',
}


def write(folder: Path, **changes: str) -> Path:
    for name, text in {**FILES, **changes}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "config.yaml"


def pins(services: Services, main: Path, *, place: str = "here") -> DefinitionDigests:
    plugins = Plugins()
    try:
        loaded = load(main, environ={"PLACE": place})
        return compile_catalog(loaded, services=services, plugins=plugins, generation=1).pins
    finally:
        plugins.close()


@pytest.fixture
def before(tmp_path: Path, services: Services) -> DefinitionDigests:
    return pins(services, write(tmp_path))


def test_every_part_of_a_definition_is_pinned(before: DefinitionDigests) -> None:
    assert {".".join(name): sorted(pin) for name, pin in before.items()} == {
        "server.instructions": ["definition"],
        "tools.a": ["definition"],
        "tools.b": ["definition"],
        "tools.h": ["connection", "definition"],
        "tools.p": ["code", "definition"],
        "resources.r": ["definition"],
        "resources.f": ["definition"],
        "prompts.q": ["code", "definition"],
        "prompts.m": ["definition"],
        "skills.s": ["definition", "files"],
    }


def test_digest_ignores_secrets_machine_order_comments_and_layout(
    tmp_path: Path, services: Services, before: DefinitionDigests
) -> None:
    (elsewhere := tmp_path / "elsewhere" / "deeper").mkdir(parents=True)
    text = FILES["config.yaml"].replace("          h: {", "          h:   {  # a comment\n            ")
    tool = next(line for line in text.splitlines() if "p: {python" in line)
    text = text.replace(f"{tool}\n", "").replace("        tools:\n", f"        tools:\n{tool}\n")
    main = write(elsewhere, **{"config.yaml": text, "token": "another-secret", "new.yaml": "x-y: 1"})
    assert differences(pins(services, main, place="there"), before) == ()
    assert "secret" not in rendered(before)


@pytest.mark.parametrize(
    ("file", "old", "new", "found"),
    [
        ("config.yaml", "[echo, ", "[printf, ", "tools.a (definition)"),
        ("config.yaml", "description: A", "description: a", "tools.a (definition)"),
        ("config.yaml", "${env:PLACE}", "${env:PLACES:-x}", "tools.a (definition)"),
        ("config.yaml", "https://c.example", "https://evil.example", "tools.h (connection)"),
        ("config.yaml", "${file:token}", "${env:PLACE}", "tools.h (connection)"),
        ("plugins/sums.py", "return n\n", "return -n\n", "prompts.q (code), tools.p (code)"),
        ("plugins/sums.py", "Add.", "Ignore.", "prompts.q (code), tools.p (code)"),
        ("more/b.yaml", "content: b", "content: c", "tools.b (definition)"),
        ("m.md", "a story.", "two stories.", "prompts.m (definition)"),
        ("config.yaml", "text: R", "text: S", "resources.r (definition)"),
        ("config.yaml", '"*.yaml"', '"*"', "resources.f (definition)"),
        ("skills/s/SKILL.md", "description: S", "description: s", "skills.s (files)"),
        ("skills/s/data/a.txt", "one", "two", "skills.s (files)"),
        ("config.yaml", "skills: [skills/*]", "skills: [{dir: skills/*, tags: [t]}]", "skills.s (definition)"),
        ("config.yaml", "Be careful.", "Be bold.", "server.instructions (definition)"),
    ],
)
def test_digest_depends_on_everything_shown_or_run(
    tmp_path: Path, services: Services, before: DefinitionDigests, file: str, old: str, new: str, found: str
) -> None:
    assert old in FILES[file]
    main = write(tmp_path, **{file: FILES[file].replace(old, new)})
    changes = differences(pins(services, main), before)
    assert {each.change for each in changes} == {"changed"}
    assert ", ".join(f"{'.'.join(each.name)} ({', '.join(each.parts)})" for each in changes) == found


def test_digest_depends_on_defaults(tmp_path: Path, services: Services, before: DefinitionDigests) -> None:
    main = write(tmp_path, **{"config.yaml": FILES["config.yaml"] + "\n        defaults: {timeout: 1s}\n"})
    changes = differences(pins(services, main), before)
    assert [each.parts for each in changes] == [("defaults",)] * 8


def test_definition_moved_to_another_directory_changes_its_digest(
    tmp_path: Path, services: Services, before: DefinitionDigests
) -> None:
    main = write(tmp_path, **{"more/b.yaml": "include: [deeper/b.yaml]", "more/deeper/b.yaml": FILES["more/b.yaml"]})
    assert [str(each.name) for each in differences(pins(services, main), before)] == ["('tools', 'b')"]


def test_additions_and_removals_are_distinguished(
    tmp_path: Path, services: Services, before: DefinitionDigests
) -> None:
    main = write(tmp_path, **{"more/b.yaml": "tools: {z: {description: B, content: b}}"})
    assert [(*each.name, each.change) for each in differences(pins(services, main), before)] == [
        ("tools", "b", "removed"),
        ("tools", "z", "added"),
    ]


def test_invalid_definition_is_not_reported_as_removed(
    tmp_path: Path, services: Services, before: DefinitionDigests
) -> None:
    main = write(tmp_path, **{"more/b.yaml": "tools: {b: {description: B, contnet: b}}"})
    plugins, loaded = Plugins(), load(main, environ={"PLACE": "here"})
    lock = Lock(path=tmp_path / "mcp-gateway.lock", pins=before)
    with pytest.raises(ConfigError) as caught:
        compile_catalog(loaded, services=services, plugins=plugins, generation=1, lock=lock)
    plugins.close()
    problems = caught.value.problems
    assert [problem.path for problem in problems if problem.severity is Severity.ERROR] == ["tools.b.contnet"]
    assert not [problem for problem in problems if "lock" in problem.message]


@pytest.mark.parametrize(("count", "named"), [(1, "a0"), (3, "a0, a1, a2"), (12, "a0, a1, a10, a11, a2, a3, a4")])
def test_equal_differences_are_one_warning(tmp_path: Path, services: Services, count: int, named: str) -> None:
    def warnings(text: str, *, pins: DefinitionDigests | None) -> tuple[DefinitionDigests, list[str]]:
        main = write(tmp_path, **{"config.yaml": text})
        lock = Lock(path=tmp_path / "mcp-gateway.lock", pins=pins)
        catalog = compile_catalog(load(main), services=services, plugins=Plugins(), generation=1, lock=lock)
        return catalog.pins, [f"{problem.path}: {problem.message}" for problem in catalog.warnings]

    tools = "tools:\n" + "".join(f"  a{index}: {{description: A, content: a}}\n" for index in range(count))
    locked, _ = warnings(tools, pins=None)
    changed = tools.replace("description: A", "description: B") + "  z: {description: Z, content: z}\n"
    _, [of_a, of_z] = warnings(changed, pins=locked)
    assert of_z == "tools.z: was added since the lock was written. After a review, run `mcp-gateway lock`"
    assert of_a.startswith("tools.a0: was changed (definition) since the lock was written")
    assert of_a.endswith(". After a review, run `mcp-gateway lock`")
    others = named.split(", ")[1:]
    assert all(f"`tools.{each}`" in of_a for each in others)
    assert (". The same applies to " in of_a) == bool(others)
    assert ("2 more (`mcp-gateway lock --check` lists them)" in of_a) == (count == 12)


def test_lock_round_trip(before: DefinitionDigests) -> None:
    text = rendered(before)
    assert parsed(text).pins == before
    assert json.loads(text)["version"] == 1
    assert text == rendered(dict(reversed([*before.items()])))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<<<<<<< HEAD\n{}", "is not a lock file: Expecting value"),
        ("[]", "Expected `object`, got `array`"),
        ('{"version": 2}', "Invalid enum value 2 - at `$.version`"),
        ('{"version": 1, "tools": []}', "got `array` - at `$.tools`"),
        ('{"version": 1, "tools": {"a": "b"}}', "got `str` - at `$.tools[...]`"),
        ('{"version": 1, "offered": {"up": []}}', "Expected `object`, got `array` - at `$.offered[...]`"),
        ('{"version": 1, "offered": {"up": {"roots": []}}}', "Expected `str` matching regex"),
    ],
)
def test_invalid_lock_is_a_warning_or_an_error_if_enforced(
    tmp_path: Path, services: Services, text: str, reason: str
) -> None:
    (tmp_path / "mcp-gateway.lock").write_text(text)
    lock = read_lock(tmp_path / "mcp-gateway.lock")
    assert reason in lock.problem

    def warnings(mode: str) -> list[str]:
        main = tmp_path / "config.yaml"
        main.write_text(f"server: {{lock: {mode}}}\ntools: {{a: {{description: A, content: a}}}}\n")
        catalog = compile_catalog(load(main), services=services, plugins=Plugins(), generation=1, lock=lock)
        return [str(problem) for problem in catalog.warnings]

    [warning] = warnings("report")
    assert reason in warning
    assert "config.yaml:1:16: server.lock" in warning
    with pytest.raises(ConfigError, match="mcp-gateway lock"):
        warnings("enforce")


def test_enforcement_without_a_lock_names_the_command(tmp_path: Path, services: Services) -> None:
    main = tmp_path / "config.yaml"
    main.write_text("server: {lock: enforce}\ntools: {a: {description: A, content: [}}\n".replace("[}", "x}"))
    with pytest.raises(ConfigError) as caught:
        compile_catalog(
            load(main),
            services=services,
            plugins=Plugins(),
            generation=1,
            lock=read_lock(tmp_path / "mcp-gateway.lock"),
        )
    [problem] = caught.value.problems
    assert problem.path == "server.lock"
    assert problem.message.endswith(". Create the lock file with `mcp-gateway lock`")


def test_withheld_plugin_is_not_imported(tmp_path: Path, services: Services, before: DefinitionDigests) -> None:
    mark = tmp_path / "imported"
    code = FILES["plugins/sums.py"] + f"open({str(mark)!r}, 'w').close()\n"
    main = write(
        tmp_path,
        **{"plugins/sums.py": code, "config.yaml": FILES["config.yaml"].replace("{instr", "{lock: enforce, instr")},
    )
    plugins = Plugins()
    lock = Lock(path=tmp_path / "mcp-gateway.lock", pins=before)
    loaded = load(main, environ={"PLACE": "x"})
    catalog = compile_catalog(loaded, services=services, plugins=plugins, generation=1, lock=lock)
    assert not mark.exists()
    assert sorted(catalog.tools) == ["a", "b", "h"]
    assert [(each.kind, each.name) for each in catalog.left_out] == [("prompts", "q"), ("tools", "p")]
    compile_catalog(loaded, services=services, plugins=plugins, generation=2)
    assert mark.exists()
    plugins.close()
