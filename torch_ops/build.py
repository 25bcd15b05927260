"""Compiles gpuopt's bindings for the torch of this Python, if the package has none for it.

    python -m torch_ops.build

This needs g++ 11 or newer. It needs no CUDA toolkit, because the kernels of the package work with every torch for their CUDA
version. The bindings go to the user's cache folder ($XDG_CACHE_HOME or ~/.cache), where importing torch_ops finds them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torch_ops import _library


def _compile_bindings(folder: Path) -> Path:
    """Compiles the bindings in `folder`.

    Returns:
        The library. A JSON file of the same name, beside it, says how it was built.

    Raises:
        BuildError: there is no suitable compiler, or it failed. The message has the end of its output.
    """
    from torch_ops.tools import native_build, toolchain  # only an installed package has these modules of the build

    torch, cxx = toolchain.find_torch(), toolchain.find_host_compiler()
    kernels = _library.FOLDER / _library.KERNELS
    cuda = kernels.is_file()
    include = toolchain.cuda_include(torch, None) if cuda else None
    runtime = toolchain.cuda_runtime(torch, None) if cuda else None
    compiler = [*cxx.command, *native_build.host_flags(torch, include)]

    def run(*command: str | Path) -> None:
        done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise toolchain.BuildError(f"The compiler failed:\n{done.stderr[-4000:]}")

    header = Path(folder, native_build.PRECOMPILED)
    header.parent.mkdir()
    source = native_build.ROOT / "csrc" / native_build.PRECOMPILED
    run(*compiler, "-x", "c++-header", "-c", source, "-o", f"{header}.gch")

    def compile_unit(unit: tuple[str, str]) -> Path:
        source, made = folder / f"{unit[0]}.cpp", folder / f"{unit[0]}.o"
        source.write_text(unit[1])
        run(*compiler, "-include", native_build.PRECOMPILED, "-c", source, "-o", made)
        return made

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_unit, native_build.binding_units(cuda).items()))
    library = folder / f"libgpuopt-torch{torch.minor}.so"
    run(
        *cxx.command,
        *objects,
        *native_build.binding_link_flags(torch, kernels if cuda else None, runtime),
        "-o",
        library,
    )
    host = f"{Path(cxx.command[-1]).name} {cxx.version}"
    made = {"torch": torch.version, "cuda": torch.cuda if cuda else None, "host_compiler": host}
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    library.with_suffix(".json").write_text(json.dumps({**made, "built": stamp}, indent=2) + "\n")
    return library


def main(reason: str | None = None) -> int:
    """Compiles the bindings if they are missing, and returns the exit status. `reason` is why importing torch_ops failed, if it did."""
    if reason is None:
        print(f"gpuopt has bindings for this torch: {_library.library_path()}")
        return 0
    if _library.SOURCE_TREE or _library.misfit():
        print(reason, file=sys.stderr)
        return 1
    target = _library.user_folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    print("gpuopt: compiling the bindings (one to three minutes)", flush=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        try:
            library = _compile_bindings(Path(folder))
        except RuntimeError as error:  # BuildError is one; its module is imported only on use
            print(f"gpuopt: {error}", file=sys.stderr)
            return 1
        target.mkdir(exist_ok=True)
        # The library is moved last, so whoever finds it also finds its JSON file.
        for made in (library.with_suffix(".json"), library):
            os.replace(made, target / made.name)
    print(f"gpuopt: {target / library.name} was made in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
