"""What vLLM prints: transports peeled off, sentences read, each laid to the process that said it."""
