"""The private interfaces of torch that the exporters need, because torch has no public ones.

Nothing else in this package touches a private name of torch. Where a torch release renames one, the error
says so (`guard`), and so do the tests of these files.

- `operators`: an operator's schema, and what torch knows of it
- `trees`: nested tuples, lists and dicts
- `exporter` and `torchscript`: torch's two exporters
- `sample_calls`: torch's database of them
"""
