"""The Streamable HTTP binding, with the sessions and streams of the legacy era."""
