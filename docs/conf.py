"""How Sphinx builds the documentation: make docs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch_ops  # noqa: E402

project = "gpuopt"
author = "the gpuopt authors"
copyright = "the gpuopt authors"
version = release = torch_ops.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
root_doc = "index"
nitpicky = False
suppress_warnings = ["misc.highlighting_failure"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
napoleon_google_docstring = True

html_theme = "furo"
html_title = f"gpuopt {version}"
html_static_path = ["_static"]
html_css_files = ["gpuopt.css"]
html_theme_options = {"navigation_with_keys": True}
html_show_sphinx = False
