# mypy: ignore-errors
"""Triton where there is one. Without, as in the CPU build of torch, programs can be read only."""

try:
    import triton
    import triton.language as tl

    jit = triton.jit
except ImportError:
    tl = None

    def jit(program=None, **options):
        return program or jit


__all__ = ["jit", "tl"]
