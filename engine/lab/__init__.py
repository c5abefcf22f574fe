"""The laboratory: commands that measure, train and record. Nothing imports it but `python -m engine`."""
