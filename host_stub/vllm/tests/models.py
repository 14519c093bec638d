"""Tiny models with random weights of enough spread, made locally.

Zero-ish dummy weights are too weak a test: what such a model says does not depend on its KV.
"""

import math
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

VOCABULARY = 512
QWEN = {
    "model_type": "qwen3_5_text",
    "architectures": ["Qwen3_5ForCausalLM"],
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "full_attention_interval": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
GEMMA = {
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    "sliding_window": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "query_pre_attn_scalar": 64,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
MODELS = {
    "llama": (LLAMA, torch.float32),
    "qwen3_5": (QWEN, torch.bfloat16),
    "gemma3": (GEMMA, torch.float32),
}


def make_model(name: str, folder: Path) -> str:
    """Writes config.json and safetensors once; the folder."""
    target = folder / name
    if (target / "config.json").exists():
        return str(target)
    fields, dtype = MODELS[name]
    fields = dict(fields)
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    torch.manual_seed(20261129)
    model = AutoModelForCausalLM.from_config(config).to(torch.float32)
    generator = torch.Generator().manual_seed(7)
    zero_centred = name != "llama"  # norms that add 1 to their weight
    with torch.no_grad():
        for path, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if "embed" in path:
                weight.copy_(0.3 * noise)
            elif "norm" in path:
                gated = "linear_attn.norm" in path
                weight.copy_(0.05 * noise + (0 if zero_centred and not gated else 1))
            elif weight.dim() >= 2:
                weight.copy_(noise / math.sqrt(weight[0].numel()))
            else:
                weight.copy_(0.1 * noise + weight)
    model.to(dtype).save_pretrained(target)
    return str(target)
