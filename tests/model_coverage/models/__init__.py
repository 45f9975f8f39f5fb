"""The models, by kind and package."""
