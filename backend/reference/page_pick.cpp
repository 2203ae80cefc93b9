// The steps of PagePick in their order, one KV head after another.
#include "reference/page_pick.hpp"

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

constexpr double infinity = std::numeric_limits<double>::infinity();

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

    // What a query head makes of the mean and the center, and of signatures: rotated for signs, times B for codes.
    struct Query {
        std::vector<double> row;
        double of_means = 0;
    };

    std::vector<Query> queries() const {
        std::vector<Query> all;
        for (int64_t g = 0; g < group_; ++g) {
            Query query{slot_row(args_.q, {}, head_ * group_ + g, 0)};
            const Tensor& mean = args_.cold.k_mean;
            for (size_t e = 0; mean && e < query.row.size(); ++e)
                query.of_means += query.row[e] * load(mean.type, address(mean, 0, head_, 0, static_cast<int64_t>(e)));
            if (codebooks_) {
                query.row = codebooks_->times(CodebookMatrix::of_queries, query.row);
            } else {
                rotate(query.row.data(), args_.q.shape[3]);
                const std::vector<double> center = center_of(index_, head_, args_.q.shape[3]);
                query.of_means = std::inner_product(center.begin(), center.end(), query.row.begin(), query.of_means);
            }
            all.push_back(std::move(query));
        }
        return all;
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
        const Signature its = signature_of(index_, head_, page, elements);
        for (const bool sign : its.signs) numbers.push_back(sign ? its.factor : -its.factor);
        return numbers;
    }

    double score(int64_t page, const std::vector<Query>& queries) const {
        const std::vector<double> numbers = signature(page);
        double best = -infinity;
        for (const Query& query : queries) {
            const double sum = std::inner_product(numbers.begin(), numbers.end(), query.row.begin(), query.of_means);
            best = std::max(best, static_cast<double>(args_.scale) * sum); // NaN leaves what there is
        }
        return frame_of(page) < frames() ? best + static_cast<double>(args_.bonus) : best;
    }

    std::vector<Candidate> candidates() const {
        const std::vector<Query> its = queries();
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
            if (is_shown) found.push_back({page, score(page, its), has_anchor || page >= args_.pinned_from});
        }
        return found;
    }

    static void sort(std::vector<Candidate>& candidates) {
        std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
            if (a.is_pinned || b.is_pinned) return a.is_pinned && !b.is_pinned;
            return a.score > b.score;
        });
    }

    // In ascending order.
    std::vector<int64_t> pick() const {
        std::vector<Candidate> found = candidates();
        std::vector<Candidate> in_frames;
        for (int64_t frame = 0; frame < frames(); ++frame)
            for (const Candidate& candidate : found)
                if (candidate.page == entry(index_.frames, head_, frame)) in_frames.push_back(candidate);
        sort(found);
        sort(in_frames);
        int64_t by_score = args_.count;
        if (static_cast<int64_t>(in_frames.size()) >= args_.count) {
            const auto pinned =
                std::count_if(found.begin(), found.end(), [](const auto& page) { return page.is_pinned; });
            by_score = std::clamp<int64_t>(pinned, args_.by_score, args_.count);
        }
        std::vector<int64_t> picked;
        const auto take = [&](const std::vector<Candidate>& from, int64_t count) {
            for (const Candidate& candidate : from)
                if (static_cast<int64_t>(picked.size()) < count &&
                    std::find(picked.begin(), picked.end(), candidate.page) == picked.end())
                    picked.push_back(candidate.page);
        };
        take(found, by_score);
        take(in_frames, args_.count);
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
