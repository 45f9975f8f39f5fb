"""The command line: ``pyops``, or ``python -m pyops``."""
