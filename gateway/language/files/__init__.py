"""Inputs of `type: file`: their schema for clients, and their base64 or `data:` URIs decoded to `FileArgument`."""
