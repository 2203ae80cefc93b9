// Host memory on a device that cannot reach it. Every driver of a CPU can, so the answer of the probe is overruled:
// what is tested is the copying, and that nothing but the copies makes results appear.
#include <gtest/gtest.h>

#include <cstring>
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

    void twice(const Tensor& input, const Tensor& output, Access access, size_t count) {
        Operation operation(*state_);
        const Bound in = operation.bind(input, Access::read);
        const Bound out = operation.bind(output, access);
        operation.launch(*kernel_, Params{in.offset, out.offset}, {in.memory, out.memory},
                         Grid{.groups = {count, 1, 1}});
        operation.complete(false);
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
