"""Templates in the file: Jinja's notation over JSON values.

In come texts of the file and the scope of their names; at a call, the arguments. Out go texts or JSON values. Templates
are checked when the file is read, and every rendering has a budget.
"""
