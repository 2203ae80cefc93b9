// Tensors whose rows lie further apart than 31 bits can say, in memory that is reserved and hardly used: attention and
// append give what they give of the same rows side by side.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "closed_form_attention.hpp"

namespace winnow::conformance {
namespace {

constexpr uint64_t reserved = 5ULL << 29U; // bytes
constexpr int64_t bits_31 = 1LL << 31;

class FarMemory {
public:
    FarMemory()
        : base_(mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
    ~FarMemory() {
        if (*this) munmap(base_, reserved);
    }
    FarMemory(const FarMemory&) = delete;
    FarMemory& operator=(const FarMemory&) = delete;
    explicit operator bool() const { return base_ != MAP_FAILED; }

    // The same rows, so many bytes apart, of which the first is at `offset`.
    winnow_tensor spread(const TestTensor& rows, int64_t offset, int64_t head_stride, int64_t row_stride) {
        winnow_tensor tensor = *rows.view();
        tensor.data = base_;
        tensor.offset = static_cast<uint64_t>(offset);
        tensor.stride[0] = rows.shape()[1] * head_stride;
        tensor.stride[1] = head_stride;
        tensor.stride[2] = row_stride;
        rows.each_row([&](const Index& at) { std::memcpy(row(tensor, at), rows.element(at), rows.row_size()); });
        return tensor;
    }
    static std::byte* row(const winnow_tensor& tensor, const Index& at) {
        return static_cast<std::byte*>(tensor.data) + tensor.offset + at[1] * tensor.stride[1] +
               at[2] * tensor.stride[2];
    }

private:
    void* base_;
};

// Why this device is not handed such memory; "" where it is.
std::string obstacle() {
    const winnow_device_info info = subject().info();
    if (info.max_allocation_size < reserved)
        return "the device takes at most " + std::to_string(info.max_allocation_size) + " bytes at once, needed are " +
               std::to_string(reserved);
    if (!(info.capabilities & WINNOW_CAPABILITY_UNIFIED_MEMORY)) return "the device would copy all of the memory";
    return "";
}

struct Spread {
    const char* name;
    int64_t offset, head_stride, row_stride;
};
const Spread spreads[] = {{"heads", 4096, bits_31 + 4096, 256},
                          {"rows", 4096, 512, (bits_31 / 36 / 256 + 1) * 256},
                          {"offset", bits_31 + 4096, 65536, 512},
                          {"across", bits_31 - 36 * 512 - 65536, 65536, 512}};
constexpr int64_t output_head_stride = (bits_31 / 3 / 256 + 1) * 256; // as there are four heads

class far_memory : public testing::TestWithParam<std::tuple<int64_t, int>> {};

TEST_P(far_memory, attention_is_that_of_rows_side_by_side) {
    if (const std::string why = obstacle(); !why.empty()) GTEST_SKIP() << why;
    const auto [queries, which] = GetParam();
    const Spread& how = spreads[which];
    Attention a(queries);
    a.run();
    const TestTensor want = a.out.packed_copy();
    for (const char* const far : {"k", "v", "out"}) {
        FarMemory memory;
        if (!memory) GTEST_SKIP() << "no " << reserved << " bytes of addresses";
        TestTensor& rows = far[0] == 'k' ? a.k : far[0] == 'v' ? a.v : a.out;
        const bool has_far_heads = far[0] == 'o' && how.head_stride > bits_31;
        const winnow_tensor tensor =
            memory.spread(rows, how.offset, has_far_heads ? output_head_stride : how.head_stride, how.row_stride);
        winnow_sdpa_desc desc = a.desc;
        (far[0] == 'k' ? desc.k : far[0] == 'v' ? desc.v : desc.out) = &tensor;
        ASSERT_EQ(subject().run(desc), WINNOW_OK) << far << ": " << subject().message();
        ASSERT_EQ(subject().api().finish(subject().context()), WINNOW_OK) << far << ": " << subject().message();
        a.each_row([&](int64_t head, int64_t token) {
            for (int64_t d = 0; d < a.v_size; ++d) {
                float got = 0;
                const Index at = {0, head, token, 0};
                const std::byte* const row = far[0] == 'o' ? FarMemory::row(tensor, at) : a.out.element(at);
                std::memcpy(&got, row + 4 * d, sizeof got);
                ASSERT_NEAR(got, want.get({0, head, token, d}), tolerance)
                    << far << ", head " << head << ", element " << d;
            }
        });
    }
}

TEST_P(far_memory, appended_rows_come_to_their_places) {
    if (const std::string why = obstacle(); !why.empty()) GTEST_SKIP() << why;
    const auto [tokens, which] = GetParam();
    const Spread& how = spreads[which];
    FarMemory memory;
    if (!memory) GTEST_SKIP() << "no " << reserved << " bytes of addresses";
    TestTensor cache(WINNOW_TYPE_F16, {1, 2, 37, 64}), source(WINNOW_TYPE_F32, {1, 2, tokens, 64}),
        rows(WINNOW_TYPE_I64, {1, 1, 1, tokens});
    source.each([&](const Index& at) { source.set(at, static_cast<double>(at[1] * 100 + at[2] + at[3]) / 4); });
    rows.each([&](const Index& at) { rows.set(at, static_cast<double>(36 - at[3])); });
    const winnow_tensor far = memory.spread(cache, how.offset, how.head_stride, how.row_stride);
    source.bind(subject());
    rows.bind(subject());
    winnow_kv_append_desc desc{};
    desc.struct_size = sizeof desc;
    desc.k_src = source.view();
    desc.k_cache = &far;
    desc.k_row_indices = rows.view();
    ASSERT_EQ(subject().run(desc), WINNOW_OK) << subject().message();
    ASSERT_EQ(subject().api().finish(subject().context()), WINNOW_OK) << subject().message();
    source.each([&](const Index& at) { cache.set({0, at[1], 36 - at[2], at[3]}, source.get(at)); });
    cache.each_row([&](const Index& at) {
        ASSERT_EQ(std::memcmp(FarMemory::row(far, at), cache.element(at), cache.row_size()), 0)
            << "head " << at[1] << ", row " << at[2];
    });
}

INSTANTIATE_TEST_SUITE_P(sdpa, far_memory,
                         testing::Combine(testing::Values(1, 19),
                                          testing::Range(0, static_cast<int>(std::size(spreads)))),
                         [](const auto& each) {
                             return std::string(spreads[std::get<1>(each.param)].name) + "_tokens_" +
                                    std::to_string(std::get<0>(each.param));
                         });

} // namespace
} // namespace winnow::conformance
