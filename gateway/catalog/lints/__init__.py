"""Warns about text that confuses or manipulates models, and about insecure files.

Warnings never prevent serving. The checks are narrow, because users ignore frequent false alarms.
"""
