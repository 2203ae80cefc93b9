// The operations on slots, as short as they can be.
#include "cache_fake_device.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "device/select.hpp"

namespace winnow::cache {
namespace {

std::byte* address(const Tensor& tensor, int64_t head, int64_t row, int64_t element) {
    std::byte* const begin = tensor.buffer != nullptr ? static_cast<FakeBuffer*>(tensor.buffer)->at(0) : tensor.data;
    return begin + tensor.offset + head * tensor.stride[1] + row * tensor.stride[2] + element * tensor.stride[3];
}

template <typename T>
T& at(const Tensor& tensor, int64_t head, int64_t row, int64_t element) {
    return *reinterpret_cast<T*>(address(tensor, head, row, element));
}

int32_t& token_at(const Segment& segment, int64_t head, int64_t slot) {
    return at<int32_t>(segment.tokens, head, 0, slot);
}

void copy_slot(const Segment& from, int64_t source, const Segment& to, int64_t target, int64_t head) {
    for (int64_t i = 0; i < from.k.shape[3]; ++i) at<float>(to.k, head, target, i) = at<float>(from.k, head, source, i);
    for (int64_t i = 0; i < from.v.shape[3]; ++i) at<float>(to.v, head, target, i) = at<float>(from.v, head, source, i);
    token_at(to, head, target) = token_at(from, head, source);
    if (from.importance) at<float>(to.importance, head, 0, target) = at<float>(from.importance, head, 0, source);
}

constexpr float unseen = -std::numeric_limits<float>::infinity();

} // namespace

void FakeBuffer::write(uint64_t offset, const void* data, uint64_t size) {
    if (offset + size > bytes_.size()) throw std::out_of_range("write beyond a buffer");
    std::memcpy(bytes_.data() + offset, data, size);
}

void FakeBuffer::read(uint64_t offset, void* data, uint64_t size) {
    if (offset + size > bytes_.size()) throw std::out_of_range("read beyond a buffer");
    std::memcpy(data, bytes_.data() + offset, size);
}

void FakeDevice::clear() {
    appends.clear();
    attentions.clear();
    observations.clear();
    eviction_passes.clear();
    log.clear();
}

std::unique_ptr<Buffer> FakeDevice::allocate(uint64_t size) {
    if (size == 0) throw std::invalid_argument("a buffer of no bytes");
    if (allocations_until_failure == 0) throw Error(WINNOW_ERROR_OUT_OF_MEMORY, "the test wants no more memory");
    if (allocations_until_failure > 0) --allocations_until_failure;
    auto buffer = std::make_unique<FakeBuffer>(size, in_use, sizes_asked);
    most_in_use = std::max(most_in_use, in_use);
    return buffer;
}

std::string FakeDevice::validate(const SlotAttention& args) const {
    if (refuses_attention) throw Error(WINNOW_ERROR_UNSUPPORTED, "the test wants no attention");
    if (args.segments.empty()) throw std::invalid_argument("attention without segments");
    return "fake";
}

// Scores are q.k; a softmax over all segments.
void FakeDevice::launch(const SlotAttention& args) {
    attentions.push_back(args);
    log.emplace_back("attention");
    const Sdpa& sdpa = args.sdpa;
    const int64_t heads = args.segments.at(0).kv_heads(), group = sdpa.q_heads() / heads;
    seen.assign(static_cast<size_t>(heads), {});
    for (int64_t q_head = 0; q_head < sdpa.q_heads(); ++q_head)
        for (int64_t i = 0; i < sdpa.q_len(); ++i) {
            const int64_t head = q_head / group;
            std::vector<float> scores;
            std::vector<std::pair<const Segment*, int64_t>> places;
            for (const Segment& segment : args.segments)
                for (int64_t slot = 0; slot < segment.slots(); ++slot) {
                    const int32_t token = token_at(segment, head, slot);
                    const int32_t number = token & ~anchor_flag;
                    bool is_seen = token >= 0 && !(sdpa.is_causal && number > sdpa.q_offset + i);
                    if (is_seen && sdpa.mask) is_seen = at<uint8_t>(sdpa.mask, 0, i, number) != 0;
                    float score = unseen;
                    if (is_seen) score = 0;
                    for (int64_t d = 0; is_seen && d < sdpa.head_size(); ++d)
                        score += sdpa.scale * at<float>(sdpa.q, q_head, i, d) * at<float>(segment.k, head, slot, d);
                    scores.push_back(score);
                    places.emplace_back(&segment, slot);
                    if (token < 0 || q_head % group != 0 || i != 0) continue;
                    if (!seen[static_cast<size_t>(head)].emplace(number, at<float>(segment.v, head, slot, 0)).second)
                        throw std::logic_error("a head holds a number twice");
                }
            const float most = *std::max_element(scores.begin(), scores.end());
            float sum = 0;
            for (const float score : scores) sum += score == unseen ? 0 : std::exp(score - most);
            for (int64_t d = 0; d < sdpa.out.shape[3]; ++d) {
                float& out = at<float>(sdpa.out, q_head, i, d);
                out = 0;
                for (size_t j = 0; j < scores.size(); ++j)
                    if (scores[j] != unseen)
                        out +=
                            std::exp(scores[j] - most) / sum * at<float>(places[j].first->v, head, places[j].second, d);
            }
            for (size_t j = 0; sdpa.scores_out && j < scores.size(); ++j)
                at<float>(sdpa.scores_out, q_head, i, static_cast<int64_t>(j)) = scores[j];
            if (!sdpa.row_stats) continue;
            at<float>(sdpa.row_stats, q_head, i, 0) = most;
            at<float>(sdpa.row_stats, q_head, i, 1) = sum;
        }
}

void FakeDevice::launch(const SlotAppend& args) {
    appends.push_back(args);
    log.emplace_back("append");
    for (int64_t head = 0; head < args.segment.kv_heads(); ++head)
        for (int64_t t = 0; t < args.k.shape[2]; ++t) {
            const int64_t slot =
                args.slots ? at<int32_t>(args.slots, head, 0, t) : args.first + (args.offset + t) % args.count;
            if (slot < 0) throw std::logic_error("a token without a slot");
            const auto number = static_cast<int32_t>(args.number + t);
            if (args.positions) at<int32_t>(args.positions, 0, 0, number) = static_cast<int32_t>(args.position + t);
            if (token_at(args.segment, head, slot) >= 0) throw std::logic_error("a token on another's slot");
            for (int64_t i = 0; i < args.k.shape[3]; ++i)
                at<float>(args.segment.k, head, slot, i) = at<float>(args.k, head, t, i);
            for (int64_t i = 0; i < args.v.shape[3]; ++i)
                at<float>(args.segment.v, head, slot, i) = at<float>(args.v, head, t, i);
            token_at(args.segment, head, slot) = number;
            if (args.segment.importance) at<float>(args.segment.importance, head, 0, slot) = 0;
        }
}

// A plain sum of probabilities, whatever the statistic.
void FakeDevice::launch(const SlotAccumulate& args) {
    observations.push_back(args);
    log.emplace_back("accumulate");
    const int64_t heads = args.segments.at(0).kv_heads(), group = args.scores.shape[1] / heads;
    for (int64_t q_head = 0; q_head < args.scores.shape[1]; ++q_head)
        for (int64_t i = 0; i < args.observed; ++i) {
            int64_t column = 0;
            for (const Segment& segment : args.segments)
                for (int64_t slot = 0; slot < segment.slots(); ++slot, ++column) {
                    const float score = at<float>(args.scores, q_head, i, column);
                    if (score == unseen) continue;
                    at<float>(segment.importance, q_head / group, 0, slot) +=
                        std::exp(score - at<float>(args.row_stats, q_head, i, 0)) /
                        at<float>(args.row_stats, q_head, i, 1);
                }
            for (int64_t d = 0; args.output_sum && d < args.out.shape[3]; ++d)
                at<float>(args.output_sum, q_head / group, 0, d) += at<float>(args.out, q_head, i, d);
        }
}

void FakeDevice::launch(const SlotScores& args) {
    log.emplace_back("scores");
    const int64_t group = args.scores.shape[1] / args.segments.at(0).kv_heads();
    for (int64_t q_head = 0; q_head < args.scores.shape[1]; ++q_head)
        for (int64_t i = 0; i < args.scores.shape[2]; ++i) {
            for (int64_t j = 0; j < args.out.shape[3]; ++j) at<float>(args.out, q_head, i, j) = unseen;
            int64_t column = 0;
            for (const Segment& segment : args.segments)
                for (int64_t slot = 0; slot < segment.slots(); ++slot, ++column) {
                    const int32_t token = token_at(segment, q_head / group, slot);
                    if (token < 0) continue;
                    at<float>(args.out, q_head, i, token & ~anchor_flag) = at<float>(args.scores, q_head, i, column);
                }
        }
}

void FakeDevice::launch(const SlotEvict& args) {
    eviction_passes.push_back(args);
    log.emplace_back("evict");
    for (int64_t head = 0; head < args.packed.kv_heads(); ++head) {
        auto& state = at<HeadState>(args.head_state, head, 0, 0);
        std::vector<int64_t> leaving;
        for (int64_t i = 0; i < args.leaving_count; ++i)
            leaving.push_back(args.residual_first + (args.leaving_offset + i) % args.residual_count);
        std::vector<Slot> slots;
        std::vector<std::pair<const Segment*, int64_t>> places;
        for (const Segment* segment : {&args.dense, &args.packed})
            for (int64_t slot = 0; slot < segment->slots(); ++slot) {
                const int32_t token = token_at(*segment, head, slot);
                if (token < 0) continue;
                const int32_t number = token & ~anchor_flag;
                Slot each;
                each.position = args.positions ? at<int32_t>(args.positions, 0, 0, number) : number;
                each.importance = segment->importance ? at<float>(segment->importance, head, 0, slot) : 0;
                each.queries_seen = args.seen - each.position;
                each.anchor = (token & anchor_flag) != 0;
                slots.push_back(each);
                places.emplace_back(segment, slot);
            }
        Demand wanted = demand(args.description, static_cast<int64_t>(slots.size()), args.seen, args.incoming);
        Selection selection;
        for (int64_t lacking = 1; lacking > 0;) {
            selection = select(args.description, slots, args.seen, head, wanted);
            int64_t rows = args.wanted_free, room = args.packed.slots();
            for (size_t i = 0; i < places.size(); ++i) {
                if (std::count(selection.victims.begin(), selection.victims.end(), i) > 0) continue;
                if (places[i].first == &args.packed)
                    --room;
                else if (std::count(leaving.begin(), leaving.end(), places[i].second) > 0)
                    ++rows;
            }
            lacking = rows - room;
            if (lacking > 0 && selection.shortfall > 0) throw std::logic_error("protected rows leave no room");
            wanted.required = static_cast<int64_t>(selection.victims.size()) + lacking;
        }
        for (const size_t victim : selection.victims)
            token_at(*places[victim].first, head, places[victim].second) = free_slot;
        state.evicted += static_cast<int32_t>(selection.victims.size());
        state.shortfall = static_cast<int32_t>(selection.shortfall);
        int64_t to = 0;
        for (const int64_t from : leaving) {
            if (token_at(args.dense, head, from) < 0) continue;
            while (token_at(args.packed, head, to) >= 0) ++to;
            copy_slot(args.dense, from, args.packed, to, head);
            token_at(args.dense, head, from) = free_slot;
        }
        int64_t slot = 0;
        for (int64_t i = 0; args.free_slots && i < args.free_slots.shape[3]; ++i) {
            while (slot < args.packed.slots() && token_at(args.packed, head, slot) >= 0) ++slot;
            at<int32_t>(args.free_slots, head, 0, i) =
                slot < args.packed.slots() ? static_cast<int32_t>(slot++) : free_slot;
        }
        for (int64_t d = 0; args.output_sum && d < args.output_sum.shape[3]; ++d)
            at<float>(args.output_sum, head, 0, d) = 0;
    }
}

void FakeDevice::launch(const SlotEdit& args) {
    log.emplace_back("edit");
    for (const Segment& segment : args.segments)
        for (int64_t head = 0; head < segment.kv_heads(); ++head)
            for (int64_t slot = 0; slot < segment.slots(); ++slot) {
                int32_t& token = token_at(segment, head, slot);
                const int64_t number = token & ~anchor_flag;
                if (token < 0 || number < args.begin || number >= args.end) continue;
                if (args.action == SlotEdit::Action::free) token = free_slot;
                if (args.action == SlotEdit::Action::shift) token += static_cast<int32_t>(args.delta);
                if (args.action == SlotEdit::Action::anchor) token |= anchor_flag;
            }
}

void FakeDevice::launch(const SlotCompact& args) {
    log.emplace_back("compact");
    for (int64_t head = 0; head < args.segment.kv_heads(); ++head) {
        int64_t live = 0;
        for (int64_t slot = 0; slot < args.segment.slots(); ++slot) {
            if (token_at(args.segment, head, slot) < 0) continue;
            if (slot != live) {
                copy_slot(args.segment, slot, args.segment, live, head);
                token_at(args.segment, head, slot) = free_slot;
            }
            ++live;
        }
        at<HeadState>(args.head_state, head, 0, 0).live = static_cast<int32_t>(live);
    }
}

void FakeDevice::launch(const SlotCopy& args) {
    log.emplace_back("copy");
    for (int64_t head = 0; head < args.to.kv_heads(); ++head)
        for (int64_t slot = 0; slot < args.to.slots(); ++slot) {
            if (slot < args.from.slots())
                copy_slot(args.from, slot, args.to, slot, head);
            else
                token_at(args.to, head, slot) = free_slot;
        }
}

// In one launch, which either is or is not.
void FakeDevice::step(const SlotStep& args) {
    if (fails_steps) throw Error(WINNOW_ERROR_OUT_OF_MEMORY, "the test wants no step");
    if (args.observed > 0 && args.attention.sdpa.q_len() == 1) {
        int64_t slots = 0;
        for (const Segment& segment : args.attention.segments)
            slots += (segment.slots() + record_slots - 1) / record_slots * record_slots;
        const Sdpa& sdpa = args.attention.sdpa;
        const int64_t floats = record_floats(sdpa.q_heads(), args.attention.segments.at(0).kv_heads(), slots);
        if (args.records.shape[3] < floats || args.records.offset != 0)
            throw std::logic_error("too little memory for records");
        const std::vector<float> records(static_cast<size_t>(floats), -1);
        args.records.buffer->write(0, records.data(), 4 * records.size());
    }
    Device::step(args);
}

HostRows::HostRows(int64_t of_heads, int64_t of_tokens, int64_t of_size)
    : heads(of_heads), tokens(of_tokens), size(of_size), values(static_cast<size_t>(of_heads * of_tokens * of_size)) {}

float& HostRows::at(int64_t head, int64_t token, int64_t element) {
    return values[static_cast<size_t>((head * tokens + token) * size + element)];
}

Tensor HostRows::tensor() {
    Tensor tensor;
    tensor.type = Type::f32;
    tensor.data = reinterpret_cast<std::byte*>(values.data());
    tensor.shape = {1, heads, tokens, size};
    tensor.stride = {heads * tokens * size * 4, tokens * size * 4, size * 4, 4};
    return tensor;
}

} // namespace winnow::cache
