// What the oracle makes of calls that change sequences, and what the cache has to tell of itself.
#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>

#include "cache_oracle.hpp"
#include "saved_state.hpp"

namespace winnow::conformance {
namespace {

std::string failed(const CacheHost& host, const char* what) { return std::string(what) + ": " + host.message(); }

void drop(OracleLayer& layer, int64_t begin, int64_t end) {
    std::erase_if(layer.tokens,
                  [&](const OracleToken& token) { return token.token_id >= begin && token.token_id < end; });
    layer.appended.erase(layer.appended.lower_bound(begin), layer.appended.lower_bound(end));
    layer.forget_time();
}

// Adds delta to the positions of a range; false where tokens or anchors would meet or leave what there is.
bool move_positions(OracleSequence& all, int64_t begin, int64_t until, int64_t delta, int64_t context) {
    const auto moves = [&](int64_t position) { return position >= begin && position < until; };
    for (OracleLayer& layer : all.layers) {
        for (OracleToken& token : layer.tokens)
            if (moves(token.position)) token.token_id = token.position += delta;
        std::map<int64_t, bool> appended;
        for (const auto& [token_id, is_sink] : layer.appended)
            appended.emplace(moves(token_id) ? token_id + delta : token_id, is_sink);
        if (appended.size() != layer.appended.size()) return false;
        layer.appended = appended;
        layer.forget_time();
        if (moves(layer.next)) layer.next += delta;
        if (layer.next < 0 || layer.next > context) return false;
        if (!appended.empty() && (appended.begin()->first < 0 || appended.rbegin()->first >= layer.next)) return false;
    }
    std::set<int64_t> anchors;
    for (const int64_t each : all.anchors) anchors.insert(moves(each) ? each + delta : each);
    if (anchors.size() != all.anchors.size()) return false;
    if (!anchors.empty() && (*anchors.begin() < 0 || *anchors.rbegin() >= context)) return false;
    all.anchors = anchors;
    return true;
}

} // namespace

// Whether a call that leads to this sequence is refused, because what is protected would leave less of a layer's budget
// than comes until the next eviction pass. Sinks that lie in the packed segment count beside the slots of sinks, which
// are then of no use; so does what lies there of the newest that the residual window would protect, of which there may
// be less.
CacheOracle::Refusal CacheOracle::refusal_of(const OracleSequence& sequence, const CacheSetup& setup) const {
    Refusal refusal = Refusal::wrong;
    for (int64_t layer_number = 0; layer_number < setup.layers; ++layer_number) {
        if (setup.covers_all(layer_number)) continue;
        const OracleLayer& layer = sequence.layers[static_cast<size_t>(layer_number)];
        const Rules rules = rules_of(setup, layer_number, 0);
        int64_t least = rules.sink + std::max(rules.recent, rules.grace) +
                        static_cast<int64_t>(sequence.anchors.size()) + setup.coming();
        if (setup.cells == 0)
            least += std::count_if(layer.appended.begin(), layer.appended.lower_bound(setup.sink),
                                   [](const auto& each) { return !each.second; });
        if (least > rules.budget) return Refusal::due;
        if (setup.residual > 0 && least + setup.keep() > rules.budget) refusal = Refusal::permitted;
    }
    return refusal;
}

std::string CacheOracle::judge_call(const char* what, int32_t status, Refusal refusal) {
    if (status == WINNOW_OK)
        return refusal == Refusal::due ? std::string(what) + " was accepted, though it cannot be kept" : "";
    if (status != WINNOW_ERROR_INVALID_ARGUMENT || refusal == Refusal::wrong) return failed(host_, what);
    ++refusals_;
    return "";
}

std::string CacheOracle::set_importance(int64_t sequence, int64_t layer_number, std::mt19937_64& engine) {
    OracleLayer& layer = at(sequence, layer_number);
    for (size_t head = 0; head < static_cast<size_t>(setup_.shape(layer_number).kv_heads); ++head) {
        std::vector<int64_t> positions;
        std::vector<float> importance;
        const bool names_all = engine() % 4 == 0; // as hosts do that rank all tokens after each step
        for (OracleToken& token : layer.tokens) {
            if (!names_all && engine() % 3 == 0) continue;
            uint64_t times = !names_all && engine() % 8 == 0 ? 2 : 1;
            for (; times > 0; --times) { // the later value holds
                positions.push_back(token.token_id);
                const bool is_inactive = setup_.has_inactive_experts() && engine() % 4 == 0;
                importance.push_back(is_inactive ? -1 : static_cast<float>(engine() % 64) / 8); // ties among them
            }
            HeadToken& own = token.heads[head];
            if (!own.is_resident) continue; // and the call passes it over
            own.told = static_cast<double>(importance.back());
            own.importance = {own.told, own.told};
        }
        if (host_.caches().set_importance(host_.get(), sequence, layer_number, static_cast<int64_t>(head),
                                          positions.data(), importance.data(), positions.size()) != WINNOW_OK)
            return failed(host_, "cache_set_importance");
    }
    const std::string wrong = check_importance(sequence, layer_number);
    return wrong.empty() ? look() : wrong;
}

std::string CacheOracle::truncate(int64_t sequence, int64_t length) {
    if (host_.caches().truncate(host_.get(), sequence, length) != WINNOW_OK) return failed(host_, "cache_truncate");
    for (OracleLayer& layer : sequences_[static_cast<size_t>(sequence)].layers) {
        if (layer.next <= length) continue;
        layer.next = length;
        drop(layer, length, INT64_MAX);
    }
    if (length == 0) forget(sequence);
    return look();
}

std::string CacheOracle::remove(int64_t sequence, int64_t begin, int64_t end) {
    if (host_.caches().remove(host_.get(), sequence, begin, end) != WINNOW_OK) return failed(host_, "cache_remove");
    OracleSequence& all = sequences_[static_cast<size_t>(sequence)];
    const bool had_tokens = !is_empty(sequence);
    for (OracleLayer& layer : all.layers) drop(layer, begin, end < 0 ? INT64_MAX : end);
    std::erase_if(all.anchors, [&](int64_t each) { return each >= begin && (end < 0 || each < end); });
    if (is_empty(sequence) && (had_tokens || begin == 0)) all = empty_sequence();
    return look();
}

bool CacheOracle::is_empty(int64_t sequence) const {
    const std::vector<OracleLayer>& layers = sequences_[static_cast<size_t>(sequence)].layers;
    return std::all_of(layers.begin(), layers.end(), [](const OracleLayer& each) { return each.appended.empty(); });
}

// A sequence that is taken back to its beginning is as new, but for its anchors and the memory reserved for it.
void CacheOracle::forget(int64_t sequence) {
    OracleSequence& all = sequences_[static_cast<size_t>(sequence)];
    all.layers = empty_sequence().layers;
    all.is_used = false;
}

// What an edit of it would leave is of no interest: all of it is to be replaced.
std::string CacheOracle::save_and_load(const std::string& path, bool disturb) {
    const winnow_cache_api& caches = host_.caches();
    if (save_state(caches, host_.get(), path) != WINNOW_OK) return failed(host_, "cache_save");
    for (int64_t sequence = 0; disturb && sequence < setup_.sequences; ++sequence)
        if (caches.remove(host_.get(), sequence, 2, -1) != WINNOW_OK) return failed(host_, "cache_remove");
    if (load_state(caches, host_.get(), path) != WINNOW_OK) return failed(host_, "cache_load");
    return look();
}

void CacheOracle::note_rules() {
    for (int64_t layer = 0; layer < setup_.layers; ++layer)
        rules_[static_cast<size_t>(layer)] = rules_of(setup_, layer, pressure_);
}

void CacheOracle::forget_counts() {
    const winnow_cache_stats stats = host_.stats();
    evictions_ = stats.evictions;
    passes_ = stats.eviction_passes;
    steps_ = stats.steps;
}

std::string CacheOracle::copy(int64_t from, int64_t to) {
    if (host_.caches().copy(host_.get(), from, to) != WINNOW_OK) return failed(host_, "cache_copy");
    OracleSequence& target = sequences_[static_cast<size_t>(to)] = sequences_[static_cast<size_t>(from)];
    for (OracleLayer& layer : target.layers) layer.forget_time();
    return look();
}

std::string CacheOracle::shift(int64_t sequence, int64_t begin, int64_t end, int64_t delta) {
    OracleSequence after = sequences_[static_cast<size_t>(sequence)];
    const bool is_possible = move_positions(after, begin, end < 0 ? INT64_MAX : end, delta, setup_.context);
    const Refusal refusal = is_possible ? refusal_of(after, setup_) : Refusal::due;
    const int32_t status = host_.caches().shift(host_.get(), sequence, begin, end, delta);
    if (const std::string wrong = judge_call("cache_shift", status, refusal); !wrong.empty()) return wrong;
    if (status == WINNOW_OK) sequences_[static_cast<size_t>(sequence)] = after;
    return look();
}

std::string CacheOracle::reserve(int64_t sequence, int64_t tokens) {
    if (host_.caches().reserve(host_.get(), sequence, tokens) != WINNOW_OK) return failed(host_, "cache_reserve");
    sequences_[static_cast<size_t>(sequence)].is_reserved |= tokens > 0;
    return look();
}

std::string CacheOracle::reset() {
    if (host_.caches().reset(host_.get()) != WINNOW_OK) return failed(host_, "cache_reset");
    for (OracleSequence& sequence : sequences_) sequence = empty_sequence();
    evictions_ = passes_ = steps_ = picks_ = misses_ = 0;
    pressure_ = 0;
    note_rules();
    return look();
}

std::string CacheOracle::anchor(int64_t sequence, const std::vector<int64_t>& positions) {
    OracleSequence after = sequences_[static_cast<size_t>(sequence)];
    after.anchors.insert(positions.begin(), positions.end());
    const int32_t status = host_.caches().anchor(host_.get(), sequence, positions.data(), positions.size());
    if (const std::string wrong = judge_call("cache_anchor", status, refusal_of(after, setup_)); !wrong.empty())
        return wrong;
    if (status == WINNOW_OK) sequences_[static_cast<size_t>(sequence)] = after;
    return look();
}

std::string CacheOracle::set_pressure(double pressure) {
    if (host_.caches().set_pressure(host_.get(), pressure) != WINNOW_OK) return failed(host_, "cache_set_pressure");
    pressure_ = pressure;
    note_rules();
    return look();
}

// A smaller budget holds at once: which tokens are evicted for it is the new policy's choice, except those that it
// protects.
std::string CacheOracle::set_config(const CacheSetup& setup) {
    Refusal refusal = Refusal::wrong;
    for (const OracleSequence& sequence : sequences_) refusal = std::max(refusal, refusal_of(sequence, setup));
    // Packed segments below the first stay as large as they are.
    const bool is_same = setup.layer_tokens() == setup_.layer_tokens() && setup.covers_all(0) == setup_.covers_all(0);
    const bool has_lower = !setup.lower.empty() || !setup_.lower.empty();
    const bool is_shorter = setup.cells > 0 && setup.residual == 0 && setup.covers_all(0) &&
                            setup.cadence_tokens() < setup_.cadence_tokens();
    if (!setup.has_room_in_each() || (has_lower && (!is_same || is_shorter))) refusal = Refusal::due;
    const int32_t status = host_.caches().set_config(host_.get(), setup.config().c_str());
    if (const std::string wrong = judge_call("cache_set_config", status, refusal); !wrong.empty()) return wrong;
    if (status != WINNOW_OK) return look();
    std::vector<bool> is_less;
    for (int64_t layer = 0; layer < setup.layers; ++layer)
        is_less.push_back(setup.layer_tokens()[static_cast<size_t>(layer)] <
                              setup_.layer_tokens()[static_cast<size_t>(layer)] ||
                          (setup_.covers_all(layer) && !setup.covers_all(layer)));
    setup_ = setup;
    note_rules();
    const uint64_t counted = host_.stats().eviction_passes; // as many as it takes
    const bool has_pass = counted > std::exchange(passes_, counted);
    for (int64_t sequence = 0; sequence < setup.sequences; ++sequence)
        for (int64_t layer_number = 0; layer_number < setup.layers; ++layer_number) {
            OracleLayer& layer = at(sequence, layer_number);
            layer.forget_time();
            const bool may_evict = has_pass && is_less[static_cast<size_t>(layer_number)];
            if (const std::string wrong = drop_evicted(sequence, layer, may_evict); !wrong.empty()) return wrong;
        }
    return look();
}

std::string CacheOracle::drop_evicted(int64_t sequence, OracleLayer& layer, bool may_evict) {
    const Rules& rules = rules_[static_cast<size_t>(layer.number)];
    const std::vector<Holding> now = holdings_of(sequence, layer.number);
    bool has_packed = false;
    for (size_t head = 0; head < now.size(); ++head) {
        if (static_cast<int64_t>(now[head].size()) > rules.budget)
            return "set_config leaves more tokens than the new budget";
        for (OracleToken& token : layer.tokens) {
            HeadToken& own = token.heads[head];
            if (!own.is_resident) continue;
            has_packed = has_packed || own.segment > 0;
            if (now[head].contains(token.token_id)) continue;
            if (token.position < rules.sink || token.position >= layer.next - rules.recent ||
                is_anchor(sequence, token.token_id))
                return "set_config evicted position " + std::to_string(token.position) + ", which is protected";
            if (!may_evict) return "set_config evicted tokens of a layer whose budget is no less";
            own.is_resident = false;
            ++evictions_;
        }
    }
    if (!may_evict) return "";
    layer.shortfall.clear(); // more may have been asked for than the budget demands
    if (has_packed)
        begin_outputs(layer);
    else // whether this layer had a pass is not told
        for (std::vector<double>& slack : layer.output_slack)
            std::fill(slack.begin(), slack.end(), std::numeric_limits<double>::infinity());
    return "";
}

std::string CacheOracle::look() {
    for (int64_t sequence = 0; sequence < setup_.sequences; ++sequence)
        for (int64_t layer = 0; layer < setup_.layers; ++layer)
            if (const std::string wrong = look_at(sequence, layer); !wrong.empty())
                return "sequence " + std::to_string(sequence) + ", layer " + std::to_string(layer) + ": " + wrong;
    return look_at_stats();
}

std::string CacheOracle::look_at(int64_t sequence, int64_t layer_number) {
    const OracleLayer& layer = at(sequence, layer_number);
    std::string wrong = check_holdings(layer, holdings_of(sequence, layer_number));
    for (size_t head = 0; wrong.empty() && head < static_cast<size_t>(setup_.shape(layer_number).kv_heads); ++head)
        wrong = check_places(layer, head);
    if (const int64_t next = host_.next_position(sequence, layer_number); wrong.empty() && next != layer.next)
        wrong = "next_position is " + std::to_string(next) + ", expected " + std::to_string(layer.next);
    return wrong.empty() ? check_importance(sequence, layer_number) : wrong;
}

// The residual window has the newest tokens, and no more than its rows; the packed segments have no more than theirs.
std::string CacheOracle::check_places(const OracleLayer& layer, size_t head) const {
    const std::vector<int64_t> slots = setup_.packed_slots(layer.number);
    std::vector<int64_t> rows(slots.size() + 1, 0); // of each segment, without sinks
    for (const OracleToken& token : layer.tokens) {
        if (token.is_sink || !token.heads[head].is_resident) continue;
        const auto segment = static_cast<size_t>(token.heads[head].segment);
        ++rows.at(segment);
        if (segment > 0 && rows[0] > 0)
            return "token " + std::to_string(token.token_id) + " is packed, and an older one is not";
    }
    const std::string where = "head " + std::to_string(head) + " has ";
    if (rows[0] > setup_.residual) return where + std::to_string(rows[0]) + " rows in the residual window";
    for (size_t at = 0; at < slots.size() && !setup_.covers_all(layer.number); ++at)
        if (rows[at + 1] > slots[at])
            return where + std::to_string(rows[at + 1]) + " rows in packed segment " + std::to_string(at + 1) + " of " +
                   std::to_string(slots[at]);
    return "";
}

std::string CacheOracle::look_at_stats() {
    const winnow_cache_stats s = host_.stats();
    uint64_t live = 0, original = 0, used = 0, shortfall = 0;
    bool is_shortfall_known = true;
    for (int64_t sequence = 0; sequence < setup_.sequences; ++sequence) {
        const uint64_t live_before = live;
        for (int64_t layer_number = 0; layer_number < setup_.layers; ++layer_number) {
            const OracleLayer& layer = at(sequence, layer_number);
            const LayerShape shape = setup_.shape(layer_number);
            original += layer.appended.size() *
                        static_cast<uint64_t>(2 * shape.kv_heads * (shape.head_size + shape.v_head_size));
            is_shortfall_known = is_shortfall_known && !layer.shortfall.empty();
            for (const int64_t each : layer.shortfall) shortfall += static_cast<uint64_t>(each);
            for (int64_t head = 0; head < shape.kv_heads; ++head) {
                const auto resident =
                    std::count_if(layer.tokens.begin(), layer.tokens.end(), [&](const OracleToken& each) {
                        return each.heads[static_cast<size_t>(head)].is_resident;
                    });
                live += static_cast<uint64_t>(resident);
                if (resident > rules_[static_cast<size_t>(layer_number)].budget)
                    return "a head holds more tokens than its budget";
            }
        }
        if (!setup_.recall && host_.stats_of(sequence).resident_slots != live - live_before)
            return "cache_stats counts other resident slots than sequence " + std::to_string(sequence) + " has";
        const OracleSequence& all = sequences_[static_cast<size_t>(sequence)];
        used += all.is_used || all.is_reserved;
    }
    std::ostringstream wrong;
    const auto expect = [&](const char* name, uint64_t got, uint64_t want) {
        if (got != want) wrong << "stats: " << name << " is " << got << ", expected " << want << "; ";
    };
    if (!setup_.recall) expect("resident_slots", s.resident_slots, live); // of the hot slots nothing is known here
    expect("original_bytes", s.original_bytes, original);
    expect("bytes", s.bytes,
           s.k_bytes + s.v_bytes + s.dense_k_bytes + s.dense_v_bytes + s.slot_map_bytes + s.importance_bytes +
               s.state_bytes + s.signature_bytes);
    expect("evictions", s.evictions, evictions_);
    expect("eviction_passes", s.eviction_passes, passes_);
    expect("steps", s.steps, steps_);
    if (is_shortfall_known) expect("shortfall", s.shortfall, shortfall);
    if (s.picks < picks_ || s.misses < misses_)
        wrong << "stats: " << s.picks << " picks and " << s.misses << " misses, after " << picks_ << " and " << misses_
              << "; ";
    picks_ = s.picks;
    misses_ = s.misses;
    // Where the context fits, none is evicted: tokens that were shifted into removed sinks' places take rows of their
    // own.
    uint64_t most = s.budget_bytes;
    bool covers_all = false;
    for (int64_t layer = 0; layer < setup_.layers; ++layer) covers_all = covers_all || setup_.covers_all(layer);
    if (covers_all)
        most += s.budget_bytes * static_cast<uint64_t>(rules_[0].sink) / static_cast<uint64_t>(setup_.context) + 1;
    if (s.bytes > most * std::max<uint64_t>(used, 1))
        wrong << "stats: " << s.bytes << " bytes, but the budget is " << s.budget_bytes << " for each of " << used
              << " sequences; ";
    if (s.peak_bytes < s.bytes + s.scratch_bytes)
        wrong << "stats: peak_bytes " << s.peak_bytes << " are less than bytes " << s.bytes << " and scratch_bytes "
              << s.scratch_bytes;
    return wrong.str();
}

} // namespace winnow::conformance
