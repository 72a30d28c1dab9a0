"""A client of the official client's first line that goes on while replicas die."""

import asyncio

from tests.interop.drivers.endure import endure
from tests.interop.drivers.talk_1x import connected

asyncio.run(endure(connected))
