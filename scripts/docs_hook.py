"""What the pages need to be a site as well as files in the repository."""

import re

REPOSITORY = "https://github.com/kubebridge/kubebridge/blob/main/"
LINK = re.compile(r"(\]\()((?:\.\./)+)([^)\s]*\))")


def on_page_markdown(markdown, page, **_):
    # A link out of docs/ leads to the repository.
    depth = page.file.src_uri.count("/") + 1

    def outside(match):
        if match[2].count("../") < depth:
            return match[0]
        return match[1] + REPOSITORY + match[3]

    return nest(LINK.sub(outside, markdown))


def nest(markdown):
    """GitHub nests in a list item from the column of its text on, Python-Markdown from the fourth column on."""
    lines = []
    fence, shift = "", 0
    for line in markdown.split("\n"):
        indent = len(line) - len(line.lstrip())
        if not fence:
            shift = 4 - indent if indent in (2, 3) else 0
        mark = re.match(r"\s*(```+)", line)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip() == fence:
            fence = ""
        lines.append(" " * shift + line if line.strip() else line)
    return "\n".join(lines)
