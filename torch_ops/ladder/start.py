"""A file to begin with: the entry point of a ladder, with its exercise."""

from __future__ import annotations

import textwrap

from torch_ops.ladder.problems import PROBLEMS

__all__ = ["declared", "start"]

_LINE = 100


def start(op: str) -> str:
    """The text of a ``.cu`` file with the entry point of a ladder. Its kernel is left to write."""
    problem = PROBLEMS[op]
    sizes = problem.sizes["measured"]
    head = [
        f"Practise the ladder of {op}: python -m torch_ops.ladder compare {op} FILE",
        f"Exercise: {problem.exercise}",
        f"The measured problem has the sizes {sizes}. All memory is on the GPU and contiguous. It may begin at any element.",
        "Return cudaErrorNotSupported for operands that the kernel does not support. Write all of the result."
        " Launch on the stream alone. allocate(bytes) gives memory for this call, aligned to 16 bytes.",
    ]
    comment = "\n//\n".join(
        textwrap.fill(text, _LINE, initial_indent="// ", subsequent_indent="// ", break_on_hyphens=False)
        for text in head
    )
    return f"{comment}\n\n{declared(problem.signature)} {{\n  return cudaErrorNotSupported;\n}}\n"


def declared(signature: str) -> str:
    """A signature in lines that break between parameters alone."""
    together = ", ".join(parameter.replace(" ", "~") for parameter in signature.split(", "))
    indent = " " * (signature.index("(") + 1)
    lines = textwrap.fill(together, _LINE - len(" {"), subsequent_indent=indent, break_long_words=False)
    return lines.replace("~", " ")
