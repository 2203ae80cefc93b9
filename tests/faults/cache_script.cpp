// The cache's life of script.hpp.
#include "script.hpp"

#include <array>
#include <filesystem>
#include <numeric>
#include <sstream>
#include <utility>

namespace winnow::faults {
namespace {

constexpr int64_t layers = 2, kv_heads = 2, q_heads = 4, size = 64, context_tokens = 256, sequences = 2, prompt = 34;
constexpr int64_t held = 55; // positions of a layer where add_exact_rows comes: 30 to 36 are free
// An eviction pass of layer 0 is two launches, as its heads store their keys in unlike formats.
#define FORMATS "k=q8_0,v=turbo4,fine=0.1,k_fine=f16"
constexpr const char* first_config = "h2o:budget=40,residual=16,cadence=8," FORMATS;
constexpr const char* smaller_config = "h2o:budget=32,residual=16,cadence=4," FORMATS;

} // namespace

CacheScript::CacheScript(const std::string& backend)
    : Script(backend), numbers_(WINNOW_TYPE_I32, 1, 1, 40), k_rows_(WINNOW_TYPE_F32, kv_heads, 40, size),
      v_rows_(WINNOW_TYPE_F32, kv_heads, 40, size), held_(WINNOW_TYPE_I32, 1, 1, held),
      exact_k_(WINNOW_TYPE_F16, kv_heads, held, size), exact_v_(WINNOW_TYPE_F16, kv_heads, held, size) {
    numbers_.count_from(15);
    std::vector<int32_t> positions(held);
    for (int32_t i = 0; i < held; ++i) positions[static_cast<size_t>(i)] = i < 30 ? i : i + 7;
    held_.set(positions);
    add_create();
    add({.name = "cache_create",
         .run = [this] { return create(); },
         .result = [this] { return portrait(); },
         .recover = [this] { caches().destroy(std::exchange(cache_, nullptr)); }});
    add(changing("cache_reserve", [this] { return caches().reserve(cache_, 0, 36); }));
    add_steps();
    add_looks();
    add_edits();
    add_rows();
    add_exact_rows();
    add_files();
    add(changing("cache_remove of everything", [this] { return caches().remove(cache_, 0, 0, -1); }));
    add_step({.layer = 0, .tokens = 9, .seed = 71});
    add(changing("cache_reset", [this] { return caches().reset(cache_); }));
    add_step({.layer = 1, .tokens = 9, .seed = 72});
    add({.name = "cache_destroy",
         .run =
             [this] {
                 if (cache_ == nullptr) return not_run;
                 const int32_t status = caches().destroy(cache_);
                 if (status == WINNOW_OK) cache_ = nullptr;
                 return status;
             },
         .prepare = [this] { save(); },
         .recover =
             [this] {
                 create();
                 recover();
             }});
    add_destroy();
}

int32_t CacheScript::create() {
    if (context() == nullptr) return not_run;
    winnow_cache_desc desc{};
    desc.struct_size = sizeof desc;
    desc.config = config_ = first_config;
    desc.layers = layers;
    desc.q_num_heads = q_heads;
    desc.kv_num_heads = kv_heads;
    desc.head_size = size;
    desc.context = context_tokens;
    desc.max_sequences = sequences;
    return caches().create(context(), &desc, &cache_);
}

// What can be seen of what the cache holds: of every head which tokens are resident, and their importance.
std::string CacheScript::portrait() const {
    std::ostringstream text;
    std::vector<int64_t> positions(context_tokens);
    std::vector<float> importance(context_tokens);
    winnow_cache_tokens look{};
    look.struct_size = sizeof look;
    look.capacity = context_tokens;
    look.positions = positions.data();
    look.importance = importance.data();
    for (int64_t sequence = 0; sequence < sequences; ++sequence)
        for (int64_t layer = 0; layer < layers; ++layer)
            for (int64_t head = 0; head < kv_heads; ++head) {
                text << caches().tokens(cache_, sequence, layer, head, &look) << " " << look.count;
                text << " " << digest(positions.data(), look.count * 8);
                text << " " << digest(importance.data(), look.count * 4) << "\n";
            }
    winnow_cache_stats stats{};
    stats.struct_size = sizeof stats;
    caches().stats(cache_, -1, &stats);
    // Memory that was taken may stay; scratch and the peak tell of it.
    text << stats.tokens << " " << stats.resident_slots << " " << stats.shortfall << " " << stats.budget_bytes;
    return text.str();
}

// The same with what the cache counted, which `recover` does not bring back.
std::string CacheScript::observed() const {
    winnow_cache_stats stats{};
    stats.struct_size = sizeof stats;
    caches().stats(cache_, -1, &stats);
    return portrait() + " " + std::to_string(stats.evictions) + " " + std::to_string(stats.eviction_passes) + " " +
           std::to_string(stats.steps);
}

int32_t CacheScript::set_config(const char* config) {
    const int32_t status = caches().set_config(cache_, config);
    if (status == WINNOW_OK) config_ = config;
    return status;
}

void CacheScript::save() {
    saved_config_ = config_;
    save_state(caches(), cache_, folder_.file("before"));
}

// As the header says: the sequences are removed. Then they are as they were saved.
void CacheScript::recover() {
    for (int64_t sequence = 0; sequence < sequences; ++sequence) caches().remove(cache_, sequence, 0, -1);
    set_config(saved_config_);
    load_state(caches(), cache_, folder_.file("before"));
}

Action CacheScript::changing(std::string name, std::function<int32_t()> run) {
    return {.name = std::move(name),
            .run = [this, run = std::move(run)] { return cache_ == nullptr ? not_run : run(); },
            .effect = Effect::changes,
            .result = [this] { return portrait(); },
            .observe = [this] { return observed(); },
            .prepare = [this] { save(); },
            .recover = [this] { recover(); }};
}

int32_t CacheScript::step(const StepArgs& args) {
    HostTensor k(WINNOW_TYPE_F32, kv_heads, args.tokens, size), v(WINNOW_TYPE_F32, kv_heads, args.tokens, size);
    HostTensor q(WINNOW_TYPE_F32, q_heads, args.tokens, size), out(WINNOW_TYPE_F32, q_heads, args.tokens, size);
    HostTensor scores(WINNOW_TYPE_F32, q_heads, args.tokens - args.others, context_tokens);
    k.fill(3 * args.seed);
    v.fill(3 * args.seed + 1);
    q.fill(3 * args.seed + 2);
    out.poison();
    winnow_cache_step_desc desc{};
    desc.struct_size = sizeof desc;
    desc.layer = args.layer;
    desc.k = k.get();
    desc.v = v.get();
    desc.q = q.get();
    desc.out = out.get();
    std::array<winnow_cache_entry, 2> entries{};
    for (winnow_cache_entry& each : entries) each.struct_size = sizeof each;
    entries[0].count = entries[1].first = args.tokens - args.others;
    entries[1].count = args.others;
    entries[1].sequence = 1;
    if (args.scores) entries[0].scores_out = scores.get();
    desc.entries = entries.data();
    desc.entry_count = args.others > 0 ? 2 : 1;
    desc.entry_stride = sizeof entries[0];
    winnow_event* event = nullptr;
    int32_t status = caches().step(cache_, &desc, args.waits_at_once ? &event : nullptr);
    if (status != WINNOW_OK) return status; // nothing of it runs any more
    status = args.waits_at_once ? wait(event) : finish();
    out_ = out.floats();
    scores_ = args.scores ? scores.floats() : std::vector<float>{};
    return status;
}

void CacheScript::add_step(const StepArgs& args) {
    Action action = changing("cache_step of " + std::to_string(args.tokens) + " tokens, layer " +
                                 std::to_string(args.layer) + (args.others > 0 ? " of two sequences" : "") +
                                 (args.scores ? ", with scores" : "") + (args.waits_at_once ? "" : ", then finish"),
                             [this, args] { return step(args); });
    action.result = [this] { return portrait() + " " + digest(out_) + " " + digest(scores_); };
    add(std::move(action));
}

void CacheScript::add_steps() {
    uint64_t seed = 100;
    for (int64_t layer = 0; layer < layers; ++layer) add_step({.layer = layer, .tokens = prompt, .seed = ++seed});
    for (int token = 0; token < 8; ++token)
        for (int64_t layer = 0; layer < layers; ++layer) add_step({.layer = layer, .tokens = 1, .seed = ++seed});
    for (int64_t layer = 0; layer < layers; ++layer)
        add_step({.layer = layer, .tokens = 3, .seed = ++seed, .scores = true, .waits_at_once = layer == 0});
}

void CacheScript::add_looks() {
    add({.name = "cache_tokens",
         .run =
             [this] {
                 winnow_cache_tokens look{};
                 look.struct_size = sizeof look;
                 return cache_ == nullptr ? not_run : caches().tokens(cache_, 0, 0, 0, &look);
             },
         .observe = [this] { return observed(); }});
    add(changing("cache_set_importance", [this] {
        std::vector<int64_t> positions(context_tokens); // a head passes over those that it does not hold
        std::iota(positions.begin(), positions.end(), 0);
        const std::vector<float> values(context_tokens, 3.5F);
        return caches().set_importance(cache_, 0, 0, 0, positions.data(), values.data(), context_tokens);
    }));
    add({.name = "cache_stats",
         .run =
             [this] {
                 winnow_cache_stats stats{};
                 stats.struct_size = sizeof stats;
                 return cache_ == nullptr ? not_run : caches().stats(cache_, -1, &stats);
             },
         .observe = [this] { return observed(); }});
    add({.name = "cache_stats of a sequence",
         .run =
             [this] {
                 winnow_cache_stats stats{};
                 stats.struct_size = sizeof stats;
                 return cache_ == nullptr ? not_run : caches().stats(cache_, 0, &stats);
             },
         .observe = [this] { return observed(); }});
}

void CacheScript::add_edits() {
    static constexpr int64_t anchors[] = {20, 21};
    add(changing("cache_anchor", [this] { return caches().anchor(cache_, 0, anchors, 2); }));
    add(changing("cache_truncate", [this] { return caches().truncate(cache_, 0, 42); }));
    add(changing("cache_shift", [this] { return caches().shift(cache_, 0, 30, -1, 7); }));
    for (int64_t layer = 0; layer < layers; ++layer) add_step({.layer = layer, .tokens = 1, .seed = 40});
    add(changing("cache_copy", [this] { return caches().copy(cache_, 0, 1); }));
    for (int64_t layer = 0; layer < layers; ++layer)
        add_step({.layer = layer, .tokens = 2, .seed = 37, .scores = layer == 0, .others = 1});
    add_step({.layer = 0, .tokens = 9, .seed = 38, .others = 5});
    add_step({.layer = 1, .tokens = 9, .seed = 39, .others = 5});
    add(changing("cache_remove of a range", [this] { return caches().remove(cache_, 1, 10, 25); }));
    add(changing("cache_set_config", [this] { return set_config(smaller_config); }));
    for (int64_t layer = 0; layer < layers; ++layer) add_step({.layer = layer, .tokens = 12, .seed = 41});
    add(changing("cache_set_config to a larger budget", [this] { return set_config(first_config); }));
}

void CacheScript::add_rows() {
    const auto rows = [this](int64_t sequence) {
        winnow_cache_rows_desc desc{};
        desc.struct_size = sizeof desc;
        desc.sequence = sequence;
        desc.k = k_rows_.get();
        desc.v = v_rows_.get();
        return desc;
    };
    add({.name = "cache_read",
         .run =
             [this, rows] {
                 winnow_cache_rows_desc desc = rows(0);
                 desc.tokens = numbers_.get();
                 return cache_ == nullptr ? not_run : caches().read(cache_, &desc);
             },
         .result = [this] { return k_rows_.digest() + " " + v_rows_.digest(); },
         .observe = [this] { return observed(); }});
    add(changing("cache_write", [this, rows] {
        winnow_cache_rows_desc desc = rows(0);
        desc.tokens = numbers_.get();
        return caches().write(cache_, &desc);
    }));
    add(changing("cache_remove of everything", [this] { return caches().remove(cache_, 1, 0, -1); }));
    add(changing("cache_import_rows of values", [this, rows] {
        const winnow_cache_rows_desc desc = rows(1);
        return caches().import_rows(cache_, &desc);
    }));
}

void CacheScript::add_exact_rows() {
    const auto rows = [this](int64_t sequence) {
        winnow_cache_rows_desc desc{};
        desc.struct_size = sizeof desc;
        desc.sequence = sequence;
        desc.k = exact_k_.get();
        desc.v = exact_v_.get();
        return desc;
    };
    add({.name = "cache_export_rows",
         .run =
             [this, rows] {
                 winnow_cache_rows_desc desc = rows(0);
                 desc.tokens = held_.get();
                 return cache_ == nullptr ? not_run : caches().export_rows(cache_, &desc);
             },
         .result = [this] { return exact_k_.digest() + " " + exact_v_.digest(); },
         .observe = [this] { return observed(); }});
    add(changing("cache_remove of everything", [this] { return caches().remove(cache_, 1, 0, -1); }));
    for (const char* name : {"cache_import_rows into an empty layer", "cache_import_rows beside others"})
        add(changing(name, [this, rows] {
            const winnow_cache_rows_desc desc = rows(1);
            return caches().import_rows(cache_, &desc);
        }));
}

void CacheScript::add_files() {
    add({.name = "cache_save",
         .run = [this] { return cache_ == nullptr ? not_run : save_state(caches(), cache_, folder_.file("saved")); },
         .result =
             [this] {
                 std::string text;
                 for (const std::string& name : folder_.names())
                     if (name != "before") text += name + " "; // that is recover()'s
                 return text;
             },
         .observe = [this] { return observed(); }});
    for (int64_t layer = 0; layer < layers; ++layer) add_step({.layer = layer, .tokens = 1, .seed = 50});
    add(changing("cache_load", [this] {
        const std::string path = folder_.file("saved");
        return std::filesystem::exists(path) ? load_state(caches(), cache_, path) : not_run;
    }));
    for (int64_t layer = 0; layer < layers; ++layer) add_step({.layer = layer, .tokens = 1, .seed = 51});
    add({.name = "cache_save by a callback",
         .run =
             [this] {
                 if (cache_ == nullptr) return not_run;
                 const int32_t status = state_.save(caches(), cache_, 0);
                 if (status != WINNOW_OK) state_.bytes.clear();
                 return status;
             },
         .result = [this] { return std::to_string(digest(state_.bytes.data(), state_.bytes.size())); },
         .observe = [this] { return observed(); }});
    for (int64_t layer = 0; layer < layers; ++layer) add_step({.layer = layer, .tokens = 1, .seed = 52});
    add(changing("cache_load by a callback",
                 [this] { return state_.bytes.empty() ? not_run : state_.load(caches(), cache_, 0); }));
    for (int64_t layer = 0; layer < layers; ++layer) add_step({.layer = layer, .tokens = 1, .seed = 53});
}

} // namespace winnow::faults
