"""HTTP backends: build a request from the arguments of a call, send it with retries, and return the response."""
