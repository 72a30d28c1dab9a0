"""Logs, metrics, traces and health of the daemon.

Calls are reported through the observer interface, which is defined here.
"""
