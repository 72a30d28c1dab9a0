"""Node.js for tests of the console's modules."""

from pathlib import Path

from tests.node import OLDEST_NODE, find_node
from tests.programs import do_without


def node_program() -> Path:
    return find_node() or do_without(f"needs Node.js {OLDEST_NODE} or newer (CONTRIBUTING.md)")
