// The first node of a Run checks all rows before it changes a token. A later node may still fail; earlier ones have
// appended their tokens then, and the next Run takes these back.
#include "session_cache.hpp"

#include <algorithm>
#include <utility>

#include "cache_meaning.hpp"
#include "format_bits.hpp"

namespace winnow::ort {

namespace {

winnow_layer_shape shape_of(const AttentionNode& node) {
    winnow_layer_shape shape{};
    shape.struct_size = sizeof shape;
    shape.q_num_heads = node.q_num_heads;
    shape.kv_num_heads = node.kv_num_heads;
    shape.head_size = node.head_size;
    return shape;
}

std::string row_text(int64_t row) { return "row " + std::to_string(row); }

} // namespace

SessionCache::~SessionCache() { destroy(); }

void SessionCache::destroy() noexcept {
    backend_.caches().destroy(cache_);
    cache_ = nullptr;
}

void SessionCache::add_layers(const std::vector<AttentionNode>& nodes) {
    for (const AttentionNode& node : nodes) {
        layers_.push_back(shape_of(node));
        has_past_ |= !node.inputs[past_key_input].empty();
        has_key_bias_ |= node.has_key_bias;
        if (node.most_tokens > 0)
            most_tokens_ = most_tokens_ > 0 ? std::min(most_tokens_, node.most_tokens) : node.most_tokens;
    }
    if (options_.max_tokens > 0) most_tokens_ = options_.max_tokens;
    if (most_tokens_ == 0)
        throw Error("the model does not tell how long a sequence may become, because no attention node rotates; "
                    "expected the provider option max_tokens");
    make();
}

void SessionCache::make() {
    destroy();
    winnow_cache_desc desc{};
    desc.struct_size = sizeof desc;
    desc.config = options_.kv.c_str();
    desc.layers = layers();
    desc.layer_shapes = layers_.data();
    desc.layer_shape_stride = sizeof layers_.front();
    desc.context = most_tokens_;
    desc.max_sequences = options_.max_batch;
    const ggml::CacheMeaning meaning = ggml::meaning_of(backend_.api(), backend_.caches(), backend_.context(), desc);
    if (const std::string warning = ggml::warning_of_biased_keys(meaning); has_key_bias_ && !warning.empty())
        log_.warning(warning);
    // Files of a model's layers name them as llama.cpp does.
    std::vector<std::string> names(layers_.size());
    for (size_t i = 0; i < names.size(); ++i) names[i] = "cache_k_l" + std::to_string(i);
    const ggml::Resources resources(meaning, names, layers_.front().kv_num_heads);
    resources.hand_to(desc);
    backend_.expect(backend_.caches().create(backend_.context(), &desc, &cache_));
    if (options_.pressure != 0) backend_.expect(backend_.caches().set_pressure(cache_, options_.pressure));
    config_ = meaning.config;
    lengths_.assign(static_cast<size_t>(options_.max_batch), std::vector<int64_t>(layers_.size(), 0));
}

void SessionCache::begin_run(bool reset, std::optional<double> pressure) {
    if (is_running_.exchange(true))
        throw Error("another Run of this session is going on, expected one at a time: all Runs share one cache",
                    ORT_FAIL);
    const int32_t status = cache_ && pressure ? backend_.caches().set_pressure(cache_, *pressure) : WINNOW_OK;
    if (status != WINNOW_OK) is_running_ = false; // end_run does not follow
    backend_.expect(status);
    is_reset_ = reset;
    is_present_bound = false;
    placed_.clear();
}

void SessionCache::end_run() noexcept { is_running_ = false; }

int64_t SessionCache::shortest(int64_t sequence) const {
    const auto& lengths = lengths_[static_cast<size_t>(sequence)];
    return *std::min_element(lengths.begin(), lengths.end());
}

int64_t SessionCache::longest(int64_t sequence) const {
    const auto& lengths = lengths_[static_cast<size_t>(sequence)];
    return *std::max_element(lengths.begin(), lengths.end());
}

void SessionCache::forget(int64_t sequence) {
    auto& lengths = lengths_[static_cast<size_t>(sequence)];
    std::fill(lengths.begin(), lengths.end(), 0);
    backend_.expect(backend_.caches().remove(cache_, sequence, 0, -1));
}

void SessionCache::take_back(int64_t sequence, int64_t length) {
    const int64_t before = shortest(sequence);
    if (before > length && rewinds_++ == 0)
        log_.warning(row_text(sequence) + " goes back from " + std::to_string(before) + " tokens to " +
                     std::to_string(length) +
                     ". A session holds one conversation for each row: a second generator on the same model takes its "
                     "place, and the first one then gets wrong tokens");
    backend_.expect(backend_.caches().truncate(cache_, sequence, length));
    for (int64_t& each : lengths_[static_cast<size_t>(sequence)]) each = std::min(each, length);
}

void SessionCache::check_row(int64_t row, int64_t all_tokens, const RowSpan& span) const {
    if (span.past + span.count > most_tokens_)
        throw Error(row_text(row) + " would have " + std::to_string(span.past + span.count) +
                    " tokens, expected at most " + std::to_string(most_tokens_) +
                    " (the provider option max_tokens, else the rows of the model's cos caches)");
    if (is_reset_ && span.past > 0)
        throw Error(row_text(row) + " goes on from position " + std::to_string(span.past) +
                    " in a Run with winnow.reset=1, expected one that begins at position 0");
    if (has_past_ && !is_reset_ && span.past == 0 && all_tokens == 1 && shortest(row) > 0)
        throw Error(row_text(row) + " has one token at position 0, but the cache holds " +
                    std::to_string(shortest(row)) + " tokens; expected position " + std::to_string(shortest(row)) +
                    ". A loop that takes positions from the length of past needs a model without past "
                    "(winnowkv.onnx strip-cache). To start a new sequence, set the run option winnow.reset to 1.");
    if (!is_reset_ && span.past > shortest(row))
        throw Error(row_text(row) + " goes on from position " + std::to_string(span.past) +
                    ", but the cache holds only " + std::to_string(shortest(row)) +
                    " tokens of this row; expected a position from 0 to " + std::to_string(shortest(row)) +
                    ". Winnow does not read past.");
}

// The first step of a Run decides for all of its layers.
void SessionCache::place(int64_t all_tokens, const std::vector<RowSpan>& rows) {
    if (!placed_.empty()) {
        if (placed_ != rows) throw Error("attention nodes of one Run have unlike lengths, expected the same in all");
        return;
    }
    const int64_t batch = static_cast<int64_t>(rows.size());
    if (batch > options_.max_batch)
        throw Error("the batch has " + std::to_string(batch) + " rows, expected at most " +
                    std::to_string(options_.max_batch) +
                    " (the provider option max_batch); each has to be a sequence of its own, which beams are not");
    const bool is_anew = std::all_of(rows.begin(), rows.end(), [](const RowSpan& row) { return row.past == 0; });
    if (!is_anew && batch != batch_)
        throw Error("a batch of " + std::to_string(batch) + " rows goes on from one of " + std::to_string(batch_) +
                    ", expected as many: a row is known by its place");
    for (int64_t row = 0; row < batch; ++row) check_row(row, all_tokens, rows[static_cast<size_t>(row)]);
    if (is_anew) {
        for (int64_t sequence = 0; sequence < options_.max_batch; ++sequence) forget(sequence);
    }
    for (int64_t row = 0; row < batch; ++row) {
        const int64_t past = rows[static_cast<size_t>(row)].past;
        if (longest(row) > past) past > 0 ? take_back(row, past) : forget(row);
    }
    batch_ = batch;
    placed_ = rows;
    ++runs_;
}

void SessionCache::step(int64_t layer, int64_t all_tokens, const std::vector<RowSpan>& rows,
                        winnow_cache_step_desc& desc) {
    const std::lock_guard lock(mutex_);
    place(all_tokens, rows);
    std::vector<winnow_cache_entry> entries(rows.size());
    for (size_t i = 0; i < entries.size(); ++i) {
        if (lengths_[i][static_cast<size_t>(layer)] != rows[i].past)
            throw Error("an attention node is computed twice in one Run, expected once");
        entries[i].struct_size = sizeof entries[i];
        entries[i].sequence = entries[i].batch = static_cast<int64_t>(i);
        entries[i].count = rows[i].count;
    }
    desc.layer = layer;
    desc.entries = entries.data();
    desc.entry_count = entries.size();
    desc.entry_stride = sizeof entries.front();
    int32_t status = backend_.caches().step(cache_, &desc, nullptr);
    if (status == WINNOW_OK) {
        for (size_t i = 0; i < entries.size(); ++i) lengths_[i][static_cast<size_t>(layer)] += rows[i].count;
        status = backend_.api().finish(backend_.context()); // the next node reads the output
    }
    if (status == WINNOW_OK) return;
    const std::string reason = backend_.api().context_message(backend_.context());
    if (status == WINNOW_ERROR_DEVICE) {
        for (size_t i = 0; i < rows.size(); ++i) {
            std::fill(lengths_[i].begin(), lengths_[i].end(), 0);
            backend_.caches().remove(cache_, static_cast<int64_t>(i), 0, -1); // the first failure is the one to tell
        }
    }
    throw Error(reason + " (" + backend_.api().status_name(status) + ")", ORT_FAIL);
}

void SessionCache::tell_equal_rows() {
    if (std::exchange(has_told_equal_rows_, true)) return;
    log_.warning("rows of a prompt are equal. If they are beams, their tokens will be wrong: Winnow does not see how "
                 "beams exchange rows of past");
}

winnow_cache_stats SessionCache::stats() const {
    winnow_cache_stats stats{};
    stats.struct_size = sizeof stats;
    if (cache_) backend_.expect(backend_.caches().stats(cache_, -1, &stats));
    return stats;
}

} // namespace winnow::ort
