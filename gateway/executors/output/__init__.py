"""Output shaping: outcomes become tool results and resource contents, selected, cleaned, masked and limited in size.

An `Outcome` of a backend comes in; content blocks and structured content go out. Outputs without room in a result are
kept in the output store, as resources of the caller's own.
"""
