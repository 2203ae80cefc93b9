// Calls of the cache.
#include "cache_host.hpp"

#include <cmath>
#include <sstream>
#include <stdexcept>

#include "cache_codebooks.hpp"

namespace winnow::conformance {
namespace {

class Normal {
public:
    explicit Normal(std::mt19937_64& engine) : engine_(engine) {}
    double operator()() { return distribution_(engine_); }

private:
    std::mt19937_64& engine_;
    std::normal_distribution<double> distribution_;
};

// What the means of a centred cache have to find: a number of each layer, head and element.
double offset_of(int64_t layer, int64_t head, int64_t d) {
    return 2 * std::sin(static_cast<double>(7 * layer + 3 * head + d));
}

void fill(TestTensor& tensor, Normal& draw, int64_t layer, bool has_offset, double spread) {
    tensor.each_row([&](const Index& row) {
        const double size = spread > 0 ? std::exp(spread * draw()) : 1; // tokens that matter more than others
        Index at = row;
        for (at[3] = 0; at[3] < tensor.shape()[3]; ++at[3])
            tensor.set(at, size * draw() + (has_offset ? offset_of(layer, row[1], at[3]) : 0));
    });
}

TestTensor rows_of(const TestTensor& whole, int64_t first, int64_t count) {
    if (!whole) return {};
    const Shape shape = whole.shape();
    TestTensor part(whole.type(), {shape[0], shape[1], count, shape[3]});
    part.each([&](const Index& at) { part.set(at, whole.get({at[0], at[1], at[2] + first, at[3]})); });
    return part;
}

} // namespace

double Step::scale(const CacheSetup& setup) const {
    return options.scale != 0 ? static_cast<double>(options.scale)
                              : static_cast<double>(static_cast<float>(
                                    1 / std::sqrt(static_cast<double>(setup.shape(layer).head_size))));
}

Step draw_step(const CacheSetup& setup, std::mt19937_64& engine, int64_t layer, int64_t sequence, int64_t tokens,
               int64_t queries, const StepOptions& options, int64_t columns) {
    Step step;
    step.layer = layer;
    step.sequence = sequence;
    step.tokens = tokens;
    step.queries = queries;
    step.options = options;
    const LayerShape shape = setup.shape(layer);
    Normal draw(engine);
    if (tokens > 0) {
        step.k = TestTensor(setup.type, {1, shape.kv_heads, tokens, shape.head_size}, options.layout, options.memory);
        step.v = TestTensor(setup.type, {1, shape.kv_heads, tokens, shape.v_head_size}, options.layout, options.memory);
        fill(step.k, draw, layer, setup.center, .3);
        fill(step.v, draw, layer, setup.center, .3);
    }
    if (queries == 0) return step;
    step.q = TestTensor(setup.type, {1, shape.q_heads(), queries, shape.head_size}, options.layout, options.memory);
    fill(step.q, draw, layer, false, 0);
    step.out = TestTensor(setup.type, {1, shape.q_heads(), queries, shape.v_head_size}, Layout::packed, options.memory);
    if (options.scores)
        step.scores =
            TestTensor(WINNOW_TYPE_F32, {1, shape.q_heads(), queries, columns}, Layout::packed, options.memory);
    if (options.alibi) {
        step.alibi = TestTensor(WINNOW_TYPE_F32, {1, 1, 1, shape.q_heads()});
        step.alibi.each([&](const Index& at) { step.alibi.set(at, std::exp2(-static_cast<double>(at[3] + 4))); });
    }
    if (options.head_sink) {
        step.head_sink = TestTensor(WINNOW_TYPE_F32, {1, 1, 1, shape.q_heads()});
        step.head_sink.each([&](const Index& at) { step.head_sink.set(at, draw()); });
    }
    return step;
}

Step part_of(const CacheSetup& setup, const Step& whole, int64_t first, int64_t count) {
    const LayerShape shape = setup.shape(whole.layer);
    Step part;
    part.layer = whole.layer;
    part.sequence = whole.sequence;
    part.tokens = whole.k ? count : 0;
    part.queries = whole.q ? count : 0;
    part.options = whole.options;
    // Tokens that may be taken back are the last ones of the whole.
    part.options.draft_tokens = std::max<int64_t>(whole.options.draft_tokens - (whole.tokens - first - count), 0);
    part.options.draft_tokens = std::min(part.options.draft_tokens, count);
    part.k = rows_of(whole.k, first, count);
    part.v = rows_of(whole.v, first, count);
    part.q = rows_of(whole.q, first, count);
    if (whole.q) part.out = TestTensor(setup.type, {1, shape.q_heads(), count, shape.v_head_size});
    if (whole.scores) part.scores = TestTensor(WINNOW_TYPE_F32, {1, shape.q_heads(), count, whole.scores.shape()[3]});
    if (whole.alibi) part.alibi = whole.alibi.packed_copy();
    if (whole.head_sink) part.head_sink = whole.head_sink.packed_copy();
    return part;
}

winnow_resource resource_of(const char* name, const void* data, size_t size) {
    return {sizeof(winnow_resource), 0, name, data, size};
}

void give_resources(winnow_cache_desc& desc, const std::vector<winnow_resource>& resources) {
    desc.resources = resources.data();
    desc.resource_count = resources.size();
    desc.resource_stride = sizeof(winnow_resource);
}

SetupDesc::SetupDesc(const CacheSetup& setup, const std::string& config) {
    desc_.struct_size = sizeof desc_;
    desc_.config = config.c_str();
    desc_.layers = setup.layers;
    for (const LayerShape& each : setup.shapes)
        shapes_.push_back(
            {sizeof(winnow_layer_shape), 0, each.q_heads(), each.kv_heads, each.head_size, each.v_head_size});
    if (!shapes_.empty()) {
        desc_.layer_shapes = shapes_.data();
        desc_.layer_shape_stride = sizeof shapes_.front();
    } else {
        desc_.q_num_heads = setup.q_heads();
        desc_.kv_num_heads = setup.kv_heads;
        desc_.head_size = setup.head_size;
        desc_.v_head_size = setup.v_head_size;
    }
    desc_.context = setup.context;
    desc_.max_sequences = setup.sequences;
    desc_.cells = setup.cells;
    const std::vector<double>&profile = setup.adaptive_budget.profile, &networks = networks_of(setup);
    if (!profile.empty())
        resources_.push_back(resource_of("profile", profile.data(), profile.size() * sizeof profile.front()));
    resources_.push_back(resource_of("network", networks.data(), networks.size() * sizeof networks.front()));
    if (setup.recall && setup.recall->has_codes) {
        const auto codebooks = setup.recall->codebooks ? setup.recall->codebooks : random_codebooks(setup);
        resources_.push_back(resource_of("codebooks", codebooks->data(), codebooks->size()));
    }
    give_resources(desc_, resources_);
}

CacheHost::CacheHost(Session& session, const CacheSetup& setup) : session_(session), setup_(setup) {
    const std::string config = setup.config();
    const SetupDesc desc(setup, config);
    if (caches().create(session.context(), desc.get(), &cache_) != WINNOW_OK)
        throw std::runtime_error("cache_create with " + config + ": " + message());
}

CacheHost::~CacheHost() { caches().destroy(cache_); }

int32_t CacheHost::run(Step& step) {
    for (TestTensor* each : {&step.k, &step.v, &step.q, &step.out, &step.scores, &step.alibi, &step.head_sink,
                             &step.cells, &step.mask, &step.mask_slopes})
        if (*each) each->bind(session_);
    winnow_cache_entry entry{};
    entry.struct_size = sizeof entry;
    entry.sequence = step.sequence;
    entry.count = std::max(step.tokens, step.queries);
    entry.draft_tokens = step.options.draft_tokens;
    entry.attn_mask = step.mask.view();
    entry.scores_out = step.scores.view();
    winnow_cache_step_desc desc{};
    desc.struct_size = sizeof desc;
    desc.flags = step.options.no_wait ? WINNOW_STEP_NO_WAIT : 0;
    desc.layer = step.layer;
    desc.entries = &entry;
    desc.entry_count = 1;
    desc.entry_stride = sizeof entry;
    desc.k = step.k.view();
    desc.v = step.v.view();
    desc.q = step.q.view();
    desc.out = step.out.view();
    desc.alibi_slopes = step.alibi.view();
    desc.head_sink = step.head_sink.view();
    desc.scale = step.options.scale;
    desc.softcap = step.options.softcap;
    desc.window_left = step.options.window_left;
    desc.cells = step.cells.view();
    desc.mask_slopes = step.mask_slopes.view();
    const int32_t status = caches().step(cache_, &desc, nullptr);
    if (status != WINNOW_OK) return status;
    session_.note_cache_step();
    expect_ok(api().finish(session_.context()), "finish");
    for (TestTensor* each : {&step.out, &step.scores})
        if (*each) each->fetch();
    return WINNOW_OK;
}

void CacheHost::expect_ok(int32_t status, const char* what) const {
    if (status != WINNOW_OK) throw std::runtime_error(std::string(what) + ": " + message());
}

std::vector<int64_t> CacheHost::positions(int64_t sequence, int64_t layer, int64_t head) const {
    return all_of_head(&winnow_cache_tokens::positions, sequence, layer, head);
}

std::vector<int32_t> CacheHost::segments(int64_t sequence, int64_t layer, int64_t head) const {
    return all_of_head(&winnow_cache_tokens::segments, sequence, layer, head);
}

std::vector<float> CacheHost::importance(int64_t sequence, int64_t layer, int64_t head) const {
    return all_of_head(&winnow_cache_tokens::importance, sequence, layer, head);
}

template <class Value>
std::vector<Value> CacheHost::all_of_head(Value* winnow_cache_tokens::*array, int64_t sequence, int64_t layer,
                                          int64_t head) const {
    winnow_cache_tokens look{};
    look.struct_size = sizeof look;
    expect_ok(caches().tokens(cache_, sequence, layer, head, &look), "cache_tokens");
    std::vector<Value> all(look.count);
    look.capacity = look.count;
    look.*array = all.data();
    if (look.count > 0) expect_ok(caches().tokens(cache_, sequence, layer, head, &look), "cache_tokens");
    if (look.count != all.size()) throw std::runtime_error("cache_tokens: the count changed between two calls");
    return all;
}

int64_t CacheHost::next_position(int64_t sequence, int64_t layer) const {
    winnow_cache_tokens look{};
    look.struct_size = sizeof look;
    expect_ok(caches().tokens(cache_, sequence, layer, 0, &look), "cache_tokens");
    return look.next_position;
}

winnow_cache_stats CacheHost::stats() const {
    winnow_cache_stats stats{};
    stats.struct_size = sizeof stats;
    expect_ok(caches().stats(cache_, -1, &stats), "cache_stats");
    expect_sum_of_sequences(stats);
    return stats;
}

winnow_cache_stats CacheHost::stats_of(int64_t sequence) const {
    winnow_cache_stats stats{};
    stats.struct_size = sizeof stats;
    expect_ok(caches().stats(cache_, sequence, &stats), "cache_stats of a sequence");
    return stats;
}

// What a sequence has is its own; evictions and picks of one that is gone still count for the cache.
void CacheHost::expect_sum_of_sequences(const winnow_cache_stats& whole) const {
    static constexpr struct {
        const char* name;
        uint64_t winnow_cache_stats::*field;
    } parts[] = {{"bytes", &winnow_cache_stats::bytes},
                 {"k_bytes", &winnow_cache_stats::k_bytes},
                 {"v_bytes", &winnow_cache_stats::v_bytes},
                 {"dense_k_bytes", &winnow_cache_stats::dense_k_bytes},
                 {"dense_v_bytes", &winnow_cache_stats::dense_v_bytes},
                 {"slot_map_bytes", &winnow_cache_stats::slot_map_bytes},
                 {"importance_bytes", &winnow_cache_stats::importance_bytes},
                 {"state_bytes", &winnow_cache_stats::state_bytes},
                 {"signature_bytes", &winnow_cache_stats::signature_bytes},
                 {"cold_bytes", &winnow_cache_stats::cold_bytes},
                 {"disk_bytes", &winnow_cache_stats::disk_bytes},
                 {"original_bytes", &winnow_cache_stats::original_bytes},
                 {"tokens", &winnow_cache_stats::tokens},
                 {"resident_slots", &winnow_cache_stats::resident_slots},
                 {"shortfall", &winnow_cache_stats::shortfall}};
    winnow_cache_stats sum{};
    for (int64_t sequence = 0; sequence < setup_.sequences; ++sequence) {
        const winnow_cache_stats own = stats_of(sequence);
        for (const auto& [name, field] : parts) sum.*field += own.*field;
        sum.evictions += own.evictions;
        sum.picks += own.picks;
        sum.misses += own.misses;
        if (own.budget_bytes != whole.budget_bytes) throw std::runtime_error("a sequence has another budget");
        if (own.scratch_bytes + own.peak_bytes + own.eviction_passes + own.steps + own.codebook_bytes != 0)
            throw std::runtime_error("a sequence counts what belongs to the cache");
    }
    for (const auto& [name, field] : parts) {
        if (sum.*field == whole.*field) continue;
        throw std::runtime_error(std::string("the sequences' ") + name + " are " + std::to_string(sum.*field) +
                                 " together, the cache's " + std::to_string(whole.*field));
    }
    if (sum.evictions > whole.evictions) throw std::runtime_error("the sequences have more evictions than the cache");
    if (sum.picks > whole.picks || sum.misses > whole.misses)
        throw std::runtime_error("the sequences have more picks or misses than the cache");
}

std::string CacheHost::portrait(bool with_importance) const {
    return contents(with_importance) + " " + std::to_string(stats().evictions);
}

std::string CacheHost::contents(bool with_importance) const {
    std::ostringstream text;
    text.precision(9);
    for (int64_t sequence = 0; sequence < setup_.sequences; ++sequence)
        for (int64_t layer = 0; layer < setup_.layers; ++layer)
            for (int64_t head = 0; head < setup_.shape(layer).kv_heads; ++head) {
                text << "\n" << sequence << "/" << layer << "/" << head << ":";
                for (const int64_t each : positions(sequence, layer, head)) text << " " << each;
                for (const int32_t each : segments(sequence, layer, head)) text << " " << each;
                if (!with_importance || !setup_.keeps_importance()) continue;
                for (const float each : importance(sequence, layer, head)) text << " " << each;
            }
    const winnow_cache_stats s = stats();
    text << "\nstats " << s.resident_slots << " " << s.tokens << " " << s.original_bytes;
    return text.str();
}

} // namespace winnow::conformance
