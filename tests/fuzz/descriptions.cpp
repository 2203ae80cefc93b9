// Draws tensors and structs.
#include "descriptions.hpp"

#include <algorithm>
#include <limits>

namespace winnow::fuzz {
namespace {

constexpr uint32_t types[] = {WINNOW_TYPE_F32,
                              WINNOW_TYPE_F16,
                              WINNOW_TYPE_BF16,
                              WINNOW_TYPE_I32,
                              WINNOW_TYPE_I64,
                              WINNOW_TYPE_BOOL,
                              WINNOW_TYPE_Q8_0,
                              WINNOW_TYPE_Q5_1,
                              WINNOW_TYPE_Q5_0,
                              WINNOW_TYPE_Q4_1,
                              WINNOW_TYPE_Q4_0,
                              WINNOW_TYPE_IQ4_NL,
                              WINNOW_TYPE_AFFINE8_G32,
                              WINNOW_TYPE_AFFINE8_G64,
                              WINNOW_TYPE_AFFINE8_G128,
                              WINNOW_TYPE_AFFINE4_G32,
                              WINNOW_TYPE_AFFINE4_G64,
                              WINNOW_TYPE_AFFINE4_G128,
                              WINNOW_TYPE_TURBO4,
                              WINNOW_TYPE_TURBO3,
                              WINNOW_TYPE_TURBO2,
                              WINNOW_TYPE_TURBO3_5,
                              WINNOW_TYPE_TURBO2_5,
                              WINNOW_TYPE_SPARSE16,
                              WINNOW_TYPE_SPARSE8,
                              0,
                              7,
                              23,
                              UINT32_MAX};
constexpr int64_t most_elements = 1 << 11; // of a tensor that is computed with
constexpr size_t most_bytes = 1 << 16;

uint64_t row_bytes(uint32_t type, int64_t elements) {
    uint64_t bytes = 0;
    if (api().row_bytes(type, elements, &bytes, nullptr, 0) != WINNOW_OK) return 0;
    return bytes;
}

// Bytes from the first to the last of the view; 0 where it is none.
__int128 extent_of(const winnow_tensor& tensor) {
    __int128 extent = row_bytes(tensor.type, tensor.shape[3]);
    if (extent == 0) return 0;
    for (int axis = 0; axis < 3; ++axis) {
        if (tensor.shape[axis] < 1 || tensor.stride[axis] < 0) return 0;
        if (tensor.shape[axis] > 1) extent += static_cast<__int128>(tensor.shape[axis] - 1) * tensor.stride[axis];
    }
    return extent;
}

bool is_small(const winnow_tensor& tensor) {
    __int128 elements = 1;
    for (const int64_t length : tensor.shape) {
        if (length < 1) return true; // refused before anything is done
        elements *= length;
        if (elements > most_elements) return false;
    }
    return true;
}

// Whatever it is that comes out.
int64_t wrapped(int64_t a, char operation, int64_t b) {
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<int64_t>(operation == '*' ? x * y : x + y);
}

} // namespace

Descriptions::~Descriptions() {
    for (const auto& block : blocks_) api().buffer_destroy(block->buffer);
}

uint32_t Descriptions::draw_size(uint32_t size) {
    if (!input_.chance(24)) return size;
    switch (input_.byte() % 4) {
    case 0: return static_cast<uint32_t>(input_.within(0, size)); // of an older host, or of none
    case 1: return size / 8 * 8 - 8 * static_cast<uint32_t>(input_.within(0, 15)) % (size + 1);
    case 2: return size + static_cast<uint32_t>(input_.within(1, 64)); // of a newer host
    default: return static_cast<uint32_t>(input_.hostile());
    }
}

// Past the end of a newer struct zeros, but for one byte now and then. A struct_size that lies is the host's fault:
// the memory is as long as it says, up to what no backend reads.
void* Descriptions::resized(const void* from, uint32_t size) {
    const uint32_t given = draw_size(size);
    const size_t memory = std::clamp<size_t>(given, sizeof given, most_bytes + 1);
    auto bytes = std::make_unique<std::byte[]>(memory);
    std::memcpy(bytes.get(), from, std::min<size_t>(memory, size));
    std::memcpy(bytes.get(), &given, sizeof given);
    if (memory > size && input_.chance(64)) {
        bytes[size + static_cast<size_t>(input_.number<uint16_t>()) % (memory - size)] = std::byte{1};
    }
    return structs_.emplace_back(std::move(bytes)).get();
}

void* Descriptions::blank(uint32_t size) {
    const uint32_t given = draw_size(size);
    const size_t memory = std::clamp<size_t>(given, sizeof given, most_bytes + 1);
    auto bytes = std::make_unique<std::byte[]>(memory);
    std::memset(bytes.get(), 0xa5, memory);
    std::memcpy(bytes.get(), &given, sizeof given);
    return structs_.emplace_back(std::move(bytes)).get();
}

const winnow_extension* Descriptions::extensions() {
    if (!input_.chance(12)) return nullptr;
    const winnow_extension* next = nullptr;
    for (int64_t count = input_.within(1, 70); count > 0; --count) {
        winnow_extension index{sizeof index, input_.byte(), 0, 0, next};
        if (input_.chance(8)) index.flags = input_.byte();
        if (input_.chance(8)) index.reserved = input_.byte();
        next = sized(index);
    }
    return next;
}

void Descriptions::poison(winnow_tensor& tensor) {
    switch (input_.byte() % 8) {
    case 0: tensor.type = input_.choice(types); return;
    case 1: tensor.shape[input_.byte() % 4] = input_.hostile(); return;
    case 2: tensor.stride[input_.byte() % 4] = input_.hostile(); return;
    case 3: tensor.shape[input_.byte() % 4] = input_.within(0, 40); return;
    case 4: // permuted: tokens before heads
        tensor.stride[2] = wrapped(tensor.stride[2], '*', tensor.shape[1]);
        tensor.stride[1] = static_cast<int64_t>(row_bytes(tensor.type, tensor.shape[3]));
        return;
    case 5: tensor.stride[input_.byte() % 3] = 0; return; // broadcast
    case 6: {
        int64_t& stride = tensor.stride[input_.byte() % 3];
        stride = wrapped(stride, '+', input_.within(-4, 64));
        return;
    }
    default: tensor.offset = static_cast<uint64_t>(input_.hostile()); return;
    }
}

Block& Descriptions::new_block(size_t size) {
    auto block = std::make_unique<Block>();
    block->bytes = std::make_unique<std::byte[]>(size);
    block->size = size;
    return *blocks_.emplace_back(std::move(block));
}

// Small integers where they are indices, else any bits.
void Descriptions::fill(Block& block, uint32_t type) {
    const uint8_t seed = input_.byte();
    if (type == WINNOW_TYPE_I32 || type == WINNOW_TYPE_I64) {
        const size_t width = type == WINNOW_TYPE_I32 ? 4 : 8;
        for (size_t at = 0; at + width <= block.size; at += width) {
            const int64_t value =
                seed > 230 ? input_.hostile() : static_cast<int64_t>((at / width * 7 + seed) % 24) - 2;
            std::memcpy(&block.bytes[at], &value, width); // the low bytes
        }
        return;
    }
    uint32_t state = seed;
    for (size_t at = 0; at < block.size; ++at) {
        state = state * 1664525u + 1013904223u;
        // Exponents in the middle of the range, as numbers of a model have, unless the seed says otherwise.
        block.bytes[at] = static_cast<std::byte>(seed > 200 || at % 2 == 0 ? state >> 24 : 0x38 | (state >> 24 & 0x87));
    }
}

void Descriptions::make_buffer(winnow_tensor& tensor, Block& block, uint64_t size) {
    winnow_buffer_desc desc{};
    desc.struct_size = sizeof desc;
    desc.kind = input_.chance(128) ? WINNOW_BUFFER_IMPORT_HOST : WINNOW_BUFFER_ALLOCATE;
    desc.size = size;
    if (desc.kind == WINNOW_BUFFER_IMPORT_HOST) desc.host_data = block.bytes.get();
    require(api().buffer_create(context_, &desc, &block.buffer) == WINNOW_OK, "a small buffer can be made");
    if (desc.kind == WINNOW_BUFFER_ALLOCATE) {
        require(api().buffer_write(block.buffer, 0, block.bytes.get(), size) == WINNOW_OK, "and written");
    }
    tensor.buffer = block.buffer;
    tensor.data = nullptr;
}

// Gives it memory that ends with its last byte. Where it has no extent, or a huge one, its buffer is too small, or it
// is asked about only.
void Descriptions::place(winnow_tensor& tensor, bool is_output) {
    const uint8_t how = input_.byte();
    const __int128 extent = extent_of(tensor);
    if (!placed_.empty() && how > 232) { // on another's memory; that one is as long as it is
        const winnow_tensor& other = placed_[how % placed_.size()];
        Block& block = *blocks_[how % placed_.size()];
        tensor.buffer = other.buffer;
        tensor.data = other.data;
        tensor.offset = other.offset + 2 * input_.byte() / 3;
        if (how % 2 == 0) tensor.offset = other.offset;
        block.is_written = block.is_written || is_output;
        if (tensor.buffer == nullptr && extent + tensor.offset > static_cast<__int128>(block.size)) can_run_ = false;
        return;
    }
    const bool in_buffer = how % 2 == 1;
    if (tensor.offset > most_bytes && !in_buffer) tensor.offset = how; // the memory is not there
    const bool is_known = extent > 0 && extent + tensor.offset <= most_bytes;
    size_t size = is_known ? static_cast<size_t>(extent + tensor.offset) : 64;
    if (in_buffer && (how & 0x1c) == 0x1c) size -= std::min<size_t>(size - 1, 1 + how % 3); // a little too small
    Block& block = new_block(size);
    block.is_written = is_output;
    fill(block, tensor.type);
    if (in_buffer) {
        make_buffer(tensor, block, size);
    } else {
        tensor.data = block.bytes.get();
        if (!is_known && extent != 0) can_run_ = false;
    }
    placed_.push_back(tensor);
    if (how == 2) {
        tensor.data = nullptr;
        lacks_memory_ = true;
    }
    if (how == 3) tensor.data = block.bytes.get();
    // Not a buffer of this context; nobody looks into it.
    if (how == 5) tensor.buffer = reinterpret_cast<winnow_buffer*>(block.bytes.get());
}

const winnow_tensor* Descriptions::tensor(const Role& role) {
    if (input_.chance(4)) return nullptr;
    winnow_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.type = role.type;
    std::copy(role.shape.begin(), role.shape.end(), tensor.shape);
    const uint64_t row = row_bytes(role.type, role.shape[3]);
    tensor.stride[3] = role.type < WINNOW_TYPE_Q8_0 ? static_cast<int64_t>(row) / role.shape[3] : 0;
    tensor.stride[2] = static_cast<int64_t>(row);
    for (int axis = 1; axis >= 0; --axis) tensor.stride[axis] = tensor.stride[axis + 1] * role.shape[axis + 1];
    for (int poisons = 0; poisons < 3 && input_.chance(16); ++poisons) poison(tensor);
    place(tensor, role.is_output);
    if (!is_small(tensor)) can_run_ = false;
    return sized(tensor);
}

std::vector<std::byte> Descriptions::contents(const Block& block) const {
    std::vector<std::byte> bytes(block.size);
    if (block.buffer != nullptr) {
        require(api().buffer_read(block.buffer, 0, bytes.data(), bytes.size()) == WINNOW_OK, "a buffer can be read");
    } else {
        std::copy_n(block.bytes.get(), block.size, bytes.begin());
    }
    return bytes;
}

void Descriptions::remember() {
    for (const auto& block : blocks_) block->before = contents(*block);
}

void Descriptions::expect_unchanged(bool outputs_too, const char* promise) const {
    for (const auto& block : blocks_) {
        if (block->is_written && !outputs_too) continue;
        require(contents(*block) == block->before, promise);
    }
}

} // namespace winnow::fuzz
