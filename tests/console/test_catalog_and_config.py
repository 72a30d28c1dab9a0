"""The routes of the catalog, explanations and configuration files."""

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.wire.revisions import LEGACY, MODERN
from tests.console.watching import CONSOLE, Watched, watched

SECRET: Final = "hunter2-is-not-a-password"
FILE: Final = """\
connections:
  api: {base_url: "http://127.0.0.1:1/", headers: {Authorization: "Bearer ${env:PASSWORD}"}}
  old: {base_url: "http://127.0.0.1:1/", headers: {Authorization: "Bearer abcdefgh12345678"}}
include: [more.yaml]
views: {small: {include: {tags: [fast]}}}
tools:
  # before it
  greet:                # greets
    title: Greeting
    description: Greets someone.
    tags: [fast]
    input:
      name: {type: string, description: Whom., minLength: 2}
      times: {type: integer, default: 1, description: How often.}
    shell: {command: [echo, "{{ name }} {{ times }}"]}
    tests: [{with: {name: Ann}, expect: {text: Ann 1}}]

  absent: {description: Not here., requires: {commands: [no-such-program]}, shell: {command: [no-such-program]}}
prompts:
  ask: {description: Asks., arguments: {who: {required: true}}, messages: [{user: "Hello {{ who }}"}]}
resources:
  note: {uri: "note:///one", description: A note., text: "One."}
  notes: {uri: "note:///{id}", description: Notes., text: "{{ id }}"}
"""
MORE: Final = """\
tools:
  deploy: {description: Deploys., content: [{text: Done.}]}
"""
CLOSED: Final = MORE.replace("Deploys.,", "Deploys., access: {scopes: [ops]},")
VISIBLE: Final = MORE.replace("Deploys.,", "Deploys., access: {scopes: [ops], visible: true},")
KEY: Final = "key-of-console-0123456789"
AUTH: Final = f"auth: {{api_keys: {{ann: {{secret: {KEY}, scopes: [console]}}}}}}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PASSWORD", SECRET)
    (tmp_path / "more.yaml").write_text(MORE)
    return tmp_path


async def post(daemon: Watched, path: str, body: Any, *, status: int = 200) -> Any:
    async with daemon.http.post(f"{daemon.api}{path}", json=body, headers=daemon.bearer) as response:
        assert response.status == status, await response.text()
        return await response.json()


def as_ann(daemon: Watched) -> Watched:
    daemon.bearer = {"Authorization": f"Bearer {KEY}"}
    return daemon


async def test_catalog_has_the_location_and_state_of_each_definition(folder: Path) -> None:
    (folder / "more.yaml").write_text(VISIBLE)
    async with watched(folder, CONSOLE + AUTH + FILE) as daemon:
        answer = await as_ann(daemon).get("/catalog")
        found = {(each["kind"], each["name"]): each for each in answer["entries"]}
        assert (answer["tags"], answer["views"]) == (["fast"], ["small"])
        greet = found["tool", "greet"]
        line = daemon.config.read_text().splitlines().index("  greet:                # greets") + 1
        assert greet["source"] == f"{daemon.config}:{line}"
        assert (greet["title"], greet["tags"], greet["views"], greet["backend"]) == (
            "Greeting",
            ["fast"],
            ["small"],
            "shell",
        )
        assert (greet["offered"], greet["reason"], greet["takesInput"]) == (True, None, True)
        deploy = found["tool", "deploy"]
        assert deploy["source"] == f"{folder / 'more.yaml'}:2"
        assert (deploy["offered"], deploy["reason"]) == (False, "needs the scope ops")
        assert "no-such-program" in found["tool", "absent"]["reason"]
        assert found["resource", "note"]["uri"] == "note:///one"
        assert found["template", "notes"]["uri"] == "note:///{id}"
        assert found["prompt", "ask"]["takesInput"]
        narrowed = await daemon.get("/catalog", {"kind": "tool", "q": "some GREET", "tag": "fast", "offered": "true"})
        assert [each["name"] for each in narrowed["entries"]] == ["greet"]


async def test_overview_counts_the_entries_of_the_catalog(folder: Path) -> None:
    skill = folder / "skills" / "greeting"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: greeting\ndescription: Greets.\n---\nGreet.\n")
    (folder / "more.yaml").write_text(VISIBLE)
    async with watched(folder, CONSOLE + AUTH + FILE + "skills: [{dir: skills/greeting}]\n") as daemon:
        as_ann(daemon)
        counts = (await daemon.get("/overview"))["counts"]
        found = Counter(
            each["kind"] if each["offered"] else "unavailable" for each in (await daemon.get("/catalog"))["entries"]
        )
        assert (
            counts
            == dict(found)
            == {"tool": 1, "resource": 1, "template": 1, "prompt": 1, "skill": 1, "unavailable": 2}
        )


async def test_rejected_reload_is_not_the_last_reload(folder: Path) -> None:
    async with watched(folder, CONSOLE + FILE) as daemon:
        before = (await daemon.get("/overview"))["status"]
        assert before["last_refused"] is None
        daemon.config.write_text(CONSOLE + FILE.replace("description: Asks.", "descriptoin: Asks."))
        after = before
        while after["last_refused"] in {None, before["last_reload"]}:  # the times have seconds
            await daemon.ask("POST", "/reload", status=422)
            after = (await daemon.get("/overview"))["status"]
        assert after["last_reload"] == before["last_reload"]


@pytest.mark.parametrize(
    ("server", "label"),
    [("", "config.yaml"), ("server: {name: ops}\n", "ops"), ("server: {name: ops, title: Ops tools}\n", "Ops tools")],
)
async def test_label_is_the_name_of_the_server_or_of_its_file(tmp_path: Path, server: str, label: str) -> None:
    async with watched(tmp_path, server + MORE) as daemon:
        assert (await daemon.get("/"))["label"] == label


async def test_locked_out_definitions_are_listed(folder: Path) -> None:
    skill = folder / "skills" / "greeting"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: greeting\ndescription: Greets.\n---\nGreet.\n")
    (folder / "mcp-gateway.lock").write_text('{"version": 1}')
    locked = "server: {lock: enforce, instructions: Be kind.}\nskills: [{dir: skills/greeting}]\n"
    async with watched(folder, CONSOLE + locked + MORE) as daemon:
        entries = (await daemon.get("/catalog"))["entries"]
        assert sorted((each["kind"], each["name"], each["backend"]) for each in entries) == [
            ("skill", "greeting", "files"),
            ("tool", "deploy", "content"),
        ]


async def test_call_is_explained_in_the_requested_view(folder: Path) -> None:
    closed = "  closed: {include: {tags: [fast]}, access: {scopes: [ops]}}\n"
    views = FILE.replace(
        "views: {small: {include: {tags: [fast]}}}\n", f"views:\n  small: {{include: {{tags: [fast]}}}}\n{closed}"
    )
    async with watched(folder, CONSOLE + AUTH + views) as daemon:
        as_ann(daemon)
        greet = {"method": "tools/call", "params": {"name": "greet", "arguments": {"name": "Ann"}}}
        prompt = {"method": "prompts/get", "params": {"name": "ask", "arguments": {"who": "Bob"}}}
        assert (await post(daemon, "/explain?view=small", greet))["explanation"]["name"] == "greet"
        await post(daemon, "/explain", prompt)
        await post(daemon, "/explain?view=small", prompt, status=422)
        for name in ("closed", "none"):
            assert "Unknown view" in (await post(daemon, f"/explain?view={name}", greet, status=404))["error"]


async def test_overview_counts_definitions(folder: Path) -> None:
    async with watched(folder, CONSOLE + FILE) as daemon:
        named = (await daemon.get("/overview"))["status"]
        counted = (await daemon.get("/overview", {"names": "0", "problems": "5"}))["status"]
        assert set(named["tools"]) == {"greet", "deploy"}
        assert [counted[key] for key in ("tools", "resources", "prompts", "skills", "left_out", "disabled")] == [
            2,
            2,
            1,
            0,
            1,
            0,
        ]
        assert counted.keys() == named.keys()


async def test_definition_is_shown_per_revision_and_as_yaml(folder: Path) -> None:
    async with watched(folder, CONSOLE + FILE) as daemon:
        shown = await daemon.get("/catalog/tool", {"name": "greet"})
        assert list(shown["definitions"]) == [*LEGACY, *MODERN]
        assert "title" not in shown["definitions"][LEGACY[0]]
        assert shown["definitions"][MODERN[-1]]["title"] == "Greeting"
        lines = shown["yaml"].splitlines()
        assert (lines[0], lines[-1][:10]) == ("greet:                # greets", "  tests: [")
        assert shown["examples"][0]["with"] == {"name": "Ann"}
        assert shown["limits"]["timeoutMs"] > 0
        absent = await daemon.get("/catalog/tool", {"name": "absent"})
        assert (absent["definitions"], absent["limits"], absent["entry"]["offered"]) == ({}, {}, False)
        by_uri = await daemon.get("/catalog/template", {"name": "note:///{id}"})
        assert by_uri["entry"]["name"] == "notes"
        for path in ("/catalog/tool", "/catalog/tool?name=none", "/catalog/nothing?name=greet"):
            await daemon.get(path, status=404)


async def test_rate_limits_of_a_definition_are_shown_as_they_are_written(folder: Path) -> None:
    rates = "rate_limit: {per_caller: 10/minute, in_all: 5/second}"
    async with watched(folder, CONSOLE + FILE.replace("title: Greeting", f"{rates}\n    title: Greeting")) as daemon:
        limits = (await daemon.get("/catalog/tool", {"name": "greet"}))["limits"]
        assert {name: value for name, value in limits.items() if "rate" in name} == {
            "rate_limit.per_caller": "10/minute",
            "rate_limit.in_all": "5/second",
        }


async def test_validation_and_explanation_run_nothing(folder: Path) -> None:
    async with watched(folder, CONSOLE + FILE) as daemon:
        wrong = await post(daemon, "/validate", {"tool": "greet", "arguments": {"name": "A", "more": 1}})
        assert [each["path"] for each in wrong["problems"]] == ["/name", "/more"]
        assert (await post(daemon, "/validate", {"tool": "greet", "arguments": {"name": "Ann"}})) == {"problems": []}
        listed = await post(daemon, "/validate", {"tool": "greet", "arguments": []})
        assert listed == {"problems": [{"path": "", "message": "must be an object"}]}
        await post(daemon, "/validate", {"tool": "none", "arguments": {}}, status=404)
        params = {"name": "greet", "arguments": {"name": "Ann"}}
        explained = await post(daemon, "/explain", {"method": "tools/call", "params": params})
        assert explained["explanation"]["argv"] == ["echo", "Ann 1"]
        prompt = {"name": "ask", "arguments": {"who": "Bob"}}
        assert (await post(daemon, "/explain", {"method": "prompts/get", "params": prompt}))["explanation"][
            "name"
        ] == "ask"
        read = await post(daemon, "/explain", {"method": "resources/read", "params": {"uri": "note:///7"}})
        assert read["explanation"]["name"] == "notes"
        params["arguments"] = {"name": "A"}
        refused = await post(daemon, "/explain", {"method": "tools/call", "params": params}, status=422)
        assert "/name" in refused["error"]
        wrong_bodies: tuple[Any, ...] = (
            *({}, {"method": "tools/list", "params": {}}, {"method": "tools/call", "params": {"name": 1}}),
            *({"method": [], "params": params}, {"method": {}, "params": params}, {"params": params}),
        )
        for body in wrong_bodies:
            await post(daemon, "/explain", body, status=400)
        params["arguments"] = {"name": "Ann"}
        for meta in (5, {"io.modelcontextprotocol/protocolVersion": "x"}):
            body = {"method": "tools/call", "params": {**params, "_meta": meta}}
            assert await post(daemon, "/explain", body) == explained
        status = await daemon.get("/status")
        assert status["calls_running"] == 0
        assert (await daemon.get("/calls"))["calls"] == []


async def test_long_search_is_rejected(folder: Path) -> None:
    async with watched(folder, CONSOLE + FILE) as daemon:
        assert (await daemon.get("/catalog", {"q": "greet " * 42}))["entries"]
        await daemon.get("/catalog", {"q": "greet " * 43}, status=400)


@pytest.mark.parametrize(
    ("value", "status", "said"),
    [
        pytest.param("[" * 150 + "]" * 150, 200, "/name", id="the control"),
        pytest.param("[" * 900 + "]" * 900, 400, "200 levels deep", id="too deep for validators"),
        pytest.param("[" * 200_000, 400, "not JSON", id="too deep for parsers"),
        pytest.param("92233720368547758079", 200, "was 92233720368547758079", id="an integer of more than 64 bits"),
    ],
)
async def test_too_deep_arguments_are_rejected(folder: Path, value: str, status: int, said: str) -> None:
    body = f'{{"tool": "greet", "arguments": {{"name": {value}}}}}'
    headers = {"Content-Type": "application/json"}
    async with watched(folder, CONSOLE + FILE) as daemon:
        url = f"{daemon.api}/validate"
        async with daemon.http.post(url, data=body, headers={**daemon.bearer, **headers}) as response:
            assert (response.status, said in await response.text()) == (status, True)


async def test_hidden_tool_is_not_explained_or_validated(folder: Path) -> None:
    (folder / "more.yaml").write_text(CLOSED)
    async with watched(folder, CONSOLE + AUTH + FILE) as daemon:
        as_ann(daemon)
        await post(daemon, "/validate", {"tool": "deploy", "arguments": {}}, status=404)
        deploy = {"method": "tools/call", "params": {"name": "deploy", "arguments": {}}}
        assert "deploy" in (await post(daemon, "/explain", deploy, status=422))["error"]


async def test_files_are_shown_with_masked_secrets(folder: Path) -> None:
    async with watched(folder, CONSOLE + AUTH + FILE) as daemon:
        shown = await as_ann(daemon).get("/config")
        assert [each["path"] for each in shown["files"]] == [str(daemon.config), str(folder / "more.yaml")]
        everything = str(shown)
        for secret in (SECRET, "abcdefgh12345678", KEY):
            assert secret not in everything
        assert "# before it" in shown["files"][0]["text"]
        assert "${env:PASSWORD}" in shown["files"][0]["text"]
        assert "deploy:" in shown["effective"]
        assert (shown["lock"], shown["restartRequired"]) == ({"file": None, "differs": []}, [])


async def test_invalid_file_is_shown_with_its_problem_and_a_caret(folder: Path) -> None:
    async with watched(folder, CONSOLE + FILE) as daemon:
        daemon.config.write_text(daemon.config.read_text().replace("minLength: 2", "minLength: two"))
        await daemon.ask("POST", "/reload", status=422)
        for path in ("/config", "/overview"):
            shown = await daemon.get(path)
            [problem] = [each for each in shown["problems"] if each["severity"] == "error"]
            assert problem["path"].startswith("tools.greet.input.name")
            line, caret = problem["excerpt"].split("\n")
            assert "minLength: two" in line
            assert caret.endswith("^")
        assert "minLength: two" in (await daemon.get("/config"))["files"][0]["text"]
        few = await daemon.get("/overview", {"problems": "0"})
        assert (few["problems"], few["problemCounts"]["error"], few["status"]["warnings"]) == ([], 1, [])
        assert (await daemon.get("/config", {"effective": "0"}))["effective"] is None
        daemon.config.write_text("tools: [")
        await daemon.ask("POST", "/reload", status=422)
        assert (await daemon.get("/config"))["problems"]
        assert (await daemon.get("/catalog"))["entries"]


async def test_derived_resources_have_the_location_of_their_entry(folder: Path) -> None:
    skill = folder / "skills" / "tidy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: tidy\ndescription: Tidies up.\n---\nDo.\n")
    (skill / "more.md").write_text("More.\n")
    (folder / "page.html").write_text("<!doctype html><title>x</title>")
    more = "skills:\n  - skills/*\n"
    (folder / "more.yaml").write_text("tools:\n  shown: {description: Shown., content: x, app: {file: page.html}}\n")
    async with watched(folder, CONSOLE + FILE + more) as daemon:
        found = {each.get("uri"): each for each in (await daemon.get("/catalog"))["entries"]}
        line = daemon.config.read_text().splitlines().index("  - skills/*") + 1
        for uri in ("skill://tidy/SKILL.md", "skill://tidy/more.md"):
            assert found[uri]["source"] == f"{daemon.config}:{line}"
        [page] = [each for uri, each in found.items() if uri and uri.startswith("ui://")]
        assert page["source"] == f"{folder / 'more.yaml'}:2"


async def test_number_of_problems_can_be_limited(folder: Path) -> None:
    bare = "".join(f"  bare{number}: {{content: x}}\n" for number in range(30))
    async with watched(folder, CONSOLE + FILE) as daemon:
        text = daemon.config.read_text().replace("tools:\n", f"tools:\n{bare}", 1)
        daemon.config.write_text(text)
        await daemon.ask("POST", "/reload")
        shown = await daemon.get("/overview")
        found = [each["path"] for each in shown["problems"] if "has no `description`: models" in each["message"]]
        assert {f"tools.bare{number}" for number in range(30)} <= {*found}
        assert len(shown["problems"]) == sum(shown["problemCounts"].values())
        limited = await daemon.get("/overview", {"problems": "5"})
        assert limited["problems"] == shown["problems"][:5]
        assert limited["problemCounts"] == shown["problemCounts"]


async def test_overview_has_a_snippet_per_client_without_keys(folder: Path) -> None:
    async with watched(folder, CONSOLE + AUTH + FILE) as daemon:
        shown = await as_ann(daemon).get("/overview")
        clients = {each["name"]: each for each in shown["clients"]}
        assert {"claude", "codex", "cursor", "vscode"} <= clients.keys()
        assert all(daemon.url in each["text"] for each in clients.values())
        assert {each["notation"] for each in clients.values()} == {"json", "toml", "yaml", "text"}
        assert clients["cursor"]["link"].startswith("cursor://")
        assert KEY not in str(shown)
        assert shown["status"]["state"] == "starting" or shown["status"]["state"] == "ready"
