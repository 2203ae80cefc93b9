// The steps of PagePick in their order, one KV head after another.
#include "reference/operations.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "reference/element.hpp"
#include "reference/page_index.hpp"
#include "reference/rotation.hpp"
#include "reference/slot_rows.hpp"
#include "reference/view.hpp"

namespace winnow::reference {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity(), least_exponent = -60;

struct Candidate {
    int64_t page;
    double score;
    bool is_pinned;
};

class HeadPick {
public:
    HeadPick(const PagePick& args, int64_t head)
        : args_(args), index_(args.index), head_(head), group_(args.q.shape[1] / args.hot.kv_heads()) {
        if (index_.kind() == SignatureKind::codes) codebooks_.emplace(index_, head, args.q.shape[3]);
    }

    void run() {
        const std::vector<int64_t> picked = pick();
        for (int64_t frame = 0; frame < frames(); ++frame)
            if (!std::binary_search(picked.begin(), picked.end(), entry(index_.frames, head_, frame)))
                free_frame(index_, args_.hot, head_, frame);
        int64_t missed = 0;
        for (const int64_t page : picked) {
            if (frame_of(page) < frames()) continue;
            fill(frame_of(-1), page);
            ++missed;
        }
        count(0, static_cast<int64_t>(picked.size()));
        count(2, missed);
    }

private:
    int64_t frames() const { return index_.frames.shape[3]; }

    int64_t frame_of(int64_t page) const { // how many there are, where none has it
        int64_t frame = 0;
        while (frame < frames() && entry(index_.frames, head_, frame) != page) ++frame;
        return frame;
    }

    bool is_visible(int64_t token) const {
        if (token < args_.visible_from || token >= args_.visible_end) return false;
        const Tensor& mask = args_.mask;
        if (!mask) return true;
        if (mask.shape[3] != 1 && token >= mask.shape[3]) return false;
        const std::byte* element = address(mask, 0, head_ * group_ % mask.shape[1], 0, mask.shape[3] == 1 ? 0 : token);
        return mask.type == Type::boolean ? *element != std::byte{0} : load(mask.type, element) != -infinity;
    }

    // What a query head makes of signatures: scale * f * R q for signs, scale * B q for codes.
    std::vector<double> query(int64_t q_head) const {
        std::vector<double> row = slot_row(args_.q, {}, q_head, 0);
        double factor = static_cast<double>(args_.scale);
        if (codebooks_) {
            row = codebooks_->times(CodebookMatrix::of_queries, row);
        } else {
            rotate(row.data(), args_.q.shape[3]);
            factor *= center_of(index_, head_).back();
        }
        for (double& each : row) each *= factor;
        return row;
    }

    // What a page's signature stands for.
    std::vector<double> signature(int64_t page) const {
        const int64_t elements = args_.q.shape[3];
        std::vector<double> numbers;
        if (codebooks_) {
            const std::vector<int> codes = codes_of(index_, head_, page, elements);
            for (size_t e = 0; e < static_cast<size_t>(elements); ++e)
                numbers.push_back(codebooks_->centroid(e, codes[e / static_cast<size_t>(centroid_elements)]));
            return numbers;
        }
        for (const bool sign : signs_of(index_, head_, page, elements)) numbers.push_back(sign ? 1 : -1);
        return numbers;
    }

    // Adds a query head's softmax over the pages to their scores.
    void add_softmax(std::vector<Candidate>& pages, int64_t q_head) const {
        const std::vector<double> q = query(q_head);
        std::vector<double> z;
        double largest = -infinity, sum = 0;
        for (const Candidate& each : pages) {
            const std::vector<double> numbers = signature(each.page);
            z.push_back(std::inner_product(numbers.begin(), numbers.end(), q.begin(), 0.0));
            if (std::isnan(z.back())) return;
            largest = std::max(largest, z.back());
        }
        if (!std::isfinite(largest)) return;
        for (double& each : z) sum += each = each - largest < least_exponent ? 0 : std::exp(each - largest);
        for (size_t i = 0; i < z.size(); ++i) pages[i].score += z[i] / sum;
    }

    std::vector<Candidate> candidates() const {
        std::vector<Candidate> found;
        for (int64_t first = 0; first < args_.cold.slots(); first += index_.page_slots) {
            bool is_shown = false, has_anchor = false;
            for (int64_t slot = first; slot < std::min(first + index_.page_slots, args_.cold.slots()); ++slot) {
                const int32_t token = entry(args_.cold.tokens, head_, slot);
                if (!is_live(token) || !is_visible(token_id_of(token))) continue;
                is_shown = true;
                has_anchor |= (token & anchor_flag) != 0;
            }
            const int64_t page = first / index_.page_slots;
            if (is_shown) found.push_back({page, 0, has_anchor || page >= args_.pinned_from});
        }
        for (int64_t g = 0; g < group_; ++g) add_softmax(found, head_ * group_ + g);
        for (Candidate& each : found)
            if (frame_of(each.page) < frames()) each.score *= std::exp(static_cast<double>(args_.bonus));
        return found;
    }

    // In ascending order.
    std::vector<int64_t> pick() const {
        std::vector<Candidate> found = candidates();
        std::stable_sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
            if (a.is_pinned || b.is_pinned) return a.is_pinned && !b.is_pinned;
            return a.score > b.score;
        });
        if (static_cast<int64_t>(found.size()) > args_.count) found.resize(static_cast<size_t>(args_.count));
        std::vector<int64_t> picked;
        picked.reserve(found.size());
        for (const Candidate& each : found) picked.push_back(each.page);
        std::sort(picked.begin(), picked.end());
        return picked;
    }

    void fill(int64_t frame, int64_t page) const {
        set_entry(index_.frames, head_, frame, static_cast<int32_t>(page));
        for (int64_t i = 0; i < index_.page_slots; ++i) {
            const int64_t from = page * index_.page_slots + i, to = frame * index_.page_slots + i;
            const int32_t token = from < args_.cold.slots() ? entry(args_.cold.tokens, head_, from) : free_slot;
            set_entry(args_.hot.tokens, head_, to, token);
            if (!is_live(token) || !args_.cold.k) continue;
            for (const auto& rows : {&Segment::k, &Segment::v})
                std::memcpy(row_address(args_.hot.*rows, 0, head_, to), row_address(args_.cold.*rows, 0, head_, from),
                            row_bytes((args_.hot.*rows).type, (args_.hot.*rows).shape[3]));
        }
    }

    void count(int64_t at, int64_t more) const {
        uint64_t sum = 0;
        std::byte* const counter = address(args_.counts, 0, head_, 0, at);
        std::memcpy(&sum, counter, sizeof sum);
        sum += static_cast<uint64_t>(more);
        std::memcpy(counter, &sum, sizeof sum);
    }

    const PagePick& args_;
    const PageIndex& index_;
    int64_t head_, group_;
    std::optional<HeadCodebooks> codebooks_; // none: signatures are of signs
};

} // namespace

void page_pick(const PagePick& args) {
    for (int64_t head = 0; head < args.hot.kv_heads(); ++head) HeadPick(args, head).run();
}

} // namespace winnow::reference
