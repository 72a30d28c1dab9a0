"""Commands and scripts: what a child is given, how it runs, and how its whole tree ends with the call."""
