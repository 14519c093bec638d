"""What the engine's configuration says, in the words of kvc.h: groups, limits, regions."""

import os
import pathlib
from typing import Any

import torch
import vllm
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1 import kv_cache_interface as specs
from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes

from kvc_vllm import lib

CACHEABLE, POSITION_STABLE = lib.GROUP_CAP_CACHEABLE, lib.GROUP_CAP_POSITION_STABLE
KINDS = {"cpu": lib.DEVICE_HOST, "cuda": lib.DEVICE_CUDA}
CAPS_ALL = 2 * lib.GROUP_CAP_RESUME_INSIDE_BLOCK - 1  # what this package decides


def _group(index: int, group: Any, parallel: int, draft: bool) -> Any:
    spec = next(iter(specs.iter_layer_specs(group.kv_cache_spec)))
    kind, caps, window, extra = lib.GROUP_OTHER, CACHEABLE | POSITION_STABLE, 0, 0
    if not group.kv_cache_spec.prefix_cacheable or not group.enable_kv_transfer:
        caps = 0
    elif isinstance(spec, specs.MambaSpec):
        kind = lib.GROUP_STATE
        caps = CACHEABLE | lib.GROUP_CAP_STATE | lib.GROUP_CAP_FINE_LOOKUP
        caps |= POSITION_STABLE if spec.mamba_cache_mode != "align" else 0
    elif isinstance(spec, specs.SlidingWindowSpec):
        kind, window = lib.GROUP_SLIDING, spec.sliding_window
        extra = spec.extra_retained_tokens
    elif isinstance(spec, specs.ChunkedLocalAttentionSpec):
        kind, window = lib.GROUP_CHUNKED, spec.attention_chunk_size
    elif (isinstance(spec, specs.FullAttentionSpec) and not isinstance(spec, specs.RSWASpec)
          and not group.host_resident):
        kind, caps = lib.GROUP_FULL, caps | lib.GROUP_CAP_FINE_LOOKUP
    else:
        raise lib.KvcError(
            f"KV cache group {index} is a {type(spec).__name__}: the kvc line has no kind for it")
    if caps:
        caps |= lib.GROUP_CAP_SHARDED if parallel > 1 and spec.dcp_sharded else 0
        caps |= lib.GROUP_CAP_DRAFT if draft else 0
    return lib.make("group", kind=kind, caps=caps, caps_known=CAPS_ALL, window_tokens=window,
                    tokens_per_block=group.kv_cache_spec.block_size, extra_retained_tokens=extra)


def _namespace(config: Any, cache: Any, seed: str) -> bytes:
    """Everything that makes bytes or keys of two engines differ."""
    model, parallel, own = config.model_config, config.parallel_config, config.cache_config
    extra = config.kv_transfer_config.kv_connector_extra_config
    return "; ".join(map(str, (
        f"vllm {vllm.__version__}", model.model, model.revision, model.quantization, model.dtype,
        own.cache_dtype, cache.kv_cache_layout, parallel.tensor_parallel_size,
        parallel.pipeline_parallel_size, parallel.decode_context_parallel_size,
        own.prefix_caching_hash_algo, seed, extra.get("namespace", "")))).encode()


class Layout:
    """kvc_open of one role, and what it borrows."""

    def __init__(self, config: Any, cache: Any, rank: int) -> None:
        parallel, scheduler = config.parallel_config, config.scheduler_config
        if parallel.prefill_context_parallel_size > 1:
            raise lib.KvcError("prefill_context_parallel_size is "
                               f"{parallel.prefill_context_parallel_size}, only 1 is supported")
        path = config.kv_transfer_config.kv_connector_extra_config.get("config", os.devnull)
        try:
            self._toml = pathlib.Path(path).read_bytes()
        except OSError as e:
            raise lib.KvcError(f"kvc config {path}: {e}") from e
        block, self.unit = resolve_kv_cache_block_sizes(cache, config)
        context, draft = parallel.decode_context_parallel_size, config.speculative_config
        drop = draft is not None and draft.use_eagle_block_drop()
        every = drop and not any(g.is_eagle_group for g in cache.kv_cache_groups)
        groups = [_group(i, g, context, g.is_eagle_group or every)
                  for i, g in enumerate(cache.kv_cache_groups)]
        self.count, self.kinds = len(groups), [g.kind for g in groups]
        self.cacheable = [bool(g.caps & CACHEABLE) for g in groups]
        self.stable = [bool(g.caps & POSITION_STABLE) for g in groups]
        self._groups = (lib.TYPES["group"] * self.count)(*groups)
        algorithm = config.cache_config.prefix_caching_hash_algo
        seed = os.environ.get("PYTHONHASHSEED", "")
        self._name = _namespace(config, cache, seed)
        self.ranks = parallel.tensor_parallel_size * parallel.pipeline_parallel_size
        self.max_running, most = scheduler.max_num_seqs, config.model_config.max_model_len
        retention = cache.prefix_cache_retention_interval
        self.open = lib.make(
            "open", rank=rank, groups=lib.list_of(self._groups),
            flags=(lib.OPEN_DRAFT_DROP if drop else 0) | (
                lib.OPEN_RANDOM_ROOT if algorithm.startswith("xxhash") and not seed else 0),
            hash_unit_tokens=self.unit, scheduler_block_tokens=block, context_parallel=context,
            ranks=self.ranks, cp_interleave_tokens=parallel.cp_kv_cache_interleave_size or 1,
            device_blocks=cache.num_blocks, key_bytes=len(get_hash_fn_by_name(algorithm)("kvc")),
            lookahead_tokens=config.num_prefill_lookahead_tokens, max_prompt_tokens=most,
            max_total_tokens=most, max_batch_tokens=scheduler.max_num_batched_tokens,
            max_live_requests=4 * self.max_running + 1024, max_running=self.max_running,
            max_request_bytes=lib.NO_LIMIT, max_steps_in_flight=config.max_concurrent_batches,
            retention_tokens=-1 if retention is None else retention,
            namespace_id=lib.bytes_of(self._name), config_toml=lib.bytes_of(self._toml))
        self.host_caps = lib.HOST_RANK_VERDICTS | (
            0 if config.cache_config.enable_prefix_caching else lib.HOST_NO_DEVICE_CACHE)


def regions(layout: Layout, cache: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """ctypes array of kvc_region: where the blocks of every cacheable group lie on this rank.

    Groups that overlay each other become one region with several bits.
    """
    masks = {name: 1 << g for g, group in enumerate(cache.kv_cache_groups)
             for name in group.layer_names if layout.cacheable[g] and name in tensors}
    found: dict[tuple[int, int, int], Any] = {}
    for place in cache.kv_cache_tensors:
        span, stride = cache.num_blocks * place.block_stride, place.block_stride
        outer = place.layer_stride >= span  # one region per layer, or per KV head of a layer
        size = stride if outer else place.layer_stride
        for i, name in ((i, n) for i, n in enumerate(place.layers) if n in masks):
            storage = tensors[name].untyped_storage()
            device, end = storage.device, storage.data_ptr() + storage.nbytes()
            if device.type not in KINDS:
                raise lib.KvcError(f"the KV cache of layer {name} lies on {device}: kvc knows host "
                                   "and cuda memory")
            for part in range(place.layer_stride // span if outer else 1):
                base = storage.data_ptr() + place.offset + i * place.layer_stride + part * span
                region = found.setdefault((base, stride, size), lib.make(
                    "region", device_kind=KINDS[device.type], device_ordinal=device.index or 0,
                    layer=len(found), base=base, size_bytes=end - base, block_bytes=size,
                    block_stride_bytes=stride))
                region.group_mask |= masks[name]
    return (lib.TYPES["region"] * len(found))(*found.values())
