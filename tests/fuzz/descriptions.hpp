// Tensors and structs as hosts should not make them: each in memory of exactly its size, so that the sanitizer sees
// every byte that is read or written beyond.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "backend.hpp"
#include "input.hpp"

namespace winnow::fuzz {

// Memory of a tensor, with what was in it before a call.
struct Block {
    std::unique_ptr<std::byte[]> bytes;
    size_t size = 0;
    winnow_buffer* buffer = nullptr; // if it is the backend's, or made from bytes
    bool is_written = false;         // by some tensor of the description
    std::vector<std::byte> before;
};

// What a valid tensor of a role is.
struct Role {
    uint32_t type;
    std::array<int64_t, 4> shape;
    bool is_output = false;
};

class Descriptions {
public:
    Descriptions(Input& input, winnow_context* context) : input_(input), context_(context) {}
    ~Descriptions();
    Descriptions(const Descriptions&) = delete;
    Descriptions& operator=(const Descriptions&) = delete;

    // A tensor of the role, or one with something wrong; NULL now and then.
    const winnow_tensor* tensor(const Role& role);
    // The struct in memory of exactly struct_size bytes, where that may be longer or shorter than ours.
    template <class T>
    const T* sized(T value) {
        return static_cast<const T*>(resized(&value, sizeof value));
    }
    // A struct to be filled likewise; the bytes behind the first are 0xa5.
    template <class T>
    T* output_struct() {
        return static_cast<T*>(blank(sizeof(T)));
    }
    const winnow_extension* extensions();
    // An interesting value now and then.
    template <class T>
    void twist(T& field) {
        if (!input_.chance(10)) return;
        if constexpr (std::is_floating_point_v<T>)
            field = input_.number<T>();
        else
            field = static_cast<T>(input_.hostile());
    }

    // Whether the tensors may be handed to a call: their memory is there, and the work is not endless.
    bool can_run() const { return can_run_; }
    // Whether some tensor has neither a buffer nor data: that may be asked about, and not be carried out.
    bool lacks_memory() const { return lacks_memory_; }
    void remember(); // what is in all memory
    // Breaks the promise unless memory is as remembered: all of it, or what no output lies in.
    void expect_unchanged(bool outputs_too, const char* promise) const;

private:
    void* resized(const void* from, uint32_t size);
    void* blank(uint32_t size);
    uint32_t draw_size(uint32_t size);
    void poison(winnow_tensor& tensor);
    void place(winnow_tensor& tensor, bool is_output);
    Block& new_block(size_t size);
    void fill(Block& block, uint32_t type);
    void make_buffer(winnow_tensor& tensor, Block& block, uint64_t size);
    std::vector<std::byte> contents(const Block& block) const;

    Input& input_;
    winnow_context* context_;
    bool can_run_ = true, lacks_memory_ = false;
    std::vector<std::unique_ptr<Block>> blocks_;
    std::vector<winnow_tensor> placed_; // for tensors that share memory
    std::vector<std::unique_ptr<std::byte[]>> structs_;
};

} // namespace winnow::fuzz
