"""The module of the class of sessions."""

from .deferred import __getattr__ as __getattr__
