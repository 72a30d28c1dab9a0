"""Several processes that serve one address: a supervisor and its workers."""
