/* Finding a model in the Hugging Face cache. Layout of huggingface_hub:
 *
 *     <cache>/models--owner--name/refs/<revision>        a commit id
 *     <cache>/models--owner--name/snapshots/<commit>/    links into ../../blobs
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"

enum { MAX_REF_BYTES = 4096 };

/* base/a, freeing base; NULL in, NULL out. */
static char *join_free(char *base, const char *name)
{
    char *path = base != NULL ? di_path_join(base, name) : NULL;
    free(base);
    return path;
}

/* Owned by the caller; NULL when memory runs out, or when not even a home folder is known (*known is then false). */
static char *cache_folder(const struct di_hub_env *env, bool *known)
{
    *known = true;
    if (env->hf_hub_cache != NULL)
        return di_strndup(env->hf_hub_cache, strlen(env->hf_hub_cache));
    if (env->hf_home != NULL)
        return di_path_join(env->hf_home, "hub");
    if (env->xdg_cache_home != NULL)
        return di_path_join(env->xdg_cache_home, "huggingface/hub");
    if (env->home != NULL)
        return di_path_join(env->home, ".cache/huggingface/hub");
    *known = false;
    return NULL;
}

static bool is_id_part(const char *text, size_t len)
{
    if (len == 0 || text[0] == '.')
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                  c == '.';
        if (!ok)
            return false;
    }
    return true;
}

/* "owner/name[@revision]" -> "models--owner--name", revision. False if it is no hub id. */
static bool split_id(const char *model, char *repo, size_t size, const char **revision)
{
    const char *slash = strchr(model, '/'), *at = strchr(model, '@');
    size_t len = at != NULL ? (size_t)(at - model) : strlen(model);
    *revision = at != NULL ? at + 1 : "main";
    if (slash == NULL || (size_t)(slash - model) >= len || !is_id_part(model, (size_t)(slash - model)) ||
        !is_id_part(slash + 1, len - (size_t)(slash - model) - 1))
        return false;
    for (const char *r = *revision; *r != '\0'; r++) /* a branch may have slashes, but stays inside refs/ */
        if (*r == '.' && (r[1] == '.' || r == *revision))
            return false;
    if (**revision == '\0' || **revision == '/')
        return false;
    int used = snprintf(repo, size, "models--%.*s--%.*s", (int)(slash - model), model,
                        (int)(len - (size_t)(slash - model) - 1), slash + 1);
    return used > 0 && (size_t)used < size;
}

/* The commit that refs/<revision> names, or the revision itself when it is a commit. */
static di_status read_commit(const char *repo_path, const char *revision, char *commit, size_t size,
                             struct di_error *err)
{
    char *path = join_free(di_path_join(repo_path, "refs"), revision), *text;
    size_t len;
    if (path == NULL)
        return DI_FAIL_NOMEM(err, strlen(repo_path));
    if (!di_file_exists(path)) {
        free(path);
        snprintf(commit, size, "%s", revision);
        return DI_OK;
    }
    di_status status = di_file_read(path, MAX_REF_BYTES, &text, &len, err);
    if (status == DI_OK) {
        while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r' || text[len - 1] == ' '))
            text[--len] = '\0';
        if (!is_id_part(text, len) || len >= size)
            status = DI_FAIL(err, DI_ERR_FORMAT, "%s: does not hold a commit id", path);
        else
            memcpy(commit, text, len + 1);
        free(text);
    }
    free(path);
    return status;
}

static di_status find_snapshot(const char *model, const char *cache, const char *repo, const char *revision,
                               char **folder, struct di_error *err)
{
    char commit[256] = "";
    char *repo_path = di_path_join(cache, repo);
    if (repo_path == NULL)
        return DI_FAIL_NOMEM(err, strlen(cache));
    di_status status = read_commit(repo_path, revision, commit, sizeof commit, err);
    char *path = join_free(join_free(repo_path, "snapshots"), commit);
    if (status == DI_OK && path == NULL)
        status = DI_FAIL_NOMEM(err, strlen(cache));
    if (status == DI_OK && !di_dir_exists(path)) {
        const char *at = strchr(model, '@');
        int len = at != NULL ? (int)(at - model) : (int)strlen(model);
        status = DI_FAIL(
            err, DI_ERR_NOT_FOUND,
            "model %s is not in the Hugging Face cache (looked for %s); fetch it with: hf download %.*s%s%s", model,
            path, len, model, at != NULL ? " --revision " : "", at != NULL ? at + 1 : "");
    }
    if (status != DI_OK) {
        free(path);
        return status;
    }
    *folder = path;
    return DI_OK;
}

di_status di_hub_resolve(const char *model, const struct di_hub_env *env, char **folder, struct di_error *err)
{
    char repo[512];
    const char *revision;
    bool known;
    *folder = NULL;
    if (di_dir_exists(model)) { /* a folder wins over an id of the same spelling */
        *folder = di_strndup(model, strlen(model));
        return *folder != NULL ? DI_OK : DI_FAIL_NOMEM(err, strlen(model));
    }
    if (!split_id(model, repo, sizeof repo, &revision))
        return DI_FAIL(err, DI_ERR_NOT_FOUND, "model \"%s\" is neither a folder nor a hub id (owner/name)", model);
    char *cache = cache_folder(env, &known);
    if (cache == NULL && known)
        return DI_FAIL_NOMEM(err, sizeof repo);
    if (cache == NULL)
        return DI_FAIL(err, DI_ERR_NOT_FOUND,
                       "model %s: no Hugging Face cache is known; set HF_HOME, or fetch it with: hf download %s", model,
                       model);
    di_status status = find_snapshot(model, cache, repo, revision, folder, err);
    free(cache);
    return status;
}
