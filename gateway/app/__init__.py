"""The daemon: wires the rooms together, starts them in order, drains them and stops them.

In: settings of the process. Out: one running `Gateway`. The only room that may import everything below it.
"""
