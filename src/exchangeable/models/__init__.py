"""The room models."""
