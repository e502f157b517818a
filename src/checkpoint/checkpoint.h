/* checkpoint/checkpoint.h - from a path or hub id to a validated config and named tensors.
 *
 *     di_hub_resolve("deepseek-ai/DeepSeek-V4.1-Flash-1017", &folder, &err)    a folder, or an error with the command
 *                                                                              that fetches the model
 *     di_checkpoint_open(folder, &ckpt, &err)                                  config.json, index, shards
 *     di_checkpoint_take(ckpt, name, dtype, n_dims, shape, &tensor, &err)      each tensor the model uses, once
 *     di_checkpoint_ignore(ckpt, prefix, reason)                               what is left on purpose
 *     di_checkpoint_finish(ckpt, &err)                                         every tensor taken or ignored, else an error
 */
#ifndef DI_CHECKPOINT_CHECKPOINT_H
#define DI_CHECKPOINT_CHECKPOINT_H

#include "checkpoint/safetensors.h"
#include "core/config.h"

/* Parses config.json bytes in the released nested layout into *out and validates it (di_config_validate). Unknown
 * quantisation, scoring function or rope type, a missing field, a list too short: an error naming the field. `file` is
 * used in messages. */
di_status di_config_parse(const char *json, size_t len, const char *file, struct di_config *out, struct di_error *err);

/* Finds the folder of a model. `model` is a folder (which wins), or a hub id ("owner/name", optionally
 * "owner/name@revision", revision "main" by default), looked up in the Hugging Face cache: HF_HUB_CACHE, else HF_HOME/hub,
 * else $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub; models--owner--name/refs/<revision> ->
 * snapshots/<commit>. As in huggingface_hub, a revision without a ref must itself be a commit (40 hex digits, taken as such
 * without a look at refs), and a lone snapshot that no ref names is not taken. *folder is from malloc; free() it. Not
 * there: DI_ERR_NOT_FOUND, and the message holds the path looked for and the command that fetches the model. */
struct di_hub_env { /* values of the environment variables, NULL where unset; see base/options */
    const char *hf_home, *hf_hub_cache, *xdg_cache_home, *home;
};
di_status di_hub_resolve(const char *model, const struct di_hub_env *env, char **folder, struct di_error *err);

struct di_checkpoint;
di_status di_checkpoint_open(const char *folder, struct di_checkpoint **out, struct di_error *err);
void di_checkpoint_close(struct di_checkpoint *ckpt);

const struct di_config *di_checkpoint_config(const struct di_checkpoint *ckpt);
const struct di_st_set *di_checkpoint_tensors(const struct di_checkpoint *ckpt);
const char *di_checkpoint_folder(const struct di_checkpoint *ckpt);

/* Finds a tensor, checks dtype and shape, marks it used. Missing, other dtype, other shape: an error that says what was
 * expected and what was found. Taking a tensor twice is allowed. */
di_status di_checkpoint_take(struct di_checkpoint *ckpt, const char *name, enum di_st_dtype dtype, int32_t n_dims,
                             const int64_t *shape, const struct di_st_tensor **out, struct di_error *err);

/* Marks every tensor not taken whose name matches `pattern` as left out for `reason` (a static string). Pattern: a prefix,
 * or a whole name in which one '*' stands for any run of characters ("layers.*.ffn.gate.bias_vl"). */
void di_checkpoint_ignore(struct di_checkpoint *ckpt, const char *pattern, const char *reason);

/* Fails on the first tensor neither taken nor ignored, naming it and how many more there are. */
di_status di_checkpoint_finish(struct di_checkpoint *ckpt, struct di_error *err);

/* For inspect: how tensor `index` (as in di_st_at) is used: NULL = taken, else the reason why it is ignored. */
const char *di_checkpoint_ignored_reason(const struct di_checkpoint *ckpt, size_t index);

#endif
