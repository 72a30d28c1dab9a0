"""The command `plan`: compares two configurations. In: two files, or a file and a URL. Out: changes, and for whom."""
