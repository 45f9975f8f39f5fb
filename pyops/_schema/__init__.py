"""What an operator is, as frozen data: element types, attributes, signatures, specs of tensors.

Here a Python function, or a ``PyCustomOpDef``, is read as a declaration, and values are validated against it. Every
other subpackage builds on this one; it imports `pyops.errors` alone.
"""
