"""The page in Gradio, one file per screen. The only room that imports Gradio; nothing but `app.py` imports it."""

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when Gradio is imported
