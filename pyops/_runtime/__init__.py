"""Modules that pickles of sessions name which pyops 0.2.0 made, to say what to do with them."""
