"""Remote: a lane whose text another server writes. Knows HTTP and pieces of text; knows no model and no tree."""
