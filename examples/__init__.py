"""Demos of gpuopt on real input: ``python -m examples``.

A demo is one file with a ``TITLE`` and a function ``run(report)``; it is found by being here. It adds rows to the table with
``report.compare`` and leaves its picture or sound in ``report.folder``. Files that begin with an underscore are not demos.
"""
