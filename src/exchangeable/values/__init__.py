"""The room values."""
