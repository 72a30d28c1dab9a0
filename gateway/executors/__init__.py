"""How a primitive does its work: child processes, HTTP requests, Python functions, fixed content, files."""
