"""Benchmarks of gpuopt: ``python -m benchmarks --help``.

One file a room, ``bench_<room>.py``, found by its name: it lists cases (``room.Case``), how each contender computes
them (``room.Call``) and which peers apply (``peers.py``). Everything else is shared: ``timer.py`` takes times,
``ceilings.py`` measures what the memory of this GPU can do, ``report.py`` and ``plots.py`` show the result.
"""
