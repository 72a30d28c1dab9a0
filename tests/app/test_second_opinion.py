"""What two validators read differently is said when the file is checked."""

from dataclasses import replace
from pathlib import Path

from gateway.app.rehearsal.second_opinion import second_opinions
from gateway.catalog.compiler import compile_catalog
from gateway.catalog.plugins.plugins import Plugins
from gateway.catalog.primitives import Catalog
from gateway.config.loader import load
from gateway.executors.services import running_services


async def compiled(path: Path) -> Catalog:
    async with running_services() as services:
        return compile_catalog(load(path), services=services, plugins=Plugins(), generation=1)


async def test_schemas_that_both_take_are_passed_over_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("tools: {a: {description: A., input: {n: integer?}, content: 'n is {{ n }}'}}")
    assert list(second_opinions(await compiled(path))) == []


async def test_a_schema_that_the_other_one_refuses_is_a_warning_at_its_tool(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("tools: {a: {description: A., content: x}}")
    catalog = await compiled(path)
    tool = catalog.tools["a"]
    odd = replace(tool, definition={**tool.definition, "outputSchema": {"type": "objekt"}})
    [problem] = second_opinions(replace(catalog, tools={"a": odd}))
    assert (problem.path, problem.severity) == ("tools.a.output.schema", "warning")
    assert "'objekt' is not valid" in problem.message
