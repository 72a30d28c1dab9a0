"""The routes of `/-/api/…`. Each module contains one group of routes."""
