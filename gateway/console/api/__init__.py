"""The routes of `/-/api/…`, a file a group. In: requests of callers who may use the console. Out: JSON."""
