"""Measurement of where `pyops.replace` finds the layers of real models: transformers, small and with random weights.

``python -m tests.replaced_models`` runs it.
"""
