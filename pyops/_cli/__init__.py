"""The command line: ``pyops``, or ``python -m pyops``.

Each module has the commands of one subject. May import everything; `exporters` only inside functions.
"""
