"""The models of published step times, as settings of configs/base.yml, and their layouts."""

# Each model: a model file of configs/models and the keys that differ from it.
GPT = {"model_name": "gpt3-22b"}


def gpt(width, heads, layers, vocab, mlp=None):
    """A GPT of Megatron's shape: LayerNorm, GELU, biases, tied embedding."""
    return dict(GPT, base_emb_dim=width, base_num_query_heads=heads, base_num_kv_heads=heads, head_dim=width // heads, base_mlp_dim=mlp or 4 * width,
                base_num_decoder_layers=layers, vocab_size=vocab)


def llama(name, **keys):
    return {"model_name": name, **keys}


MODELS = {
    "Llama2-7B": llama("llama2-7b"),
    "Llama2-13B": llama("llama2-13b"),
    "Llama2-34B": llama("llama2-70b", base_num_decoder_layers=48, base_mlp_dim=22016),
    "Llama2-70B": llama("llama2-70b"),
    "Llama3-8B": llama("llama3-8b"),
    "Llama3.1-8B": llama("llama3-8b"),
    "Llama3-70B": llama("llama3-70b"),
    "Llama3.1-70B": llama("llama3-70b"),
    # It has 126 layers; the trainer needs pipeline stages of equal size.
    "Llama3.1-405B": llama("llama3-70b", base_emb_dim=16384, base_mlp_dim=53248, base_num_query_heads=128, base_num_kv_heads=8,
                           base_num_decoder_layers=128),
    "MPT-760m": gpt(1536, 12, 24, 50368),
    "MPT-1b": gpt(2048, 16, 24, 50368),
    "MPT-3b": gpt(2560, 20, 32, 50368),
    "MPT-7b": gpt(4096, 32, 32, 50368),
    "MPT-13b": gpt(5120, 40, 40, 50368),
    "MPT-30b": gpt(7168, 56, 48, 50368),
    "MPT-70b": gpt(8192, 64, 80, 50368),
    "Megatron-GPT-22B": gpt(6144, 64, 48, 51200),
    "Megatron-GPT-175B": gpt(12288, 96, 96, 51200),
    "Megatron-GPT-530B": gpt(20480, 128, 105, 51200),
    "Megatron-GPT-1T": gpt(25600, 160, 128, 51200),
    "Megatron-GPT3-7B": gpt(4096, 32, 32, 50304),
    # The source prints the parameters only; width and layers are chosen to give them.
    "Megatron-GPT-1.7B": gpt(2048, 16, 28, 131072),
    "Megatron-GPT-7.1B": gpt(4096, 32, 32, 131072),
    "Megatron-GPT-16B": gpt(6144, 48, 34, 131072),
    "Megatron-GPT-32B": gpt(7168, 56, 50, 131072),
    "Megatron-GPT-70B": gpt(8192, 64, 86, 131072),
    "Megatron-GPT-119B": gpt(10240, 80, 92, 131072),
    "Megatron-GPT-177B": gpt(12288, 96, 96, 131072),
    "Megatron-GPT-314B": gpt(16384, 128, 96, 131072),
    "Megatron-GPT-462B": gpt(18432, 144, 112, 131072),
    "Pax-GPT-126M": gpt(768, 12, 12, 50304),
    "Pax-GPT-5B": gpt(4096, 32, 24, 50304),
    "Pax-GPT-175B": gpt(12288, 96, 96, 50304, mlp=49152),
    "MaxText-16B": {"global_parameter_scale": 16},
    "MaxText-32B": {"global_parameter_scale": 32},
    "MaxText-64B": {"global_parameter_scale": 64},
    "MaxText-128B": {"global_parameter_scale": 128},
    "MaxText-256B": {"global_parameter_scale": 256},
    "MaxText-512B": {"global_parameter_scale": 512},
    "125M": {"base_emb_dim": 768, "base_num_query_heads": 12, "base_num_kv_heads": 12, "head_dim": 64, "base_mlp_dim": 2048,
             "base_num_decoder_layers": 12, "vocab_size": 32000},
    "1.1B": {"base_emb_dim": 2048, "base_num_query_heads": 32, "base_num_kv_heads": 4, "head_dim": 64, "base_mlp_dim": 5632,
             "base_num_decoder_layers": 22, "vocab_size": 32000},
    "GPT2-124M": gpt(768, 12, 12, 50304),
}
TOPOLOGIES = {"H100": "h100", "H100-96GB-HBM2e-500W": "h100-96gb-500w", "H200": "h200", "A100": "a100", "v5e": "v5e", "v5p": "v5p"}
# Tensors that are saved for the backward pass, by the words of the sources.
REMAT = {
    "none": "minimal_with_context",
    "full": "full",
    "selective": "save_dot_except_mlpwi",
    "selective-op": "save_dot_except_mlpwi",
    "selective+seqpar": "minimal",
    "dots": "minimal",
    "minimal": "minimal",
    "minimal_with_context": "minimal_with_context",
    "minimal_offloaded": "minimal_offloaded",
}
# The policies of recipes whose results do not state one.
REMAT_OF_FRAMEWORK = {"MaxText": "full", "fms-fsdp": "selective", "Megatron-LM": "none"}
