"""The command `client-config`.

In: a file or a URL. Out: what a client's configuration holds of this server, a link that installs it, or the client's
file with it.
"""
