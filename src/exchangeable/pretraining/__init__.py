"""The room pretraining."""
