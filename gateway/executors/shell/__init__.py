"""Shell backends: commands and scripts, their arguments, environment, limits and sandbox.

A compiled `shell:` block and the arguments of a call come in; a `Command` goes to `processes`, and the output of the
child comes out as raw output, or as a failure with its exit code and the end of what it wrote.
"""
