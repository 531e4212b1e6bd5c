"""Verdicts over ranks and the discovery of ranks, from facts made by hand."""
