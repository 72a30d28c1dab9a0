"""HTTP backends: guarded connections, redirects, retries.

A compiled `http:` block and the arguments of a call come in; a request goes to another service, whose response goes out
as raw output, or as a failure with its status and the beginning of its text.
"""
