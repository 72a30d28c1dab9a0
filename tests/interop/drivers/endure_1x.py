"""A client with version 1.x of the official client that continues while replicas fail."""

import asyncio

from tests.interop.drivers.endure import endure
from tests.interop.drivers.talk_1x import connected

asyncio.run(endure(connected))
