"""Services of the machine: files and folders, checkpoints, signals, threads, devices, processes.

Also progress reports, hashed random numbers and lazy imports.
"""
