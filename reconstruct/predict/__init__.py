"""Predicts the memory ledger of a start-up before it happens: weights, peak, non-torch memory, graphs, cache."""
