"""Files that callers give: inputs of `type: file`.

In come JSON Schemas in which `type: file` stands, and arguments with base64 or `data:` URIs. Out go the schema that
clients see, and arguments in which each file is a `FileArgument`: bytes, a media type, a name.
"""
