"""Functions of plugins: their signatures, how they are called, and what they return."""
