"""The options and words of commands. In: the words after a command. Out: settings, and the arguments of a call."""
