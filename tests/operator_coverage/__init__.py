"""Measurement of how many of torch's operators export: torch's own sample calls, exported, run and compared.

``python -m tests.operator_coverage`` runs or resumes it.
"""
