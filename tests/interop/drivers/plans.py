"""Runs plans with an official client, one after the other, because importing the client takes most of the time.

Each plan is a line of standard input, and its outcome is a line of standard output.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

CERTIFICATES = "SSL_CERT_FILE"
"""The authorities whom the client trusts: it reads this variable for each connection."""


def carry_out_plans(carry_out: Callable[[Any], Coroutine[Any, Any, Any]]) -> None:
    """Carry out plans until standard input ends."""
    for line in sys.stdin:
        plan = json.loads(line)
        os.environ.pop(CERTIFICATES, None)
        os.environ.update(plan["variables"])
        print(json.dumps(asyncio.run(carry_out(plan))), flush=True)  # noqa: T201 - the test reads it
