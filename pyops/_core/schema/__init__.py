"""The frozen data that describes an operator: element types, attributes, signatures and tensor specs.

These modules read a Python function into a `Signature`, and validate the arguments and results of calls against it.
Every other subpackage builds on this one; it imports only `pyops.errors`.
"""
