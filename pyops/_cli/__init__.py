"""The command line: ``pyops``, or ``python -m pyops``.

A module has the commands of one subject. It may import everything, and `exporters` inside a function.
"""
