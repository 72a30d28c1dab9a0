"""The screenshots in `docs/images`. MCP_GATEWAY_TEST_IMAGES=docs/images renders them again."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.console.browser.served import Served, served
from tests.console.browser.tab import SCHEMES, Scheme, Tab, tab

pytestmark = [pytest.mark.build, pytest.mark.asyncio(loop_scope="session")]

IMAGES: Final = Path(__file__).parents[3] / "docs" / "images"
MAX_BYTES: Final = 150 * 1024
SIZE: Final = (1200, 700)
FILE: Final = """\
server: {name: ops, title: Ops tools, version: 1.4.0}
listen: {http: "127.0.0.1:0", console: true}
tools:
  disk_usage:
    title: Disk usage
    description: Largest directories under a path.
    tags: [machines]
    annotations: {read_only: true}
    input:
      path: {type: string, description: Absolute directory, default: /srv}
      depth: {type: integer, description: Levels below it, minimum: 0, maximum: 5, default: 1}
    output: {schema: {type: object}}
    shell:
      script: |
        printf '{"path": "%s", "depth": %s, ' "$INPUT_PATH" "$INPUT_DEPTH"
        printf '"total": "412 GiB", "largest": ["media", "backup"]}'
  restart_service:
    title: Restart a service
    description: Restarts a service and waits until it answers.
    tags: [machines]
    annotations: {destructive: true}
    input: {service: {type: string, enum: [api, web, worker]}}
    confirm: "Restart {{ service }}?"
    content: "{{ service }} answers again."
  failing_checks:
    title: Failing checks
    description: Checks of a service that fail now.
    tags: [alerts]
    input: {service: string}
    content: "{{ service }}: latency of /checkout is over 800 ms."
  open_ticket:
    title: Open a ticket
    description: Opens a ticket for the team on duty.
    tags: [alerts]
    input: {title: string, severity: {type: string, enum: [low, high], default: low}}
    content: "OPS-1042: {{ title }} ({{ severity }})"
  slow_queries:
    title: Slow queries
    description: Queries of the last hour that took longest.
    tags: [databases]
    input: {limit: {type: integer, default: 10}}
    content: "The {{ limit }} slowest: SELECT … FROM orders took 4.2 s"
  deploy_status:
    title: Deployments
    description: All deployments.
    tags: [deploys]
    content: "api 2.14, web 3.1"
  rollback:
    title: Roll back
    description: Deploys the version before this one.
    tags: [deploys]
    annotations: {destructive: true}
    input: {service: string}
    content: "The version of {{ service }} before this one is gone."
    is_error: true
resources:
  runbooks: {uri: "doc://runbooks", text: "Look before you restart anything.", description: What to do when.}
  incident: {uri: "incident://{id}", text: "Incident {{ id }}.", description: An incident with its notes.}
prompts:
  triage:
    description: Works through an alert.
    arguments: {service: {description: Service name, required: true, complete: [api, web, worker]}}
    messages: [{user: "Triage the alert on {{ service }}."}]
views:
  support: {include: {tags: [alerts]}}
"""
CALLS: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    ("disk_usage", {}),
    ("failing_checks", {"service": "api"}),
    ("slow_queries", {}),
    ("open_ticket", {"title": "Checkout is slow", "severity": "high"}),
    ("deploy_status", {}),
    ("rollback", {"service": "web"}),
    ("failing_checks", {"service": "web"}),
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shown() -> AsyncIterator[Served]:
    with TemporaryDirectory(prefix="ops-") as folder:  # its name is visible in the screenshots
        async with served(Path(folder), FILE) as it:
            for name, arguments in (*CALLS, *CALLS[:3], *CALLS[:5]):
                await it.call(name, **arguments)
            yield it


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ours(browser: Browser, shown: Served) -> AsyncIterator[Tab]:
    async with tab(browser, shown, size=SIZE) as found:
        yield found


async def overview(ours: Tab) -> None:
    await ours.open("overview")
    await expect(ours.page.get_by_text("Connect a client")).to_be_visible()


async def catalog(ours: Tab) -> None:
    await ours.open("catalog", open="tool:disk_usage")
    await expect(ours.page.get_by_text("inputSchema").first).to_be_visible()


async def call(ours: Tab) -> None:
    await ours.open("call", tool="disk_usage")
    await ours.page.get_by_role("button", name="Run").click()
    await expect(ours.page.get_by_role("region", name="Result")).to_contain_text("412 GiB")


async def traffic(ours: Tab) -> None:
    await ours.open("traffic")
    await ours.row("open_ticket").first.click()
    await expect(ours.page.get_by_role("complementary", name="Details")).to_contain_text("OPS-1042")


SHOWS: Final[dict[str, Callable[[Tab], Awaitable[None]]]] = {
    "overview": overview,
    "catalog": catalog,
    "call": call,
    "traffic": traffic,
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("show", SHOWS)
async def test_page_matches_its_screenshot(ours: Tab, tmp_path: Path, show: str, scheme: Scheme) -> None:
    folder = Path(os.environ.get("MCP_GATEWAY_TEST_IMAGES") or tmp_path)
    path = folder / f"console-{show}-{scheme}.png"
    await ours.page.emulate_media(color_scheme=scheme)
    await SHOWS[show](ours)
    await expect(ours.page.get_by_text("Live")).to_be_visible()
    folder.mkdir(parents=True, exist_ok=True)
    await ours.page.screenshot(path=path)
    ours.check()
    assert 5_000 < path.stat().st_size < MAX_BYTES


async def test_screenshots_of_the_documentation_exist() -> None:
    for name in SHOWS:
        for scheme in SCHEMES:
            assert 5_000 < (IMAGES / f"console-{name}-{scheme}.png").stat().st_size < MAX_BYTES
