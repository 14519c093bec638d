"""What the engine's configuration says, in the words of kvc.h: groups, limits, regions."""

import ctypes
import os
from typing import Any

import torch
import vllm
from vllm.config import VllmConfig
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes
from vllm.v1.kv_cache_interface import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    MambaSpec,
    RSWASpec,
    SlidingWindowSpec,
    iter_layer_specs,
)

from kvc_vllm import lib

CACHEABLE, POSITION_STABLE, FINE_LOOKUP, STATE, SHARDED, DRAFT = (1 << i for i in range(6))
CAPS_ALL = (1 << 7) - 1
FULL, SLIDING, CHUNKED, STATES, OTHER = range(5)


def _group(index: int, group: Any, parallel: int, draft: bool) -> Any:
    spec = next(iter(iter_layer_specs(group.kv_cache_spec)))
    if not group.kv_cache_spec.prefix_cacheable or not group.enable_kv_transfer:
        kind, caps, window, extra = OTHER, 0, 0, 0
    else:
        caps, window, extra = CACHEABLE | POSITION_STABLE, 0, 0
        if isinstance(spec, MambaSpec):
            kind, caps = STATES, caps | STATE | FINE_LOOKUP
            if spec.mamba_cache_mode == "align":
                caps &= ~POSITION_STABLE
        elif isinstance(spec, SlidingWindowSpec):
            kind, window, extra = SLIDING, spec.sliding_window, spec.extra_retained_tokens
        elif isinstance(spec, ChunkedLocalAttentionSpec):
            kind, window = CHUNKED, spec.attention_chunk_size
        elif isinstance(spec, FullAttentionSpec) and not isinstance(spec, RSWASpec):
            kind, caps = FULL, caps | FINE_LOOKUP
        else:
            raise lib.KvcError(f"KV cache group {index} is a {type(spec).__name__}, for which the "
                               "kvc line has no kind")
        if isinstance(spec, CrossAttentionSpec | EncoderOnlyAttentionSpec) or group.host_resident:
            raise lib.KvcError(f"KV cache group {index} ({type(spec).__name__}) keeps no KV of "
                               "token prefixes in device blocks: not supported")
        if parallel > 1 and isinstance(spec, AttentionSpec) and spec.dcp_sharded:
            caps |= SHARDED
        if draft:
            caps |= DRAFT
    return lib.make("group", kind=kind, caps=caps, caps_known=CAPS_ALL,
                    tokens_per_block=group.kv_cache_spec.block_size, window_tokens=window,
                    extra_retained_tokens=extra)


class Layout:
    """kvc_open of one role, and what it borrows."""

    def __init__(self, config: VllmConfig, cache: KVCacheConfig, rank: int | None) -> None:
        parallel, scheduler, model = (
            config.parallel_config, config.scheduler_config, config.model_config)
        if parallel.prefill_context_parallel_size > 1:
            raise lib.KvcError("prefill_context_parallel_size is "
                               f"{parallel.prefill_context_parallel_size}, only 1 is supported")
        extra = config.kv_transfer_config.kv_connector_extra_config
        path = extra.get("config")
        try:
            with open(path, encoding="utf-8") if path else open(os.devnull) as f:
                self._toml = f.read().encode()
        except OSError as e:
            raise lib.KvcError(f"kvc config {path}: {e}") from e
        self.block_tokens, self.unit = resolve_kv_cache_block_sizes(cache, config)
        context = parallel.decode_context_parallel_size
        spec = config.speculative_config
        drop = spec is not None and spec.use_eagle_block_drop()
        flagged = any(g.is_eagle_group for g in cache.kv_cache_groups)
        groups = [_group(i, g, context, g.is_eagle_group or (drop and not flagged))
                  for i, g in enumerate(cache.kv_cache_groups)]
        self.count = len(groups)
        self.kinds = [g.kind for g in groups]
        self.cacheable = [bool(g.caps & CACHEABLE) for g in groups]
        self.stable = [bool(g.caps & POSITION_STABLE) for g in groups]
        self._groups = (lib.TYPES["group"] * self.count)(*groups)
        algorithm = config.cache_config.prefix_caching_hash_algo
        seed = os.environ.get("PYTHONHASHSEED", "")
        random_root = algorithm.startswith("xxhash") and not seed
        self._name = (
            f"vllm {vllm.__version__} model={model.model} revision={model.revision} "
            f"quantization={model.quantization} dtype={model.dtype} "
            f"kv={config.cache_config.cache_dtype} layout={cache.kv_cache_layout} "
            f"tp={parallel.tensor_parallel_size} pp={parallel.pipeline_parallel_size} "
            f"dcp={context} hash={algorithm}/{seed} {extra.get('namespace', '')}").encode()
        self.ranks = parallel.tensor_parallel_size * parallel.pipeline_parallel_size
        retention = cache.prefix_cache_retention_interval
        self.max_running = scheduler.max_num_seqs
        self.open = lib.make(
            "open", rank=rank or 0, groups=lib.list_of(self._groups, self.count),
            flags=(1 if drop else 0) | (2 if random_root else 0),
            hash_unit_tokens=self.unit, scheduler_block_tokens=self.block_tokens,
            context_parallel=context, ranks=self.ranks,
            cp_interleave_tokens=parallel.cp_kv_cache_interleave_size or 1,
            device_blocks=cache.num_blocks, null_block=0,
            key_bytes=len(get_hash_fn_by_name(algorithm)("kvc")),
            lookahead_tokens=config.num_prefill_lookahead_tokens,
            max_prompt_tokens=model.max_model_len, max_total_tokens=model.max_model_len,
            max_batch_tokens=scheduler.max_num_batched_tokens,
            max_live_requests=4 * scheduler.max_num_seqs + 1024,
            max_running=scheduler.max_num_seqs, max_request_bytes=lib.NO_LIMIT,
            max_steps_in_flight=config.max_concurrent_batches,
            retention_tokens=-1 if retention is None else retention,
            namespace_id=lib.bytes_of(self._name), config_toml=lib.bytes_of(self._toml))
        self.host_caps = lib.HOST_RANK_VERDICTS
        if not config.cache_config.enable_prefix_caching:
            self.host_caps |= lib.HOST_NO_DEVICE_CACHE


def regions(layout: Layout, cache: KVCacheConfig, tensors: dict[str, torch.Tensor]) -> Any:
    """ctypes array of kvc_region: where the blocks of every cacheable group lie on this rank.

    Groups that overlay each other become one region with several bits.
    """
    masks = {name: 1 << g for g, group in enumerate(cache.kv_cache_groups)
             for name in group.layer_names if layout.cacheable[g]}
    found: dict[tuple[int, int, int], Any] = {}
    for place in cache.kv_cache_tensors:
        span = cache.num_blocks * place.block_stride
        outer = place.layer_stride >= span  # one region per layer, or per KV head of a layer
        size = place.block_stride if outer else place.layer_stride
        for i, name in enumerate(place.layers):
            if name not in tensors or name not in masks:
                continue
            storage = tensors[name].untyped_storage()
            kind = {"cpu": 0, "cuda": 1}.get(storage.device.type)
            if kind is None:
                raise lib.KvcError(f"KV cache of layer {name} lies on {storage.device}: kvc knows "
                                   "host and cuda memory")
            for part in range(place.layer_stride // span if outer else 1):
                base = storage.data_ptr() + place.offset + i * place.layer_stride + part * span
                region = found.setdefault((base, place.block_stride, size), lib.make(
                    "region", device_kind=kind, device_ordinal=storage.device.index or 0,
                    layer=len(found), base=base, block_stride_bytes=place.block_stride,
                    block_bytes=size, size_bytes=storage.data_ptr() + storage.nbytes() - base))
                region.group_mask |= masks[name]
    return (lib.TYPES["region"] * len(found))(*found.values())


def rank_info(info: Any) -> dict[str, Any]:
    """What register_regions put out, as plain data for the handshake."""
    names = [n for n, _ in lib.TYPES["class"]._fields_[1:]]
    return {
        "rank": info.rank, "pages": info.pages,
        "classes": [{n: getattr(c, n) for n in names}
                    for c in lib.elements("class", info.classes)],
        "inventory": ctypes.string_at(info.inventory.data, info.inventory.size)
        if info.inventory.size else b"",
    }


def rank_infos(ranks: list[dict[str, Any]]) -> tuple[Any, list[Any]]:
    """ctypes array of kvc_rank_info for set_ranks, and what it borrows."""
    kept: list[Any] = []
    out = []
    for r in ranks:
        classes = (lib.TYPES["class"] * len(r["classes"]))(
            *(lib.make("class", **c) for c in r["classes"]))
        kept += [classes, r["inventory"]]
        out.append(lib.make("rank_info", rank=r["rank"], pages=r["pages"],
                            classes=lib.list_of(classes, len(classes)),
                            inventory=lib.bytes_of(r["inventory"])))
    return (lib.TYPES["rank_info"] * len(out))(*out), kept
