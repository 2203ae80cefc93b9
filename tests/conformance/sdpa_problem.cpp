// Filling the tensors of an attention case.
#include "sdpa_problem.hpp"

#include <algorithm>
#include <random>
#include <sstream>
#include <stdexcept>

#include "elements.hpp"
#include "packing.hpp"

namespace winnow::conformance {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

Shape mask_dimensions(const SdpaCase& c) {
    switch (c.mask_shape) {
    case MaskShape::full: return {c.batch, c.q_heads, c.q_len, c.kv_len};
    case MaskShape::per_batch: return {c.batch, 1, c.q_len, c.kv_len};
    case MaskShape::per_head: return {1, c.q_heads, c.q_len, c.kv_len};
    case MaskShape::half_heads: return {c.batch, c.q_heads / 2, c.q_len, c.kv_len};
    case MaskShape::half_batch: return {c.batch / 2, 1, c.q_len, c.kv_len};
    case MaskShape::one_row: return {1, 1, 1, c.kv_len};
    case MaskShape::one_key: return {1, 1, c.q_len, 1};
    case MaskShape::one_value: return {1, 1, 1, 1};
    case MaskShape::larger: return {1, 1, c.q_len + 3, c.kv_len + 5};
    case MaskShape::shorter: return {1, 1, c.q_len, std::max<int64_t>(c.kv_len / 2, 1)};
    default: return {1, 1, c.q_len, c.kv_len};
    }
}

Shape slots_dimensions(const SdpaCase& c) {
    const bool by_batch = c.slots_shape == SlotsShape::full || c.slots_shape == SlotsShape::per_batch;
    const bool by_head = c.slots_shape == SlotsShape::full || c.slots_shape == SlotsShape::per_head;
    return {by_batch ? c.kv_batch : 1, by_head ? c.kv_heads : 1, 1, c.kv_len};
}

// A normal distribution that every standard library draws alike.
class Source {
public:
    explicit Source(uint64_t seed) : engine_(seed) {}
    double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
    double normal() {
        double sum = 0;
        for (int i = 0; i < 4; ++i) sum += uniform();
        return (sum - 2) * 1.7320508075688772; // variance of the sum: 4 / 12
    }
    bool one_in(int n) { return engine_() % static_cast<uint64_t>(n) == 0; }

private:
    std::mt19937_64 engine_;
};

double smallest_denormals(uint32_t type, Source& source) {
    const double unit = type == WINNOW_TYPE_F16 ? 0x1p-24 : type == WINNOW_TYPE_BF16 ? 0x1p-133 : 0x1p-149;
    return unit * std::floor(source.uniform() * 60) * (source.one_in(2) ? 1 : -1);
}

// Of garbage_unseen: what is hidden. With a mask, single keys between those that are seen, too.
bool is_hidden(const SdpaCase& c, int64_t key) {
    const bool has_holes = c.mask_shape == MaskShape::shared && c.slots == Slots::none;
    return c.content == Content::garbage_unseen && (key >= c.kv_len / 2 || (has_holes && key % 7 == 3));
}

// Whether a row of K and V is hidden, or comes after the lengths of all batch entries that share it.
bool is_garbage(const SdpaCase& c, const Index& row) {
    const int64_t share = c.batch / c.kv_batch;
    int64_t end = 0;
    for (int64_t entry = row[0] * share; entry < (row[0] + 1) * share; ++entry) end = std::max(end, c.length_of(entry));
    return row[2] >= end || is_hidden(c, row[2]);
}

double key_or_value(const Index& at, uint32_t type, const SdpaCase& c, bool is_key, Source& source) {
    const double number = (is_key && c.content == Content::huge_logits ? 100 : 1) * source.normal();
    if (is_garbage(c, at)) return source.one_in(2) ? not_a_number : source.one_in(2) ? infinity : -infinity;
    switch (c.content) {
    case Content::denormal: return smallest_denormals(type, source);
    case Content::one_huge: return at[3] == (is_key ? 5 : 3) ? 3000 * number : number;
    case Content::zeros: return source.one_in(2) ? 0.0 : -0.0;
    case Content::beyond_half: return is_key && at[2] == c.kv_len / 2 ? 2e5 + 1e4 * number : number;
    default: return number;
    }
}

void fill_numbers(TestTensor& tensor, uint32_t type, const SdpaCase& c, bool is_key, Source& source) {
    tensor.each([&](const Index& at) { tensor.set(at, key_or_value(at, type, c, is_key, source)); });
    const int64_t middle = c.kv_len / 2;
    const bool is_nan = c.content == (is_key ? Content::nan_key : Content::nan_value);
    if (is_nan) tensor.set({0, 0, middle, tensor.shape()[3] - 1}, not_a_number);
    if (!is_key && c.content == Content::inf_value) tensor.set({0, 0, middle, 0}, infinity);
}

// Bytes that no append leaves behind: scales that are NaN or infinite, codes of every kind.
void fill_with_garbage(TestTensor& tensor, const Index& row, Source& source) {
    const unsigned pattern = static_cast<unsigned>(4 * source.uniform());
    for (size_t at = 0; at < tensor.row_size(); ++at) {
        const unsigned byte = pattern == 0   ? 0xff
                              : pattern == 1 ? 0x7c // 0x7c7c is a NaN in half precision
                              : pattern == 2 ? (at % 2 ? 0x7c : 0x00)
                                             : static_cast<unsigned>(256 * source.uniform());
        tensor.element(row)[at] = static_cast<std::byte>(byte);
    }
    if (pattern == 3) std::fill_n(tensor.element(row) + tensor.row_size() - 2, 2, std::byte{0xfe});
}

// Returns what packed rows stand for.
TestTensor fill_keys_or_values(TestTensor& tensor, const SdpaCase& c, bool is_key, Source& source) {
    if (!is_packed(tensor.type())) {
        fill_numbers(tensor, tensor.type(), c, is_key, source);
        return {};
    }
    TestTensor numbers(WINNOW_TYPE_F32, tensor.shape());
    fill_numbers(numbers, WINNOW_TYPE_F16, c, is_key, source);
    pack(numbers, tensor, c.norm);
    tensor.each_row([&](const Index& row) {
        if (is_garbage(c, row)) fill_with_garbage(tensor, row, source);
    });
    return unpack(tensor);
}

void fill_mask(TestTensor& mask, const SdpaCase& c, Source& source) {
    const bool is_bool = c.mask_type == WINNOW_TYPE_BOOL;
    const double huge = c.mask_type == WINNOW_TYPE_F16 ? -65504 : -1e30;
    auto hide = [&] { return is_bool ? 0 : -infinity; };
    auto show = [&] { return is_bool ? std::floor(1 + 255 * source.uniform()) : 2 * source.normal(); };
    mask.each([&](const Index& at) {
        double value = show();
        switch (c.mask_content) {
        case MaskContent::random:
            if (is_bool && source.one_in(2)) value = hide();
            break;
        case MaskContent::minus_infinity:
            if (source.one_in(3)) value = hide();
            break;
        case MaskContent::huge_finite:
            if (source.one_in(2)) value = huge;
            break;
        case MaskContent::all_huge_finite: value = huge; break;
        case MaskContent::far_down:
            value = source.one_in(3) ? hide() : (c.mask_type == WINNOW_TYPE_F16 ? -6e4 : -2.5e5) + 16 * source.normal();
            break;
        case MaskContent::some_rows:
            if (at[2] % 2 == 0) value = hide();
            break;
        case MaskContent::everything: value = hide(); break;
        case MaskContent::not_a_number: break;
        }
        if (is_hidden(c, at[3])) value = hide();
        mask.set(at, value);
    });
    if (c.mask_content == MaskContent::not_a_number) mask.set({0, 0, 0, mask.shape()[3] - 1}, not_a_number);
}

// A head's slots. Free ones differ, as every negative number says the same.
std::vector<int64_t> draw_positions(const SdpaCase& c, Source& source) {
    std::vector<int64_t> positions(static_cast<size_t>(c.kv_len));
    int64_t next = 0;
    for (int64_t& position : positions) {
        if (c.slots == Slots::gapped || c.slots == Slots::with_free) next += static_cast<int64_t>(4 * source.uniform());
        position = next++;
    }
    if (c.slots == Slots::permuted || c.slots == Slots::with_free || c.slots == Slots::second_half)
        for (size_t i = positions.size(); i > 1; --i)
            std::swap(positions[i - 1], positions[static_cast<size_t>(static_cast<double>(i) * source.uniform())]);
    for (size_t j = 0; j < positions.size(); ++j) {
        const bool is_free = c.slots == Slots::all_free || (c.slots == Slots::with_free && source.one_in(3)) ||
                             (c.slots == Slots::second_half && static_cast<int64_t>(j) >= c.kv_len / 2);
        if (is_free) positions[j] = source.one_in(2) ? -1 : -1 - positions[j] * 1000;
    }
    return positions;
}

void fill_slots(TestTensor& slots, const SdpaCase& c, Source source) {
    slots.each_row([&](Index at) {
        for (const int64_t position : draw_positions(c, source)) {
            slots.set(at, static_cast<double>(position));
            ++at[3];
        }
    });
}

// Integers of any size, which no double has.
TestTensor of_entries(const std::vector<int64_t>& numbers, const SdpaCase& c) {
    if (numbers.empty()) return {};
    TestTensor tensor(c.lengths_type, {1, 1, 1, static_cast<int64_t>(numbers.size())}, c.q_layout, c.memory);
    for (size_t entry = 0; entry < numbers.size(); ++entry) {
        const auto narrow = static_cast<int32_t>(numbers[entry]);
        const bool is_wide = c.lengths_type == WINNOW_TYPE_I64;
        std::memcpy(tensor.element({0, 0, 0, static_cast<int64_t>(entry)}),
                    is_wide ? static_cast<const void*>(&numbers[entry]) : &narrow, is_wide ? 8 : 4);
    }
    return tensor;
}

double first_logit(const SdpaProblem& problem, int64_t head) {
    const SdpaCase& c = problem.shape;
    double dot = 0;
    for (int64_t d = 0; d < c.head_size; ++d)
        dot += problem.q.get({0, head, 0, d}) * problem.key({0, head / (c.q_heads / c.kv_heads), 0, d});
    return dot * (c.scale != 0 ? static_cast<double>(c.scale) : 1 / std::sqrt(static_cast<double>(c.head_size)));
}

} // namespace

SdpaProblem::SdpaProblem(const SdpaCase& what, uint64_t seed) : shape(what) {
    const SdpaCase& c = shape;
    q = TestTensor(c.q_type, {c.batch, c.q_heads, c.q_len, c.head_size}, c.q_layout, c.memory);
    k = TestTensor(c.k_type, {c.kv_batch, c.kv_heads, c.kv_len, c.head_size}, c.k_layout, c.memory);
    v = TestTensor(c.v_type, {c.kv_batch, c.kv_heads, c.kv_len, c.v_head_size}, c.v_layout, c.memory);
    out = TestTensor(c.out_type, {c.batch, c.q_heads, c.q_len, c.v_head_size}, c.out_layout, c.memory);
    if (c.mask_shape != MaskShape::none) mask = TestTensor(c.mask_type, mask_dimensions(c), c.mask_layout, c.memory);
    const Shape per_head = {1, 1, 1, c.q_heads};
    if (c.mask_slopes) mask_slopes = TestTensor(WINNOW_TYPE_F32, per_head, c.q_layout, c.memory);
    if (c.alibi) alibi_slopes = TestTensor(WINNOW_TYPE_F32, per_head, c.q_layout, c.memory);
    if (c.sink != Sink::none) head_sink = TestTensor(WINNOW_TYPE_F32, per_head, c.q_layout, c.memory);
    if (c.slots != Slots::none)
        slot_positions = TestTensor(WINNOW_TYPE_I32, slots_dimensions(c), c.slots_layout, c.memory);
    kv_lengths = of_entries(c.kv_lengths, c);
    q_offsets = of_entries(c.q_offsets, c);
    if (c.scores_mode != WINNOW_SCORES_NONE)
        scores_out = TestTensor(WINNOW_TYPE_F32, {c.batch, c.q_heads, c.q_len, c.kv_len}, c.out_layout, c.memory);
    if (c.row_stats) row_stats = TestTensor(WINNOW_TYPE_F32, {c.batch, c.q_heads, c.q_len, 2}, c.out_layout, c.memory);
    if (c.count_skipped)
        v_rows_skipped = TestTensor(WINNOW_TYPE_I32, {c.batch, c.q_heads, c.q_len, 1}, c.out_layout, c.memory);
    fill(seed);
}

void SdpaProblem::fill(uint64_t seed) {
    const SdpaCase& c = shape;
    Source source(seed);
    const double size = c.content == Content::huge_logits ? 100 : 1;
    q.each([&](const Index& at) { q.set(at, size * source.normal()); });
    if (c.content == Content::nan_query) q.set({0, 0, 0, c.head_size / 2}, not_a_number);
    k_numbers = fill_keys_or_values(k, c, true, source);
    v_numbers = fill_keys_or_values(v, c, false, source);
    if (mask) fill_mask(mask, c, source);
    if (slot_positions) fill_slots(slot_positions, c, Source(seed + 1));
    for (int64_t head = 0; head < c.q_heads; ++head) {
        if (mask_slopes) mask_slopes.set({0, 0, 0, head}, std::ldexp(1, -static_cast<int>(head % 8)));
        if (alibi_slopes) alibi_slopes.set({0, 0, 0, head}, std::ldexp(1, -1 - static_cast<int>(head % 8)));
        if (!head_sink) continue;
        double sink = source.normal();
        if (c.sink == Sink::equal) sink = first_logit(*this, head);
        if (c.sink == Sink::huge) sink = 1e30;
        if (c.sink == Sink::minus_infinity) sink = -infinity;
        if (c.sink == Sink::nan && head % 2 == 1) sink = not_a_number;
        head_sink.set({0, 0, 0, head}, sink);
    }
}

SdpaProblem SdpaProblem::for_reference(uint32_t scores_mode) const {
    SdpaProblem copy;
    copy.shape = shape;
    copy.shape.scores_mode = scores_mode;
    copy.shape.v_threshold = 0; // what is judged against passes over nothing
    copy.q = q.packed_copy();
    copy.k = k.packed_copy();
    copy.v = v.packed_copy();
    copy.out = TestTensor(WINNOW_TYPE_F32, out.shape());
    copy.mask = mask.packed_copy();
    copy.mask_slopes = mask_slopes.packed_copy();
    copy.alibi_slopes = alibi_slopes.packed_copy();
    copy.head_sink = head_sink.packed_copy();
    copy.slot_positions = slot_positions.packed_copy();
    copy.scores_out = TestTensor(WINNOW_TYPE_F32, {shape.batch, shape.q_heads, shape.q_len, shape.kv_len});
    copy.row_stats = TestTensor(WINNOW_TYPE_F32, {shape.batch, shape.q_heads, shape.q_len, 2});
    return copy;
}

SdpaProblem SdpaProblem::entry_alone(int64_t entry) const {
    const int64_t heads = shape.kv_heads, keys = std::max<int64_t>(shape.length_of(entry), 1);
    const Index first = {entry, 0, 0, 0}, first_kv = {entry / (shape.batch / shape.kv_batch), 0, 0, 0};
    SdpaProblem alone = *this;
    alone.shape.batch = alone.shape.kv_batch = 1;
    alone.shape.kv_len = keys;
    alone.shape.q_offset = shape.offset_of(entry);
    alone.q = q.part(first, {1, shape.q_heads, shape.q_len, shape.head_size});
    alone.k = k.part(first_kv, {1, heads, keys, shape.head_size});
    alone.v = v.part(first_kv, {1, heads, keys, shape.v_head_size});
    alone.out = TestTensor(WINNOW_TYPE_F32, {1, shape.q_heads, shape.q_len, shape.v_head_size});
    if (mask) {
        const Shape all = mask.shape();
        alone.mask = mask.part({entry % all[0], 0, 0, 0}, {1, all[1], all[2], all[3]});
    }
    if (slot_positions) {
        const Shape all = slot_positions.shape();
        alone.slot_positions = slot_positions.part({first_kv[0] % all[0], 0, 0, 0}, {1, all[1], 1, keys});
    }
    alone.kv_lengths = alone.q_offsets = {};
    alone.scores_out = TestTensor(WINNOW_TYPE_F32, {1, shape.q_heads, shape.q_len, keys});
    alone.row_stats = TestTensor(WINNOW_TYPE_F32, {1, shape.q_heads, shape.q_len, 2});
    return alone;
}

winnow_sdpa_desc SdpaProblem::desc() const {
    winnow_sdpa_desc d{};
    d.struct_size = sizeof d;
    d.q = q.view();
    d.k = k.view();
    d.v = v.view();
    d.out = out.view();
    d.attn_mask = mask.view();
    d.mask_slopes = mask_slopes.view();
    d.alibi_slopes = alibi_slopes.view();
    d.head_sink = head_sink.view();
    d.scores_out = scores_out.view();
    d.row_stats = row_stats.view();
    d.scale = shape.scale;
    d.softcap = shape.softcap;
    d.scores_mode = shape.scores_mode;
    d.is_causal = shape.is_causal;
    d.q_offset = shape.q_offset;
    d.window_left = shape.window_left;
    d.window_right = shape.window_right;
    d.v_threshold = shape.v_threshold;
    d.v_rows_skipped = v_rows_skipped.view();
    d.slot_positions = slot_positions.view();
    d.kv_lengths = kv_lengths.view();
    d.q_offsets = q_offsets.view();
    return d;
}

int64_t SdpaProblem::position(int64_t kv_batch, int64_t kv_head, int64_t j) const {
    if (!slot_positions) return j;
    const Shape s = slot_positions.shape();
    return static_cast<int64_t>(slot_positions.get({kv_batch % s[0], kv_head % s[1], 0, j}));
}

std::vector<TestTensor*> SdpaProblem::tensors() {
    return {&q,
            &k,
            &v,
            &out,
            &mask,
            &mask_slopes,
            &alibi_slopes,
            &head_sink,
            &slot_positions,
            &kv_lengths,
            &q_offsets,
            &scores_out,
            &row_stats,
            &v_rows_skipped};
}

void SdpaProblem::bind(Session& session) {
    for (TestTensor* tensor : tensors()) tensor->bind(session);
}

void SdpaProblem::fetch() {
    for (TestTensor* tensor : tensors()) tensor->fetch();
}

std::string SdpaProblem::damage() const {
    const std::pair<const char*, const TestTensor*> inputs[] = {{"q", &q},
                                                                {"k", &k},
                                                                {"v", &v},
                                                                {"attn_mask", &mask},
                                                                {"mask_slopes", &mask_slopes},
                                                                {"alibi_slopes", &alibi_slopes},
                                                                {"head_sink", &head_sink},
                                                                {"slot_positions", &slot_positions},
                                                                {"kv_lengths", &kv_lengths},
                                                                {"q_offsets", &q_offsets}};
    for (const auto& [name, tensor] : inputs)
        if (const std::string text = tensor->change(); !text.empty()) return std::string(name) + ", an input: " + text;
    const std::pair<const char*, const TestTensor*> outputs[] = {
        {"out", &out}, {"scores_out", &scores_out}, {"row_stats", &row_stats}, {"v_rows_skipped", &v_rows_skipped}};
    for (const auto& [name, tensor] : outputs)
        if (const std::string text = tensor->damage(); !text.empty())
            return std::string("beside ") + name + ": " + text;
    return "";
}

std::string describe(const SdpaCase& c) {
    std::ostringstream text;
    text << "q " << type_name(c.q_type) << " [" << c.batch << ", " << c.q_heads << ", " << c.q_len << ", "
         << c.head_size << "] layout " << static_cast<int>(c.q_layout) << ", k " << type_name(c.k_type) << " ["
         << c.kv_batch << ", " << c.kv_heads << ", " << c.kv_len << ", " << c.head_size << "] layout "
         << static_cast<int>(c.k_layout) << ", v " << type_name(c.v_type) << " [.., " << c.v_head_size << "] layout "
         << static_cast<int>(c.v_layout) << ", out " << type_name(c.out_type) << " layout "
         << static_cast<int>(c.out_layout) << ", memory " << static_cast<int>(c.memory) << ", content "
         << static_cast<int>(c.content);
    if (c.mask_shape != MaskShape::none)
        text << ", mask " << type_name(c.mask_type) << " shape " << static_cast<int>(c.mask_shape) << " content "
             << static_cast<int>(c.mask_content);
    if (c.slots != Slots::none)
        text << ", slots " << static_cast<int>(c.slots) << " shape " << static_cast<int>(c.slots_shape) << " layout "
             << static_cast<int>(c.slots_layout);
    if (c.is_causal) text << ", causal";
    for (const int64_t length : c.kv_lengths) text << ", length " << length;
    for (const int64_t offset : c.q_offsets) text << ", offset " << offset;
    text << ", q_offset " << c.q_offset << ", window " << c.window_left << "/" << c.window_right << ", sink "
         << static_cast<int>(c.sink) << ", scale " << c.scale << ", softcap " << c.softcap << (c.alibi ? ", alibi" : "")
         << (c.mask_slopes ? ", mask_slopes" : "") << ", scores " << c.scores_mode << (c.row_stats ? ", row_stats" : "")
         << ", norm " << c.norm << ", v_threshold " << c.v_threshold;
    return text.str();
}

template <typename... Choices>
std::common_type_t<Choices...> pick(std::mt19937_64& engine, Choices... choices) {
    const std::common_type_t<Choices...> list[] = {choices...};
    return list[engine() % sizeof...(choices)];
}

void draw_options(SdpaCase& c, std::mt19937_64& engine) {
    auto one_in = [&](int n) { return engine() % static_cast<uint64_t>(n) == 0; };
    auto layout = [&] {
        return pick(engine, Layout::packed, Layout::packed, Layout::permuted, Layout::tokens_outer, Layout::padded,
                    Layout::permuted_padded);
    };
    c.q_type = pick(engine, WINNOW_TYPE_F32, WINNOW_TYPE_F32, WINNOW_TYPE_F16, WINNOW_TYPE_BF16);
    c.out_type = pick(engine, WINNOW_TYPE_F32, WINNOW_TYPE_F32, WINNOW_TYPE_F16, WINNOW_TYPE_BF16);
    c.q_layout = layout();
    c.k_layout = one_in(8) ? Layout::one_head : layout();
    c.v_layout = one_in(8) ? Layout::one_batch : layout();
    c.out_layout = layout();
    c.memory = pick(engine, Memory::host, Memory::allocated, Memory::imported);
    c.content = one_in(6) ? pick(engine, Content::huge_logits, Content::nan_key, Content::nan_value, Content::nan_query)
                          : Content::normal;
    if (one_in(2)) {
        c.mask_shape = pick(engine, MaskShape::full, MaskShape::per_batch, MaskShape::per_head, MaskShape::shared,
                            MaskShape::one_row, MaskShape::one_key, MaskShape::one_value, MaskShape::larger);
        c.mask_type = pick(engine, WINNOW_TYPE_F32, WINNOW_TYPE_F16, WINNOW_TYPE_BOOL);
        c.mask_content = pick(engine, MaskContent::random, MaskContent::minus_infinity, MaskContent::some_rows,
                              MaskContent::everything);
        if (c.mask_type != WINNOW_TYPE_BOOL && one_in(3)) c.mask_content = MaskContent::huge_finite;
        c.mask_layout = one_in(3) ? layout() : Layout::packed;
        c.mask_slopes = c.mask_type != WINNOW_TYPE_BOOL && one_in(3);
    }
    c.is_causal = one_in(2);
    c.q_offset = one_in(4) ? static_cast<int64_t>(engine() % 3000) - 1500 : c.kv_len - c.q_len;
    if (one_in(4)) c.window_left = static_cast<int64_t>(1 + engine() % static_cast<uint64_t>(c.kv_len + 20));
    if (one_in(6)) c.window_right = static_cast<int64_t>(1 + engine() % static_cast<uint64_t>(c.kv_len + 20));
    c.sink =
        one_in(3) ? pick(engine, Sink::random, Sink::equal, Sink::huge, Sink::minus_infinity, Sink::nan) : Sink::none;
    if (one_in(4)) c.softcap = pick(engine, 1.0f, 20.0f, 50.0f);
    if (one_in(4)) c.scale = pick(engine, 1.0f, 0.05f, -0.3f);
    c.alibi = one_in(5);
    c.scores_mode = one_in(2) ? static_cast<uint32_t>(1 + engine() % 4) : WINNOW_SCORES_NONE;
    c.row_stats = one_in(2);
    if (!one_in(4)) return;
    c.slots = pick(engine, Slots::permuted, Slots::gapped, Slots::with_free, Slots::with_free);
    c.slots_shape = pick(engine, SlotsShape::full, SlotsShape::per_head, SlotsShape::per_batch, SlotsShape::shared);
    c.slots_layout = layout();
    if (c.mask_shape != MaskShape::none && one_in(3)) c.mask_shape = MaskShape::shorter;
}

SdpaCase random_sdpa_case(uint64_t seed, int index, bool has_all_rows) {
    std::mt19937_64 engine(seed * 1000003 + static_cast<uint64_t>(index));
    // Few combinations of formats, sizes and rows, since each is a program to compile, and many of everything else: the
    // first has any number of rows, the others a step of `group` rows a head and `q_len` queries, or a prompt.
    const struct {
        uint32_t k_type, v_type;
        int64_t head_size, v_head_size, group, q_len;
    } kinds[] = {
        {WINNOW_TYPE_F16, WINNOW_TYPE_F16, 64, 64, 0, 0},    {WINNOW_TYPE_F16, WINNOW_TYPE_F16, 128, 128, 4, 1},
        {WINNOW_TYPE_F16, WINNOW_TYPE_F16, 576, 512, 16, 1}, {WINNOW_TYPE_F32, WINNOW_TYPE_F32, 80, 80, 1, 5},
        {WINNOW_TYPE_BF16, WINNOW_TYPE_BF16, 96, 96, 3, 1},  {WINNOW_TYPE_F16, WINNOW_TYPE_BF16, 128, 64, 1, 2},
        {WINNOW_TYPE_F32, WINNOW_TYPE_F16, 3, 20, 1, 1}};
    const auto kind = kinds[engine() % std::size(kinds)];

    SdpaCase c;
    c.name = "random_" + std::to_string(seed) + "_" + std::to_string(index);
    c.kv_heads = pick(engine, 1, 2, 3);
    c.kv_batch = pick(engine, 1, 1, 2);
    c.batch = c.kv_batch * pick(engine, 1, 1, 3);
    int64_t group = pick(engine, 1, 2, 3, 4, 7, 8, 16);
    c.q_len = pick(engine, 1, 1, 2, 4, 5, 7, 8, 9, 33, 64);
    if (kind.group != 0 && !has_all_rows) {
        const bool is_prompt = engine() % 3 == 0;
        group = is_prompt ? 2 : kind.group;
        c.q_len = is_prompt ? 33 : kind.q_len;
    }
    c.q_heads = c.kv_heads * group;
    c.kv_len = pick(engine, 1, 2, 15, 16, 17, 31, 64, 65, 257, 1000);
    c.head_size = kind.head_size;
    c.v_head_size = kind.v_head_size;
    c.k_type = kind.k_type;
    c.v_type = kind.v_type;
    draw_options(c, engine);
    return c;
}

} // namespace winnow::conformance
