"""What the paper shows, made by this package: one command for each table and figure."""
