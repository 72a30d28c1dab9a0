"""`python -m benchmarks.saves`: load a file of many shell tools with two inputs each, then save one of them repeatedly.

Prints CPU time, the longest delay of the event loop, and memory. Delays are measured as the CPU time of other threads
while the event loop is ready to run, so other load on the machine does not count.
"""

import argparse
import asyncio
import gc
import logging
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import structlog

from gateway.platform_facilities import return_large_blocks
from gateway.reload.pipeline import ReloadPipeline
from tests.reload.pipelines import opened, reload

_TICK_SECONDS: Final = 0.001
_SETTLE_SECONDS: Final = 0.5
"""The time to free memory after a reload."""
_TOOL: Final = """\
  tool_{number:05}:
    description: Shows what the disk {number} holds ({edition}), one line for each file.
    input:
      path: {{type: string, description: "The directory of disk {number} that is listed."}}
      depth: {{type: integer, description: How deep to go., default: 3, minimum: 1}}
    shell:
      command: [echo, "{{{{ path }}}}", "{{{{ depth }}}}", "--number={number}"]
      timeout: 5s
"""


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.saves")
    parser.add_argument("--tools", type=int, default=1000)
    parser.add_argument("--saves", type=int, default=10)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    return_large_blocks()  # as in a daemon, like the next line
    gc.freeze()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "config.yaml")
        _write(path, tools=options.tools, edition=1)
        began = time.process_time()
        async with opened(path) as pipeline:
            print(f"load: {time.process_time() - began:.2f} s of CPU time, {_resident_mib()} MiB")
            for edition in range(2, 2 + 2 * options.saves, 2):
                _write(path, tools=options.tools, edition=edition)
                cpu = await _cpu_seconds(pipeline)
                _write(path, tools=options.tools, edition=edition + 1)
                delay = await _longest_delay(pipeline)
                print(f"save: {cpu * 1000:.0f} ms of CPU time; delay {delay * 1000:.1f} ms; {_resident_mib()} MiB")


async def _cpu_seconds(pipeline: ReloadPipeline) -> float:
    """Reload and free the replaced catalog."""
    began = time.process_time()
    await reload(pipeline)
    await asyncio.sleep(_SETTLE_SECONDS)
    return time.process_time() - began


async def _longest_delay(pipeline: ReloadPipeline) -> float:
    """Reload while measuring delays, which costs time itself."""
    delays: list[float] = []
    watching = asyncio.create_task(_watch(delays))
    await reload(pipeline)
    await asyncio.sleep(_SETTLE_SECONDS)
    watching.cancel()
    return max(delays)


async def _watch(delays: list[float]) -> None:
    while True:
        before = _cpu_seconds_of_others()
        await asyncio.sleep(_TICK_SECONDS)
        delays.append(max(0.0, _cpu_seconds_of_others() - before - _TICK_SECONDS))


def _cpu_seconds_of_others() -> float:
    others = [each.ident for each in threading.enumerate() if each is not threading.main_thread()]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in others if ident is not None)


def _write(path: Path, *, tools: int, edition: int) -> None:
    """Write the file. The tool in its middle depends on the edition."""
    definitions = (
        _TOOL.format(number=number, edition=edition if number == tools // 2 else 1) for number in range(tools)
    )
    path.write_text(f"server: {{name: large}}\ntools:\n{''.join(definitions)}")


def _resident_mib() -> int:
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return int(next(line.split()[1] for line in rollup.splitlines() if line.startswith("Rss:"))) // 1024


if __name__ == "__main__":
    asyncio.run(main())
