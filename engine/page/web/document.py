"""The page's document: as Gradio makes it, with our styles and scripts in it.

Gradio has a page's styles and scripts read, compiled and run in a task that builds all components too. In the document the browser's
parser does that earlier, in a task of its own. Knows HTML's head and body, and nothing else of what Gradio writes.
"""

import re


def insert_links_styles_and_script(html: bytes, link_tags: str, style_tags: str, javascript: str) -> bytes:
    """The document with `link_tags` in its head; our styles and script at its end come behind Gradio's styles, and before its
    script.
    """
    script = "<script>{}</script>".format(javascript.replace("</script", "<\\/script"))
    html = html.replace(b"</head>", link_tags.encode() + b"</head>", 1)
    before, end, after = html.rpartition(b"</body>")
    return before + style_tags.encode() + script.encode() + end + after


def build_plain_and_high_specificity_styles(css: str) -> str:
    return f"<style>{css}</style>\n<style>{raise_css_specificity_above_gradio(css)}</style>"


def raise_css_specificity_above_gradio(css: str) -> str:
    """The rules again, with the weight that Gradio gives them, for elements inside of its page: there they win over its own."""
    inside = re.sub(r"^(\s*)\.dark ", r"\1.dark & ", css, flags=re.MULTILINE)
    return f".gradio-container.gradio-container .contain {{\n{inside}\n}}"
