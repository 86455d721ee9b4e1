# mypy: ignore-errors
"""Triton, or a stand-in where it is missing, as in CPU builds: programs then only import."""

try:
    import triton
    import triton.language as tl

    jit = triton.jit
except ImportError:
    tl = None

    def jit(program=None, **options):
        return program or jit


__all__ = ["jit", "tl"]
