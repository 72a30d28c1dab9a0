"""`python -m benchmarks.console`: measures the console in Chromium, with many tools, sessions and calls.

Prints how long actions take until they are drawn, the page's heap, and the daemon's CPU share with and without an open
console. Needs Chromium on the PATH and the dependency group `test`.
"""

import argparse
import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
from playwright.async_api import Page, async_playwright

from benchmarks.processes import Server, started
from tests.console.browser.chromium import FLAGS
from tests.e2e.daemon import post_call
from tests.ports import free_port

KEY: Final = "key-of-the-benchmark-0123456789"
FILE: Final = """\
listen: {{console: true, http: "127.0.0.1:{port}"}}
limits: {{sessions: {{in_all: 2000, per_caller: 2000}}}}
auth: {{api_keys: {{bench: {{secret: {key}, scopes: [console]}}}}}}
tools:
{tools}
"""
TOOL: Final = (
    "  tool_{n:05}: {{description: Does the {n}th thing., tags: [group_{g}], input: {{text: string?}}, content: done}}"
)
INITIALIZE: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}
_START_SECONDS: Final = 120
BOTH: Final = "application/json, text/event-stream"
DRAWN: Final = """async (action) => {
    const began = performance.now();
    action();
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    return performance.now() - began;
}"""
TYPES: Final = """() => { const field = document.querySelector("[data-search]");
    field.value = field.value.length > 6 ? "tool" : field.value + "1";
    field.dispatchEvent(new Event("input", {bubbles: true})); }"""
SCROLLS: Final = "() => { document.querySelector('[role=grid]').scrollTop += 2000; }"
OPENS: Final = "() => document.querySelector('[role=grid] .table-body [role=row]').click()"
GOES: Final = """() => { const other = location.pathname.endsWith("traffic") ? "catalog" : "traffic";
    document.querySelector(`.nav a[href="${other}"]`).click(); }"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console", description=__doc__)
    for name, default in (("tools", 10_000), ("sessions", 500), ("calls", 200), ("seconds", 10), ("rounds", 30)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"(default: {default})")
    asyncio.run(_measure(parser.parse_args()))
    return 0


async def _measure(options: argparse.Namespace) -> None:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = _written(Path(folder, "config.yaml"), port=port, tools=options.tools)
        command = [sys.executable, "-m", "gateway", "serve", str(config), "--no-watch", "--log-level", "error"]
        async with started(command, port=port) as server, _client() as client:
            endpoint = f"http://127.0.0.1:{port}/mcp"
            await _until_it_answers(client, f"http://127.0.0.1:{port}/-/ready")
            for _ in range(options.sessions):
                async with client.post(endpoint, json=INITIALIZE, headers={"Accept": BOTH}) as response:
                    assert response.status == 200, await response.text()
            async with _calling(client, endpoint, a_second=options.calls):
                alone = await _share(server, options.seconds)
                await _look(server, f"http://127.0.0.1:{port}/-/console/", options, alone=alone)


def _written(config: Path, *, port: int, tools: int) -> Path:
    lines = "\n".join(TOOL.format(n=n, g=n % 20) for n in range(tools))
    config.write_text(FILE.format(port=port, key=KEY, tools=lines))
    return config


async def _until_it_answers(client: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(_START_SECONDS):
        while True:
            try:
                async with client.get(url) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.1)


async def _look(server: Server, console: str, options: argparse.Namespace, *, alone: float) -> None:
    program = shutil.which("chromium")
    assert program is not None, "needs Chromium"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program, args=[*FLAGS, "--enable-precise-memory-info", "--js-flags=--expose-gc"]
        )
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(120_000)
        await page.goto(console)
        await page.get_by_label("Key or token").fill(KEY)
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("heading", name="Overview").wait_for()
        await page.goto(f"{console}catalog")
        await page.locator("[role=grid] .table-body [role=row]").first.wait_for()
        print("| action | median | 95 % | longest |\n| --- | --- | --- | --- |")
        for name, action in (("a letter in the search of the catalog", TYPES), ("a scroll of the catalog", SCROLLS)):
            await _show(name, page, action, rounds=options.rounds)
        await page.goto(f"{console}catalog")
        await page.locator("[role=grid] .table-body [role=row]").first.wait_for()
        await _show("a row that is opened", page, OPENS, rounds=options.rounds)
        await _show("another page", page, GOES, rounds=options.rounds)
        heap = await page.evaluate("() => { gc(); return performance.memory.usedJSHeapSize; }")
        await page.goto(f"{console}traffic")
        await page.locator("[role=grid] .table-body [role=row]").first.wait_for()
        watched = await _share(server, options.seconds)
        await _show("a letter in the search of the traffic", page, TYPES, rounds=options.rounds)
        await page.goto(f"{console}overview".removesuffix("overview"))
        await page.get_by_text("Connect a client").wait_for()
        at_overview = await _share(server, options.seconds)
        await browser.close()
    print(f"\nHeap of the page with the catalog and the traffic: {heap / 2**20:.0f} MiB.")
    print(
        f"The daemon's processor share: {alone:.0%} with nobody there, {at_overview:.0%} with the overview open, "
        f"{watched:.0%} with the traffic open."
    )


async def _show(name: str, page: Page, action: str, *, rounds: int) -> None:
    times = sorted([float(await page.evaluate(f"() => ({DRAWN})({action})")) for _ in range(rounds)])
    worst = times[min(len(times) - 1, int(len(times) * 0.95))]
    print(f"| {name} | {statistics.median(times):.0f} ms | {worst:.0f} ms | {times[-1]:.0f} ms |", flush=True)


async def _share(server: Server, seconds: float) -> float:
    """The share of one processor that the daemon uses."""
    before, began = server.cpu_seconds, time.monotonic()
    await asyncio.sleep(seconds)
    return (server.cpu_seconds - before) / (time.monotonic() - began)


@asynccontextmanager
async def _client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as client:
        yield client


@asynccontextmanager
async def _calling(client: aiohttp.ClientSession, endpoint: str, *, a_second: int) -> AsyncIterator[None]:
    """Send calls at this rate while the context is open."""

    async def call() -> None:
        due = time.monotonic()
        for number in range(sys.maxsize):
            due += 1 / a_second
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await post_call(client, endpoint, f"tool_{number % 100:05}")

    task = asyncio.create_task(call())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


if __name__ == "__main__":
    sys.exit(main())
