#include "engine/mailbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"

struct di_mailbox {
    pthread_mutex_t lock;
    pthread_cond_t posted;
    struct di_letter *first, *last; /* waiting to be taken */
    struct di_letter *blanks;
    bool ended;
};

di_status di_mailbox_open(struct di_mailbox **out, struct di_error *err)
{
    *out = di_calloc(1, sizeof **out);
    if (*out == NULL)
        return DI_FAIL_NOMEM(err, sizeof **out);
    pthread_condattr_t clock;
    pthread_mutex_init(&(*out)->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&(*out)->posted, &clock);
    pthread_condattr_destroy(&clock);
    return DI_OK;
}

static void free_letters(struct di_letter *letter)
{
    while (letter != NULL) {
        struct di_letter *next = letter->next;
        free(letter->text);
        free(letter->ids);
        free(letter->logprobs);
        free(letter->top_ids);
        free(letter->top_logprobs);
        free(letter->id);
        free(letter->stop_string);
        free(letter);
        letter = next;
    }
}

void di_mailbox_close(struct di_mailbox *box)
{
    if (box == NULL)
        return;
    free_letters(box->first);
    free_letters(box->blanks);
    pthread_cond_destroy(&box->posted);
    pthread_mutex_destroy(&box->lock);
    free(box);
}

struct di_letter *di_mailbox_blank(struct di_mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    struct di_letter *letter = box->blanks;
    if (letter != NULL)
        box->blanks = letter->next;
    pthread_mutex_unlock(&box->lock);
    if (letter == NULL)
        letter = di_calloc(1, sizeof *letter);
    if (letter != NULL) {
        letter->event = (struct di_event){.stop_token = -1};
        letter->next = NULL;
    }
    return letter;
}

void di_mailbox_post(struct di_mailbox *box, struct di_letter *letter)
{
    pthread_mutex_lock(&box->lock);
    letter->next = NULL;
    if (box->last != NULL)
        box->last->next = letter;
    else
        box->first = letter;
    box->last = letter;
    pthread_cond_signal(&box->posted);
    pthread_mutex_unlock(&box->lock);
}

static void wait_for_letter(struct di_mailbox *box, double timeout)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    double whole = timeout > 1e9 ? 1e9 : timeout;
    until.tv_sec += (time_t)whole;
    until.tv_nsec += (long)((whole - (double)(time_t)whole) * 1e9);
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    while (box->first == NULL && !box->ended) {
        int code = timeout < 0.0 ? pthread_cond_wait(&box->posted, &box->lock)
                                 : pthread_cond_timedwait(&box->posted, &box->lock, &until);
        if (code == ETIMEDOUT)
            return;
    }
}

struct di_letter *di_mailbox_take(struct di_mailbox *box, double timeout)
{
    pthread_mutex_lock(&box->lock);
    if (timeout != 0.0)
        wait_for_letter(box, timeout);
    struct di_letter *letter = box->first;
    if (letter != NULL) {
        box->first = letter->next;
        if (box->first == NULL)
            box->last = NULL;
    }
    pthread_mutex_unlock(&box->lock);
    return letter;
}

void di_mailbox_return(struct di_mailbox *box, struct di_letter *letter)
{
    pthread_mutex_lock(&box->lock);
    letter->next = box->blanks;
    box->blanks = letter;
    pthread_mutex_unlock(&box->lock);
}

void di_mailbox_end(struct di_mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    box->ended = true;
    pthread_cond_broadcast(&box->posted);
    pthread_mutex_unlock(&box->lock);
}

bool di_letter_reserve(void **array, size_t *capacity, size_t count, size_t size)
{
    if (count <= *capacity)
        return true;
    size_t wanted = count + count / 2 + 16;
    void *grown = di_realloc_array(*array, wanted, size);
    if (grown == NULL)
        return false;
    *array = grown;
    *capacity = wanted;
    return true;
}
