"""The page: all that knows Gradio or pixels. Imports the engine; nothing but `app.py` imports it."""
