"""The console: a page in the browser, and the API `/-/api/…` that it and scripts use.

It reads what the other rooms know and calls tools as the caller; the file stays as it is. `docs/console-api.md` has
each path. Imported only by daemons that serve it.
"""
