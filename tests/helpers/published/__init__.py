"""Drafters in the forms in which others publish them: random weights by their names, written as their files."""
