"""Views: a race as something to look at. They read `engine.record.race_file` and `engine.record.trace`; never torch, never gradio."""
