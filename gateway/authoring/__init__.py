"""The commands for people who write a configuration file: each reads or runs the file without serving it to clients.

In: the words after the command. Out: text for the person, and an exit code. A command is a module with `parser` and
`run`; one that needs several files is a package, with these two in `command`. What they share is `dry_run`.
"""
