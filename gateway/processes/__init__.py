"""Child processes of calls: started, watched, and ended with everything that they started.

A `Command` comes in; its output goes to sinks as it comes, and its exit code out. Nothing of it outlives its call.
"""
