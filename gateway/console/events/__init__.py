"""The event stream of the console: a feed of what happens, and its watchers."""
