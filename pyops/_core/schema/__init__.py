"""The frozen data that describes an operator: attributes, signatures and tensor specs.

These modules read a Python function into a `Signature`, and validate the arguments and results of calls against it.
The rest of the core builds on them.
"""
