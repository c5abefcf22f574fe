"""Screens: what stands behind the page's screens, as plain messages. Knows races; knows neither Gradio nor any page file."""
