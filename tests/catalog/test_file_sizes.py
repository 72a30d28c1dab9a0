"""The size of a file beside the size of a message: what cannot arrive is warned of when the file is read."""

from pathlib import Path

import pytest

from gateway.catalog.compile.compiler import compile_catalog
from gateway.catalog.compile.file_sizes import check_file_sizes
from gateway.catalog.plugins.plugins import Plugins
from gateway.config.loader import load
from gateway.executors.services import Services


@pytest.mark.parametrize(("size", "warned"), [("2900KiB", []), ("3100KiB", [("photo", 5), ("pages.items", 6)])])
async def test_a_size_that_no_message_brings_is_a_warning(
    tmp_path: Path, services: Services, size: str, warned: list[tuple[str, int]]
) -> None:
    main = tmp_path / "config.yaml"
    main.write_text(
        "tools:\n  up:\n    description: Takes files.\n    input:\n"
        f"      photo: {{type: file, max_size: {size}, description: The photo.}}\n"
        f"      pages: {{type: array, items: {{type: file, max_size: {size}}}, description: The pages.}}\n"
        '    content: "{{ photo.size }} {{ pages | length }}"\n'
    )
    catalog = compile_catalog(
        load(main, environ={}), services=services, plugins=Plugins(), generation=1, checks=(check_file_sizes,)
    )
    found = [(each.path, each.location and each.location.line) for each in catalog.warnings]
    assert found == [(f"tools.up.input.{place}.max_size", line) for place, line in warned]
    assert all("`listen.max_body` is 4MiB, which admits files of" in each.message for each in catalog.warnings)
