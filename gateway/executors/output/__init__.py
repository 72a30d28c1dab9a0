"""Output shaping: converts outcomes to tool results and resource contents, masks secrets, and limits their size."""
