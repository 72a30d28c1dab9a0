"""The `sql` backend: runs statements with bound values, and returns rows or the number of changed rows."""
