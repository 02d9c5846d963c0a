"""vLLM: a KV connector, so that vLLM stores and loads its KV through this cache.

`connector` is the only module that imports vLLM; `paged` is the only other one that imports torch.
"""
