"""The command `client-config`: prints what to paste into a client. In: a file or a URL. Out: the client's JSON."""
