/* A backend whose cache is wrong on purpose: the object that WINNOW_BROKEN_OF names, with one function of its caches
 * replaced by one that WINNOW_DEFECT names. For mistakes above the devices' operations, which broken.cpp cannot make.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "winnow_cache.h"

static winnow_api api_of_broken;
static winnow_cache_api caches, broken;
static int32_t(WINNOW_CALL* get_any_table)(const char* name, uint32_t version, const void** table, char* message,
                                           size_t message_size);

/* ---- What it tells of itself ---- */

static void forget_bytes(winnow_cache_stats* stats) {
    const uint64_t part = stats->k_bytes / 8;
    stats->k_bytes -= part;
    stats->bytes -= part;
}

static int32_t WINNOW_CALL stats_under_report(winnow_cache* cache, int64_t sequence, winnow_cache_stats* stats) {
    const int32_t status = caches.stats(cache, sequence, stats);
    if (status == WINNOW_OK && sequence < 0) forget_bytes(stats);
    return status;
}

static int32_t WINNOW_CALL estimate_under_reports(winnow_context* context, const winnow_cache_desc* desc,
                                                  int64_t tokens, winnow_cache_stats* stats) {
    const int32_t status = caches.estimate(context, desc, tokens, stats);
    if (status == WINNOW_OK) forget_bytes(stats);
    return status;
}

static int32_t WINNOW_CALL describe_says_nothing_is_evicted(winnow_context* context, const winnow_cache_desc* desc,
                                                            winnow_cache_info* info) {
    const int32_t status = caches.describe(context, desc, info);
    if (status == WINNOW_OK) info->properties &= ~WINNOW_CACHE_EVICTS;
    return status;
}

static int32_t WINNOW_CALL describe_counts_the_cadence_once_more(winnow_context* context, const winnow_cache_desc* desc,
                                                                 winnow_cache_info* info) {
    const int32_t status = caches.describe(context, desc, info);
    if (status == WINNOW_OK) info->budget_tokens += info->cadence;
    return status;
}

static int32_t WINNOW_CALL describe_cuts_the_string(winnow_context* context, const winnow_cache_desc* desc,
                                                    winnow_cache_info* info) {
    const int32_t status = caches.describe(context, desc, info);
    if (status == WINNOW_OK) --info->config_size;
    return status;
}

static int32_t WINNOW_CALL evictions_are_not_counted(winnow_cache* cache, int64_t sequence, winnow_cache_stats* stats) {
    const int32_t status = caches.stats(cache, sequence, stats);
    if (status == WINNOW_OK && sequence < 0) stats->evictions = 0;
    return status;
}

static int32_t WINNOW_CALL shortfall_is_invented(winnow_cache* cache, int64_t sequence, winnow_cache_stats* stats) {
    const int32_t status = caches.stats(cache, sequence, stats);
    if (status == WINNOW_OK && sequence < 0) stats->shortfall += stats->eviction_passes;
    return status;
}

static int32_t WINNOW_CALL stats_of_the_first_sequence(winnow_cache* cache, int64_t sequence,
                                                       winnow_cache_stats* stats) {
    return caches.stats(cache, sequence < 0 ? sequence : 0, stats);
}

static int32_t WINNOW_CALL positions_of_the_first_head(winnow_cache* cache, int64_t sequence, int64_t layer,
                                                       int64_t head, winnow_cache_tokens* look) {
    return caches.tokens(cache, sequence, layer, look->positions != NULL ? 0 : head, look);
}

static int32_t WINNOW_CALL segments_of_the_first_head(winnow_cache* cache, int64_t sequence, int64_t layer,
                                                      int64_t head, winnow_cache_tokens* look) {
    return caches.tokens(cache, sequence, layer, look->segments != NULL ? 0 : head, look);
}

static int32_t WINNOW_CALL importance_of_the_first_head(winnow_cache* cache, int64_t sequence, int64_t layer,
                                                        int64_t head, winnow_cache_tokens* look) {
    return caches.tokens(cache, sequence, layer, look->importance != NULL ? 0 : head, look);
}

static int32_t WINNOW_CALL set_importance_ignored(winnow_cache* cache, int64_t sequence, int64_t layer, int64_t head,
                                                  const int64_t* positions, const float* importance, uint64_t count) {
    (void)cache, (void)sequence, (void)layer, (void)head, (void)positions, (void)importance, (void)count;
    return WINNOW_OK;
}

static int32_t WINNOW_CALL set_importance_of_the_first_head(winnow_cache* cache, int64_t sequence, int64_t layer,
                                                            int64_t head, const int64_t* positions,
                                                            const float* importance, uint64_t count) {
    (void)head;
    return caches.set_importance(cache, sequence, layer, 0, positions, importance, count);
}

/* ---- What changes a sequence ---- */

static int32_t WINNOW_CALL truncate_ignored(winnow_cache* cache, int64_t sequence, int64_t length) {
    (void)cache, (void)sequence, (void)length;
    return WINNOW_OK;
}

static int32_t WINNOW_CALL remove_leaves_the_memory(winnow_cache* cache, int64_t sequence, int64_t begin, int64_t end) {
    const int32_t status = caches.remove(cache, sequence, begin, end);
    if (status == WINNOW_OK && begin == 0 && end == -1) return caches.reserve(cache, sequence, 64);
    return status;
}

static int32_t WINNOW_CALL copy_ignored(winnow_cache* cache, int64_t from, int64_t to) {
    (void)cache, (void)from, (void)to;
    return WINNOW_OK;
}

static int32_t WINNOW_CALL reserve_ignored(winnow_cache* cache, int64_t sequence, int64_t tokens) {
    (void)cache, (void)sequence, (void)tokens;
    return WINNOW_OK;
}

static int32_t WINNOW_CALL reset_keeps_the_counts(winnow_cache* cache) {
    int32_t status = WINNOW_OK;
    for (int64_t sequence = 0; status == WINNOW_OK; ++sequence) status = caches.remove(cache, sequence, 0, -1);
    return WINNOW_OK;
}

static int32_t WINNOW_CALL anchor_of_the_first_only(winnow_cache* cache, int64_t sequence, const int64_t* positions,
                                                    uint64_t count) {
    return caches.anchor(cache, sequence, positions, count > 1 ? 1 : count);
}

static int32_t WINNOW_CALL set_config_ignored(winnow_cache* cache, const char* config) {
    (void)cache, (void)config;
    return WINNOW_OK;
}

static int32_t WINNOW_CALL pressure_ignored(winnow_cache* cache, double pressure) {
    (void)cache, (void)pressure;
    return WINNOW_OK;
}

/* ---- Files ---- */

static int32_t WINNOW_CALL load_half_loads(winnow_cache* cache, const winnow_cache_state_desc* from) {
    const int32_t status = caches.load(cache, from);
    if (status != WINNOW_OK) caches.truncate(cache, 0, 1);
    return status;
}

static int32_t WINNOW_CALL load_takes_anything(winnow_cache* cache, const winnow_cache_state_desc* from) {
    caches.load(cache, from);
    return WINNOW_OK;
}

static int32_t WINNOW_CALL load_ignored(winnow_cache* cache, const winnow_cache_state_desc* from) {
    (void)cache, (void)from;
    return WINNOW_OK;
}

static int32_t WINNOW_CALL load_into_the_first(winnow_cache* cache, const winnow_cache_state_desc* from) {
    winnow_cache_state_desc other = *from;
    if (other.sequence > 0) other.sequence = 0;
    return caches.load(cache, &other);
}

static int32_t WINNOW_CALL save_leaves_a_file(winnow_cache* cache, const winnow_cache_state_desc* into) {
    const int32_t status = caches.save(cache, into);
    char beside[4096];
    FILE* file = NULL;
    if (into->path == NULL) return status;
    snprintf(beside, sizeof beside, "%s.part", into->path);
    file = fopen(beside, "wb");
    if (file != NULL) fclose(file);
    return status;
}

static int32_t WINNOW_CALL save_passes_over_a_refusal(winnow_cache* cache, const winnow_cache_state_desc* into) {
    const int32_t status = caches.save(cache, into);
    return status == WINNOW_ERROR_IO ? WINNOW_OK : status;
}

static int32_t WINNOW_CALL saved_size_without_the_checksum(winnow_cache* cache, int64_t sequence, uint64_t* size) {
    const int32_t status = caches.saved_size(cache, sequence, size);
    if (status == WINNOW_OK) *size -= 16;
    return status;
}

/* ---- Steps that must not wait ---- */

static int32_t WINNOW_CALL no_wait_ignored(winnow_cache* cache, const winnow_cache_step_desc* step,
                                           winnow_event** event) {
    winnow_cache_step_desc other = *step;
    other.flags = 0;
    return caches.step(cache, &other, event);
}

static int32_t WINNOW_CALL no_wait_refuses_afterwards(winnow_cache* cache, const winnow_cache_step_desc* step,
                                                      winnow_event** event) {
    const int32_t status = caches.step(cache, step, event);
    if (status == WINNOW_ERROR_WOULD_WAIT) no_wait_ignored(cache, step, event);
    return status;
}

static int32_t WINNOW_CALL no_wait_refuses_always(winnow_cache* cache, const winnow_cache_step_desc* step,
                                                  winnow_event** event) {
    return step->flags != 0 ? WINNOW_ERROR_WOULD_WAIT : caches.step(cache, step, event);
}

/* ---- Rows by token ---- */

static int32_t WINNOW_CALL write_ignored(winnow_cache* cache, const winnow_cache_rows_desc* rows) {
    (void)cache, (void)rows;
    return WINNOW_OK;
}

static int32_t WINNOW_CALL write_of_keys_alone(winnow_cache* cache, const winnow_cache_rows_desc* rows) {
    winnow_cache_rows_desc keys = *rows;
    if (rows->k != NULL) keys.v = NULL;
    return caches.write(cache, &keys);
}

/* A head gets the tokens that it had evicted. */
static int32_t WINNOW_CALL import_appends_all(winnow_cache* cache, const winnow_cache_rows_desc* rows) {
    winnow_cache_entry entry;
    winnow_cache_step_desc step;
    memset(&entry, 0, sizeof entry);
    entry.struct_size = sizeof entry;
    entry.sequence = rows->sequence;
    entry.count = rows->k != NULL ? rows->k->shape[2] : 0;
    memset(&step, 0, sizeof step);
    step.struct_size = sizeof step;
    step.layer = rows->layer;
    step.entries = &entry;
    step.entry_count = 1;
    step.entry_stride = sizeof entry;
    step.k = rows->k;
    step.v = rows->v;
    step.cells = rows->tokens;
    return caches.step(cache, &step, NULL);
}

/* The last element of the last row of keys is off by about what 8 bits tell apart; in F32 alone. */
static int32_t WINNOW_CALL import_a_code_off(winnow_cache* cache, const winnow_cache_rows_desc* rows) {
    const winnow_tensor* const k = rows->k;
    float *at = NULL, before = 0;
    int32_t status = WINNOW_OK;
    if (k == NULL || k->data == NULL || k->type != WINNOW_TYPE_F32) return caches.import_rows(cache, rows);
    at = (float*)((char*)k->data + k->offset + (k->shape[1] - 1) * k->stride[1] + (k->shape[2] - 1) * k->stride[2] +
                  (k->shape[3] - 1) * k->stride[3]);
    before = *at;
    *at += (before < 0 ? -1.0f : 1.0f) / 32;
    status = caches.import_rows(cache, rows);
    *at = before;
    return status;
}

/* The first row of a head comes back in the place of its last. */
static int32_t WINNOW_CALL import_of_the_first_twice(winnow_cache* cache, const winnow_cache_rows_desc* rows) {
    const winnow_tensor* const k = rows->k;
    const size_t size = k != NULL ? (size_t)(k->shape[3] * k->stride[3]) : 0;
    char before[4096], *last = NULL;
    int32_t status = WINNOW_OK;
    if (k == NULL || k->data == NULL || k->shape[2] < 2 || k->stride[3] <= 0 || size > sizeof before)
        return caches.import_rows(cache, rows);
    last = (char*)k->data + k->offset + (k->shape[2] - 1) * k->stride[2];
    memcpy(before, last, size);
    memcpy(last, (char*)k->data + k->offset, size);
    status = caches.import_rows(cache, rows);
    memcpy(last, before, size);
    return status;
}

/* Another row in the place of the last. */
static int32_t WINNOW_CALL read_of_the_first_twice(winnow_cache* cache, const winnow_cache_rows_desc* rows) {
    const int32_t status = caches.read(cache, rows);
    const winnow_tensor* const k = rows->k;
    if (status != WINNOW_OK || k == NULL || k->data == NULL || k->shape[2] < 2) return status;
    memcpy((char*)k->data + (k->shape[2] - 1) * k->stride[2], k->data, (size_t)k->stride[2]);
    return status;
}

/* ---- Exact rows ---- */

/* Neither packed bytes nor the importance. */
static int32_t WINNOW_CALL export_of_values_alone(winnow_cache* cache, const winnow_cache_rows_desc* rows) {
    return caches.read(cache, rows);
}

static int32_t WINNOW_CALL export_changes_a_byte(winnow_cache* cache, const winnow_cache_rows_desc* rows) {
    const int32_t status = caches.export_rows(cache, rows);
    const winnow_tensor* const k = rows->k;
    if (status == WINNOW_OK && k != NULL && k->data != NULL)
        ((char*)k->data)[(k->shape[2] / 2) * k->stride[2] + k->shape[3]] ^= 1;
    return status;
}

/* The first token comes twice, and the second time into a cache that is not empty: all lie in other slots. */
static int32_t WINNOW_CALL import_into_other_slots(winnow_cache* cache, const winnow_cache_rows_desc* rows) {
    winnow_cache_rows_desc first = *rows;
    winnow_tensor k = *rows->k, v = *rows->v, tokens;
    int32_t status = WINNOW_OK;
    if (rows->tokens == NULL || rows->tokens->shape[3] < 2) return caches.import_rows(cache, rows);
    tokens = *rows->tokens;
    k.shape[2] = v.shape[2] = tokens.shape[3] = 1;
    first.k = &k, first.v = &v, first.tokens = &tokens;
    status = caches.import_rows(cache, &first);
    return status == WINNOW_OK ? caches.import_rows(cache, rows) : status;
}

/* ---- The table ---- */

static int choose(const char* defect) {
#define DEFECT(slot, name)                                                                                             \
    if (strcmp(defect, #name) == 0) {                                                                                  \
        broken.slot = name;                                                                                            \
        return 1;                                                                                                      \
    }
    DEFECT(stats, stats_under_report)
    DEFECT(stats, evictions_are_not_counted)
    DEFECT(stats, shortfall_is_invented)
    DEFECT(stats, stats_of_the_first_sequence)
    DEFECT(estimate, estimate_under_reports)
    DEFECT(describe, describe_says_nothing_is_evicted)
    DEFECT(describe, describe_counts_the_cadence_once_more)
    DEFECT(describe, describe_cuts_the_string)
    DEFECT(tokens, positions_of_the_first_head)
    DEFECT(tokens, segments_of_the_first_head)
    DEFECT(tokens, importance_of_the_first_head)
    DEFECT(set_importance, set_importance_ignored)
    DEFECT(set_importance, set_importance_of_the_first_head)
    DEFECT(truncate, truncate_ignored)
    DEFECT(remove, remove_leaves_the_memory)
    DEFECT(copy, copy_ignored)
    DEFECT(reserve, reserve_ignored)
    DEFECT(reset, reset_keeps_the_counts)
    DEFECT(anchor, anchor_of_the_first_only)
    DEFECT(set_config, set_config_ignored)
    DEFECT(set_pressure, pressure_ignored)
    DEFECT(load, load_half_loads)
    DEFECT(load, load_takes_anything)
    DEFECT(save, save_leaves_a_file)
    DEFECT(load, load_ignored)
    DEFECT(load, load_into_the_first)
    DEFECT(save, save_passes_over_a_refusal)
    DEFECT(saved_size, saved_size_without_the_checksum)
    DEFECT(step, no_wait_ignored)
    DEFECT(step, no_wait_refuses_afterwards)
    DEFECT(step, no_wait_refuses_always)
    DEFECT(write, write_ignored)
    DEFECT(write, write_of_keys_alone)
    DEFECT(import_rows, import_appends_all)
    DEFECT(import_rows, import_a_code_off)
    DEFECT(import_rows, import_of_the_first_twice)
    DEFECT(read, read_of_the_first_twice)
    DEFECT(export_rows, export_of_values_alone)
    DEFECT(export_rows, export_changes_a_byte)
    DEFECT(import_rows, import_into_other_slots)
#undef DEFECT
    return strcmp(defect, "none") == 0;
}

static int32_t WINNOW_CALL get_table(const char* name, uint32_t version, const void** table, char* message,
                                     size_t message_size) {
    const int32_t status = get_any_table(name, version, table, message, message_size);
    if (status == WINNOW_OK && strcmp(name, WINNOW_CACHE_TABLE) == 0) *table = &broken;
    return status;
}

int32_t WINNOW_CALL winnow_get_api(const winnow_host_info* host, const winnow_api** api, char* message,
                                   size_t message_size) {
    const char *const path = getenv("WINNOW_BROKEN_OF"), *const defect = getenv("WINNOW_DEFECT");
    void* const object = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    winnow_get_api_fn get_api = NULL;
    const void* table = NULL;
    int32_t status = WINNOW_OK;
    if (object == NULL) {
        if (message != NULL) snprintf(message, message_size, "WINNOW_BROKEN_OF names no backend");
        return WINNOW_ERROR_NOT_FOUND;
    }
    *(void**)&get_api = dlsym(object, "winnow_get_api");
    status = get_api(host, api, message, message_size);
    if (status != WINNOW_OK) return status;
    api_of_broken = **api;
    get_any_table = api_of_broken.get_table;
    status = get_any_table(WINNOW_CACHE_TABLE, WINNOW_CACHE_VERSION, &table, message, message_size);
    if (status != WINNOW_OK) return status;
    caches = broken = *(const winnow_cache_api*)table;
    api_of_broken.get_table = get_table;
    if (!choose(defect ? defect : "none")) {
        if (message != NULL) snprintf(message, message_size, "WINNOW_DEFECT is \"%s\", which is none of these", defect);
        return WINNOW_ERROR_NOT_FOUND;
    }
    *api = &api_of_broken;
    return WINNOW_OK;
}
