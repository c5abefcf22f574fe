"""The page in Gradio, one file per screen. This is the only room that imports Gradio, and only `app.py` imports this room."""

import inspect
import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when Gradio is imported


def import_gradio() -> None:
    """Imports it in half its time: without the type stubs that it would write beside its sources, which it looks for in files."""
    file_of, inspect.getfile = inspect.getfile, unknown
    try:
        import gradio  # noqa: F401
    finally:
        inspect.getfile = file_of


def unknown(kind: object) -> str:
    raise OSError(f"The file of {kind} is not looked for.")
