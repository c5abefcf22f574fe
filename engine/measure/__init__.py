"""Measure: the commands that measure, count and record. Knows races; knows no page."""
