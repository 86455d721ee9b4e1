"""The room nn."""
