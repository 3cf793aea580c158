"""What the pages need to be a site as well as files in the repository."""

import logging
import re

REPOSITORY = "https://github.com/kubebridge/kubebridge/blob/main/"
LINK = re.compile(r"(\]\()((?:\.\./)+)([^)\s]*\))")
SHOWN_AS_TEXT = re.compile(r"^(?:<p>)?(?:[-*] |\| |\|--|\d+\. |#+ ).*", re.M)

log = logging.getLogger("mkdocs.hooks")


def on_page_markdown(markdown, page, **_):
    depth = page.file.src_uri.count("/") + 1

    def outside(match):
        """A link out of docs/ leads to the repository."""
        if match[2].count("../") < depth:
            return match[0]
        return match[1] + REPOSITORY + match[3]

    return nest(LINK.sub(outside, markdown))


def on_page_content(html, page, **_):
    """A list or table that is shown as text is a warning, which --strict makes an error."""
    text = SHOWN_AS_TEXT.search(re.sub(r"<pre.*?</pre>", "", html, flags=re.S))
    if text:
        log.warning("%s: shown as text: %s: leave an empty line before it", page.file.src_uri, text[0][:80])


def nest(markdown):
    """GitHub nests in a list item from the column of its text on, Python-Markdown from the fourth column on. A numbered
    item behind a nested block needs an empty line there."""
    lines = []
    fence, shift = "", 0
    for line in markdown.split("\n"):
        indent = len(line) - len(line.lstrip())
        if not fence:
            shift = 4 - indent if indent in (2, 3) else 0
            if re.match(r"\d+\. ", line):
                lines.append("")
        mark = re.match(r"\s*(```+)", line)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip() == fence:
            fence = ""
        lines.append(" " * shift + line if line.strip() else line)
    return "\n".join(lines)
