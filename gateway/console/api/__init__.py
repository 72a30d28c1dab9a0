"""The routes of `/-/api/…`, one group per file."""
