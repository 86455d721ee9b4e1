"""The room arrays."""
