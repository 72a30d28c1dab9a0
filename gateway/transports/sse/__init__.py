"""Responses that may become event streams. In: messages of the protocol. Out: JSON or events, kept to be resumed."""
