"""Node.js for tests of the console's modules."""

from pathlib import Path

from tests.node import MIN_NODE_VERSION, find_node
from tests.programs import skip_or_fail


def node_program() -> Path:
    return find_node() or skip_or_fail(f"needs Node.js {MIN_NODE_VERSION} or newer (CONTRIBUTING.md)")
