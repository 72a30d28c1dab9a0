"""Loading and compiling take time proportional to the size of the file."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.catalog.compile.compiler import compile_catalog
from gateway.catalog.plugins import Plugins
from gateway.config.loader import load
from gateway.errors import ConfigError
from gateway.executors.shared_services import Services
from tests.effort import cost

SMALL = 20
FACTOR = 4


def _section(name: str, line: Callable[[int], str]) -> Callable[[int], str]:
    return lambda count: f"{name}:\n" + "".join(f"  n{index}: {line(index)}\n" for index in range(count))


def _joined(*sections: Callable[[int], str]) -> Callable[[int], str]:
    return lambda count: "".join(section(count) for section in sections)


TOOLS = _section("tools", lambda _: "{description: d, content: [hi]}")

FILES = {
    "tools": TOOLS,
    "warnings": _section(
        "tools", lambda _: "{input: {a: string, b: string, c: string}, shell: {command: [rm, -rf, x]}}"
    ),
    "errors that the loader finds": _section("tools", lambda _: "{descrption: d, content: [hi], tags: 5}"),
    "errors that the compiler finds": _section(
        "tools", lambda _: "{description: d, content: ['{{nothing}}', '{{x}}']}"
    ),
    "duplicate keys": _section("tools", lambda _: "{description: d, description: e, content: [hi]}"),
    "references to resources": _joined(
        _section("tools", lambda index: f"{{description: d, content: [{{resource: {{uri: 'x://a/{index}'}}}}]}}"),
        _section("resources", lambda index: f"{{uri: 'x://a/{index}', text: hello}}"),
    ),
    "prompts": _section("prompts", lambda index: f"{{aliases: [o{index}], messages: [{{user: hi}}]}}"),
    "aliases": _section("tools", lambda index: f"{{aliases: [o{index}], description: d, content: [hi]}}"),
    "connections": _joined(
        _section("connections", lambda index: f"{{base_url: 'https://n{index}.example'}}"),
        _section("tools", lambda index: f"{{description: d, http: {{connection: n{index}, url: /x}}}}"),
    ),
    "secrets": _section(
        "tools",
        lambda index: f"{{http: {{url: 'https://x.example/', headers: {{Authorization: '${{env:SECRET_{index}}}'}}}}}}",
    ),
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_loading_takes_linear_time(tmp_path: Path, services: Services, text: Callable[[int], str]) -> None:
    environ = {**os.environ, **{f"SECRET_{index}": f"secret-number-{index}" for index in range(SMALL * FACTOR)}}

    def loading(count: int) -> Callable[[], None]:
        main = tmp_path / f"{count}.yaml"
        main.write_text(text(count))

        def run() -> None:
            with suppress(ConfigError):
                compile_catalog(load(main, environ=environ), services=services, plugins=Plugins(), generation=1)

        return run

    loading(1)()  # excludes one-time work
    small, large = cost(loading(SMALL)), cost(loading(SMALL * FACTOR))
    assert large < small * FACTOR * 1.05
