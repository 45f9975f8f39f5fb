"""Measurement of how many real models export: architectures of PyPI packages, small and with random weights.

``python -m tests.model_coverage`` runs or resumes it.
"""
