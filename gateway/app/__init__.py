"""Wires the rooms together: start, serve, drain, stop. The one place that may import all of them."""

from gateway.app.checking import check
from gateway.app.developing import CallBegan, CallEnded, Glance, Happening, Reloaded, develop
from gateway.app.explaining import Explained, explain
from gateway.app.gateway import Gateway
from gateway.app.locking import Comparison, compare_lock, write_lock
from gateway.app.picture import Picture
from gateway.app.planning import Plan, Sign, plan
from gateway.app.reference import reference
from gateway.app.rehearsal import picture_of
from gateway.app.testing import Grade, Verdict, run_tests

__all__ = [
    "CallBegan",
    "CallEnded",
    "Comparison",
    "Explained",
    "Gateway",
    "Glance",
    "Grade",
    "Happening",
    "Picture",
    "Plan",
    "Reloaded",
    "Sign",
    "Verdict",
    "check",
    "compare_lock",
    "develop",
    "explain",
    "picture_of",
    "plan",
    "reference",
    "run_tests",
    "write_lock",
]
