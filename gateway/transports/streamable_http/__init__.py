"""The binding Streamable HTTP: one path for both eras, and the sessions and streams of the legacy one."""
