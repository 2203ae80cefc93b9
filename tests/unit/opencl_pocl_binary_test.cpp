// Intermediate code is taken out of what is exactly a binary of PoCL 3.1, and nothing else is touched.
#include "opencl/pocl_binary.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace winnow::opencl {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(const std::string& text) {
    Bytes bytes;
    std::transform(text.begin(), text.end(), std::back_inserter(bytes), [](char c) { return std::byte(c); });
    return bytes;
}

std::string text_of(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::string number(uint64_t value, size_t size) {
    std::string text;
    for (size_t i = 0; i < size; ++i) text += static_cast<char>(value >> 8 * i & 0xff);
    return text;
}

const std::string hash = "KC/DNEGAOLLAKPIDLCEOKIOIDKPPEPPBBGGLJOO";

std::string header(const std::string& name) {
    return std::string("poclbin\0", 8) + number(0x0123456789abcdef, 8) + number(9, 4) + number(1, 4) + number(2, 8) +
           number(1, 4) + name + std::string(1, '\0');
}

std::string file(const std::string& path, const std::string& content) {
    const std::string entry = number(path.size(), 4) + path + number(content.size(), 4) + content;
    return number(entry.size(), 8) + entry;
}

const std::string kernels = "the kernels, /program.bc and all";

TEST(opencl_pocl_binary, loses_its_intermediate_code_and_keeps_the_rest) {
    for (const auto& [last, next] : {std::pair{'A', 'B'}, {'G', 'H'}, {'P', 'A'}}) {
        for (const std::string& code : {std::string("BC\xc0\xde and more"), std::string(), std::string(100000, 'x')}) {
            const std::string whole = header(hash + last) + file("/program.bc", code) + kernels;
            EXPECT_EQ(text_of(without_intermediate_code(bytes_of(whole))),
                      header(hash + next) + file("/stripped", "") + kernels);
        }
    }
}

TEST(opencl_pocl_binary, is_as_it_was_where_anything_is_unknown) {
    const std::string good = header(hash + 'A') + file("/program.bc", "code") + kernels;
    ASSERT_NE(text_of(without_intermediate_code(bytes_of(good))), good);
    const auto changed = [&](size_t at, const std::string& to) {
        std::string text = good;
        return text.replace(at, to.size(), to);
    };
    const size_t list = header(hash + 'A').size();
    for (const std::string& other :
         {std::string(), std::string("poclbin"), changed(0, "P"), changed(16, number(11, 4)), changed(32, number(2, 4)),
          changed(36, "_UNCACHED_"), changed(38, "A"), changed(36 + 40, "A"), changed(list, number(1000, 8)),
          changed(list + 8, number(10, 4)), changed(list + 12, "/program.bx"), changed(list + 23, number(5, 4)),
          changed(list + 23, number(0xffffffff, 4)), header(hash + 'A') + file("/program.sp", "code") + kernels,
          text_of(without_intermediate_code(bytes_of(good)))})
        EXPECT_EQ(text_of(without_intermediate_code(bytes_of(other))), other);
    for (size_t length = 0; length < good.size() - kernels.size(); ++length) {
        const std::string part = good.substr(0, length);
        EXPECT_EQ(text_of(without_intermediate_code(bytes_of(part))), part) << "cut to " << length;
    }
}

TEST(opencl_pocl_binary, is_whatever_the_bytes_are) {
    std::mt19937 engine(1);
    const std::string good = header(hash + 'A') + file("/program.bc", "code") + kernels;
    for (int round = 0; round < 20000; ++round) {
        std::string text = good;
        for (int i = 0; i < 3; ++i) text[engine() % text.size()] = static_cast<char>(engine());
        text.resize(engine() % (text.size() + 1));
        const Bytes lean = without_intermediate_code(bytes_of(text));
        EXPECT_LE(lean.size(), text.size());
    }
}

} // namespace
} // namespace winnow::opencl
