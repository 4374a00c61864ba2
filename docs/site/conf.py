"""The site of the documentation: `make docs` builds it into build/site.

The pages are read where they lie, and keep their places, so a link that holds in the repository
holds there too, and one that does not fails the build.
"""

import os

project = "vcuda"
copyright = "the authors of vcuda, Apache-2.0"
extensions = ["myst_parser"]
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "bench/*.md",
    "docs/*.md",
]
# Sphinx would read the virtual environment too.
exclude_patterns = ["build"]
root_doc = "docs/index"

# As deep as pages link; the anchors are made as git's hosts make them.
myst_heading_anchors = 3
nitpicky = True

# A reader's browser loads nothing from another host.
html_theme = "furo"
html_title = "vcuda"
html_copy_source = False
html_show_sphinx = False
html_extra_path = ["index.html"]
html_static_path = ["static"]
html_css_files = ["copy.css"]
html_js_files = [("copy.js", {"defer": "defer"})]
html_search_scorer = os.path.join(os.path.dirname(__file__), "scorer.js")
# Code blocks hold a prompt, its command and the output.
highlight_language = "text"
