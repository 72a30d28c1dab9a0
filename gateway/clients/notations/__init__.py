"""The notations of clients' files: JSON with comments, TOML, YAML.

Each can render a document, parse one, and put an entry into the text of a file without touching the rest of it. In:
text and JSON values. Out: text. No I/O.
"""
