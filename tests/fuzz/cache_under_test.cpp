// Draws the calls on a cache, and holds it to what is promised after each.
#include "cache_under_test.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>

#include "../made_codebooks.hpp"

namespace winnow::fuzz {
namespace {

struct Choice {
    const char* config;
    int64_t budget;
    int64_t least_heads = 1;
};
constexpr Choice choices[] = {
    {"h2o:budget=24,sink=2,residual=6,cadence=4", 24},
    {"none:k=f32,v=f16,residual=8,sink=0,cadence=8", 0},
    {"winnow:budget=40,residual=12,cadence=6,window_from=1/1,grace=2,recent=4,every=3", 40},
    {"h2o:budget=16,sink=2,residual=0,cadence=3,heavy=8,recent=6", 16},
    {"window:budget=20,residual=0,sink=3,cadence=4", 20},
    {"scissorhands:budget=32,residual=8,center=on,k=q8_0,v=q8_0", 32},
    {"hierarchical:budget=48,residual=10,cadence=5", 48},
    {"random:budget=30,sink=1,residual=4,cadence=4,k=bf16,v=bf16", 30},
    {"winnow:budget=36,residual=0,cadence=4", 36},
    {"h2o:budget=96,sink=2,residual=6,cadence=4", 96},
    {"window:budget=18,sink=0,residual=0,cadence=1", 18},
    {"moe:budget=26,sink=1,residual=4,cadence=4,recent=6,experts=9,inactive=1/2,evict_inactive=on", 26},
    {"none:residual=0,sink=4", 0},
    {"winnow", 0},
    {"h2o:budget=28,sink=2,residual=6,cadence=4", 28},
    {"h2o:budget=14,sink=2,residual=6,cadence=4", 14},
    {"scissorhands:budget=40,residual=8,center=on,k=q8_0,v=q8_0", 40},
    {"winnow:recall=host,budget=1G,k=q8_0,v=q8_0,page=4,residual=8,cadence=4", 0},
    {"winnow:recall=host,budget=60000B,cold=40,center=on,page=2,residual=8,cadence=4", 40},
    {"winnow:recall=host,budget=60000B,residual=8,cadence=4,picked=16,newest=8", 0},
    {"winnow:recall=host,budget=60000B,residual=8,cadence=4,picked=16,signature=codes", 0},
    {"h2o:budget=24,sink=2,residual=6,cadence=4,k=q8_0,v=q4_0,fine=0,k_fine=f16,v_fine=q8_0", 24},
    {"window:budget=24,sink=2,residual=6,cadence=4,k=q8_0,v=q4_0,fine=0.0,k_fine=f16,coarse=0.1,v_coarse=q8_0", 24, 2},
    {"none:residual=8,sink=0,cadence=8,coarse=0,k_coarse=q8_0,v_coarse=turbo3", 0},
};

std::vector<float> numbers(Input& input, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    const uint8_t seed = input.byte();
    uint32_t state = seed + 1u;
    for (float& value : values) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<float>(static_cast<int32_t>(state) >> 20) / 512;
    }
    // Sometimes what no model gives.
    constexpr float odd[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e38f,
                             -1e38f, 1e-40f};
    if (seed > 247) values[seed * 7 % values.size()] = odd[seed % 5];
    return values;
}

winnow_tensor tensor_of(uint32_t type, void* data, std::array<int64_t, 4> shape) {
    winnow_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.type = type;
    tensor.data = data;
    std::copy(shape.begin(), shape.end(), tensor.shape);
    tensor.stride[3] = type == WINNOW_TYPE_BOOL ? 1 : 4;
    for (int axis = 2; axis >= 0; --axis) tensor.stride[axis] = tensor.stride[axis + 1] * shape[axis + 1];
    return tensor;
}

// Cells for a step: ascending from somewhere, so that none comes twice.
std::vector<int32_t> some_cells(Input& input, int64_t count, int64_t cells) {
    std::vector<int32_t> all(static_cast<size_t>(cells));
    for (int64_t at = 0; at < cells; ++at) all[static_cast<size_t>(at)] = static_cast<int32_t>(at);
    std::rotate(all.begin(), all.begin() + input.within(0, cells - 1), all.end());
    if (input.chance(64)) std::reverse(all.begin(), all.end());
    all.resize(static_cast<size_t>(count));
    return all;
}

} // namespace

bool operator==(const Portrait& a, const Portrait& b) {
    const auto same_bits = [](const std::vector<float>& x, const std::vector<float>& y) {
        return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), 4 * x.size()) == 0);
    };
    return std::memcmp(&a.stats, &b.stats, sizeof a.stats) == 0 && a.positions == b.positions &&
           std::equal(a.importance.begin(), a.importance.end(), b.importance.begin(), b.importance.end(), same_bits);
}

CacheSetup draw_setup(Input& input) {
    CacheSetup setup;
    const Choice& choice = input.choice(choices);
    setup.config = choice.config;
    setup.budget = choice.budget;
    setup.layers = input.within(1, 2);
    setup.kv_heads = input.within(choice.least_heads, 2);
    setup.heads = setup.kv_heads * input.within(1, 2);
    setup.size = 32;
    setup.sequences = input.within(1, 2);
    if (input.chance(64)) setup.cells = 96;
    return setup;
}

CacheUnderTest::CacheUnderTest(winnow_context* context, const CacheSetup& setup)
    : context_(context), setup_(setup), lengths_(static_cast<size_t>(setup.sequences), 0) {
    winnow_cache_desc desc{};
    desc.struct_size = sizeof desc;
    desc.config = setup.config.c_str();
    desc.layers = setup.layers;
    desc.q_num_heads = setup.heads;
    desc.kv_num_heads = setup.kv_heads;
    desc.head_size = setup.size;
    desc.context = setup.context;
    desc.max_sequences = setup.sequences;
    desc.cells = setup.cells;
    static std::map<std::array<int64_t, 3>, std::vector<uint8_t>> made;
    std::vector<uint8_t>& codebooks = made[{setup.layers, setup.kv_heads, setup.size}];
    if (codebooks.empty()) codebooks = made_codebooks(setup.layers, setup.kv_heads, setup.size);
    const winnow_resource resource = {sizeof resource, 0, "codebooks", codebooks.data(), codebooks.size()};
    desc.resources = &resource;
    desc.resource_count = 1;
    desc.resource_stride = sizeof resource;
    if (caches().create(context, &desc, &cache_) != WINNOW_OK)
        broken("a cache can be made of " + setup.config + ": " + message_of(context));
    last_ = portrait();
}

CacheUnderTest::~CacheUnderTest() { require(caches().destroy(cache_) == WINNOW_OK, "a cache can be destroyed"); }

Portrait CacheUnderTest::portrait() const {
    Portrait now;
    now.stats.struct_size = sizeof now.stats;
    require(caches().stats(cache_, -1, &now.stats) == WINNOW_OK, "stats can be had");
    for (int64_t sequence = 0; sequence < setup_.sequences; ++sequence)
        for (int64_t layer = 0; layer < setup_.layers; ++layer)
            for (int64_t head = 0; head < setup_.kv_heads; ++head) {
                winnow_cache_tokens look{};
                look.struct_size = sizeof look;
                require(caches().tokens(cache_, sequence, layer, head, &look) == WINNOW_OK, "tokens are counted");
                std::vector<int64_t>& positions = now.positions.emplace_back(look.count);
                std::vector<float>& importance = now.importance.emplace_back(look.count);
                look.capacity = look.count;
                look.positions = positions.data();
                look.importance = now.stats.importance_bytes > 0 ? importance.data() : nullptr;
                require(caches().tokens(cache_, sequence, layer, head, &look) == WINNOW_OK,
                        "tokens can be had, and the importance of a cache with bytes of it");
                require(look.count == positions.size(), "tokens are as many as were said");
            }
    return now;
}

int64_t CacheUnderTest::most_live() const {
    const int64_t whole = setup_.cells > 0 ? setup_.cells : setup_.context;
    return setup_.budget > 0 ? std::min(setup_.budget, whole) : whole;
}

void CacheUnderTest::check() {
    const winnow_cache_stats& stats = last_.stats;
    uint64_t live = 0;
    for (const std::vector<int64_t>& positions : last_.positions) {
        live += positions.size();
        for (size_t at = 0; at < positions.size(); ++at) {
            const bool ascends = at == 0 || positions[at - 1] < positions[at];
            require(ascends && positions[at] >= 0, "positions ascend");
        }
        if (static_cast<int64_t>(positions.size()) > most_live())
            broken("a head of " + setup_.config + " holds " + std::to_string(positions.size()) + " tokens of " +
                   std::to_string(most_live()));
    }
    // Under recall the hot slots count, which hold some of the tokens.
    require(stats.signature_bytes > 0 || stats.resident_slots == live, "live slots are the positions of all heads");
    require(stats.bytes == stats.k_bytes + stats.v_bytes + stats.dense_k_bytes + stats.dense_v_bytes +
                               stats.slot_map_bytes + stats.importance_bytes + stats.state_bytes +
                               stats.signature_bytes,
            "bytes are the sum of their parts");
    require(stats.peak_bytes >= stats.bytes + stats.scratch_bytes, "the peak is no less than what there is");
    require(stats.shortfall == 0 || is_forged_, "no eviction pass lacks tokens: what is protected always leaves room");
}

template <class Call>
int32_t CacheUnderTest::run(Call call) {
    const int32_t status = call();
    Portrait now = portrait();
    if (status != WINNOW_OK) {
        require(!message_of(context_).empty(), "a refusal has a reason");
        require(status == WINNOW_ERROR_INVALID_ARGUMENT || status == WINNOW_ERROR_UNSUPPORTED,
                "what fails here is the host's fault");
        now.stats.peak_bytes = last_.stats.peak_bytes;
        require(now == last_, "a call that fails leaves the cache as it was");
    }
    last_ = std::move(now);
    return status;
}

int64_t CacheUnderTest::some_position(Input& input, int64_t sequence) const {
    const uint8_t how = input.byte();
    if (how > 250) return input.hostile();
    const int64_t end = setup_.cells > 0 ? setup_.cells : std::max<int64_t>(length(sequence), 1);
    return how % end;
}

// The end of a range that begins at `begin`; a hostile begin may leave no place behind it.
int64_t CacheUnderTest::some_end(Input& input, int64_t begin) {
    const int64_t length = input.within(0, 40);
    return begin > std::numeric_limits<int64_t>::max() - length ? begin : begin + length;
}

void CacheUnderTest::step(Input& input, int64_t tokens, winnow_event** event) {
    const int64_t sequence = some_sequence(input);
    const uint8_t options = input.byte();
    const std::vector<int64_t> before = lengths_;
    const int64_t next = length(sequence);
    if (setup_.cells > 0) tokens = std::min(tokens, setup_.cells);
    // The last rows are another sequence's now and then.
    const int64_t others = setup_.sequences > 1 && tokens > 1 && input.chance(64) ? tokens / 2 : 0;
    const bool appends = (options & 3) != 3, attends = (options & 12) != 12 || !appends;
    std::vector<float> k = numbers(input, setup_.kv_heads * tokens * setup_.size);
    std::vector<float> q = numbers(input, setup_.heads * tokens * setup_.size), out(q.size(), 7);
    const int64_t columns = setup_.cells > 0 ? setup_.cells : std::max(next + tokens, setup_.context);
    std::vector<float> scores(static_cast<size_t>(setup_.heads * tokens * columns), 7);
    std::vector<uint8_t> mask(static_cast<size_t>(tokens * columns), 1);
    if ((options & 64) != 0)
        for (size_t at = 0; at < mask.size(); at += 1 + options % 3) mask[at] = 0;
    std::vector<int32_t> cells = some_cells(input, setup_.cells > 0 ? tokens : 0, std::max<int64_t>(setup_.cells, 1));
    const winnow_tensor k_tensor = tensor_of(WINNOW_TYPE_F32, k.data(), {1, setup_.kv_heads, tokens, setup_.size});
    const winnow_tensor q_tensor = tensor_of(WINNOW_TYPE_F32, q.data(), {1, setup_.heads, tokens, setup_.size});
    const winnow_tensor out_tensor = tensor_of(WINNOW_TYPE_F32, out.data(), {1, setup_.heads, tokens, setup_.size});
    winnow_tensor scores_tensor =
        tensor_of(WINNOW_TYPE_F32, scores.data(), {1, setup_.heads, tokens - others, columns});
    const winnow_tensor cells_tensor = tensor_of(WINNOW_TYPE_I32, cells.data(), {1, 1, 1, tokens});
    winnow_tensor mask_tensor = tensor_of(WINNOW_TYPE_BOOL, mask.data(), {1, 1, tokens - others, columns});
    std::array<winnow_cache_entry, 2> entries{};
    entries[0].count = tokens - others;
    entries[1].count = others;
    entries[0].sequence = sequence;
    entries[1].first = tokens - others;
    entries[1].sequence = 1 - sequence;
    winnow_tensor other_mask = mask_tensor;
    other_mask.shape[2] = others;
    other_mask.offset = static_cast<uint64_t>((tokens - others) * columns);
    for (winnow_cache_entry& each : entries) each.struct_size = sizeof each;
    winnow_cache_step_desc desc{};
    desc.struct_size = sizeof desc;
    desc.entries = entries.data();
    desc.entry_count = others > 0 ? 2 : 1;
    desc.entry_stride = sizeof entries[0];
    if (appends) {
        desc.k = desc.v = &k_tensor;
        if (setup_.cells > 0) desc.cells = &cells_tensor;
    }
    if (attends) {
        desc.q = &q_tensor;
        desc.out = &out_tensor;
        if (setup_.cells > 0) {
            entries[0].attn_mask = &mask_tensor;
            entries[1].attn_mask = &other_mask;
        }
        if ((options & 16) != 0) entries[0].scores_out = &scores_tensor;
        if ((options & 32) != 0) entries[0].draft_tokens = std::min<int64_t>(tokens - others, 3);
        if ((options & 128) != 0 && setup_.cells == 0) desc.window_left = 1 + options % 32;
    }
    // Layer after layer, as a model does; one of them alone now and then.
    const int64_t only = input.chance(16) ? input.within(0, setup_.layers - 1) : -1;
    for (int64_t layer = 0; layer < setup_.layers; ++layer) {
        if (only >= 0 && layer != only) continue;
        desc.layer = layer;
        const uint64_t steps = last_.stats.steps;
        const int32_t status = run([&] { return caches().step(cache_, &desc, layer == 0 ? event : nullptr); });
        require(last_.stats.steps == steps + (status == WINNOW_OK ? 1 : 0), "steps that succeed are counted");
        const bool is_touched = std::any_of(out.begin(), out.end(), [](float value) { return value != 7; });
        require(status == WINNOW_OK || layer > 0 || !is_touched, "a step that fails writes nothing");
        for (uint64_t i = 0; status == WINNOW_OK && appends && i < desc.entry_count; ++i) {
            const auto its = static_cast<size_t>(entries[i].sequence);
            lengths_[its] = std::max(before[its] + (i == 0 ? tokens - others : others), lengths_[its]);
        }
    }
}

void CacheUnderTest::truncate(Input& input) {
    const int64_t sequence = some_sequence(input);
    const int64_t to = input.chance(8) ? input.hostile() : std::max<int64_t>(length(sequence) - input.within(0, 24), 0);
    if (run([&] { return caches().truncate(cache_, sequence, to); }) != WINNOW_OK) return;
    lengths_[static_cast<size_t>(sequence)] = std::min(length(sequence), to);
}

void CacheUnderTest::remove(Input& input) {
    const int64_t sequence = some_sequence(input), begin = some_position(input, sequence);
    const int64_t end = input.chance(24) ? -1 : some_end(input, begin);
    run([&] { return caches().remove(cache_, sequence, begin, end); });
}

void CacheUnderTest::shift(Input& input) {
    const int64_t sequence = some_sequence(input), begin = some_position(input, sequence);
    const int64_t end = input.chance(96) ? some_end(input, begin) : -1;
    const int64_t delta = input.chance(8) ? input.hostile() : input.within(-30, 12);
    if (run([&] { return caches().shift(cache_, sequence, begin, end, delta); }) != WINNOW_OK) return;
    if (delta > 0) // a range of no tokens goes anywhere
        lengths_[static_cast<size_t>(sequence)] += std::min(delta, setup_.context);
}

void CacheUnderTest::copy(Input& input) {
    const int64_t from = some_sequence(input), to = some_sequence(input);
    if (run([&] { return caches().copy(cache_, from, to); }) != WINNOW_OK) return;
    lengths_[static_cast<size_t>(to)] = length(from);
}

void CacheUnderTest::anchor(Input& input) {
    const int64_t sequence = some_sequence(input);
    std::vector<int64_t> positions;
    for (int64_t count = input.within(0, 5); count > 0; --count) positions.push_back(some_position(input, sequence));
    run([&] { return caches().anchor(cache_, sequence, positions.data(), positions.size()); });
}

void CacheUnderTest::set_importance(Input& input) {
    const int64_t sequence = some_sequence(input);
    std::vector<int64_t> positions;
    for (int64_t count = input.within(0, 9); count > 0; --count) positions.push_back(some_position(input, sequence));
    const std::vector<float> importance = numbers(input, static_cast<int64_t>(positions.size()) + 1);
    const int64_t layer = input.within(0, setup_.layers - 1), head = input.within(0, setup_.kv_heads - 1);
    const auto before = last_.positions;
    const int32_t status = run([&] {
        return caches().set_importance(cache_, sequence, layer, head, positions.data(), importance.data(),
                                       positions.size());
    });
    require(before == last_.positions, "importances leave which tokens are resident");
    require(status != WINNOW_OK || last_.stats.importance_bytes > 0 || last_.stats.bytes == 0,
            "a cache without importance takes none");
}

void CacheUnderTest::reserve(Input& input) {
    const int64_t sequence = some_sequence(input);
    const int64_t tokens = input.chance(8) ? input.hostile() : input.within(0, setup_.context);
    run([&] { return caches().reserve(cache_, sequence, tokens); });
}

void CacheUnderTest::set_config(Input& input) {
    const Choice& choice = input.choice(choices);
    if (run([&] { return caches().set_config(cache_, choice.config); }) != WINNOW_OK) return;
    setup_.config = choice.config;
    setup_.budget = choice.budget;
}

void CacheUnderTest::rows(Input& input) {
    const int64_t sequence = some_sequence(input), count = input.within(1, 40);
    const uint8_t which = input.byte() % 5;
    std::vector<float> k = numbers(input, setup_.kv_heads * count * setup_.size), v = k;
    const int64_t numbers_there = setup_.cells > 0 ? setup_.cells : setup_.context;
    std::vector<int32_t> tokens = some_cells(input, count, numbers_there);
    if ((which == 2 || which == 4) && input.chance(128)) // a head leaves a token out
        k[static_cast<size_t>(input.within(0, count * setup_.kv_heads - 1) * setup_.size)] =
            std::numeric_limits<float>::quiet_NaN();
    const winnow_tensor k_tensor = tensor_of(WINNOW_TYPE_F32, k.data(), {1, setup_.kv_heads, count, setup_.size});
    const winnow_tensor v_tensor = tensor_of(WINNOW_TYPE_F32, v.data(), {1, setup_.kv_heads, count, setup_.size});
    const winnow_tensor tokens_tensor = tensor_of(WINNOW_TYPE_I32, tokens.data(), {1, 1, 1, count});
    winnow_cache_rows_desc desc{};
    desc.struct_size = sizeof desc;
    desc.layer = input.within(0, setup_.layers - 1);
    desc.sequence = sequence;
    const bool appends = which == 2 || which == 4;
    if (!appends || setup_.cells > 0) desc.tokens = &tokens_tensor;
    desc.k = &k_tensor;
    desc.v = &v_tensor;
    if (which >= 3 && input.chance(64)) { // values are a part of the keys, or said to be
        desc.v = nullptr;
        desc.has_v_in_k = 1;
        desc.v_first = static_cast<uint32_t>(input.chance(32) ? input.hostile() : 0);
    }
    if (which == 4) exported_rows(input, desc, k_tensor, v_tensor);
    const auto before = last_.positions;
    const auto& call = which == 0   ? caches().read
                       : which == 1 ? caches().write
                       : which == 3 ? caches().export_rows
                                    : caches().import_rows;
    const int32_t status = run([&] { return call(cache_, &desc); });
    require(appends || before == last_.positions, "read, write and export leave which tokens are resident");
    if (status == WINNOW_OK && appends) lengths_[static_cast<size_t>(sequence)] += count;
}

// What an import is given: rows of this cache, more often than not with a byte changed.
void CacheUnderTest::exported_rows(Input& input, winnow_cache_rows_desc desc, const winnow_tensor& k,
                                   const winnow_tensor& v) {
    if (input.chance(64)) return; // numbers that were never rows
    std::vector<int32_t> tokens = some_cells(input, k.shape[2], setup_.cells > 0 ? setup_.cells : setup_.context);
    const winnow_tensor tokens_tensor = tensor_of(WINNOW_TYPE_I32, tokens.data(), {1, 1, 1, k.shape[2]});
    desc.tokens = &tokens_tensor;
    run([&] { return caches().export_rows(cache_, &desc); });
    for (const winnow_tensor* each : {&k, &v}) {
        if (input.chance(96)) continue;
        const int64_t bytes = each->shape[1] * each->stride[1];
        static_cast<uint8_t*>(each->data)[input.within(0, bytes - 1)] = input.byte();
    }
}

void CacheUnderTest::reset_or_press(Input& input) {
    const uint8_t how = input.byte();
    if (how > 200) {
        require(run([&] { return caches().reset(cache_); }) == WINNOW_OK, "reset");
        require(last_.stats.bytes == 0 && last_.stats.steps == 0 && last_.stats.resident_slots == 0,
                "reset leaves nothing");
        std::fill(lengths_.begin(), lengths_.end(), 0);
        return;
    }
    const double pressure = how > 180 ? input.number<double>() : how / 180.0;
    const int32_t status = run([&] { return caches().set_pressure(cache_, pressure); });
    require((status == WINNOW_OK) == (pressure <= 1), "pressure is at most 1");
    // The machine's changes from one moment to the next, and no input would be reproduced.
    if (pressure < 0) require(caches().set_pressure(cache_, 0) == WINNOW_OK, "pressure 0");
}

std::string CacheUnderTest::save(int64_t sequence) {
    StateInMemory state;
    uint64_t size = 0;
    require(run([&] { return caches().saved_size(cache_, sequence, &size); }) == WINNOW_OK, "it has a size");
    require(run([&] { return state.save(caches(), cache_, sequence); }) == WINNOW_OK, "a cache can be saved");
    require(state.bytes.size() == size, "a cache is saved in as many bytes as it said");
    return state.bytes;
}

void CacheUnderTest::load(const std::string& saved, const CacheUnderTest& from) {
    const bool is_own = &from == this;
    const winnow_cache_stats before = last_.stats;
    if (run([&] { return StateInMemory(saved).load(caches(), cache_); }) != WINNOW_OK) {
        require(!is_own, "a cache takes what it saved");
        return;
    }
    Portrait now = last_;
    now.stats.peak_bytes = from.last_.stats.peak_bytes;
    now.stats.scratch_bytes = from.last_.stats.scratch_bytes;
    for (const auto counter : {&winnow_cache_stats::evictions, &winnow_cache_stats::eviction_passes,
                               &winnow_cache_stats::steps, &winnow_cache_stats::picks, &winnow_cache_stats::misses}) {
        require(now.stats.*counter == before.*counter, "a load leaves what the cache counted");
        now.stats.*counter = from.last_.stats.*counter;
    }
    require(now == from.last_, "a loaded cache is the one that was saved");
    lengths_ = from.lengths_;
}

bool CacheUnderTest::take(const std::string& saved, bool is_original, int64_t sequence) {
    const std::vector<std::vector<int64_t>> before = last_.positions;
    const int32_t status = run([&] { return StateInMemory(saved).load(caches(), cache_, sequence); });
    require(status == WINNOW_OK || !is_original, "a cache takes what was saved of its like");
    if (status != WINNOW_OK) return false;
    const size_t heads = before.size() / static_cast<size_t>(setup_.sequences);
    for (size_t at = 0; at < before.size() && sequence >= 0; ++at)
        require(static_cast<int64_t>(at / heads) == sequence || before[at] == last_.positions[at],
                "a sequence that is loaded leaves the others");
    is_forged_ = !is_original; // what a head's last eviction pass lacked is whatever the stream says
    check();
    return true;
}

} // namespace winnow::fuzz
