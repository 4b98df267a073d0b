"""Reruns an engine's start-up on a device, real or simulated, and measures every term of its ledger in bytes."""
