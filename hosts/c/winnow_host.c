/* winnow_host.c - the smallest useful hosts. Without an option: one layer's keys and values go into f16 buffers that
 * Winnow allocates, one query token attends to them, and the output and the probabilities come back. With --cache:
 * Winnow has the keys and values of two layers, and stays inside a budget however many tokens come. With --experts: it
 * evicts by what a made-up router chose.
 *
 *     winnow_host [--cache | --experts] [BACKEND [DEVICE]]     BACKEND: "opencl", "reference" or a path
 *                                                              DEVICE: "cpu", "gpu", a number, or a part of a name
 *
 * A runtime does the same once per layer and token. Only winnow_loader.h is needed, which includes winnow.h and
 * winnow_cache.h.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "winnow_loader.h"

enum { KV_HEADS = 2, Q_HEADS = 4, HEAD_SIZE = 64, SLOTS = 8, TOKENS = 5 };

static const winnow_api *api;
static const winnow_cache_api *caches; /* NULL where the backend has none */
static winnow_context *context;

/* Every call returns a status; the text of a failure is with the context, or in `message` when there is none yet. */
static void check(int32_t status, const char *call, const char *message) {
    if (status != WINNOW_OK) {
        fprintf(stderr, "%s: %s: %s\n", call, api != NULL ? api->status_name(status) : "no backend",
                message != NULL ? message : api->context_message(context));
        exit(1);
    }
}

/* A dense [1, heads, rows, size] view of a buffer, or of host memory where buffer is NULL. Strides are bytes. */
static winnow_tensor view(uint32_t type, int64_t element, winnow_buffer *buffer, void *data, int64_t heads,
                          int64_t rows, int64_t size) {
    winnow_tensor tensor;
    memset(&tensor, 0, sizeof tensor); /* zero means absent or default, here and everywhere */
    tensor.struct_size = sizeof tensor;
    tensor.type = type;
    tensor.buffer = buffer;
    tensor.data = data;
    tensor.shape[0] = 1, tensor.shape[1] = heads, tensor.shape[2] = rows, tensor.shape[3] = size;
    tensor.stride[3] = element;
    tensor.stride[2] = element * size;
    tensor.stride[1] = element * size * rows;
    tensor.stride[0] = element * size * rows * heads;
    return tensor;
}

static winnow_buffer *allocate(uint64_t size) {
    winnow_buffer_desc desc;
    winnow_buffer *buffer = NULL;
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.kind = WINNOW_BUFFER_ALLOCATE;
    desc.size = size;
    check(api->buffer_create(context, &desc, &buffer), "buffer_create", NULL);
    return buffer;
}

/* One step of one layer, over rows that the host keeps: append, then attend. */
static void attend_once(void) {
    static float k[KV_HEADS][TOKENS][HEAD_SIZE], v[KV_HEADS][TOKENS][HEAD_SIZE], q[Q_HEADS][HEAD_SIZE];
    static float out[Q_HEADS][HEAD_SIZE], scores[Q_HEADS][TOKENS];
    int32_t slots[TOKENS] = {0, 1, 2, 3, 4}; /* the cache's row that each token goes to */
    const uint64_t cache_size = (uint64_t)KV_HEADS * SLOTS * HEAD_SIZE * 2;
    char variant[64];
    int h, t, i;

    /* Token t's key points along axis t and its value is t everywhere (100 + t in KV head 1); query head h points along
     * axis h, so that it sees token h with a logit of 16 / sqrt(64) = 2 and the others with 0. */
    for (h = 0; h < KV_HEADS; ++h) {
        for (t = 0; t < TOKENS; ++t) {
            k[h][t][t] = 1.0f;
            for (i = 0; i < HEAD_SIZE; ++i) v[h][t][i] = (float)(100 * h + t);
        }
    }
    for (h = 0; h < Q_HEADS; ++h) q[h][h] = 16.0f;

    /* The cache: f16, in memory of the device. Append the dense f32 rows; they are converted on the way. */
    winnow_buffer *k_buffer = allocate(cache_size), *v_buffer = allocate(cache_size);
    winnow_tensor k_src = view(WINNOW_TYPE_F32, 4, NULL, k, KV_HEADS, TOKENS, HEAD_SIZE);
    winnow_tensor v_src = view(WINNOW_TYPE_F32, 4, NULL, v, KV_HEADS, TOKENS, HEAD_SIZE);
    winnow_tensor k_cache = view(WINNOW_TYPE_F16, 2, k_buffer, NULL, KV_HEADS, SLOTS, HEAD_SIZE);
    winnow_tensor v_cache = view(WINNOW_TYPE_F16, 2, v_buffer, NULL, KV_HEADS, SLOTS, HEAD_SIZE);
    winnow_tensor rows = view(WINNOW_TYPE_I32, 4, NULL, slots, 1, 1, TOKENS);
    winnow_kv_append_desc append;
    memset(&append, 0, sizeof append);
    append.struct_size = sizeof append;
    append.k_src = &k_src, append.v_src = &v_src;
    append.k_cache = &k_cache, append.v_cache = &v_cache;
    append.k_row_indices = &rows;
    check(api->kv_append(context, &append, NULL), "kv_append", NULL);

    /* Attend: one query token, four query heads on two KV heads, over the slots in use. Ask for the probabilities. */
    winnow_tensor q_in = view(WINNOW_TYPE_F32, 4, NULL, q, Q_HEADS, 1, HEAD_SIZE);
    winnow_tensor result = view(WINNOW_TYPE_F32, 4, NULL, out, Q_HEADS, 1, HEAD_SIZE);
    winnow_tensor scores_out = view(WINNOW_TYPE_F32, 4, NULL, scores, Q_HEADS, 1, TOKENS);
    winnow_sdpa_desc sdpa;
    k_cache.shape[2] = v_cache.shape[2] = TOKENS; /* a shorter view; the strides stay */
    memset(&sdpa, 0, sizeof sdpa);
    sdpa.struct_size = sizeof sdpa;
    sdpa.q = &q_in, sdpa.k = &k_cache, sdpa.v = &v_cache, sdpa.out = &result;
    sdpa.scores_mode = WINNOW_SCORES_PROBS;
    sdpa.scores_out = &scores_out;
    sdpa.is_causal = 1;
    sdpa.q_offset = TOKENS - 1; /* the query is the newest token */
    check(api->supports(context, WINNOW_OPERATION_SDPA, &sdpa, variant, sizeof variant), "supports", NULL);
    printf("attention by %s\n", variant);
    check(api->sdpa(context, &sdpa, NULL), "sdpa", NULL);
    check(api->finish(context), "finish", NULL);

    for (h = 0; h < Q_HEADS; ++h) {
        printf("head %d: output %.3f, scores", h, out[h][0]);
        for (t = 0; t < TOKENS; ++t) printf(" %.4f", scores[h][t]);
        printf("\n");
    }
    check(api->buffer_destroy(k_buffer), "buffer_destroy", NULL);
    check(api->buffer_destroy(v_buffer), "buffer_destroy", NULL);
}

/* Turns q or k of one head to the position of its token, as most models do (rotary embeddings, pairs half a head
 * apart). Winnow stores keys as they come, so a host rotates both before it hands them over. */
static void rope(float *x, int position) {
    const int half = HEAD_SIZE / 2;
    int i;
    for (i = 0; i < half; ++i) {
        const double angle = position * pow(10000.0, -2.0 * i / HEAD_SIZE), a = x[i], b = x[i + half];
        x[i] = (float)(a * cos(angle) - b * sin(angle));
        x[i + half] = (float)(a * sin(angle) + b * cos(angle));
    }
}

/* Stands for the projections of a layer of a model: q, k and v of one token. Each layer has a needle of its own, token
 * 100 of layer 0 and token 200 of layer 1, at which all its queries look: only the needle's key points along the axis
 * that turns slowest. The value of token t is t in layer 0 and 1000 + t in layer 1. */
static void project(int layer, int token, float q[][HEAD_SIZE], float k[][HEAD_SIZE], float v[][HEAD_SIZE]) {
    const int slowest = HEAD_SIZE / 2 - 1, needle = 100 * (layer + 1);
    int h, i;
    memset(q, 0, Q_HEADS * sizeof q[0]);
    memset(k, 0, KV_HEADS * sizeof k[0]);
    for (h = 0; h < Q_HEADS; ++h) {
        q[h][slowest] = 64.0f;
        rope(q[h], token);
    }
    for (h = 0; h < KV_HEADS; ++h) {
        k[h][token == needle ? slowest : token % slowest] = 1.0f;
        rope(k[h], token);
        for (i = 0; i < HEAD_SIZE; ++i) v[h][i] = (float)(1000 * layer + token);
    }
}

/* Some hundred tokens through a cache of 64: what is not attended to is evicted, layer by layer and head by head. */
static void drive_cache(void) {
    enum { LAYERS = 2, LENGTH = 600 };
    static float k[KV_HEADS][HEAD_SIZE], v[KV_HEADS][HEAD_SIZE], q[Q_HEADS][HEAD_SIZE];
    static float out[LAYERS][Q_HEADS][HEAD_SIZE];
    winnow_tensor k_view = view(WINNOW_TYPE_F32, 4, NULL, k, KV_HEADS, 1, HEAD_SIZE);
    winnow_tensor v_view = view(WINNOW_TYPE_F32, 4, NULL, v, KV_HEADS, 1, HEAD_SIZE);
    winnow_tensor q_view = view(WINNOW_TYPE_F32, 4, NULL, q, Q_HEADS, 1, HEAD_SIZE);
    winnow_tensor out_view = view(WINNOW_TYPE_F32, 4, NULL, out, Q_HEADS, 1, HEAD_SIZE);
    winnow_cache *cache = NULL;
    winnow_cache_desc desc;
    winnow_cache_stats estimate, stats;
    winnow_cache_step_desc step;
    winnow_cache_tokens look;
    int64_t kept[LENGTH];
    int layer, t, i;

    /* The string says who stays, how many, and how they are stored: docs/policies.md. */
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.config = "h2o:budget=64,k=q8_0,v=q8_0";
    desc.layers = LAYERS;
    desc.q_num_heads = Q_HEADS, desc.kv_num_heads = KV_HEADS, desc.head_size = HEAD_SIZE;
    desc.context = LENGTH;
    memset(&estimate, 0, sizeof estimate);
    estimate.struct_size = sizeof estimate;
    check(caches->estimate(context, &desc, LENGTH, &estimate), "cache_estimate", NULL);
    check(caches->create(context, &desc, &cache), "cache_create", NULL);

    memset(&step, 0, sizeof step);
    step.struct_size = sizeof step;
    step.k = &k_view, step.v = &v_view, step.q = &q_view, step.out = &out_view;
    for (t = 0; t < LENGTH; ++t) {
        for (layer = 0; layer < LAYERS; ++layer) {
            project(layer, t, q, k, v);
            step.layer = layer;
            out_view.data = out[layer];
            check(caches->step(cache, &step, NULL), "cache_step", NULL);
            check(api->finish(context), "finish", NULL); /* out is there; q, k and v may change */
        }
    }

    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    check(caches->stats(cache, -1, &stats), "cache_stats", NULL);
    printf("cache %s: %llu tokens in %llu steps\n", desc.config, (unsigned long long)stats.tokens,
           (unsigned long long)stats.steps);
    printf("bytes: %llu, estimated %llu, in F16 %llu\n", (unsigned long long)stats.bytes,
           (unsigned long long)estimate.bytes, (unsigned long long)stats.original_bytes);
    printf("evicted: %llu over layers and heads, in %llu eviction passes\n", (unsigned long long)stats.evictions,
           (unsigned long long)stats.eviction_passes);
    memset(&look, 0, sizeof look);
    look.struct_size = sizeof look;
    look.capacity = LENGTH;
    look.positions = kept;
    for (layer = 0; layer < LAYERS; ++layer) {
        check(caches->tokens(cache, 0, layer, 0, &look), "cache_tokens", NULL);
        printf("layer %d: output %.2f, from the %llu tokens that head 0 kept:", layer, out[layer][0][0],
               (unsigned long long)look.count);
        for (i = 0; i < (int)look.count; ++i) printf(" %d", (int)kept[i]);
        printf("\n");
    }
    check(caches->destroy(cache), "cache_destroy", NULL);
}

/* What a token of these experts is worth to the policy moe: docs/policies.md. Counts them in `chosen`. */
static float worth_of(const int *experts, int of_token, uint64_t *chosen, int number) {
    const double inactive = 0.5;
    double sum = 0, total = number;
    int i;
    for (i = 0; i < of_token; ++i) ++chosen[experts[i]];
    for (i = 0; i < number; ++i) total += (double)chosen[i];
    for (i = 0; i < of_token; ++i) {
        const double share = (double)(chosen[experts[i]] + 1) * number / total;
        if (share >= inactive) sum += share;
    }
    return sum > 0 ? (float)(sum / of_token) : -1.0f;
}

/* A made-up router sends each token to 2 of 8 experts; the last two get one token in 16. The cache, which would have
 * room for all tokens, evicts those that went to seldom chosen experts alone. */
static void drive_experts(void) {
    enum { LENGTH = 320, EXPERTS = 8, OF_TOKEN = 2 };
    static float k[KV_HEADS][HEAD_SIZE], v[KV_HEADS][HEAD_SIZE];
    winnow_tensor k_view = view(WINNOW_TYPE_F32, 4, NULL, k, KV_HEADS, 1, HEAD_SIZE);
    winnow_tensor v_view = view(WINNOW_TYPE_F32, 4, NULL, v, KV_HEADS, 1, HEAD_SIZE);
    winnow_cache *cache = NULL;
    winnow_cache_desc desc;
    winnow_cache_stats stats;
    winnow_cache_step_desc step;
    winnow_cache_tokens look;
    int64_t kept[LENGTH];
    int64_t t;
    uint64_t chosen[EXPERTS] = {0};
    int h, i;

    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.config = "moe:budget=1/1,experts=8,inactive=1/2,evict_inactive=on,recent=32,k=turbo4,v=turbo3";
    desc.layers = 1;
    desc.q_num_heads = Q_HEADS, desc.kv_num_heads = KV_HEADS, desc.head_size = HEAD_SIZE;
    desc.context = LENGTH;
    check(caches->create(context, &desc, &cache), "cache_create", NULL);

    memset(&step, 0, sizeof step);
    step.struct_size = sizeof step;
    step.k = &k_view, step.v = &v_view;
    for (t = 0; t < LENGTH; ++t) {
        const int is_rare = t % 16 == 8;
        const int experts[OF_TOKEN] = {is_rare ? 6 : (int)(t % 6), is_rare ? 7 : (int)((t + 1) % 6)};
        const float worth = worth_of(experts, OF_TOKEN, chosen, EXPERTS);
        check(caches->step(cache, &step, NULL), "cache_step", NULL);
        for (h = 0; h < KV_HEADS; ++h)
            check(caches->set_importance(cache, 0, 0, h, &t, &worth, 1), "cache_set_importance", NULL);
    }

    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    check(caches->stats(cache, -1, &stats), "cache_stats", NULL);
    printf("experts chosen:");
    for (i = 0; i < EXPERTS; ++i) printf(" %llu", (unsigned long long)chosen[i]);
    memset(&look, 0, sizeof look);
    look.struct_size = sizeof look;
    look.capacity = LENGTH;
    look.positions = kept;
    check(caches->tokens(cache, 0, 0, 0, &look), "cache_tokens", NULL);
    printf("\nbytes: %llu, in F16 %llu\nkept of layer 0, head 0:", (unsigned long long)stats.bytes,
           (unsigned long long)stats.original_bytes);
    for (i = 0; i < (int)look.count; ++i) printf(" %d", (int)kept[i]);
    printf("\n");
    check(caches->destroy(cache), "cache_destroy", NULL);
}

int main(int argc, char **argv) {
    const int with_experts = argc > 1 && strcmp(argv[1], "--experts") == 0;
    const int with_cache = with_experts || (argc > 1 && strcmp(argv[1], "--cache") == 0);
    const char *backend = argc > 1 + with_cache ? argv[1 + with_cache] : NULL;
    char message[512];
    winnow_library library;
    winnow_context_desc context_desc;
    winnow_device_info info;

    /* Load a backend and make a context on a device. */
    check(winnow_library_open(backend, NULL, &library, message, sizeof message), "load", message);
    api = library.api;
    caches = library.caches;
    if (with_cache && caches == NULL) {
        fprintf(stderr, "%s has no caches\n", library.path);
        return 1;
    }
    memset(&context_desc, 0, sizeof context_desc);
    context_desc.struct_size = sizeof context_desc;
    context_desc.device = argc > 2 + with_cache ? argv[2 + with_cache] : NULL;
    check(api->context_create(&context_desc, &context, message, sizeof message), "context_create", message);
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    check(api->context_info(context, &info), "context_info", NULL);
    printf("backend %s %s, device %s (%s)\n", api->backend_name, api->backend_version, info.name, info.platform);

    if (with_experts)
        drive_experts();
    else if (with_cache)
        drive_cache();
    else
        attend_once();
    check(api->context_destroy(context), "context_destroy", NULL);
    winnow_library_close(&library);
    return 0;
}
