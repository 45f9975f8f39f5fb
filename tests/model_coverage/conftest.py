"""Leaves out a module that does what it is for when it is imported."""

collect_ignore = ["first_export.py"]
