"""How Sphinx builds the documentation: make docs."""

import functools
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch_ops
from benchmarks.publish import plots

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


def plain_source_links(app, docname: str, source: list[str]) -> None:
    """Links that lead out of docs/ work in the repository; in the site their paths are text."""
    folder = Path(app.env.doc2path(docname)).parent
    docs = Path(app.srcdir)

    def replace(match: re.Match) -> str:
        text, target = match["text"], match["target"].partition("#")[0]
        path = (folder / target).resolve()
        if "://" in target or not target or path.is_relative_to(docs) or not path.exists():
            return match[0]
        name = path.relative_to(docs.parent).as_posix()
        if text.strip("`") in (name, path.name):
            return f"`{name}`"
        return f"{text} (`{name}`)"

    source[0] = re.sub(r"(?<!!)\[(?P<text>[^\]\n]+(?:\n[^\]\n]+)?)\]\((?P<target>[^)\s]+)\)", replace, source[0])


@functools.cache
def drawn(source: str) -> Path:
    return plots.draw_marked(source, Path(__file__).resolve().parent.parent / "build" / "plots")


def draw_plots(app, docname: str, source: list[str]) -> None:
    """A comment that stands for a plot becomes the plot."""
    page = Path(app.env.doc2path(docname)).parent

    def picture(match: re.Match) -> str:
        return f"![{match['about']}]({os.path.relpath(drawn(match['source']) / match['name'], page)})"

    source[0] = plots.MARK.sub(picture, source[0])


def setup(app) -> None:
    app.connect("source-read", draw_plots)
    app.connect("source-read", plain_source_links)
