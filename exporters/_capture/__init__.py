"""Capture of a model as a graph in which every call has a name and a line of the user's code.

It may import `exporters._torch` and what that may.
"""
