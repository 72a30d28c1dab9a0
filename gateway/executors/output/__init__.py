"""Output shaping: outcomes become tool results and resource contents. They are cleaned, masked and limited."""
