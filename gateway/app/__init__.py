"""Wires the rooms together: start, serve, drain, stop. The one place that may import all of them."""

from gateway.app.checking import check
from gateway.app.explaining import Explained, explain
from gateway.app.gateway import Gateway
from gateway.app.reference import reference

__all__ = ["Explained", "Gateway", "check", "explain", "reference"]
