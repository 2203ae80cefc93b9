/* The cache functions: their structs in every length, their extensions and flags, NULL wherever an
 * argument can be, outputs that a refused call leaves alone, and what is never written beyond the caller's room.
 */
#include <string.h>

#include "abi.h"

/* One layer, one KV head, two query heads of 16 numbers, and a token for it, with outputs in between canaries. */
typedef struct cache_work {
    winnow_cache *cache;
    float k[16], v[16], q[32];
    uint32_t before[4];
    float out[32];
    uint32_t after[4];
    winnow_tensor k_view, v_view, q_view, out_view;
    LONGER(winnow_cache_desc) desc;
    LONGER(winnow_cache_step_desc) step;
    int32_t token;
    winnow_tensor token_view;
    LONGER(winnow_cache_rows_desc) rows;
    LONGER(winnow_layer_shape) shape;
    LONGER(winnow_resource) resource;
    LONGER(winnow_wanted_resource) wanted;
    LONGER(winnow_cache_info) info;
    LONGER(winnow_cache_tokens) look;
    LONGER(winnow_cache_state_desc) state;
    uint64_t written; /* bytes of a saved cache */
} cache_work;

static const uint32_t canary = 0xdeadbeefu;
static const float untouched = -77;
static const double profile[3] = {1, 2, 3};

static winnow_tensor row_of(float *data, int64_t heads) {
    winnow_tensor tensor = {.struct_size = sizeof tensor};
    tensor.type = WINNOW_TYPE_F32;
    tensor.data = data;
    tensor.shape[0] = tensor.shape[2] = 1;
    tensor.shape[1] = heads;
    tensor.shape[3] = 16;
    tensor.stride[0] = 64 * heads;
    tensor.stride[1] = tensor.stride[2] = 64;
    tensor.stride[3] = 4;
    return tensor;
}

static int32_t WINNOW_CALL count_written(void *user_data, const void *bytes, uint64_t size) {
    (void)bytes;
    *(uint64_t *)user_data += size;
    return 0;
}

static void fill_out(cache_work *work) {
    for (int i = 0; i < 32; ++i) work->out[i] = untouched;
    for (int i = 0; i < 4; ++i) work->before[i] = work->after[i] = canary;
}

static void prepare(cache_work *work) {
    int i;
    memset(work, 0, sizeof *work);
    for (i = 0; i < 16; ++i) work->k[i] = 1, work->v[i] = (float)i;
    for (i = 0; i < 32; ++i) work->q[i] = 1;
    fill_out(work);
    work->k_view = row_of(work->k, 1);
    work->v_view = row_of(work->v, 1);
    work->q_view = row_of(work->q, 2);
    work->out_view = row_of(work->out, 2);
    work->desc.first.struct_size = sizeof work->desc.first;
    work->desc.first.config = "none:k=f16,v=f16";
    work->desc.first.layers = work->desc.first.kv_num_heads = 1;
    work->desc.first.q_num_heads = 2;
    work->desc.first.head_size = 16;
    work->desc.first.context = 256;
    work->step.first.struct_size = sizeof work->step.first;
    work->step.first.k = &work->k_view;
    work->step.first.v = &work->v_view;
    work->step.first.q = &work->q_view;
    work->step.first.out = &work->out_view;
    work->token_view = row_of(work->k, 1);
    work->token_view.type = WINNOW_TYPE_I32;
    work->token_view.data = &work->token;
    work->token_view.shape[3] = 1;
    work->rows.first.struct_size = sizeof work->rows.first;
    work->rows.first.k = &work->k_view;
    work->rows.first.v = &work->v_view;
    work->shape.first.struct_size = sizeof work->shape.first;
    work->shape.first.q_num_heads = 2;
    work->shape.first.kv_num_heads = 1;
    work->shape.first.head_size = 16;
    work->resource.first.struct_size = sizeof work->resource.first;
    work->resource.first.name = "profile";
    work->resource.first.data = profile;
    work->resource.first.size = sizeof profile;
    work->wanted.first.struct_size = sizeof work->wanted.first;
    work->info.first.struct_size = sizeof work->info.first;
    work->look.first.struct_size = sizeof work->look.first;
    work->state.first.struct_size = sizeof work->state.first;
    work->state.first.sequence = -1;
    work->state.first.write = count_written;
    work->state.first.user_data = &work->written;
}

/* 1: out is the one value of the cache; 0: it is as prepared; -1: neither, or a canary fell. */
static int result_of(const cache_work *work) {
    int is_value = 1, is_untouched = 1;
    for (int i = 0; i < 4; ++i)
        if (work->before[i] != canary || work->after[i] != canary) return -1;
    for (int i = 0; i < 32; ++i) {
        is_value = is_value && work->out[i] == (float)(i % 16);
        is_untouched = is_untouched && work->out[i] == untouched;
    }
    return is_value ? 1 : is_untouched ? 0 : -1;
}

static uint64_t tokens_of(const abi_backend *backend, winnow_cache *cache) {
    winnow_cache_stats stats = {.struct_size = sizeof stats};
    return backend->caches->stats(cache, -1, &stats) == WINNOW_OK ? stats.tokens : UINT64_MAX;
}

/* ---- Structs --------------------------------------------------------------------------------------------------- */

/* create and estimate read the same description; a contradiction where they disagree, or a refused call gave something
 * out. */
static int32_t call_create(const abi_backend *backend, void *data) {
    cache_work *work = (cache_work *)data;
    winnow_cache *cache = NULL;
    winnow_cache_stats stats;
    int32_t status, estimated;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    estimated = backend->caches->estimate(backend->context, &work->desc.first, 100, &stats);
    status = backend->caches->create(backend->context, &work->desc.first, &cache);
    if (status != estimated || (cache != NULL) != (status == WINNOW_OK)) return ABI_CONTRADICTION;
    if ((stats.bytes != 0) != (status == WINNOW_OK)) return ABI_CONTRADICTION;
    if (status == WINNOW_OK && backend->caches->destroy(cache) != WINNOW_OK) return ABI_CONTRADICTION;
    return status;
}

/* One step of an empty cache; a contradiction where a refused one left a trace, or a good one a wrong result. */
static int32_t call_step(const abi_backend *backend, void *data) {
    cache_work *work = (cache_work *)data;
    int32_t status = backend->caches->step(work->cache, &work->step.first, NULL);
    const int is_ok = status == WINNOW_OK;
    if (backend->api->finish(backend->context) != WINNOW_OK) return ABI_CONTRADICTION;
    if (result_of(work) != is_ok || tokens_of(backend, work->cache) != (uint64_t)is_ok) status = ABI_CONTRADICTION;
    fill_out(work);
    return backend->caches->reset(work->cache) == WINNOW_OK ? status : ABI_CONTRADICTION;
}

/* Calls cache_import_rows with a row of a state. */
static int32_t call_import(const abi_backend *backend, void *data) {
    cache_work *work = (cache_work *)data;
    int32_t status = backend->caches->import_rows(work->cache, &work->rows.first);
    if (tokens_of(backend, work->cache) != (uint64_t)(status == WINNOW_OK)) status = ABI_CONTRADICTION;
    return backend->caches->reset(work->cache) == WINNOW_OK ? status : ABI_CONTRADICTION;
}

/* Saves an empty cache; a contradiction where a refused call wrote something, or a good one another size than it said.
 */
static int32_t call_save(const abi_backend *backend, void *data) {
    cache_work *work = (cache_work *)data;
    uint64_t size = 0;
    int32_t status;
    work->written = 0;
    status = backend->caches->save(work->cache, &work->state.first);
    if (status != WINNOW_OK) return work->written == 0 ? status : ABI_CONTRADICTION;
    if (backend->caches->saved_size(work->cache, -1, &size) != WINNOW_OK) return ABI_CONTRADICTION;
    return size == work->written ? status : ABI_CONTRADICTION;
}

static int32_t fill_estimate(const abi_backend *backend, void *target) {
    cache_work work;
    prepare(&work);
    return backend->caches->estimate(backend->context, &work.desc.first, 100, (winnow_cache_stats *)target);
}

/* The struct goes in (rooms for strings) and out; a contradiction where a refused call changed it, or a good one told
 * something else or touched what lies behind it. */
static int32_t call_describe(const abi_backend *backend, void *data) {
    cache_work *work = (cache_work *)data;
    LONGER(winnow_cache_info) before;
    char text[8] = "#######";
    int32_t status;
    work->info.first.config = text;
    work->info.first.config_size = sizeof "none";
    work->info.first.policy[0] = 0;
    memcpy(&before, &work->info, sizeof before);
    status = backend->caches->describe(backend->context, &work->desc.first, &work->info.first);
    if (memcmp(work->info.tail, before.tail, sizeof before.tail) != 0) return ABI_CONTRADICTION;
    if (status != WINNOW_OK)
        return memcmp(&work->info, &before, sizeof before) == 0 && strcmp(text, "#######") == 0 ? status
                                                                                                : ABI_CONTRADICTION;
    if (memcmp(text, "none\0##", 8) != 0 || strcmp(work->info.first.policy, "none") != 0) return ABI_CONTRADICTION;
    return work->info.first.struct_size == before.first.struct_size ? status : ABI_CONTRADICTION;
}

/* The struct goes in (arrays and their size) and out; a contradiction where a refused call changed it, or a good one
 * what lies behind. */
static int32_t call_tokens(const abi_backend *backend, void *data) {
    cache_work *work = (cache_work *)data;
    LONGER(winnow_cache_tokens) before;
    int32_t status;
    work->look.first.count = 77;
    memcpy(&before, &work->look, sizeof before);
    status = backend->caches->tokens(work->cache, 0, 0, 0, &work->look.first);
    if (memcmp(work->look.tail, before.tail, sizeof before.tail) != 0) return ABI_CONTRADICTION;
    if (status != WINNOW_OK) return memcmp(&work->look, &before, sizeof before) == 0 ? status : ABI_CONTRADICTION;
    return work->look.first.count == 0 && work->look.first.struct_size == before.first.struct_size ? status
                                                                                                   : ABI_CONTRADICTION;
}

/* Of a configuration that wants a resource. */
static int32_t call_wanted(const abi_backend *backend, void *data) {
    cache_work *work = (cache_work *)data;
    winnow_cache_desc desc = work->desc.first;
    winnow_cache_info info;
    int32_t status;
    desc.config = "adaptive_budget:policy=window,budget=128,k=f16,v=f16";
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    info.resources = &work->wanted.first;
    info.resource_capacity = 1;
    info.resource_stride = 4096;
    work->wanted.first.name[0] = 0;
    status = backend->caches->describe(backend->context, &desc, &info);
    return info.resource_count == (status == WINNOW_OK) && (work->wanted.first.name[0] != 0) == (status == WINNOW_OK)
               ? status
               : ABI_CONTRADICTION;
}

static int32_t fill_segment(const abi_backend *backend, void *target) {
    cache_work work;
    prepare(&work);
    work.info.first.segments = (winnow_cache_segment *)target;
    work.info.first.segment_capacity = 1;
    work.info.first.segment_stride = 4096;
    return backend->caches->describe(backend->context, &work.desc.first, &work.info.first);
}

static winnow_cache *cache_to_look_at;
static int32_t fill_stats(const abi_backend *backend, void *target) {
    return backend->caches->stats(cache_to_look_at, -1, (winnow_cache_stats *)target);
}

/* Of a struct that a call reads. */
#define READ(type, member, function)                                                                                   \
    do {                                                                                                               \
        what.name = #type;                                                                                             \
        what.struct_size = &work->member.first.struct_size;                                                            \
        what.ours = sizeof work->member.first;                                                                         \
        what.tail = work->member.tail;                                                                                 \
        what.call = function;                                                                                          \
        abi_check_read(run, backend, &what);                                                                           \
    } while (0)

static void check_structs(abi_run *run, const abi_backend *backend, cache_work *work) {
    winnow_extension extension;
    const uint32_t of_stats = sizeof(winnow_cache_stats);
    abi_read_case what;
    memset(&what, 0, sizeof what);
    what.data = work;
    READ(winnow_cache_desc, desc, call_create);
    READ(winnow_cache_step_desc, step, call_step);
    READ(winnow_cache_rows_desc, rows, call_import);
    READ(winnow_cache_state_desc, state, call_save);
    READ(winnow_cache_info, info, call_describe);
    READ(winnow_cache_tokens, look, call_tokens);
    READ(winnow_cache_desc, desc, call_describe);

    abi_about(run, "flags 2 in the struct");
    work->desc.first.flags = work->step.first.flags = work->rows.first.flags = work->state.first.flags = 2;
    EXPECT_STATUS(call_create(backend, work), WINNOW_ERROR_UNSUPPORTED);
    EXPECT_STATUS(call_describe(backend, work), WINNOW_ERROR_UNSUPPORTED);
    EXPECT_STATUS(call_step(backend, work), WINNOW_ERROR_UNSUPPORTED);
    EXPECT_STATUS(call_import(backend, work), WINNOW_ERROR_UNSUPPORTED);
    EXPECT_STATUS(call_save(backend, work), WINNOW_ERROR_UNSUPPORTED);
    work->desc.first.flags = work->step.first.flags = work->rows.first.flags = work->state.first.flags = 0;
    memset(&extension, 0, sizeof extension);
    extension.struct_size = sizeof extension;
    extension.type = 0x7ffffff1u;
    abi_about(run, "an unknown extension");
    work->desc.first.next = work->step.first.next = work->rows.first.next = work->state.first.next = &extension;
    EXPECT_STATUS(call_create(backend, work), WINNOW_OK);
    EXPECT_STATUS(call_step(backend, work), WINNOW_OK);
    EXPECT_STATUS(call_import(backend, work), WINNOW_OK);
    EXPECT_STATUS(call_save(backend, work), WINNOW_OK);
    extension.flags = WINNOW_EXTENSION_REQUIRED;
    abi_about(run, "an unknown extension that is required");
    EXPECT_STATUS(call_create(backend, work), WINNOW_ERROR_UNSUPPORTED);
    EXPECT_STATUS(call_step(backend, work), WINNOW_ERROR_UNSUPPORTED);
    EXPECT_STATUS(call_import(backend, work), WINNOW_ERROR_UNSUPPORTED);
    EXPECT_STATUS(call_save(backend, work), WINNOW_ERROR_UNSUPPORTED);
    work->desc.first.next = work->step.first.next = work->rows.first.next = work->state.first.next = NULL;
    abi_about(run, "");

    work->desc.first.resources = &work->resource.first;
    work->desc.first.resource_count = 1;
    work->desc.first.resource_stride = sizeof work->resource;
    READ(winnow_resource, resource, call_create);
    work->desc.first.resources = NULL;
    work->desc.first.resource_count = work->desc.first.resource_stride = 0;
    work->desc.first.q_num_heads = work->desc.first.kv_num_heads = work->desc.first.head_size = 0;
    work->desc.first.layer_shapes = &work->shape.first;
    work->desc.first.layer_shape_stride = sizeof work->shape;
    READ(winnow_layer_shape, shape, call_create);
    work->desc.first.q_num_heads = 2;
    work->desc.first.kv_num_heads = 1;
    work->desc.first.head_size = 16;
    work->desc.first.layer_shapes = NULL;
    work->desc.first.layer_shape_stride = 0;
    READ(winnow_wanted_resource, wanted, call_wanted);

    abi_check_fill(run, backend, fill_segment, "winnow_cache_segment", sizeof(winnow_cache_segment));
    abi_check_fill(run, backend, fill_estimate, "winnow_cache_stats of estimate", of_stats);
    cache_to_look_at = work->cache;
    abi_check_fill(run, backend, fill_stats, "winnow_cache_stats of stats", of_stats);
}

/* ---- NULL ------------------------------------------------------------------------------------------------------ */

/* Every function with every pointer missing that has to be there. The message of an estimate need not be. */
static void check_null(abi_run *run, const abi_backend *backend, cache_work *work) {
    const int32_t invalid = WINNOW_ERROR_INVALID_ARGUMENT;
    const winnow_cache_api *caches = backend->caches;
    winnow_context *context = backend->context;
    winnow_cache *cache = work->cache, *made = NULL;
    winnow_event *event = NULL;
    winnow_cache_stats stats;
    winnow_cache_info info;
    int64_t position = -77;
    float importance = -77;
    int64_t anchor = 0;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    EXPECT_STATUS(caches->create(NULL, &work->desc.first, &made), invalid);
    EXPECT_STATUS(caches->create(context, NULL, &made), invalid);
    EXPECT_STATUS(caches->create(context, &work->desc.first, NULL), invalid);
    EXPECT(made == NULL);
    EXPECT_STATUS(caches->destroy(NULL), WINNOW_OK);
    EXPECT_STATUS(caches->estimate(NULL, &work->desc.first, 1, &stats), invalid);
    EXPECT_STATUS(caches->estimate(context, NULL, 1, &stats), invalid);
    EXPECT_STATUS(caches->estimate(context, &work->desc.first, 1, NULL), invalid);
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    EXPECT_STATUS(caches->describe(NULL, &work->desc.first, &info), invalid);
    EXPECT_STATUS(caches->describe(context, NULL, &info), invalid);
    EXPECT_STATUS(caches->describe(context, &work->desc.first, NULL), invalid);
    EXPECT(info.config_size == 0);
    EXPECT_STATUS(caches->step(NULL, &work->step.first, &event), invalid);
    EXPECT_STATUS(caches->step(cache, NULL, &event), invalid);
    EXPECT(event == NULL);
    EXPECT_STATUS(caches->reserve(NULL, 0, 1), invalid);
    EXPECT_STATUS(caches->truncate(NULL, 0, 0), invalid);
    EXPECT_STATUS(caches->remove(NULL, 0, 0, -1), invalid);
    EXPECT_STATUS(caches->copy(NULL, 0, 0), invalid);
    EXPECT_STATUS(caches->shift(NULL, 0, 0, -1, 1), invalid);
    EXPECT_STATUS(caches->reset(NULL), invalid);
    EXPECT_STATUS(caches->save(NULL, &work->state.first), invalid);
    EXPECT_STATUS(caches->save(cache, NULL), invalid);
    EXPECT_STATUS(caches->load(NULL, &work->state.first), invalid);
    EXPECT_STATUS(caches->load(cache, NULL), invalid);
    EXPECT_STATUS(caches->saved_size(NULL, -1, &work->written), invalid);
    EXPECT_STATUS(caches->saved_size(cache, -1, NULL), invalid);
    EXPECT_STATUS(caches->stats(NULL, -1, &stats), invalid);
    EXPECT_STATUS(caches->stats(cache, -1, NULL), invalid);
    EXPECT_STATUS(caches->tokens(NULL, 0, 0, 0, &work->look.first), invalid);
    EXPECT_STATUS(caches->tokens(cache, 0, 0, 0, NULL), invalid);
    EXPECT_STATUS(caches->set_importance(NULL, 0, 0, 0, &position, &importance, 1), invalid);
    EXPECT_STATUS(caches->set_importance(cache, 0, 0, 0, NULL, &importance, 1), invalid);
    EXPECT_STATUS(caches->set_importance(cache, 0, 0, 0, &position, NULL, 1), invalid);
    EXPECT(position == -77 && importance == -77);
    EXPECT_STATUS(caches->set_config(NULL, "winnow"), invalid);
    EXPECT_STATUS(caches->set_config(cache, NULL), invalid);
    EXPECT_STATUS(caches->set_pressure(NULL, 0), invalid);
    EXPECT_STATUS(caches->anchor(NULL, 0, &anchor, 1), invalid);
    EXPECT_STATUS(caches->anchor(cache, 0, NULL, 1), invalid);
    EXPECT_STATUS(caches->anchor(cache, 0, NULL, 0), WINNOW_OK);
    EXPECT_STATUS(caches->read(NULL, &work->rows.first), invalid);
    EXPECT_STATUS(caches->read(cache, NULL), invalid);
    EXPECT_STATUS(caches->write(NULL, &work->rows.first), invalid);
    EXPECT_STATUS(caches->write(cache, NULL), invalid);
    EXPECT_STATUS(caches->export_rows(NULL, &work->rows.first), invalid);
    EXPECT_STATUS(caches->export_rows(cache, NULL), invalid);
    EXPECT_STATUS(caches->import_rows(NULL, &work->rows.first), invalid);
    EXPECT_STATUS(caches->import_rows(cache, NULL), invalid);
    EXPECT(result_of(work) == 0 && tokens_of(backend, cache) == 0);
}

/* ---- Outputs of a size that the caller names ------------------------------------------------------------------- */

/* Every room for the string, with a canary behind it; NULL, and what it needs. */
static void check_described_text(abi_run *run, const abi_backend *backend, const cache_work *work) {
    winnow_cache_info info;
    char text[16];
    size_t at;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    info.config_size = sizeof text; /* NULL only asks, whatever size says */
    EXPECT_STATUS(backend->caches->describe(backend->context, &work->desc.first, &info), WINNOW_OK);
    EXPECT(info.config_size == sizeof "none" && info.storage_config_size == sizeof "none");
    EXPECT(info.resource_count == 0 && info.segment_count > 0);
    EXPECT(info.config == NULL && info.storage_config == NULL && info.segments == NULL);
    EXPECT(strcmp(info.policy, "none") == 0 && info.properties == 0 && info.budget_tokens == 256);
    info.config = text;
    for (at = 0; at < sizeof "none" + 2; ++at) {
        memset(text, '#', sizeof text);
        info.config_size = at;
        EXPECT_STATUS(backend->caches->describe(backend->context, &work->desc.first, &info), WINNOW_OK);
        EXPECT(info.config_size == sizeof "none" && info.config == text);
        EXPECT(at >= sizeof "none" ? strcmp(text, "none") == 0 : text[0] == '#');
        EXPECT(text[sizeof "none"] == '#');
    }
}

/* Appends a token five times, and looks at them with room for each number of entries, in some arrays or none. */
static void check_tokens(abi_run *run, const abi_backend *backend, cache_work *work) {
    winnow_cache_tokens *look = &work->look.first;
    int64_t positions[8];
    int32_t segments[8];
    uint64_t at;
    for (at = 0; at < 5; ++at) EXPECT_STATUS(backend->caches->step(work->cache, &work->step.first, NULL), WINNOW_OK);
    for (look->capacity = 0; look->capacity <= 8; ++look->capacity) {
        for (at = 0; at < 8; ++at) positions[at] = segments[at] = -77;
        look->count = 77;
        look->positions = positions;
        look->segments = look->capacity == 3 ? NULL : segments;
        EXPECT_STATUS(backend->caches->tokens(work->cache, 0, 0, 0, look), WINNOW_OK);
        EXPECT(look->count == 5 && look->positions == positions && look->importance == NULL);
        for (at = 0; at < 8; ++at) {
            const int is_there = at < look->capacity && at < 5;
            EXPECT(positions[at] == (is_there ? (int64_t)at : -77));
            EXPECT((segments[at] >= 0) == (is_there && look->segments != NULL));
        }
    }
    look->reserved = 1;
    EXPECT_STATUS(backend->caches->tokens(work->cache, 0, 0, 0, look), WINNOW_ERROR_INVALID_ARGUMENT);
    look->reserved = 0;
}

/* A token's rows: read as they were appended, written, read again, and imported into the emptied cache. */
static void check_rows(abi_run *run, const abi_backend *backend, cache_work *work) {
    const winnow_cache_api *caches = backend->caches;
    int i, is_right = 1;
    float k[16], v[16];
    winnow_tensor k_view = row_of(k, 1), v_view = row_of(v, 1);
    winnow_cache_rows_desc rows = work->rows.first;
    rows.tokens = &work->token_view;
    rows.k = &k_view;
    rows.v = &v_view;
    EXPECT_STATUS(caches->reset(work->cache), WINNOW_OK);
    EXPECT_STATUS(caches->read(work->cache, &rows), WINNOW_OK);
    for (i = 0; i < 16; ++i) is_right = is_right && k[i] != k[i] && v[i] != v[i];
    EXPECT(is_right);
    EXPECT_STATUS(caches->step(work->cache, &work->step.first, NULL), WINNOW_OK);
    EXPECT_STATUS(caches->read(work->cache, &rows), WINNOW_OK);
    for (i = 0; i < 16; ++i) is_right = is_right && k[i] == work->k[i] && v[i] == work->v[i];
    EXPECT(is_right);
    for (i = 0; i < 16; ++i) k[i] = 2;
    rows.v = NULL;
    EXPECT_STATUS(caches->write(work->cache, &rows), WINNOW_OK);
    memset(k, 0, sizeof k);
    EXPECT_STATUS(caches->read(work->cache, &rows), WINNOW_OK);
    for (i = 0; i < 16; ++i) is_right = is_right && k[i] == 2;
    EXPECT(is_right);
    EXPECT_STATUS(caches->reset(work->cache), WINNOW_OK);
    rows.v = &v_view;
    rows.tokens = NULL;
    EXPECT_STATUS(caches->import_rows(work->cache, &rows), WINNOW_OK);
    EXPECT(tokens_of(backend, work->cache) == 1);
    EXPECT_STATUS(caches->reset(work->cache), WINNOW_OK);
}

void check_caches(abi_run *run) {
    abi_backend backend = abi_open_context(run);
    winnow_event *event = NULL;
    cache_work work;
    if (backend.api && backend.caches) { /* check_further_tables knows which backend has to have it */
        prepare(&work);
        if (EXPECT_STATUS(backend.caches->create(backend.context, &work.desc.first, &work.cache), WINNOW_OK)) {
            check_structs(run, &backend, &work);
            check_null(run, &backend, &work);
            check_described_text(run, &backend, &work);
            check_tokens(run, &backend, &work);
            check_rows(run, &backend, &work);
            EXPECT_STATUS(backend.caches->step(work.cache, &work.step.first, &event), WINNOW_OK);
            EXPECT(event != NULL);
            EXPECT_STATUS(backend.api->event_wait(event), WINNOW_OK);
            EXPECT_STATUS(backend.api->event_destroy(event), WINNOW_OK);
            EXPECT(result_of(&work) == 1);
            EXPECT_STATUS(backend.caches->destroy(work.cache), WINNOW_OK);
            /* One that remains goes with its context. */
            EXPECT_STATUS(backend.caches->create(backend.context, &work.desc.first, &work.cache), WINNOW_OK);
            EXPECT_STATUS(backend.caches->step(work.cache, &work.step.first, NULL), WINNOW_OK);
        }
    }
    abi_close(run, &backend);
}
