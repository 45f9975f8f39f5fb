"""Keeps pytest from collecting a module whose import has effects."""

collect_ignore = ["first_export.py"]
