/* engine/engine.h - an opened model, as the files of this folder see it.
 *
 * Opening has two halves: di_engine_load() maps and checks everything and allocates nothing large (inspect stops here);
 * di_engine_start() allocates the caches and the activations of a step, after the memory plan has been found to fit.
 */
#ifndef DI_ENGINE_ENGINE_H
#define DI_ENGINE_ENGINE_H

#include "deepinfer/engine.h"

#include "cache/layout.h"
#include "checkpoint/checkpoint.h"
#include "core/reach.h"
#include "model/weights.h"
#include "ops/ops.h"

struct di_loop;

/* How the engine thread works (loop.h), from the options. */
struct di_loop_options {
    int32_t max_rows, max_seqs, max_logits;
    int64_t pool_pages, max_length;
    bool async, prefix_cache, bounded_replay;
    bool by_hand; /* tests: no thread, di_loop_turn() is called instead */
    size_t snapshot_bytes;
    enum di_truncation truncation;
    int64_t keep;
};

struct di_engine {
    struct di_checkpoint *ckpt;
    const struct di_config *config; /* owned by ckpt */
    struct di_layer_plan_list plan;
    const struct di_ops *ops;
    struct di_device *dev;
    enum di_mode mode;
    bool kv_quant;
    struct di_weights weights;
    di_tokenizer *tokenizer;
    int32_t *token_map; /* [vocab], NULL without Engram */
    int64_t max_model_len;
    int32_t max_rows;       /* of a step */
    uint64_t process_bytes; /* anonymous memory of the process once the model was loaded, the token map apart */
    struct di_cache_layout layout;
    char identity[128];
    struct di_loop_options loop_options;
    struct di_loop *loop; /* after di_engine_start */
};

di_status di_engine_load(const char *model, const di_options *options, struct di_engine **out, struct di_error *err);
di_status di_engine_start(struct di_engine *engine, struct di_error *err);

/* Most tokens of one sequence: what the context and the KV pages allow. */
int64_t di_engine_longest(const struct di_engine *engine);

/* The folder that holds `model` (NULL: the option "model"); free() it. */
di_status di_engine_find_model(const char *model, const di_options *options, char **folder, struct di_error *err);

/* What the engine will hold, term by term. */
struct di_memory_term {
    const char *term, *note; /* static */
    uint64_t bytes;
    bool allocated; /* memory of our own; false: mapped from the checkpoint */
};
enum { DI_MEMORY_TERMS = 8 };
/* Bytes of memory of this machine, and of anonymous memory that this process holds now; 0 where the system does not say. */
uint64_t di_engine_physical_memory(void);
uint64_t di_engine_anonymous_memory(void);
void di_engine_memory_plan(const struct di_engine *engine, struct di_memory_term out[DI_MEMORY_TERMS]);

#endif
