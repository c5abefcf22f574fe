"""The page in Gradio, one file per screen. This is the only room that imports Gradio, and only `app.py` imports this room."""

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when Gradio is imported
