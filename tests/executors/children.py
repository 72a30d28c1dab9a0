"""What the table of processes says now, for tests that wait for it."""

from gateway.processes.process_table import ChildList


def child_pids() -> list[int]:
    """Return the children of this process's main thread."""
    children = ChildList()
    try:
        return children.pids()
    finally:
        children.close()
