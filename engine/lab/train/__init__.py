"""Recipes for everything in `assets/models/`. Knows the corpora and the losses; knows nothing about decoding or the page."""
