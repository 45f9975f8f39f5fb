"""How many of torch's operators go through an export: torch's own sample calls, exported, run and compared.

``python -m tests.operator_coverage`` runs or resumes it.
"""
