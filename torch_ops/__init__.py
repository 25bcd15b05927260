"""gpuopt: PyTorch operators at the memory roofline.

Importing the package loads the native library, which registers ``torch.ops.gpuopt.*``; the
functions here are the same operators with documentation and plain Python arguments.
"""

from torch_ops import _library

_library.load()

from torch_ops.elementwise import axpy, fma, mul, mul_  # noqa: E402  (needs the library)

__all__ = ["axpy", "fma", "mul", "mul_"]
__version__ = "0.1.0"
