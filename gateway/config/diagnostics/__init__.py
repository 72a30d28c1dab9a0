"""Problems of a configuration: collected, placed and rendered.

In come messages with the paths of the nodes that they are about. Out go `Problem`s with file, line, column and source
line, as text for people or as JSON. No rule of the configuration language is known here.
"""
