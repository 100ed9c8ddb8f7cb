"""Learners in PyTorch, one algorithm a file, and the few pieces that they share."""
