"""The caller's verified identity in templates, keys, records and functions."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from aiohttp import web

from gateway.access.identity import Identity
from gateway.cli.commands.validate import check
from gateway.config.settings import read_settings
from gateway.errors import ConfigError
from tests.local_server import listening
from tests.protocol.peers import ERAS, LocalGateway, ModernPeer, call, serve_folder, text

ISSUER: Final = "https://login.example.com"
AUTH: Final = f"""
auth: {{oauth: {{issuer: "{ISSUER}", audience: gateway}}}}
"""


def person(subject: str, *scopes: str, **claims: Any) -> Identity:
    return Identity(
        principal=subject,
        realm=ISSUER,
        scopes=frozenset(scopes),
        claims={"sub": subject, "iss": ISSUER, **claims},
        roles=tuple(claims.get("roles", ())),
    )


def saying(template: str) -> str:
    """A file with one tool that renders a template."""
    return f"tools:\n  say: {{description: Says., content: [{{text: {orjson.dumps(template).decode()}}}]}}\n"


async def said(served: LocalGateway, identity: Identity, name: str = "say", /, **arguments: Any) -> str:
    return await text(served.modern(identity=identity), name, **arguments)


def write(folder: Path, file: str) -> Path:
    (folder / "config.yaml").write_text(AUTH + file)
    return folder


def problems(folder: Path, file: str, *, auth: str = AUTH) -> list[str]:
    (folder / "config.yaml").write_text(auth + file)
    try:
        check(read_settings({"config": folder / "config.yaml"}))
    except ConfigError as error:
        return [f"{each.path}: {each.message}" for each in error.errors]
    return []


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("caller.subject", "ann"),
        ("caller.issuer", ISSUER),
        ("caller.scopes | join(' ')", "a b"),
        ("caller.roles | join(' ')", "ops"),
        ("caller.claims.team", "red"),
        ("caller['claims']['team']", "red"),
        ("caller.claims.address.city", "Bern"),
        ("caller.claims['https://x/y']", "odd"),
        ("caller.claims.none | default('-')", "-"),
        ("caller.claims.none or '-'", "-"),
        ("caller.claims.none is defined", "false"),
        ("caller.client", "app"),
        ("'admin' in caller.scopes", "false"),
    ],
)
async def test_templates_read_facts(tmp_path: Path, expression: str, expected: str) -> None:
    claims = {"team": "red", "address": {"city": "Bern"}, "https://x/y": "odd", "client_id": "app", "azp": "other"}
    async with serve_folder(write(tmp_path, saying(f"{{{{ {expression} }}}}"))) as served:
        assert await said(served, person("ann", "b", "a", roles=["ops"], **claims)) == expected


@pytest.mark.parametrize("claim", ["team", "address.city"])
async def test_missing_claim_is_a_call_error_that_names_it(tmp_path: Path, claim: str) -> None:
    async with serve_folder(write(tmp_path, saying(f"{{{{ caller.claims.{claim} }}}}"))) as served:
        assert f"has no claim `{claim}`" in await said(served, person("ann", address={}))


async def test_claims_are_not_parsed_as_templates(tmp_path: Path) -> None:
    async with serve_folder(write(tmp_path, saying("{{ caller.claims.team }}"))) as served:
        assert await said(served, person("ann", team="{{ 7 * 7 }}")) == "{{ 7 * 7 }}"


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (
            saying("{{ caller.subjct }}"),
            "tools.say.content.0.text: `caller.subjct` is not a known variable; did you mean",
        ),
        (
            saying("{{ caller }}"),
            "tools.say.content.0.text: `caller` is not a known variable; use one of caller.subject",
        ),
        (
            'tools: {say: {http: {url: "https://x.example/{caller.nme}"}}}',
            "tools.say.http.url: `caller.nme` is not a known variable",
        ),
        (
            'tools: {say: {input: {caller: string}, content: [{text: "{{ caller.subject }}"}]}}',
            "tools.say.input.caller",
        ),
        (
            "tools: {say: {input_schema: {type: object, properties: {caller: {type: string}}}, content: [{text: x}]}}",
            "tools.say.input_schema.properties.caller",
        ),
        ("tools: {say: {content: [{text: x}], rate_limit: {in_all: 1/hour, key: x}}}", "`key` requires `per_caller`"),
        ('tools: {say: {content: [{text: x}], rate_limit: {per_caller: 1/hour, key: "{{ q }}"}}}', "rate_limit.key"),
    ],
)
def test_load_errors_of_tools(tmp_path: Path, file: str, expected: str) -> None:
    assert any(expected in each for each in problems(tmp_path, file))


@pytest.mark.parametrize(
    "file",
    [
        'resources: {a: {uri: "a:///{caller}", text: x}}',
        'resources: {a: {uri: "a:///{+caller}", files: ["*.md"]}}',
        "prompts: {a: {arguments: {caller: {}}, messages: [{user: x}]}}",
        'limits: {rate_limit: {per_caller: 1/hour, key: "{{ caller.subject }}"}}\ntools: {a: {content: [{text: x}]}}',
        'audit: {file: audit.log, labels: {team: "{{ caller.teem }}"}}\ntools: {a: {content: [{text: x}]}}',
    ],
)
def test_load_errors_of_other_sections(tmp_path: Path, file: str) -> None:
    assert problems(tmp_path, file)


def test_parameters_of_functions_and_operations_named_caller(tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "people.py").write_text('def who(caller: str) -> str:\n    """Say."""\n    return caller\n')
    file = 'plugins: [plugins]\ntools: {who: {python: "people:who"}}'
    assert any("tools.who.python.call: `caller` is not allowed" in each for each in problems(tmp_path, file))
    # Parameters of imported documents cannot be renamed.
    parameter = {"name": "caller", "in": "path", "required": True, "schema": {"type": "string"}}
    operation = {"operationId": "a", "description": "A.", "parameters": [parameter], "responses": {}}
    document = {
        "openapi": "3.0.3",
        "info": {"title": "x", "version": "1"},
        "servers": [{"url": "https://x.example"}],
        "paths": {"/{caller}": {"get": operation}},
    }
    (tmp_path / "doc.json").write_bytes(orjson.dumps(document))
    (tmp_path / "config.yaml").write_text(f"{AUTH}\nopenapi: {{x: {{document: doc.json}}}}")
    dry, warnings = check(read_settings({"config": tmp_path / "config.yaml"}))
    assert [each for each in warnings if "caller" in str(each)] == []
    assert list(dry.catalog.tools["x_a"].arguments.inputs.schemas) == ["caller__path"]


@pytest.mark.parametrize(
    "value", ['content: [{text: "{{ caller.subject }}"}]', 'http: {url: "https://x.example/{caller.subject}"}']
)
def test_error_without_auth_names_auth_and_its_place(tmp_path: Path, value: str) -> None:
    (tmp_path / "config.yaml").write_text(f"tools:\n  say:\n    description: Says.\n    {value}\n")
    with pytest.raises(ConfigError) as refused:
        check(read_settings({"config": tmp_path / "config.yaml"}))
    [error] = refused.value.errors
    assert "requires `auth`" in error.message
    assert error.location is not None
    assert error.location.line == 4


COMMAND: Final = "import os, sys; print(sys.argv[1], os.environ['WHO'], sys.stdin.read())"


async def test_commands_read_facts_in_arguments_environment_and_stdin(tmp_path: Path) -> None:
    file = f"""
tools:
  say:
    description: Says.
    shell:
      command: [python3, -c, {orjson.dumps(COMMAND).decode()}, "{{{{ caller.subject }}}}"]
      env: {{WHO: "{{{{ caller.claims.team }}}}"}}
      stdin: "{{{{ caller.issuer }}}}"
"""
    async with serve_folder(write(tmp_path, file)) as served:
        assert (await said(served, person("x; $(id)", team="red"))).split() == [*["x;", "$(id)"], "red", ISSUER]


@pytest.fixture
async def echo() -> AsyncIterator[str]:
    """A server that responds with the request that it received."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(
            {
                "path": request.raw_path,
                "who": request.headers.get("X-Who"),
                "cookie": request.headers.get("Cookie"),
                "body": (await request.read()).decode(),
            }
        )

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    async with listening(application) as port:
        yield f"http://127.0.0.1:{port}"


async def test_requests_read_facts_in_url_query_headers_cookies_and_body(tmp_path: Path, echo: str) -> None:
    file = f"""
tools:
  say:
    description: Says.
    output: {{format: json}}
    http:
      method: POST
      url: "{echo}/{{caller.claims.tenant}}/{{caller.subject}}{{?caller.issuer}}"
      allow_private: true
      query: {{team: "{{{{ caller.claims.team }}}}"}}
      headers: {{X-Who: "{{{{ caller.subject }}}}"}}
      cookies: {{who: "{{{{ caller.subject }}}}"}}
      json:
        groups: "{{{{ caller.claims.groups }}}}"
        level: "{{{{ caller.claims.level }}}}"
        text: "L{{{{ caller.claims.level }}}}"
"""
    async with serve_folder(write(tmp_path, file)) as served:
        result = await call(
            served.modern(identity=person("ann x", tenant="acme", team="a&b", groups=["x", "y"], level=7)), "say"
        )
    assert "structuredContent" in result, result
    request = result["structuredContent"]
    assert request["path"].startswith("/acme/ann%20x?")
    assert "team=a%26b" in request["path"]
    assert request["who"] == "ann x"
    assert request["cookie"].startswith("who=")
    assert orjson.loads(request["body"]) == {"groups": ["x", "y"], "level": 7, "text": "L7"}


async def test_multipart_fields_read_facts(tmp_path: Path, echo: str) -> None:
    file = f"""
tools:
  say:
    description: Says.
    http: {{url: "{echo}/", allow_private: true, multipart: {{who: "{{{{ caller.subject }}}}"}}}}
"""
    async with serve_folder(write(tmp_path, file)) as served:
        assert "ann" in await said(served, person("ann"))


@pytest.mark.parametrize("place", ["{caller.claims.none}", "?x={caller.claims.none}"])
async def test_missing_claim_in_a_url_is_a_call_error(tmp_path: Path, echo: str, place: str) -> None:
    file = f'tools: {{say: {{description: Says., http: {{url: "{echo}/{place}", allow_private: true}}}}}}'
    async with serve_folder(write(tmp_path, file)) as served:
        assert "has no claim `none`" in await said(served, person("ann"))


async def test_output_templates_and_confirmations_read_facts(tmp_path: Path) -> None:
    file = """
tools:
  say:
    confirm: "Shall {{ caller.subject }} go on?"
    shell: {command: [echo, hello]}
    output: {template: "{{ result | trim }} {{ caller.subject }} {{ inputs | tojson }}"}
"""
    async with serve_folder(write(tmp_path, file)) as served:
        peer = served.modern(identity=person("ann"))
        assert await text(peer, "say") == "hello ann {}"
        assert peer.asked[0]["params"]["message"] == "Shall ann go on?"


async def test_resources_prompts_and_completion_read_facts(tmp_path: Path) -> None:
    file = """
resources:
  note: {uri: "note:///mine", text: "of {{ caller.subject }}"}
prompts:
  greet:
    arguments:
      name: {complete: {command: [echo, "{{ caller.claims.team }}"]}}
    messages: [{user: "Greet {{ name }} for {{ caller.subject }}"}, {user: {resource: {uri: "note:///mine"}}}]
"""
    async with serve_folder(write(tmp_path, file)) as served:
        peer = served.modern(identity=person("ann", team="red"))
        read = await peer.request("resources/read", {"uri": "note:///mine"})
        assert read["result"]["contents"][0]["text"] == "of ann"
        assert read["result"]["cacheScope"] == "private"
        got = await peer.request("prompts/get", {"name": "greet", "arguments": {"name": "bob"}})
        assert got["result"]["messages"][0]["content"]["text"] == "Greet bob for ann"
        assert got["result"]["messages"][1]["content"]["resource"]["text"] == "of ann"
        reference = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": ""}}
        completed = await peer.request("completion/complete", reference)
        assert completed["result"]["completion"]["values"] == ["red"]


async def test_sql_binds_facts(tmp_path: Path) -> None:
    file = """
databases: {db: {url: "sqlite:///shop.db"}}
tools:
  mine:
    description: Lists.
    sql:
      database: db
      query: "SELECT :who AS who, :level + 1 AS level, :team IN (:teams) AS member"
      bind:
        who: "{{ caller.subject }}"
        level: "{{ caller.claims.level }}"
        team: red
        teams: "{{ caller.claims.teams }}"
"""
    write(tmp_path, file)
    (tmp_path / "shop.db").touch()
    async with serve_folder(tmp_path) as served:
        result = await call(served.modern(identity=person("ann", level=7, teams=["blue", "red"])), "mine")
    assert result["structuredContent"]["rows"] == [{"who": "ann", "level": 8, "member": 1}]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ('query: "SELECT :id", bind: {id: x}', "sql.bind.id: `id` is already the name of an input"),
        ('query: "SELECT :id", bind: {who: x}', "sql.bind.who: no query uses `who`"),
        ('query: "SELECT :id", settings: {app.user: x}', "sql.settings: `settings` requires PostgreSQL"),
        ('query: "SELECT :id, :caller", bind: {caller: x}', "`caller` is reserved"),
    ],
)
def test_load_errors_of_bind_and_settings(tmp_path: Path, sql: str, expected: str) -> None:
    file = f"""
databases: {{db: {{url: "sqlite:///shop.db"}}}}
tools: {{find: {{description: Finds., input: {{id: integer}}, sql: {{database: db, {sql}}}}}}}
"""
    assert any(expected in each for each in problems(tmp_path, file))


PLUGIN: Final = '''
from gateway.plugin import Context, SyncContext


async def who(context: Context) -> str:
    """Say who."""
    caller = context.caller
    return "nobody" if caller is None else f"{caller.subject} {caller.claims.get('team')} {caller.client}"


def who_blocking(context: SyncContext) -> str:
    """Say who."""
    return "nobody" if context.caller is None else context.caller.subject
'''


async def test_functions_read_the_caller_and_cached_results_are_kept_apart(tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "people.py").write_text(PLUGIN)
    file = """
plugins: [plugins]
tools:
  who: {python: "people:who", cache: 1h}
  who_blocking: {python: "people:who_blocking"}
"""
    async with serve_folder(write(tmp_path, file)) as served:
        for identity in (person("ann", team="red"), person("ann", team="blue"), person("bob", team="red")):
            assert await said(served, identity, "who") == f"{identity.principal} {identity.claims['team']} "
            assert await said(served, identity, "who_blocking") == identity.principal
        assert await said(served, Identity(), "who") == "nobody"


@pytest.mark.parametrize("backend", ["shell", "content", "sql"])
async def test_cache_keys_contain_every_fact_that_was_read(tmp_path: Path, backend: str) -> None:
    """The same person with the same scopes, but with another claim: two tokens, two results."""
    value = {
        "shell": 'shell: {command: [echo, "{{ caller.claims.team }}"]}',
        "content": 'content: [{text: "{{ caller.claims.team }}"}]',
        "sql": 'sql: {database: db, query: "SELECT :t", bind: {t: "{{ caller.claims.team }}"}}',
    }[backend]
    databases = 'databases: {db: {url: "sqlite:///shop.db"}}\n'
    (tmp_path / "shop.db").touch()
    async with serve_folder(
        write(tmp_path, f"{databases}tools: {{say: {{description: S., cache: 1h, {value}}}}}")
    ) as served:
        assert "red" in await said(served, person("ann", team="red", other=1))
        assert "blue" in await said(served, person("ann", team="blue", other=1))
        assert "red" in await said(served, person("ann", team="red", other=2))


async def test_facts_that_no_template_reads_do_not_split_the_cache(tmp_path: Path) -> None:
    requests: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        requests.append(request.path_qs)
        return web.Response(text="ok")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with listening(application) as port:
        file = f'http: {{url: "http://127.0.0.1:{port}/{{caller.claims.tenant}}", allow_private: true}}'
        async with serve_folder(write(tmp_path, f"tools: {{say: {{description: S., cache: 1h, {file}}}}}")) as served:
            for subject, tenant in (("ann", "acme"), ("bob", "acme"), ("cid", "zoo")):
                assert await said(served, person(subject, tenant=tenant)) == "ok"
    assert requests == ["/acme", "/zoo"]


async def test_rate_limits_are_counted_by_their_key(tmp_path: Path) -> None:
    file = """
tools:
  say:
    description: Says.
    content: [{text: hello}]
    rate_limit: {per_caller: 2/hour, key: "{{ caller.claims.tenant }}"}
"""
    async with serve_folder(write(tmp_path, file)) as served:
        for subject in ("ann", "bob"):
            assert await said(served, person(subject, tenant="acme")) == "hello"
        assert "too often" in await said(served, person("cid", tenant="acme"))
        assert await said(served, person("cid", tenant="zoo")) == "hello"
        assert "has no claim `tenant`" in await said(served, person("cid"))


@ERAS
async def test_both_eras_read_the_caller(tmp_path: Path, era: str) -> None:
    async with serve_folder(write(tmp_path, saying("{{ caller.subject }}"))) as served:
        identity = person("ann")
        peer: Any = served.modern(identity=identity) if era == "modern" else await served.legacy(identity=identity)
        assert await text(peer, "say") == "ann"


async def test_client_of_an_api_key_is_its_client_info_name(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        f"auth: {{api_keys: {{ci: {{sha256: {'ab' * 32}}}}}}}\n"
        + saying("{{ caller.client }} {{ caller.issuer }} {{ caller.claims | tojson }}")
    )
    async with serve_folder(tmp_path) as served:
        peer: ModernPeer = served.modern(identity=Identity(principal="ci", realm="api-key", scopes=frozenset()))
        params = {
            "name": "say",
            "arguments": {},
            "_meta": {"io.modelcontextprotocol/clientInfo": {"name": "desk", "version": "1"}},
        }
        message = await peer.request("tools/call", params)
    assert message["result"]["content"][0]["text"] == "desk  {}"
