"""Lints: warnings about texts that confuse or manipulate models, and about insecure files.

They never prevent serving. Each is narrow, because warnings with false alarms are ignored.
"""
