"""Benchmarks of gpuopt: ``python -m benchmarks --help``.

==============  =======================================================================================
``harness``     what all use: the timer, the ceilings of this GPU's memory, peers, and the class of a case
``references``  operators in float64, which tests use, too
``rooms``       the cases of each room of csrc, a file for each
``random``      random problems: measured, compared with references, and used to fit the costs of paths
``ladder``      the steps of the optimisation ladders
``models``      whole models, which are in ``models/zoo``
``publish``     pages and plots from the results in ``results``
==============  =======================================================================================

``rooms`` imports ``harness`` and ``references``. ``random``, ``ladder`` and ``models`` import these three, but not each other.
``publish`` imports all.
"""
