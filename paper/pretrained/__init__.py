"""Measurements of the pretrained model that the package contains."""
