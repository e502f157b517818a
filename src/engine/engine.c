#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/registry.h"
#include "base/mem.h"
#include "base/options.h"
#include "engine/loop.h"
#include "model/forward.h"
#include "text/token_map.h"

#define ENGINE_VERSION "0.1.0"

di_status di_engine_find_model(const char *model, const di_options *options, char **folder, struct di_error *err)
{
    struct di_hub_env env = {
        .hf_home = di_env("HF_HOME"),
        .hf_hub_cache = di_env("HF_HUB_CACHE"),
        .xdg_cache_home = di_env("XDG_CACHE_HOME"),
        .home = di_env("HOME"),
    };
    return di_hub_resolve(model != NULL ? model : di_options_text(options, "model"), &env, folder, err);
}

static di_status open_device(struct di_engine *e, const di_options *options, struct di_error *err)
{
    e->mode = di_options_is(options, "mode", "oracle") ? DI_MODE_ORACLE
              : di_options_is(options, "mode", "fast") ? DI_MODE_FAST
                                                       : DI_MODE_NATIVE;
    e->kv_quant = di_options_is(options, "kv-quant", "on");
    if (!e->kv_quant && e->mode != DI_MODE_ORACLE)
        return DI_FAIL(err, DI_ERR_INVALID, "option kv-quant: off is a test switch of mode oracle; the mode is %s",
                       di_mode_name(e->mode));
    DI_TRY(di_backend_find(di_options_text(options, "accelerator"), di_options_text(options, "backend"), &e->ops, err));
    struct di_device_options device = {.mode = e->mode,
                                       .threads = (int32_t)di_options_int(options, "threads"),
                                       .cpu_list = di_options_text(options, "cpu-list"),
                                       .cpu_isa = di_options_text(options, "cpu-isa")};
    DI_TRY(e->ops->open(&device, &e->dev, err));
    char backend[64];
    e->ops->identity(e->dev, backend, sizeof backend);
    snprintf(e->identity, sizeof e->identity, "deepinfer-%s,%s,kv-%s", ENGINE_VERSION, backend,
             e->kv_quant ? "packed" : "f32");
    return DI_OK;
}

static di_status load_tokenizer(struct di_engine *e, const char *folder, struct di_error *err)
{
    char *path = di_path_join(folder, "tokenizer.json");
    if (path == NULL)
        return DI_FAIL_NOMEM(err, strlen(folder));
    di_status status = di_tokenizer_open(path, &e->tokenizer, err);
    int32_t vocab = e->config->vocab_size;
    if (status == DI_OK && di_tokenizer_vocab_size(e->tokenizer) > vocab)
        status = DI_FAIL(err, DI_ERR_FORMAT, "%s: has %d tokens, more than vocab_size %d of config.json", path,
                         di_tokenizer_vocab_size(e->tokenizer), vocab);
    free(path);
    if (status != DI_OK || e->config->n_engram_layers == 0)
        return status;
    e->token_map = di_calloc((size_t)vocab, sizeof *e->token_map);
    if (e->token_map == NULL)
        return DI_FAIL_NOMEM(err, (size_t)vocab * sizeof *e->token_map);
    int32_t n_compressed;
    DI_TRY(di_token_map_build(e->tokenizer, vocab, e->token_map, &n_compressed, err));
    if (n_compressed != e->config->engram_compressed_vocab_size)
        return DI_FAIL(err, DI_ERR_FORMAT,
                       "tokenizer.json gives %d compressed ids, engram_compressed_vocab_size of config.json says %d: "
                       "Engram would hash into wrong rows",
                       n_compressed, e->config->engram_compressed_vocab_size);
    return DI_OK;
}

enum { PAGE_RECORD = 700 };           /* of the pool and the prefix cache, for each page */
enum { ROUNDING_BYTES = 256 * 1024 }; /* stacks, and what buffers take beyond their size: whole pages */

static uint64_t token_map_bytes(const struct di_engine *e)
{
    return e->token_map != NULL ? (uint64_t)e->config->vocab_size * sizeof *e->token_map : 0;
}

enum { POOL_TOKENS = 65536, LOGIT_ROWS = 32 };

/* What the engine thread will work with. */
static di_status set_loop(struct di_engine *e, const di_options *options, struct di_error *err)
{
    struct di_loop_options *o = &e->loop_options;
    int64_t tokens = di_options_int(options, "kv-cache-tokens");
    if (tokens == 0)
        tokens = e->max_model_len > POOL_TOKENS ? e->max_model_len : POOL_TOKENS;
    *o = (struct di_loop_options){
        .max_rows = e->max_rows,
        .max_seqs = (int32_t)di_options_int(options, "max-num-seqs"),
        .pool_pages = (tokens + DI_PAGE_TOKENS - 1) / DI_PAGE_TOKENS,
        .async = di_options_is(options, "async", "on"),
        .prefix_cache = di_options_is(options, "prefix-cache", "on"),
        .bounded_replay = di_options_is(options, "bounded-replay", "on"),
        .snapshot_bytes = (size_t)di_options_int(options, "snapshot-mb") << 20,
        .truncation = di_options_is(options, "truncation", "off")     ? DI_TRUNCATION_OFF
                      : di_options_is(options, "truncation", "exact") ? DI_TRUNCATION_EXACT
                                                                      : DI_TRUNCATION_COMPACT,
        .keep = di_options_int(options, "truncation-keep"),
    };
    o->max_logits = o->max_seqs > LOGIT_ROWS ? o->max_seqs : LOGIT_ROWS;
    o->max_length = e->max_model_len < o->pool_pages * DI_PAGE_TOKENS ? e->max_model_len
                                                                      : o->pool_pages * DI_PAGE_TOKENS;
    if (o->pool_pages > INT32_MAX)
        return DI_FAIL(err, DI_ERR_RANGE, "option kv-cache-tokens: %lld is more than pages can be numbered",
                       (long long)tokens);
    if (o->truncation == DI_TRUNCATION_COMPACT && o->keep < e->config->sliding_window)
        return DI_FAIL(err, DI_ERR_RANGE, "option truncation-keep: %lld is less than the model's window of %d",
                       (long long)o->keep, e->config->sliding_window);
    return DI_OK;
}

int64_t di_engine_longest(const struct di_engine *e)
{
    return e->loop_options.max_length;
}

static di_status set_limits(struct di_engine *e, const di_options *options, struct di_error *err)
{
    int64_t context = e->config->max_position_embeddings, wanted = di_options_int(options, "max-model-len");
    if (wanted > context)
        return DI_FAIL(err, DI_ERR_RANGE, "option max-model-len: %lld is more than the model's context of %lld",
                       (long long)wanted, (long long)context);
    e->max_model_len = wanted == 0 ? context : wanted;
    int64_t rows = di_options_int(options, "max-num-batched-tokens"), seqs = di_options_int(options, "max-num-seqs");
    e->max_rows = (int32_t)(rows < e->max_model_len || seqs > 1 ? rows : e->max_model_len);
    return set_loop(e, options, err);
}

static di_status load(struct di_engine *e, const char *folder, const di_options *options, struct di_error *err)
{
    DI_TRY(di_checkpoint_open(folder, &e->ckpt, err));
    e->config = di_checkpoint_config(e->ckpt);
    di_layer_plan_derive(e->config, &e->plan);
    DI_TRY(set_limits(e, options, err));
    DI_TRY(open_device(e, options, err));
    DI_TRY(di_weights_bind(e->ckpt, &e->plan, e->ops, e->dev, &e->weights, err));
    di_cache_layout_make(e->config, &e->plan, e->kv_quant, &e->layout);
    DI_TRY(load_tokenizer(e, folder, err));
    uint64_t held = di_engine_anonymous_memory(), map = token_map_bytes(e);
    e->process_bytes = (held > map ? held - map : 0) + ROUNDING_BYTES;
    return DI_OK;
}

di_status di_engine_load(const char *model, const di_options *options, struct di_engine **out, struct di_error *err)
{
    *out = NULL;
    di_options *own = NULL;
    if (options == NULL) {
        DI_TRY(di_options_create(&own, err));
        options = own;
    }
    char *folder = NULL;
    struct di_engine *e = di_calloc(1, sizeof *e);
    di_status status = e != NULL ? DI_OK : DI_FAIL_NOMEM(err, sizeof *e);
    if (status == DI_OK)
        status = di_engine_find_model(model, options, &folder, err);
    if (status == DI_OK)
        status = load(e, folder, options, err);
    free(folder);
    di_options_free(own);
    if (status != DI_OK) {
        di_engine_close(e);
        return status;
    }
    *out = e;
    return DI_OK;
}

void di_engine_memory_plan(const struct di_engine *e, struct di_memory_term out[DI_MEMORY_TERMS])
{
    const struct di_loop_options *o = &e->loop_options;
    int32_t n = 0;
    out[n++] = (struct di_memory_term){"weights", "mapped from the checkpoint, used in place",
                                       di_st_total_bytes(di_checkpoint_tensors(e->ckpt)), false};
    out[n++] = (struct di_memory_term){"kv-pages", "global KV and index keys for kv-cache-tokens tokens",
                                       (uint64_t)o->pool_pages * (e->layout.page_bytes + PAGE_RECORD), true};
    out[n++] = (struct di_memory_term){"rings", "window rings and compressor tails of max-num-seqs sequences",
                                       (uint64_t)o->max_seqs * di_cache_private_bytes(&e->layout), true};
    out[n++] = (struct di_memory_term){"snapshots", "states of prompt and output ends, at most snapshot-mb",
                                       o->prefix_cache ? o->snapshot_bytes : 0, true};
    out[n++] = (struct di_memory_term){
        "workspace", "activations of one step of max-num-batched-tokens rows",
        di_model_workspace_bytes(e->config, e->ops->act_bytes, e->max_rows, o->max_logits), true};
    out[n++] = (struct di_memory_term){"token-map", "compressed token ids of Engram", token_map_bytes(e), true};
    out[n++] = (struct di_memory_term){"scratch", "what operations work in, of one step of max-num-batched-tokens rows",
                                       e->ops->scratch_bytes(e->dev, e->config, e->max_rows, e->max_model_len), true};
    out[n++] = (struct di_memory_term){
        "process", "tokenizer, tensor directory, runtime: what the process held once loaded, and 256 KiB",
        e->process_bytes, true};
}

uint64_t di_engine_physical_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_size = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_size > 0 ? (uint64_t)pages * (uint64_t)page_size : 0;
}

uint64_t di_engine_anonymous_memory(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long long size, resident = 0, shared = 0; /* pages; shared: of files or of shared memory */
    if (f == NULL)
        return 0;
    if (fscanf(f, "%llu %llu %llu", &size, &resident, &shared) != 3)
        resident = shared = 0;
    fclose(f);
    long page_size = sysconf(_SC_PAGESIZE);
    return resident > shared && page_size > 0 ? (resident - shared) * (uint64_t)page_size : 0;
}

/* Refuses what cannot fit before anything large is allocated, naming the largest term. */
static di_status check_memory(const struct di_engine *e, struct di_error *err)
{
    struct di_memory_term terms[DI_MEMORY_TERMS];
    di_engine_memory_plan(e, terms);
    uint64_t physical = di_engine_physical_memory(), total = 0;
    int32_t largest = 1;
    for (int32_t i = 0; i < DI_MEMORY_TERMS; i++) {
        if (!terms[i].allocated)
            continue;
        total += terms[i].bytes;
        if (terms[i].bytes > terms[largest].bytes)
            largest = i;
    }
    if (physical == 0 || total <= physical)
        return DI_OK;
    return DI_FAIL(
        err, DI_ERR_LIMIT,
        "the memory plan needs %llu bytes and this machine has %llu; the largest term is %s (%s): %llu bytes. "
        "Lower kv-cache-tokens, max-num-seqs, snapshot-mb or max-num-batched-tokens",
        (unsigned long long)total, (unsigned long long)physical, terms[largest].term, terms[largest].note,
        (unsigned long long)terms[largest].bytes);
}

di_status di_engine_start(struct di_engine *e, struct di_error *err)
{
    DI_TRY(check_memory(e, err));
    return di_loop_open(e, &e->loop_options, &e->loop, err);
}

void di_engine_close(di_engine *e)
{
    if (e == NULL)
        return;
    di_loop_close(e->loop);
    di_tokenizer_close(e->tokenizer);
    free(e->token_map);
    di_weights_free(&e->weights);
    if (e->dev != NULL)
        e->ops->close(e->dev);
    di_checkpoint_close(e->ckpt);
    free(e);
}
