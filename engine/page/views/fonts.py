"""The page's fonts, which come with Gradio's server: families, weights and files. Knows no page."""

FAMILIES = SANS, MONO = "IBM Plex Sans", "IBM Plex Mono"
WEIGHTS = {"Regular": 400, "Bold": 700}


def files() -> list[tuple[str, int, str]]:
    """Family, weight, and file below Gradio's `static` of every font."""
    return [
        (family, weight, f"fonts/{family.replace(' ', '')}/{family.replace(' ', '')}-{word}.woff2")
        for family in FAMILIES
        for word, weight in WEIGHTS.items()
    ]
