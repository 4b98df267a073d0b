"""Plans the KV cache as a stated vLLM release does: layer specs, groups, blocks, tokens, concurrency."""
