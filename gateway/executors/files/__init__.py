"""Files as resources: which ones a glob means, and how they are opened safely."""
