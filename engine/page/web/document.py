"""The page's document: as Gradio makes it, with our styles and scripts in it.

Gradio has a page's styles and scripts read, compiled and run in a task that builds all components too. In the document the browser's
parser does that earlier, in a task of its own. Knows HTML's head and body, and nothing else of what Gradio writes.
"""

import re


def insert_page_files(document: bytes, links: str, styles: str, javascript: str) -> bytes:
    """The document with `links` in its head; our styles and script at its end come behind Gradio's styles, and before its script."""
    script = "<script>{}</script>".format(javascript.replace("</script", "<\\/script"))
    document = document.replace(b"</head>", links.encode() + b"</head>", 1)
    before, end, after = document.rpartition(b"</body>")
    return before + styles.encode() + script.encode() + end + after


def build_style_tags_twice_specific(css: str) -> str:
    return f"<style>{css}</style>\n<style>{raise_specificity(css)}</style>"


def raise_specificity(rules: str) -> str:
    """The rules again, with the weight that Gradio gives them, for elements inside of its page: there they win over its own."""
    inside = re.sub(r"^(\s*)\.dark ", r"\1.dark & ", rules, flags=re.MULTILINE)
    return f".gradio-container.gradio-container .contain {{\n{inside}\n}}"
