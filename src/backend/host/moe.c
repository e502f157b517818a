/* Router and experts. spec/model.md section 11. */
#include <math.h>
#include <string.h>

#include "backend/host/host.h"
#include "backend/host/math.h"

struct gate_job {
    struct di_device *dev;
    const struct di_gate_args *a;
    const float *products; /* [n, E] */
};

/* Index of the greatest value not yet taken; ties to the lowest; NaN loses, and is taken only when nothing else is left. */
static int32_t next_best(const float *values, const bool *taken, int32_t n)
{
    int32_t best = -1;
    for (int32_t e = 0; e < n; e++)
        if (!taken[e] && (best < 0 || values[e] > values[best] || (isnan(values[best]) && !isnan(values[e]))))
            best = e;
    return best;
}

/* Bytes of two floats and a flag per expert, rounded up to 64. */
static size_t gate_tables(int32_t n_experts)
{
    return ((size_t)n_experts * (2 * sizeof(float) + sizeof(bool)) + 63) & ~(size_t)63;
}

static void gate_rows(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct gate_job *job = arg;
    const struct di_gate_args *a = job->a;
    int32_t n_experts = (int32_t)a->weight.rows;
    float *score = (void *)job->dev->member[member], *biased = score + n_experts;
    bool *taken = (void *)(biased + n_experts);
    for (int64_t i = begin; i < end; i++) {
        for (int32_t e = 0; e < n_experts; e++) {
            score[e] = sqrtf(di_host_softplus(job->products[i * n_experts + e] / a->temp));
            biased[e] = score[e] + a->bias[e];
        }
        memset(taken, 0, (size_t)n_experts * sizeof *taken);
        float sum = 0.0F, last = 0.0F;
        for (int32_t k = 0; k < a->topk; k++) {
            int32_t e = next_best(biased, taken, n_experts);
            taken[e] = true;
            a->ids[i * a->topk + k] = e;
            sum += score[e];
            last = biased[e];
        }
        for (int32_t k = 0; k < a->topk; k++)
            a->weights[i * a->topk + k] = score[a->ids[i * a->topk + k]] / (sum + 1e-20F) * a->scaling;
        if (a->margin != NULL) {
            int32_t e = next_best(biased, taken, n_experts);
            a->margin[i] = e < 0 ? INFINITY : last - biased[e];
        }
    }
}

void di_host_gate(struct di_device *dev, const struct di_gate_args *a)
{
    struct gate_job job = {dev, a, di_host_multiply(dev, &a->weight, a->x, a->n)};
    if (job.products == NULL || !di_host_reserve(dev, 0, gate_tables((int32_t)a->weight.rows)))
        return;
    di_host_elements(dev, a->n, 32 * a->weight.rows, gate_rows, &job); /* a transcendental is worth many elements */
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Experts. The slots (row, k) are grouped by expert, so that a weight is read once for all that chose it. Three loops: inputs
 * made ready; gate and up, joined by SwiGLU at once; down. Members take contiguous shares of all the chosen weights. */

enum { CAPACITY = 128 }; /* slots that one group holds; an expert with more has several groups */

struct group {
    const struct di_expert *expert;
    int32_t first, count; /* in the order of `order` */
};

struct experts_job {
    struct di_device *dev;
    const struct di_expert *experts;
    const float *x, *weights; /* weights NULL: all 1 */
    float limit;
    int32_t dim, inner, topk, slots;
    int64_t unit;
    float *out;
    int32_t *order; /* [slots] slots by expert, -1 left out */
    int32_t *place; /* [n_experts] of the sort */
    struct group *groups;
    int32_t n_groups, used; /* used: slots in groups */
    int64_t *start;         /* [n_groups + 1] cost of all groups before */
    float *gate, *up;       /* [slots, inner] */
    struct di_host_input *inputs;
    struct di_host_pair *pairs; /* two for each slot, in group order */
    unsigned char *rooms;
};

static size_t align64(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

enum { TABLES = 9 };

static void table_sizes(size_t slots, size_t dim, size_t inner, size_t n_experts, size_t sizes[TABLES])
{
    const size_t all[TABLES] = {slots * sizeof(int32_t),
                                slots * sizeof(struct group),
                                (slots + 1) * sizeof(int64_t),
                                slots * inner * sizeof(float),
                                slots * inner * sizeof(float),
                                slots * sizeof(struct di_host_input),
                                2 * slots * sizeof(struct di_host_pair),
                                n_experts * sizeof(int32_t),
                                slots * di_host_input_bytes((int32_t)(dim > inner ? dim : inner))};
    for (int32_t i = 0; i < TABLES; i++)
        sizes[i] = align64(all[i]);
}

size_t di_host_experts_bytes(int64_t slots, int32_t dim, int32_t inner, int32_t n_experts)
{
    size_t sizes[TABLES], total = 0;
    table_sizes((size_t)slots, (size_t)dim, (size_t)inner, (size_t)n_experts, sizes);
    for (int32_t i = 0; i < TABLES; i++)
        total += sizes[i];
    return total;
}

/* Lays the job's tables into the device's shared scratch. */
static bool experts_reserve(struct experts_job *job, int32_t n_experts)
{
    struct di_device *dev = job->dev;
    int32_t widest = job->dim > job->inner ? job->dim : job->inner;
    size_t sizes[TABLES];
    void *at[TABLES];
    table_sizes((size_t)job->slots, (size_t)job->dim, (size_t)job->inner, (size_t)n_experts, sizes);
    if (!di_host_reserve(dev, di_host_experts_bytes(job->slots, job->dim, job->inner, n_experts),
                         dev->k->product_bytes(widest, job->slots < CAPACITY ? job->slots : CAPACITY)))
        return false;
    unsigned char *next = dev->shared;
    for (int32_t i = 0; i < TABLES; i++) {
        at[i] = next;
        next += sizes[i];
    }
    job->order = at[0];
    job->groups = at[1];
    job->start = at[2];
    job->gate = at[3];
    job->up = at[4];
    job->inputs = at[5];
    job->pairs = at[6];
    job->place = at[7];
    job->rooms = at[8];
    return true;
}

static void add_group(struct experts_job *job, const struct di_expert *expert, int32_t count)
{
    for (; count > 0; count -= CAPACITY) {
        int32_t here = count < CAPACITY ? count : CAPACITY;
        job->groups[job->n_groups++] = (struct group){expert, job->used, here};
        job->used += here;
    }
}

/* Groups the slots by expert, in ascending order of both (a counting sort). */
static void group_slots(struct experts_job *job, const int32_t *ids, int32_t n_experts)
{
    job->n_groups = job->used = 0;
    if (ids == NULL) {
        for (int32_t i = 0; i < job->slots; i++)
            job->order[i] = i;
        add_group(job, job->experts, job->slots);
        return;
    }
    memset(job->place, 0, (size_t)n_experts * sizeof *job->place);
    for (int32_t slot = 0; slot < job->slots; slot++)
        if (ids[slot] >= 0)
            job->place[ids[slot]]++;
    for (int32_t e = 0; e < n_experts; e++) {
        int32_t count = job->place[e];
        job->place[e] = job->used;
        add_group(job, &job->experts[e], count);
    }
    for (int32_t slot = 0; slot < job->slots; slot++)
        if (ids[slot] >= 0)
            job->order[job->place[ids[slot]]++] = slot;
}

static void prepare_inputs(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct experts_job *job = arg;
    (void)member;
    for (int64_t i = begin; i < end; i++)
        job->inputs[i] = job->dev->k->prepare(di_host_rule(job->dev, job->experts->w1.format), job->x + i * job->dim,
                                              job->dim, job->rooms + (size_t)i * di_host_input_bytes(job->dim));
}

static void prepare_hidden(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct experts_job *job = arg;
    (void)member;
    for (int64_t i = begin; i < end; i++)
        job->inputs[i] = job->dev->k->prepare(di_host_rule(job->dev, job->experts->w2.format),
                                              job->gate + job->order[i] * (int64_t)job->inner, job->inner,
                                              job->rooms + (size_t)i * di_host_input_bytes(job->inner));
}

/* A unit of rows costs its bytes, read once, and its products. */
static int64_t unit_cost(const struct group *g)
{
    return 4 + g->count;
}

/* Prefix sums of the groups' costs for matrices of `rows` rows; returns the total. */
static int64_t cost_groups(struct experts_job *job, int64_t rows)
{
    job->start[0] = 0;
    for (int32_t g = 0; g < job->n_groups; g++)
        job->start[g + 1] = job->start[g] + (rows + job->unit - 1) / job->unit * unit_cost(&job->groups[g]);
    return job->start[job->n_groups];
}

/* The rows of group g whose units start within [begin, end) of the cost. False for none. */
static bool share_of(const struct experts_job *job, int32_t g, int64_t rows, int64_t begin, int64_t end, int64_t *from,
                     int64_t *to)
{
    int64_t cost = unit_cost(&job->groups[g]), base = job->start[g];
    int64_t first = begin <= base ? 0 : (begin - base + cost - 1) / cost;
    int64_t last = end <= base ? 0 : (end - base + cost - 1) / cost;
    *from = first * job->unit < rows ? first * job->unit : rows;
    *to = last * job->unit < rows ? last * job->unit : rows;
    return *from < *to;
}

/* out = weight * (g * sigmoid(g) * u); section 11: the gate g is bounded from above only, u on both sides. */
DI_VECTOR static void swiglu_all(const float *g, const float *u, const float *sigmoid, float weight, int64_t n,
                                 float *out)
{
    for (int64_t r = 0; r < n; r++)
        out[r] = weight * (g[r] * sigmoid[r] * u[r]);
}

DI_VECTOR static void bound(float *x, int64_t n, float least, float most)
{
    for (int64_t r = 0; r < n; r++)
        x[r] = x[r] > most ? most : x[r] < least ? least : x[r];
}

static void swiglu(const struct experts_job *job, int32_t slot, int64_t from, int64_t to)
{
    const struct di_device *dev = job->dev;
    float weight = job->weights != NULL ? job->weights[slot] : 1.0F;
    for (int64_t r = from; r < to; r += 64) {
        int64_t n = to - r < 64 ? to - r : 64;
        float *gate = job->gate + slot * (int64_t)job->inner + r, *up = job->up + slot * (int64_t)job->inner + r;
        float sigmoid[64];
        di_host_acts(dev, gate, n);
        di_host_acts(dev, up, n);
        bound(gate, n, -INFINITY, job->limit);
        bound(up, n, -job->limit, job->limit);
        di_host_sigmoid_all(gate, n, sigmoid);
        swiglu_all(gate, up, sigmoid, weight, n, gate);
        di_host_acts(dev, gate, n);
    }
}

static void gate_up(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct experts_job *job = arg;
    struct di_device *dev = job->dev;
    enum di_host_rule rule = di_host_rule(dev, job->experts->w1.format);
    for (int32_t g = 0; g < job->n_groups && job->start[g] < end; g++) {
        const struct group *group = &job->groups[g];
        int64_t from, to;
        if (!share_of(job, g, job->inner, begin, end, &from, &to))
            continue;
        const struct di_host_pair *gate = job->pairs + 2 * group->first, *up = gate + group->count;
        dev->k->products(rule, &group->expert->w1, from, to, gate, group->count, dev->member[member]);
        dev->k->products(rule, &group->expert->w3, from, to, up, group->count, dev->member[member]);
        for (int32_t i = 0; i < group->count; i++)
            swiglu(job, job->order[group->first + i], from, to);
    }
}

static void down(void *arg, int64_t begin, int64_t end, int32_t member)
{
    const struct experts_job *job = arg;
    struct di_device *dev = job->dev;
    enum di_host_rule rule = di_host_rule(dev, job->experts->w2.format);
    for (int32_t g = 0; g < job->n_groups && job->start[g] < end; g++) {
        const struct group *group = &job->groups[g];
        int64_t from, to;
        if (!share_of(job, g, job->dim, begin, end, &from, &to))
            continue;
        const struct di_host_pair *pairs = job->pairs + 2 * group->first;
        dev->k->products(rule, &group->expert->w2, from, to, pairs, group->count, dev->member[member]);
        for (int32_t i = 0; i < group->count; i++)
            di_host_acts(dev, pairs[i].out + from, to - from);
    }
}

static void run_experts(struct experts_job *job, const int32_t *ids, int32_t n_experts)
{
    struct di_device *dev = job->dev;
    int32_t rows = job->slots / job->topk;
    if (!experts_reserve(job, n_experts))
        return;
    group_slots(job, ids, n_experts);
    for (int32_t slot = 0; ids != NULL && slot < job->slots; slot++)
        if (ids[slot] < 0)
            memset(job->out + slot * (int64_t)job->dim, 0, (size_t)job->dim * sizeof(float));
    job->unit = di_host_row_unit(dev, job->inner);
    if (rows < 4)
        prepare_inputs(job, 0, rows, 0);
    else
        di_host_parallel(dev, rows, prepare_inputs, job);
    for (int32_t g = 0; g < job->n_groups; g++) {
        const struct group *group = &job->groups[g];
        struct di_host_pair *gate = job->pairs + 2 * group->first, *up = gate + group->count;
        for (int32_t i = 0; i < group->count; i++) {
            int64_t slot = job->order[group->first + i];
            gate[i] = (struct di_host_pair){&job->inputs[slot / job->topk], job->gate + slot * job->inner};
            up[i] = (struct di_host_pair){gate[i].in, job->up + slot * job->inner};
        }
    }
    di_host_parallel(dev, cost_groups(job, job->inner), gate_up, job);
    di_host_parallel(dev, job->used, prepare_hidden, job);
    for (int32_t g = 0; g < job->n_groups; g++) {
        const struct group *group = &job->groups[g];
        for (int32_t i = 0; i < group->count; i++) {
            int32_t at = group->first + i;
            job->pairs[2 * group->first + i] = (struct di_host_pair){&job->inputs[at],
                                                                     job->out + job->order[at] * (int64_t)job->dim};
        }
    }
    di_host_parallel(dev, cost_groups(job, job->dim), down, job);
}

void di_host_experts(struct di_device *dev, const struct di_experts_args *a)
{
    struct experts_job job = {.dev = dev,
                              .experts = a->experts,
                              .x = a->x,
                              .weights = a->weights,
                              .limit = a->limit,
                              .dim = a->dim,
                              .inner = a->inner,
                              .topk = a->topk,
                              .slots = a->n * a->topk,
                              .out = a->out};
    run_experts(&job, a->ids, a->n_experts);
}

void di_host_shared_expert(struct di_device *dev, const struct di_shared_expert_args *a)
{
    struct experts_job job = {.dev = dev,
                              .experts = &a->expert,
                              .x = a->x,
                              .limit = a->limit,
                              .dim = a->dim,
                              .inner = a->inner,
                              .topk = 1,
                              .slots = a->n,
                              .out = a->out};
    run_experts(&job, NULL, 1);
}

DI_VECTOR static void add(const float *x, int32_t n, float *sum)
{
    for (int32_t c = 0; c < n; c++)
        sum[c] += x[c];
}

struct combine_job {
    struct di_device *dev;
    const struct di_combine_args *a;
};

static void combine_rows(void *arg, int64_t begin, int64_t end, int32_t member)
{
    (void)member;
    const struct combine_job *job = arg;
    const struct di_combine_args *a = job->a;
    for (int64_t i = begin; i < end; i++) {
        float *out = (float *)a->out + i * a->dim;
        memset(out, 0, (size_t)a->dim * sizeof *out);
        for (int32_t k = 0; k < a->topk; k++)
            add((const float *)a->slots + (i * a->topk + k) * a->dim, a->dim, out);
        add((const float *)a->shared + i * a->dim, a->dim, out);
        di_host_acts(job->dev, out, a->dim);
    }
}

void di_host_combine(struct di_device *dev, const struct di_combine_args *a)
{
    struct combine_job job = {dev, a};
    di_host_elements(dev, a->n, (int64_t)a->topk * a->dim, combine_rows, &job);
}
