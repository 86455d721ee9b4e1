"""The tables, one command each: each runs what is missing and prints from the stored results."""
