"""Curves: how tokens a pass and speed follow nodes, temperature and batch, measured on races and on batches. They know no page."""
