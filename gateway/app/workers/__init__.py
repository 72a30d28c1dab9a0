"""Several processes that serve one address as one daemon: a supervisor and its workers."""
