"""Reports of a running daemon. In: its components. Out: the sources of `/-/status` and of `/metrics`."""
