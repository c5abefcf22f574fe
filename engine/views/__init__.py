"""Views: a trace as something to look at. Standard library and `engine.trace` only; never torch, never gradio."""
