"""What the commands do with a file without serving it: look at it, compare it, explain it, lock it, test it."""
