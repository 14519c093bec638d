"""vLLM connector for any kvc library (docs/vllm.md)."""
