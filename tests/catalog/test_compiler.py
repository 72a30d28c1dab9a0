"""Compilation of configurations into catalogs."""

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.catalog.compile.compiler import compile_catalog
from gateway.catalog.plugins import Plugins
from gateway.config.loader import load
from gateway.errors import ConfigError
from gateway.executors.invocation import Blocks, RawOutput, Value
from gateway.executors.shared_services import Services
from gateway.json_types import Json
from tests.catalog.conftest import Compile
from tests.executors.recording import make_invocation

PLUGIN = '''
import itertools

calls = itertools.count(1)


def score(text: str, weight: int = 1) -> dict[str, int]:
    """Score a text.

    Args:
        text: What to score.
    """
    return {"score": len(text) * weight}


def count() -> str:
    return str(next(calls))
'''


def test_lists_keep_file_order(compiled: Compile) -> None:
    catalog = compiled("""
        tools:
          zebra: {description: Z, content: z}
          ant: {description: A, content: a}
        resources:
          second: {uri: "x:2", text: two}
          first: {uri: "x:1", text: one}
          later: {uri: "x:t/{a}", text: "{{ a }}"}
        prompts:
          q: {description: Q, messages: [{user: q}]}
          p: {description: P, messages: [{user: p}]}
    """)
    assert list(catalog.tools) == ["zebra", "ant"]
    assert list(catalog.resources) == ["x:2", "x:1"]
    assert [template.name for template in catalog.resource_templates] == ["later"]
    assert list(catalog.prompts) == ["q", "p"]
    assert catalog.generation == 7
    assert catalog.warnings == ()


def test_empty_configuration_compiles(compiled: Compile) -> None:
    catalog = compiled("server: {name: empty, instructions: Nothing here, page_size: 3, cache_ttl: 2s}")
    assert catalog.server_info["name"] == "empty"
    assert (catalog.instructions, catalog.page_size, catalog.cache_ttl) == ("Nothing here", 3, timedelta(seconds=2))


SLOW = "connections: {slow: {base_url: 'https://x.example', timeout: 15m}}"


@pytest.mark.parametrize(
    ("defaults", "definition", "call_settings"),
    [
        ("", "content: x", (60, 16, 64)),
        ("defaults: {timeout: 9s, concurrency: 2, queue: 0}", "content: x", (9, 2, 0)),
        ("defaults: {timeout: 9s, concurrency: 2}", "content: x, timeout: 20s, concurrency: 3, queue: 0", (20, 3, 0)),
        ("defaults: {timeout: 9s}", "shell: {command: [ls], timeout: 15m}", (900, 16, 64)),
        ("", "timeout: 5s, shell: {command: [ls], timeout: 15m}", (5, 16, 64)),
        ("", "timeout: 5s, http: {url: 'https://x.example', timeout: 15m}", (5, 16, 64)),
        ("", "http: {url: 'https://x.example', timeout: 15m}", (900, 16, 64)),
        ("", "http: {url: 'https://x.example', timeout: 1s, retry: {attempts: 3}}", (60, 16, 64)),
        (SLOW, "http: {connection: slow, url: /a}", (900, 16, 64)),
        (SLOW, "http: {connection: slow, url: /a, timeout: 90s}", (90, 16, 64)),
        (SLOW, "timeout: 5s, http: {connection: slow, url: /a}", (5, 16, 64)),
    ],
)
def test_timeout_comes_from_definition_backend_or_defaults(
    compiled: Compile, defaults: str, definition: str, call_settings: tuple[float, int, int]
) -> None:
    tool = compiled(f"{defaults}\ntools: {{t: {{description: T, {definition}}}}}").tools["t"]
    assert (tool.timeout.total_seconds(), tool.concurrency, tool.queue) == call_settings


def test_definition_with_unmet_requirements_is_omitted(compiled: Compile) -> None:
    catalog = compiled(
        """
        plugins: [none]
        tools:
          a: {description: A, content: a, requires: {commands: [sh]}}
          b: {description: B, content: b, requires: {commands: [no-such-program], env: [TOKEN]}}
          c: {python: "nowhere:to_be_found", requires: {platforms: [plan9]}}
        resources:
          d: {files: "none/*.md", requires: {env: [TOKEN]}}
        """.replace("plugins: [none]", ""),
        PATH="/usr/bin:/bin",
        TOKEN="",
    )
    assert list(catalog.tools) == ["a"]
    assert [(each.kind, each.name, each.reason.replace("darwin", "linux")) for each in catalog.left_out] == [
        ("tools", "b", "the command no-such-program is not on PATH; the variable TOKEN is not set"),
        ("tools", "c", "this platform is linux, not plan9"),
        ("resources", "d", "the variable TOKEN is not set"),
    ]


def test_required_client_capabilities_are_compiled(compiled: Compile) -> None:
    catalog = compiled("tools: {t: {description: T, content: x, requires: {client: [sampling, roots]}}}")
    assert catalog.tools["t"].required_capabilities == {"sampling": {}, "roots": {}}


def test_aliases_work_and_are_not_listed(compiled: Compile) -> None:
    catalog = compiled("""
        tools: {new: {description: N, content: x, aliases: [old, older]}}
        resources: {new: {uri: "x:new", text: x, aliases: ["x:old"]}}
        prompts: {new: {messages: [{user: x}], aliases: [old]}}
    """)
    assert catalog.tool("older") is catalog.tools["new"]
    assert catalog.prompt("old") is catalog.prompts["new"]
    found = catalog.resource("x:old")
    assert found is not None
    assert found[0] is catalog.resources["x:new"]
    assert list(catalog.tools) == ["new"]


def test_signature_supplies_missing_schema_and_description(compiled: Compile, tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "scoring.py").write_text(PLUGIN)
    catalog = compiled("""
        plugins: [plugins]
        tools:
          plain: {python: "scoring:score"}
          told: {description: Told, input: {text: string}, output: {schema: {type: object}}, python: "scoring:score"}
          text: {python: "scoring:score", output: {format: text}}
    """)
    plain, told, text = (catalog.tools[name].definition for name in ("plain", "told", "text"))
    assert plain["description"] == "Score a text."
    assert plain["inputSchema"]["properties"]["text"] == {"type": "string", "description": "What to score."}
    assert plain["inputSchema"]["required"] == ["text"]
    assert plain["outputSchema"]["additionalProperties"] == {"type": "integer"}
    assert told["description"] == "Told"
    assert list(told["inputSchema"]["properties"]) == ["text"]
    assert told["outputSchema"] == {"type": "object"}
    assert "outputSchema" not in text


async def test_version_changes_with_the_connection(compiled: Compile) -> None:
    text = """
        connections: {{api: {{base_url: "{url}", allow_private: true, timeout: 2s}}}}
        tools: {{ask: {{description: Asks, cache: 1h, http: {{connection: api, url: /}}}}}}
        resources: {{page: {{uri: "x:page", http: {{connection: api, url: /}}}}}}
    """
    one, two = (compiled(text.format(url=f"http://127.0.0.1:{port}")) for port in (1, 2))
    assert one.tools["ask"].version != two.tools["ask"].version
    assert one.resources["x:page"].version != two.resources["x:page"].version


async def test_version_changes_with_interpolated_values(compiled: Compile, tmp_path: Path) -> None:
    text = """
        connections: {api: {base_url: "http://127.0.0.1:1", headers: {X-Key: "${file:key}"}}}
        tools:
          kept: {description: K, content: k}
          ask: {description: A, http: {connection: api, url: /}}
          deploy: {description: D, confirm: "Deploy to ${env:TARGET}?", shell: {command: [deploy]}}
        resources:
          page: {uri: "x:page", description: "${env:TARGET}", text: text}
          target: {uri: "x:target", text: "${env:TARGET}"}
    """

    def versions(key: str, target: str) -> dict[str, str]:
        (tmp_path / "key").write_text(key)
        catalog = compiled(text, TARGET=target)
        return {each.name: each.version for each in catalog.primitives()}

    first = versions("one", "staging")
    assert versions("one", "staging") == first
    assert {name for name, version in versions("two", "staging").items() if version != first[name]} == {"ask"}
    changed = {name for name, version in versions("one", "production").items() if version != first[name]}
    assert changed == {"deploy", "target"}


@asynccontextmanager
async def answering(body: str) -> AsyncIterator[str]:
    """A server with one response, and its URL."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body)

    application = web.Application()
    application.router.add_get("/", answer)
    async with TestServer(application) as server:
        yield str(server.make_url("")).rstrip("/")


async def test_cache_key_changes_with_the_connection(compiled: Compile) -> None:
    text = """
        connections: {{api: {{base_url: "{url}", allow_private: true}}}}
        tools: {{ask: {{description: Asks, cache: 1h, http: {{connection: api, url: /}}}}}}
    """
    bodies = []
    for body in ("one", "two"):
        async with answering(body) as url:
            outcome = await compiled(text.format(url=url)).tools["ask"].executor.execute(make_invocation({}))
        assert isinstance(outcome, RawOutput)
        bodies.append(outcome.data)
    assert bodies == [b"one", b"two"]


async def test_cached_result_is_reused(compiled: Compile, tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "scoring.py").write_text(PLUGIN)
    text = """
        plugins: [plugins]
        tools: {{count: {{description: Counts, cache: {ttl}, python: "scoring:count"}}}}
    """
    executor = compiled(text.format(ttl="1m")).tools["count"].executor
    answers = [await executor.execute(make_invocation()) for _ in range(3)]
    assert answers == [Value(value="1")] * 3
    again = compiled(text.format(ttl="1m")).tools["count"].executor
    assert await again.execute(make_invocation()) == Value(value="1"), "the cached result is kept"
    other = compiled(text.format(ttl="2m")).tools["count"].executor
    assert await other.execute(make_invocation()) == Value(value="2")


async def test_prepared_arguments_fill_templates(compiled: Compile) -> None:
    tool = compiled("""
        tools:
          greet:
            description: Greets.
            input: {name: string, times: {type: integer, default: 2}}
            content: "{% for _ in [1, 2] %}{{ name }}{{ times }} {% endfor %}"
            is_error: true
    """).tools["greet"]
    arguments = tool.arguments.prepare({"name": "x", "times": "3"})
    outcome = await tool.executor.execute(make_invocation(arguments))
    assert outcome == Blocks(content=({"type": "text", "text": "x3 x3 "},), is_error=True)


def test_changed_definition_changes_only_its_list(compiled: Compile, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("a")
    text = """
        tools: {{t: {{description: {words}, content: {answer}}}}}
        resources: {{docs: {{files: "docs/*.md"}}}}
        prompts: {{p: {{messages: [{{user: x}}]}}}}
    """

    def fingerprints(words: str = "T", answer: str = "a") -> dict[str, str]:
        return dict(compiled(text.format(words=words, answer=answer)).fingerprints)

    first = fingerprints()
    assert fingerprints(answer="another") == first, "content is not part of the list"
    (tmp_path / "docs" / "a.md").write_text("longer")
    assert fingerprints() == first, "file content is not part of the list"
    assert fingerprints(words="U") == {**first, "tools": fingerprints(words="U")["tools"]} != first
    (tmp_path / "docs" / "b.md").write_text("b")
    assert fingerprints() == {**first, "resources": fingerprints()["resources"]} != first


def test_loader_and_compiler_problems_are_sorted_together(compiled: Compile, tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("tools: {z: {description: Z, content: '{{ z }}'}}")
    with pytest.raises(ConfigError) as caught:
        compiled("""
            include: [more.yaml]
            tools:
              a: {description: A, content: "{{ a }}"}
              b: {descripton: B, content: b}
              c: {description: C, content: c}
              d: {description: D, http: {url: "{{"}}
        """)
    assert [(problem.location and problem.location.file.name, problem.path) for problem in caught.value.problems] == [
        ("config.yaml", "tools.a.content.0.text"),
        ("config.yaml", "tools.b.descripton"),
        ("config.yaml", "tools.d.http.url"),
        ("more.yaml", "tools.z.content.0.text"),
    ]


def test_missing_entries_are_not_reported_if_a_file_is_unreadable(compiled: Compile, tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("connections: {there: [")
    with pytest.raises(ConfigError) as caught:
        compiled("""
            include: [more.yaml]
            tools: {a: {description: A, http: {connection: there, url: /x}}}
        """)
    assert [problem.location and problem.location.file.name for problem in caught.value.problems] == ["more.yaml"]


def test_problems_contain_no_secrets(compiled: Compile) -> None:
    with pytest.raises(ConfigError) as caught:
        compiled(
            """
            tools:
              a:
                description: A
                http: {url: "https://x.example", headers: {A: "${env:TOKEN} {{ b }}"}}
              b: {description: B, content: [{image: "${env:TOKEN}.png"}]}
            """,
            TOKEN="correct-horse-battery",
        )
    assert len(caught.value.problems) == 2
    assert "correct-horse" not in str(caught.value)


async def test_output_defaults_do_not_apply_to_fixed_content(compiled: Compile) -> None:
    catalog = compiled(
        """
        defaults: {output: {format: json, template: "made of {{ result }}", max_size: 64}}
        tools:
          fixed: {description: x, content: [{text: "written"}]}
        """
    )
    tool = catalog.tools["fixed"]
    call = make_invocation()
    assert [*tool.result(await tool.executor.execute(call), call).content] == [{"type": "text", "text": "written"}]


def test_catalog_is_freed_with_its_last_reference(tmp_path: Path, services: Services) -> None:
    """Reference cycles would only be freed by the garbage collector, which is paused during reloads."""
    config, plugins, many = tmp_path / "config.yaml", Plugins(), range(50)
    backends: list[dict[str, Json]] = [
        {"shell": {"command": ["echo", "{{ path }}"]}},
        {"http": {"url": "https://example.com/{path}", "query": {"n": "{{ n | default(1) }}"}}},
        {"content": [{"text": "{% if n %}{{ n }}{% endif %}{{ path }}"}]},
    ]
    definition: dict[str, Json] = {"description": "D", "input": {"path": "string", "n": "integer?"}}
    tools = {f"t{i}{n}": definition | backend for i in many for n, backend in enumerate(backends)}
    resources = {f"r{i}": {"uri": f"r{i}://{{id}}", "text": "{{ id }}"} for i in many}
    prompts = {f"p{i}": {"arguments": {"a": "An argument."}, "messages": [{"user": "{{ a }}"}]} for i in many}
    config.write_text(f"tools: {tools}\nresources: {resources}\nprompts: {prompts}")

    def compile_and_discard() -> None:
        compile_catalog(load(config), services=services, plugins=plugins, generation=1)

    compile_and_discard()  # excludes imports and caches
    gc.collect()
    gc.disable()
    try:
        compile_and_discard()
        assert gc.collect() < len(tools)
    finally:
        gc.enable()
        plugins.close()
