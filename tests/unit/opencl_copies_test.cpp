// Host memory on a device that cannot reach it. Every driver of a CPU can, so the answer of the probe is overruled:
// what is tested is the copying, and that nothing but the copies makes results appear.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "opencl/runtime_state.hpp"
#include "opencl_test.hpp"

namespace winnow::opencl {
namespace {

struct Params {
    uint64_t input, output;
};

constexpr std::string_view source = R"(
typedef struct { ulong input, output; } params;
kernel void twice(params p, global uchar* input, global uchar* output, uint group_base) {
    if (group_base == 0xffffffffu) return;
    const uint i = get_group_id(0) + group_base;
    ((global uint*)(output + p.output))[i] = 2u * ((global const uint*)(input + p.input))[i];
}
)";

Tensor tensor(std::byte* data, int64_t rows, int64_t columns, int64_t row_stride) {
    Tensor result;
    result.type = Type::i32;
    result.data = data;
    result.shape = {1, 1, rows, columns};
    result.stride = {rows * row_stride, rows * row_stride, row_stride, 4};
    return result;
}

class opencl_copies : public opencl_test {
protected:
    void SetUp() override {
        opencl_test::SetUp();
        if (is_over()) return;
        state_ = std::make_unique<RuntimeState>(cpu_request());
        state_->capabilities.zero_copy = false;
        kernel_ = &state_->programs.kernel_of_source("twice", source, "twice", {});
    }

    std::byte* bytes(std::vector<uint32_t>& values) { return reinterpret_cast<std::byte*>(values.data()); }

    // Without a wait.
    std::unique_ptr<Event> begin_twice(const Tensor& input, const Tensor& output, Access access, size_t count,
                                       bool want_event = false) {
        Operation operation(*state_);
        const Bound in = operation.bind(input, Access::read);
        const Bound out = operation.bind(output, access);
        operation.launch(*kernel_, Params{in.offset, out.offset}, {in.memory, out.memory},
                         Grid{.groups = {count, 1, 1}});
        return operation.complete(want_event);
    }
    void twice(const Tensor& input, const Tensor& output, Access access, size_t count) {
        begin_twice(input, output, access, count);
        state_->finish();
    }

    std::unique_ptr<RuntimeState> state_;
    Kernel* kernel_ = nullptr;
};

TEST_F(opencl_copies, tensors_in_host_memory_are_copied_there_and_back) {
    std::vector<uint32_t> input{1, 2, 3, 4};
    std::vector<uint32_t> output(4, 0);
    twice(tensor(bytes(input), 1, 4, 16), tensor(bytes(output), 1, 4, 16), Access::write, 4);
    EXPECT_EQ(output, (std::vector<uint32_t>{2, 4, 6, 8}));
    EXPECT_EQ(state_->host_copies, 2u);
}

// As the inputs of an attention do.
TEST_F(opencl_copies, what_a_launch_needs_goes_over_in_one_copy) {
    std::vector<uint32_t> first{1, 2}, second{3, 4}, third{5, 6}, output(2, 0);
    {
        Operation operation(*state_);
        for (std::vector<uint32_t>* unused : {&first, &second})
            operation.bind(tensor(bytes(*unused), 1, 2, 8), Access::read);
        const Bound in = operation.bind(tensor(bytes(third), 1, 2, 8), Access::read);
        const Bound out = operation.bind(tensor(bytes(output), 1, 2, 8), Access::write);
        operation.launch(*kernel_, Params{in.offset, out.offset}, {in.memory, out.memory}, Grid{.groups = {2, 1, 1}});
        operation.complete(false);
    }
    state_->finish();
    EXPECT_EQ(output, (std::vector<uint32_t>{10, 12}));
    EXPECT_EQ(state_->host_copies, 2u);
    state_->transfers.stand_apart();
    twice(tensor(bytes(first), 1, 2, 8), tensor(bytes(output), 1, 2, 8), Access::read_write, 2);
    EXPECT_EQ(state_->host_copies, 5u) << "one there for each input, and one back";
}

TEST_F(opencl_copies, what_lies_between_the_rows_of_an_output_survives) {
    std::vector<uint32_t> input{1, 2, 3, 4, 5, 6};
    std::vector<uint32_t> output(6, 77);
    // Two rows of two, with a third column that is not the tensor's.
    twice(tensor(bytes(input), 1, 6, 24), tensor(bytes(output), 2, 2, 12), Access::write, 5);
    EXPECT_EQ(output, (std::vector<uint32_t>{2, 4, 77, 8, 10, 77}));
}

TEST_F(opencl_copies, rows_that_the_kernel_does_not_write_survive_with_read_write) {
    std::vector<uint32_t> input{1, 2, 3, 4};
    std::vector<uint32_t> output(4, 77);
    twice(tensor(bytes(input), 1, 4, 16), tensor(bytes(output), 4, 1, 4), Access::read_write, 2);
    EXPECT_EQ(output, (std::vector<uint32_t>{2, 4, 77, 77}));
}

TEST_F(opencl_copies, results_come_with_the_wait_and_inputs_may_change_before) {
    std::vector<uint32_t> input{1, 2, 3, 4};
    std::vector<uint32_t> output(4, 0);
    begin_twice(tensor(bytes(input), 1, 4, 16), tensor(bytes(output), 1, 4, 16), Access::write, 4);
    input.assign(4, 9);
    state_->finish();
    EXPECT_EQ(output, (std::vector<uint32_t>{2, 4, 6, 8}));
}

TEST_F(opencl_copies, the_wait_for_an_event_brings_results) {
    std::vector<uint32_t> input{1, 2, 3, 4};
    std::vector<uint32_t> first(4, 0), second(4, 0);
    begin_twice(tensor(bytes(input), 1, 4, 16), tensor(bytes(first), 1, 4, 16), Access::write, 4);
    const auto event =
        begin_twice(tensor(bytes(input), 1, 4, 16), tensor(bytes(second), 1, 4, 16), Access::write, 4, true);
    event->wait();
    EXPECT_EQ(first, (std::vector<uint32_t>{2, 4, 6, 8})) << "of the operation before it";
    EXPECT_EQ(second, (std::vector<uint32_t>{2, 4, 6, 8}));
}

TEST_F(opencl_copies, an_operation_reads_what_the_one_before_it_wrote) {
    std::vector<uint32_t> values{1, 2, 3, 4, 5, 6};
    const Tensor all = tensor(bytes(values), 1, 4, 16);
    for (int i = 0; i < 3; ++i) begin_twice(all, all, Access::write, 4);
    begin_twice(tensor(bytes(values) + 12, 1, 2, 8), tensor(bytes(values) + 16, 1, 2, 8), Access::write, 2);
    state_->finish();
    EXPECT_EQ(values, (std::vector<uint32_t>{8, 16, 24, 32, 64, 10}));
}

// Operations of random sizes, some of which have more than there is place for, waited for at random times, against a
// loop on the host. Chains go through the same memory.
TEST_F(opencl_copies, many_operations_share_the_place) {
    std::mt19937 random(7);
    const auto below = [&](size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random); };
    constexpr size_t most = 3 << 20; // 12 MiB
    std::vector<uint32_t> memory(most + 4096), expected;
    for (uint32_t& value : memory) value = static_cast<uint32_t>(random());
    expected = memory;
    for (int i = 0; i < 200; ++i) {
        const size_t count = below(20) == 0 ? 1 + below(most / 2) : 1 + below(below(4) == 0 ? 200'000 : 2000);
        const size_t from = below(most - count), to = below(most - count);
        if (from < to + count && to < from + count) continue;
        const auto columns = static_cast<int64_t>(count);
        begin_twice(tensor(bytes(memory) + 4 * from, 1, columns, 4 * columns),
                    tensor(bytes(memory) + 4 * to, 1, columns, 4 * columns), Access::write, count);
        for (size_t j = 0; j < count; ++j) expected[to + j] = 2 * expected[from + j];
        if (below(8) == 0) {
            state_->finish();
            ASSERT_EQ(memory, expected) << "after " << i;
        }
    }
    state_->finish();
    EXPECT_TRUE(memory == expected);
}

TEST_F(opencl_copies, a_context_that_ends_waits_for_what_it_owes) {
    std::vector<uint32_t> input{1, 2, 3, 4};
    std::vector<uint32_t> output(4, 0);
    begin_twice(tensor(bytes(input), 1, 4, 16), tensor(bytes(output), 1, 4, 16), Access::write, 4);
    state_.reset();
    EXPECT_EQ(output, (std::vector<uint32_t>{2, 4, 6, 8}));
}

TEST_F(opencl_copies, an_imported_buffer_meets_the_host_where_it_is_written_and_read) {
    std::vector<uint32_t> input{1, 2, 3, 4};
    std::vector<uint32_t> output(4, 0);
    const auto in = ClBuffer::import_host(*state_, input.data(), 16);
    const auto out = ClBuffer::import_host(*state_, output.data(), 16);
    Tensor from = tensor(nullptr, 1, 4, 16);
    Tensor to = from;
    from.buffer = in.get();
    to.buffer = out.get();

    input[0] = 10;
    in->write(0, input.data(), 4);
    twice(from, to, Access::write, 4);
    EXPECT_EQ(output, (std::vector<uint32_t>(4, 0))) << "the device reached host memory after all";
    out->read(0, output.data(), 16);
    EXPECT_EQ(output, (std::vector<uint32_t>{20, 4, 6, 8}));
}

// Two cl_mem objects over the same host memory would be undefined; so an operation in place has one.
TEST_F(opencl_copies, memory_that_a_device_reaches_is_imported_once_for_an_operation) {
    state_->capabilities.zero_copy = true;
    state_->capabilities.type = WINNOW_DEVICE_GPU; // whose imports are not kept
    std::vector<uint32_t> values{1, 2, 3, 4};
    std::vector<uint32_t> elsewhere(1 << 16, 0); // pages of its own
    const Tensor all = tensor(bytes(values), 1, 4, 16);
    {
        Operation operation(*state_);
        const Bound first = operation.bind(all, Access::read);
        const Bound again = operation.bind(all, Access::write);
        const Bound part = operation.bind(tensor(bytes(values) + 8, 1, 2, 8), Access::read);
        const Bound other = operation.bind(tensor(bytes(elsewhere) + (1 << 17), 1, 4, 16), Access::read);
        EXPECT_EQ(again.memory, first.memory);
        EXPECT_EQ(again.offset, first.offset);
        EXPECT_EQ(part.memory, first.memory);
        EXPECT_EQ(part.offset, first.offset + 8);
        EXPECT_NE(other.memory, first.memory);
    }
    twice(all, all, Access::write, 4);
    EXPECT_EQ(values, (std::vector<uint32_t>{2, 4, 6, 8}));
    EXPECT_EQ(state_->host_copies, 0u);
}

// Tensors side by side in the heap share a page: imported, both, their objects would lie over the same memory.
TEST_F(opencl_copies, of_two_tensors_on_one_page_one_is_copied) {
    state_->capabilities.zero_copy = true;
    state_->capabilities.type = WINNOW_DEVICE_GPU;
    std::vector<uint32_t> values(4 * page_size() / 4, 0); // pages, of which the middle is on a boundary of neither
    std::byte* start = bytes(values) + page_size() - reinterpret_cast<uintptr_t>(bytes(values)) % page_size();
    const auto count = static_cast<int64_t>(page_size() / 4 + 8); // of each: a page and a little more
    const Tensor input = tensor(start, 1, count, count * 4), output = tensor(start + count * 4, 1, count, count * 4);
    for (int64_t i = 0; i < count; ++i) reinterpret_cast<uint32_t*>(input.data)[i] = static_cast<uint32_t>(i);
    twice(input, output, Access::write, static_cast<size_t>(count));
    EXPECT_EQ(state_->host_copies, 1u);
    for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(reinterpret_cast<uint32_t*>(output.data)[i], static_cast<uint32_t>(2 * i)) << i;

    const auto imported = ClBuffer::import_host(*state_, input.data, static_cast<uint64_t>(count) * 4);
    twice(output, output, Access::write, 4); // whose first page the buffer has
    EXPECT_EQ(state_->host_copies, 3u);
    EXPECT_EQ(reinterpret_cast<uint32_t*>(output.data)[3], 12u);
    const auto beside = ClBuffer::import_host(*state_, output.data, static_cast<uint64_t>(count) * 4);
    EXPECT_EQ(state_->imported.size(), 1u);
    uint32_t found = 0;
    beside->read(12, &found, sizeof found);
    EXPECT_EQ(found, 12u);
}

// What a call has changed in part is not as before, so it has another status than one that ran out of memory at first.
TEST_F(opencl_copies, want_of_host_memory_after_the_launch_is_the_devices) {
    std::vector<uint32_t> values{1, 2, 3, 4}, doubled(4, 0);
    const Tensor from = tensor(bytes(values), 1, 4, 16), to = tensor(bytes(doubled), 1, 4, 16);
    state_->log = [](int32_t, const std::string& text) {
        if (text.starts_with("first launch of")) throw std::bad_alloc();
    };
    try {
        twice(from, to, Access::write, 4);
        ADD_FAILURE() << "the log did not fail";
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), WINNOW_ERROR_DEVICE);
    }
    twice(from, to, Access::write, 4);
    EXPECT_EQ(doubled, (std::vector<uint32_t>{2, 4, 6, 8}));
}

TEST_F(opencl_copies, allocated_buffers_are_zeroed_and_hold_what_is_written) {
    const auto buffer = ClBuffer::allocate(*state_, 1000);
    std::vector<uint32_t> values(250, 5);
    buffer->read(0, values.data(), 1000);
    EXPECT_EQ(values, std::vector<uint32_t>(250, 0));
    const uint32_t seven = 7;
    buffer->write(996, &seven, 4);
    buffer->read(0, values.data(), 1000);
    EXPECT_EQ(values[249], 7u);
    EXPECT_EQ(values[248], 0u);
}

// So that recall's cold rows take none of the device's memory.
TEST_F(opencl_copies, memory_beside_the_device_is_the_hosts) {
    for (const cl_mem_flags place : {cl_mem_flags{0}, cl_mem_flags{CL_MEM_ALLOC_HOST_PTR}}) {
        const std::unique_ptr<ClBuffer> buffer = ClBuffer::allocate(*state_, 100, 7, place);
        cl_mem_flags flags = 0;
        ASSERT_EQ(clGetMemObjectInfo(buffer->memory()->on(0), CL_MEM_FLAGS, sizeof flags, &flags, nullptr), CL_SUCCESS);
        EXPECT_EQ(flags & CL_MEM_ALLOC_HOST_PTR, place);
        uint8_t byte = 0;
        buffer->read(99, &byte, 1);
        EXPECT_EQ(byte, 7);
    }
}

} // namespace
} // namespace winnow::opencl
