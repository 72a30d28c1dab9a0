"""The clients of commands: of a gateway in this process, or of a server behind a URL. In: requests. Out: results."""
