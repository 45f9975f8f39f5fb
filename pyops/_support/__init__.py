"""What both packages use and what knows nothing of ops: files, locks, tables, element types, systems."""
