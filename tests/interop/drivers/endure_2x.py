"""A client of the official client's second line that goes on while replicas die."""

import asyncio

from tests.interop.drivers.endure import endure
from tests.interop.drivers.talk_2x import connected

asyncio.run(endure(connected))
