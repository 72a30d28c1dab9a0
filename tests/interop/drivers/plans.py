"""Runs several plans in one process, because importing an official client takes most of the time.

Each plan is a line of standard input, and its outcome is a line of standard output.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

CERTIFICATES = "SSL_CERT_FILE"
"""The variable with trusted authorities, which the client reads for each connection."""


def carry_out_plans(carry_out: Callable[[Any], Coroutine[Any, Any, Any]]) -> None:
    """Run plans until the end of standard input."""
    for line in sys.stdin:
        plan = json.loads(line)
        os.environ.pop(CERTIFICATES, None)
        os.environ.update(plan["variables"])
        print(json.dumps(asyncio.run(carry_out(plan))), flush=True)  # noqa: T201 - the test reads it
