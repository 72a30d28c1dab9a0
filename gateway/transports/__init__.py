"""Bindings: bytes in, bytes out. Which message means what is the protocol's business."""
