"""Converts outcomes to tool results and resource contents, masks secrets, and limits the size of results."""
