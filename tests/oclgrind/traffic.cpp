// One decode step's attention over rows in one format, for traffic.py, on the backend that is to be counted; the
// reference backend makes the rows of random numbers.
//
//     winnow_oclgrind_traffic BACKEND REFERENCE KEYS QUERY_HEADS HEAD_SIZE SPLITS FORMAT[:slots]
//
// With :slots keys have positions of their own. It prints the variant, and the bytes that have to be read: rows of K
// and V, slots, and Q once for each work-group.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "open_backend.hpp"
#include "types.hpp"

namespace {

using winnow::bench::is_packed;
using winnow::bench::type_size;

struct Backend {
    Backend(const std::string& path, const std::string& variants) : opened(path) {
        winnow_context_desc desc{};
        desc.struct_size = sizeof desc;
        desc.variants = variants.c_str();
        context = opened.make_context(desc);
    }
    const winnow_api& api() const { return opened.api(); }
    void check(int32_t status) const {
        if (status != WINNOW_OK) throw std::runtime_error(api().context_message(context.get()));
    }

    winnow::tools::OpenBackend opened;
    winnow::tools::OwnedContext context;
};

// Rows of one KV head, or of one token's query heads, in host memory.
struct Rows {
    Rows(const Backend& backend, uint32_t type, int64_t heads, int64_t rows, int64_t size) {
        uint64_t row = 0;
        char message[256] = "";
        if (backend.api().row_bytes(type, size, &row, message, sizeof message) != WINNOW_OK)
            throw std::runtime_error(message);
        bytes.resize(static_cast<size_t>(heads * rows) * row);
        tensor.struct_size = sizeof tensor;
        tensor.type = type;
        tensor.data = bytes.data();
        const auto stride = static_cast<int64_t>(row);
        const int64_t shape[] = {1, heads, rows, size};
        const int64_t strides[] = {stride * rows * heads, stride * rows, stride,
                                   is_packed(type) ? 0 : static_cast<int64_t>(type_size(type))};
        std::memcpy(tensor.shape, shape, sizeof shape);
        std::memcpy(tensor.stride, strides, sizeof strides);
    }
    std::vector<uint8_t> bytes;
    winnow_tensor tensor{};
};

void fill(Rows& rows, uint32_t seed) {
    std::minstd_rand random(seed);
    std::uniform_real_distribution<float> distribution(-1.0f, 1.0f);
    for (size_t i = 0; i < rows.bytes.size(); i += sizeof(float)) {
        const float x = distribution(random);
        std::memcpy(&rows.bytes[i], &x, sizeof x);
    }
}

void run(char** argv) {
    const std::string what = argv[7], format = what.substr(0, what.find(':'));
    const int64_t keys = std::atoll(argv[3]), heads = std::atoll(argv[4]), size = std::atoll(argv[5]),
                  splits = std::atoll(argv[6]);
    const Backend reference(argv[2], "");
    const uint32_t type = winnow::bench::storage_formats().at(format);
    Rows k_dense(reference, WINNOW_TYPE_F32, 1, keys, size), v_dense(reference, WINNOW_TYPE_F32, 1, keys, size);
    Rows k(reference, type, 1, keys, size), v(reference, type, 1, keys, size);
    Rows q(reference, WINNOW_TYPE_F32, heads, 1, size), out(reference, WINNOW_TYPE_F32, heads, 1, size);
    Rows slots(reference, WINNOW_TYPE_I32, 1, 1, keys);
    std::vector<int32_t> numbers(static_cast<size_t>(keys));
    std::iota(numbers.begin(), numbers.end(), 0);
    std::memcpy(slots.bytes.data(), numbers.data(), slots.bytes.size());
    fill(k_dense, 1), fill(v_dense, 2), fill(q, 3);

    winnow_kv_append_desc append{};
    append.struct_size = sizeof append;
    append.k_src = &k_dense.tensor, append.v_src = &v_dense.tensor;
    append.k_cache = &k.tensor, append.v_cache = &v.tensor;
    append.k_row_indices = &slots.tensor;
    reference.check(reference.api().kv_append(reference.context.get(), &append, nullptr));
    reference.check(reference.api().finish(reference.context.get()));

    const Backend backend(argv[1], "kernel=vector,shape=workgroup,params=value,host_memory=apart,splits=" +
                                       std::to_string(splits));
    winnow_sdpa_desc sdpa{};
    sdpa.struct_size = sizeof sdpa;
    sdpa.q = &q.tensor, sdpa.k = &k.tensor, sdpa.v = &v.tensor, sdpa.out = &out.tensor;
    sdpa.q_offset = keys - 1;
    if (what != format) sdpa.slot_positions = &slots.tensor;
    char variant[512] = "";
    backend.check(backend.api().supports(backend.context.get(), WINNOW_OPERATION_SDPA, &sdpa, variant, sizeof variant));
    const size_t needed = k.bytes.size() + v.bytes.size() + (what != format ? slots.bytes.size() : 0) +
                          static_cast<size_t>(splits) * q.bytes.size();
    std::printf("needed %zu %s\n", needed, variant);
    std::fflush(stdout);
    backend.check(backend.api().sdpa(backend.context.get(), &sdpa, nullptr));
    backend.check(backend.api().finish(backend.context.get()));
}

} // namespace

int main(int argc, char** argv) {
    try {
        if (argc != 8) throw std::runtime_error("expected seven arguments");
        run(argv);
        return 0;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "%s\n", failure.what());
        return 1;
    }
}
