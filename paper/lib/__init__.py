"""What the commands share: problems, methods, runs, tables and drawing."""
