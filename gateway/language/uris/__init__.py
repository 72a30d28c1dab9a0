"""URIs and URI templates (RFC 6570).

In come templates of the file; at a call, values to expand or a URI to match. Out go URIs and URLs whose values cannot
leave their place, or the variables that a URI was made from. Everything runs in linear time.
"""
