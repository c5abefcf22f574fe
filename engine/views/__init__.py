"""Views: a race as something to look at. They read `engine.record` and `engine.trace`; never torch, never gradio."""
