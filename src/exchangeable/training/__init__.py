"""The room training."""
