/* Finding a model in the Hugging Face cache. Layout of huggingface_hub, and looked up as by its own
 * snapshot_download(local_files_only=True):
 *
 *     <cache>/models--owner--name/refs/<revision>        a commit id
 *     <cache>/models--owner--name/snapshots/<commit>/    links into ../../blobs
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"

enum { MAX_REF_BYTES = 4096, MAX_ID_PART = 96, COMMIT_CHARS = 40 };

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

/* Of a repository id, as the hub allows it: letters, digits and "-_.", none of "--", "..", nor "-" or "." at an end. */
static bool is_id_part(const char *text, size_t len)
{
    if (len == 0 || len > MAX_ID_PART)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        bool inner = (c == '-' || c == '.') && i > 0 && i + 1 < len && text[i - 1] != c;
        if (!letter && !inner)
            return false;
    }
    return true;
}

static bool is_commit(const char *text)
{
    return strlen(text) == COMMIT_CHARS && strspn(text, "0123456789abcdef") == COMMIT_CHARS;
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

static di_status not_cached(const char *model, const char *path, struct di_error *err)
{
    const char *at = strchr(model, '@');
    int len = at != NULL ? (int)(at - model) : (int)strlen(model);
    return DI_FAIL(err, DI_ERR_NOT_FOUND,
                   "model %s is neither a folder nor in the Hugging Face cache (looked for %s); fetch it with: "
                   "hf download %.*s%s%s",
                   model, path, len, model, at != NULL ? " --revision " : "", at != NULL ? at + 1 : "");
}

/* The commit that refs/<revision> names, or the revision itself when it is a commit. No other snapshot is ever taken, even
 * if there is just one: huggingface_hub does not guess either. */
static di_status read_commit(const char *model, const char *repo_path, const char *revision, char *commit, size_t size,
                             struct di_error *err)
{
    size_t len;
    if (is_commit(revision)) {
        memcpy(commit, revision, COMMIT_CHARS + 1);
        return DI_OK;
    }
    char *path = join_free(di_path_join(repo_path, "refs"), revision), *text;
    if (path == NULL)
        return DI_FAIL_NOMEM(err, strlen(repo_path));
    if (!di_file_exists(path)) {
        di_status missing = not_cached(model, path, err);
        free(path);
        return missing;
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
    di_status status = read_commit(model, repo_path, revision, commit, sizeof commit, err);
    char *path = join_free(join_free(repo_path, "snapshots"), commit);
    if (status == DI_OK && path == NULL)
        status = DI_FAIL_NOMEM(err, strlen(cache));
    if (status == DI_OK && !di_dir_exists(path))
        status = not_cached(model, path, err);
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
        return not_cached(model, "a cache folder: HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME and HOME are all unset", err);
    di_status status = find_snapshot(model, cache, repo, revision, folder, err);
    free(cache);
    return status;
}
