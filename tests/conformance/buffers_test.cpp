// Buffers: allocated memory is zeroed and keeps what is written, imported memory is the host's own, ranges are checked.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "session.hpp"

namespace winnow::conformance {
namespace {

using Bytes = std::vector<uint8_t>;

class buffers : public testing::Test {
protected:
    const winnow_api& api = subject().api();
    winnow_context* const context = subject().context();

    static winnow_buffer_desc allocate(uint64_t size) {
        winnow_buffer_desc desc{};
        desc.struct_size = sizeof desc;
        desc.kind = WINNOW_BUFFER_ALLOCATE;
        desc.size = size;
        return desc;
    }
    static winnow_buffer_desc import(Bytes& bytes, size_t first = 0) {
        winnow_buffer_desc desc{};
        desc.struct_size = sizeof desc;
        desc.kind = WINNOW_BUFFER_IMPORT_HOST;
        desc.size = bytes.size() - first;
        desc.host_data = bytes.data() + first;
        return desc;
    }
    winnow_buffer* create(const winnow_buffer_desc& desc) {
        winnow_buffer* buffer = nullptr;
        EXPECT_EQ(api.buffer_create(context, &desc, &buffer), WINNOW_OK) << subject().message();
        return buffer;
    }
    static Bytes pattern(size_t size) {
        Bytes bytes(size);
        std::iota(bytes.begin(), bytes.end(), uint8_t{3});
        return bytes;
    }
    void expect_refused(const winnow_buffer_desc& desc, const char* named) {
        auto* const untouched = reinterpret_cast<winnow_buffer*>(uintptr_t{0x1234});
        winnow_buffer* buffer = untouched;
        EXPECT_EQ(api.buffer_create(context, &desc, &buffer), WINNOW_ERROR_INVALID_ARGUMENT) << named;
        EXPECT_EQ(buffer, untouched);
        EXPECT_NE(subject().message().find(named), std::string::npos) << subject().message();
    }
};

TEST_F(buffers, allocated_memory_is_zeroed) {
    for (uint64_t size : {1u, 7u, 4096u, 100003u}) {
        winnow_buffer* buffer = create(allocate(size));
        Bytes back(size, 0xee);
        EXPECT_EQ(api.buffer_read(buffer, 0, back.data(), size), WINNOW_OK);
        EXPECT_EQ(back, Bytes(size, 0));
        EXPECT_EQ(api.buffer_destroy(buffer), WINNOW_OK);
    }
}

TEST_F(buffers, what_is_written_is_read) {
    winnow_buffer* buffer = create(allocate(1000));
    const Bytes bytes = pattern(333);
    EXPECT_EQ(api.buffer_write(buffer, 101, bytes.data(), bytes.size()), WINNOW_OK);
    Bytes back(1000, 0xee), want(1000, 0);
    std::copy(bytes.begin(), bytes.end(), want.begin() + 101);
    EXPECT_EQ(api.buffer_read(buffer, 0, back.data(), back.size()), WINNOW_OK);
    EXPECT_EQ(back, want);
    Bytes middle(5);
    EXPECT_EQ(api.buffer_read(buffer, 103, middle.data(), 5), WINNOW_OK);
    EXPECT_EQ(middle, Bytes(want.begin() + 103, want.begin() + 108));
    EXPECT_EQ(api.buffer_destroy(buffer), WINNOW_OK);
}

TEST_F(buffers, imported_memory_is_read_and_written_at_any_address) {
    for (size_t first : {0u, 1u, 2u, 5u, 63u}) {
        Bytes bytes = pattern(700);
        const Bytes before = bytes;
        winnow_buffer* buffer = create(import(bytes, first));
        Bytes back(700 - first);
        EXPECT_EQ(api.buffer_read(buffer, 0, back.data(), back.size()), WINNOW_OK);
        EXPECT_EQ(back, Bytes(before.begin() + static_cast<std::ptrdiff_t>(first), before.end()));
        // A change by the host, handed over in place, and one through the buffer, fetched in place.
        bytes[first + 10] = 0x77;
        EXPECT_EQ(api.buffer_write(buffer, 0, bytes.data() + first, bytes.size() - first), WINNOW_OK);
        const uint8_t other = 0x99;
        EXPECT_EQ(api.buffer_write(buffer, 20, &other, 1), WINNOW_OK);
        EXPECT_EQ(api.buffer_read(buffer, 0, bytes.data() + first, bytes.size() - first), WINNOW_OK);
        Bytes want = before;
        want[first + 10] = 0x77;
        want[first + 20] = 0x99;
        EXPECT_EQ(bytes, want) << "first " << first;
        EXPECT_EQ(api.buffer_destroy(buffer), WINNOW_OK);
    }
}

TEST_F(buffers, a_range_outside_is_refused_and_moves_nothing) {
    winnow_buffer* buffer = create(allocate(64));
    Bytes bytes = pattern(128), back(128, 0xee);
    const uint64_t outside[][2] = {{0, 65},        {64, 1}, {65, 0}, {1, 64}, {UINT64_MAX, 1}, {UINT64_MAX - 3, 8},
                                   {8, UINT64_MAX}};
    for (const auto& range : outside) {
        EXPECT_EQ(api.buffer_write(buffer, range[0], bytes.data(), range[1]), WINNOW_ERROR_INVALID_ARGUMENT)
            << range[0] << ", " << range[1];
        EXPECT_NE(subject().message(), "");
        EXPECT_EQ(api.buffer_read(buffer, range[0], back.data(), range[1]), WINNOW_ERROR_INVALID_ARGUMENT)
            << range[0] << ", " << range[1];
    }
    EXPECT_EQ(back, Bytes(128, 0xee));
    EXPECT_EQ(api.buffer_read(buffer, 0, back.data(), 64), WINNOW_OK);
    EXPECT_EQ(Bytes(back.begin(), back.begin() + 64), Bytes(64, 0));
    EXPECT_EQ(api.buffer_write(buffer, 64, bytes.data(), 0), WINNOW_OK) << "nothing at the end is inside";
    EXPECT_EQ(api.buffer_write(buffer, 0, nullptr, 4), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(api.buffer_read(buffer, 0, nullptr, 4), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(api.buffer_destroy(buffer), WINNOW_OK);
}

TEST_F(buffers, a_wrong_description_is_refused_by_name) {
    Bytes bytes = pattern(16);
    winnow_buffer_desc desc = allocate(0);
    expect_refused(desc, "size");
    desc = allocate(16);
    desc.kind = 0;
    expect_refused(desc, "kind");
    desc.kind = 99;
    expect_refused(desc, "kind");
    desc = import(bytes);
    desc.host_data = nullptr;
    expect_refused(desc, "host_data");
    desc = import(bytes);
    desc.size = UINT64_MAX;
    expect_refused(desc, "size");
    desc = allocate(16);
    desc.kind = WINNOW_BUFFER_IMPORT_DEVICE;
    winnow_buffer* buffer = nullptr;
    const int32_t status = api.buffer_create(context, &desc, &buffer);
    EXPECT_TRUE(status == WINNOW_ERROR_INVALID_ARGUMENT || status == WINNOW_ERROR_UNSUPPORTED) << status;
    EXPECT_EQ(buffer, nullptr);
}

TEST_F(buffers, more_than_any_memory_is_refused) {
    winnow_buffer* buffer = nullptr;
    const winnow_buffer_desc desc = allocate(UINT64_MAX / 2);
    const int32_t status = api.buffer_create(context, &desc, &buffer);
    EXPECT_EQ(status, WINNOW_ERROR_OUT_OF_MEMORY) << subject().message();
    EXPECT_EQ(buffer, nullptr);
}

// Host memory of which only the pages that are touched are there.
class SparseMemory {
public:
    explicit SparseMemory(uint64_t size)
        : size_(size),
          data_(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
    ~SparseMemory() {
        if (*this) ::munmap(data_, size_);
    }
    SparseMemory(const SparseMemory&) = delete;
    SparseMemory& operator=(const SparseMemory&) = delete;
    explicit operator bool() const { return data_ != MAP_FAILED; }
    void* data() const { return data_; }

private:
    uint64_t size_;
    void* data_;
};

winnow_tensor rows_of_floats(void* data, int64_t rows, int64_t elements, uint64_t stride) {
    winnow_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.type = WINNOW_TYPE_F32;
    tensor.data = data;
    const int64_t shape[] = {1, 1, rows, elements};
    std::copy_n(shape, 4, tensor.shape);
    tensor.stride[2] = static_cast<int64_t>(stride);
    tensor.stride[3] = 4;
    return tensor;
}

// A tensor in host memory that may be larger than any buffer of the device. What supports says of it without memory,
// the call has to keep; and where it is taken, offsets have more than 32 bits.
TEST_F(buffers, a_tensor_of_gigabytes_is_taken_or_refused_beforehand) {
    const uint64_t stride = std::min<uint64_t>(subject().info().max_allocation_size, uint64_t{5} << 30) & ~uint64_t{63};
    const SparseMemory memory(stride + 4096);
    if (!memory) GTEST_SKIP() << "the system does not give " << stride << " bytes of address space";
    float source[2][16];
    std::iota(&source[0][0], &source[0][0] + 32, 1.0f);
    int32_t slots[2] = {1, 0};
    const winnow_tensor src = rows_of_floats(source, 2, 16, sizeof source[0]);
    winnow_tensor cache = rows_of_floats(nullptr, 2, 16, stride);
    winnow_tensor indices = rows_of_floats(slots, 1, 2, 8);
    indices.type = WINNOW_TYPE_I32;
    winnow_kv_append_desc desc{};
    desc.struct_size = sizeof desc;
    desc.k_src = &src;
    desc.k_cache = &cache;
    desc.k_row_indices = &indices;
    const Session::Answer before = subject().supports(desc);
    EXPECT_TRUE(before.status == WINNOW_OK || before.status == WINNOW_ERROR_UNSUPPORTED) << before.message;
    cache.data = memory.data();
    EXPECT_EQ(subject().supports(desc).status, before.status);
    EXPECT_EQ(subject().run(desc), before.status)
        << "supports says: " << before.message << "; the call: " << subject().message();
    EXPECT_EQ(api.finish(context), WINNOW_OK) << subject().message();
    const auto* const first = static_cast<const std::byte*>(memory.data());
    if (before.status != WINNOW_OK) std::fill_n(&source[0][0], 32, 0.0f); // nothing was written
    EXPECT_EQ(std::memcmp(first, source[1], sizeof source[1]), 0);
    EXPECT_EQ(std::memcmp(first + stride, source[0], sizeof source[0]), 0);
}

TEST_F(buffers, many_come_and_go) {
    std::vector<winnow_buffer*> all;
    for (int at = 0; at < 200; ++at) {
        all.push_back(create(allocate(static_cast<uint64_t>(1 + 37 * at))));
        const auto mark = static_cast<uint8_t>(at);
        EXPECT_EQ(api.buffer_write(all.back(), static_cast<uint64_t>(37 * at), &mark, 1), WINNOW_OK);
    }
    for (int at = 199; at >= 0; at -= 2) EXPECT_EQ(api.buffer_destroy(all[static_cast<size_t>(at)]), WINNOW_OK);
    for (int at = 0; at < 200; at += 2) {
        uint8_t mark = 0;
        EXPECT_EQ(api.buffer_read(all[static_cast<size_t>(at)], static_cast<uint64_t>(37 * at), &mark, 1), WINNOW_OK);
        EXPECT_EQ(mark, static_cast<uint8_t>(at));
        EXPECT_EQ(api.buffer_destroy(all[static_cast<size_t>(at)]), WINNOW_OK);
    }
}

TEST_F(buffers, destroying_null_is_fine) { EXPECT_EQ(api.buffer_destroy(nullptr), WINNOW_OK); }

} // namespace
} // namespace winnow::conformance
