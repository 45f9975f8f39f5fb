"""The graph of a model as torch.export captures it: a name and a line of the user's code for every call.

It may import `exporters._torch` and what that may.
"""
