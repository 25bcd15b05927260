"""Demos of gpuopt on real input: ``python -m examples``.

A demo is a file in this folder with a ``TITLE`` and a function ``run(report)``. It adds rows to the table with ``report.compare``,
and writes its picture or sound to ``report.folder``. Files whose names begin with an underscore are not demos.
"""
