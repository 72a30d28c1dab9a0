"""Tells operators how the daemon is doing: logs, metrics, traces and health.

Log events come in from every room, and calls through the observer interface, which is defined here. Lines on standard
error, a text for Prometheus, OpenTelemetry spans and the status go out.
"""
