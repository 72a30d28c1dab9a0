"""Outbound authorization: the header field `Authorization` of what the gateway sends to other services.

In: the key `auth` of a connection or an upstream, and for each request the access token of its caller, which is
exchanged and never passed on. Out: the field's value, kept until it expires or the service answers 401.
"""
