"""Streamable HTTP for all protocol revisions, with the sessions and streams of the revisions before 2026-07-28."""
