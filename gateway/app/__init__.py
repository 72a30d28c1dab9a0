"""The daemon: builds all parts, starts, drains and stops them. May import every package below."""
