"""Benchmarks of gpuopt: ``python -m benchmarks --help``.

Each room has one file, ``bench_<room>.py``, which is found by its name. It lists the cases (``room.Case``), how each contender
computes them (``room.Call``) and which peers apply (``peers.py``). All rooms share the other files: ``timer.py`` measures times,
``ceilings.py`` measures the bandwidth of this GPU's memory, and ``report.py`` and ``plots.py`` show results.

``models.py`` measures whole models, which are in the folder ``zoo``.
"""
