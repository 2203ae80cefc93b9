// The layout is that of PoCL's pocl_binary.c, version 9: a header, the program's name in PoCL's cache, a list of files
// with a path and a content each, of which there is one, and then the kernels. Numbers are little endian.
#include "opencl/pocl_binary.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace winnow::opencl {
namespace {

constexpr std::string_view magic("poclbin\0", 8);
constexpr size_t version_at = 16, files_at = 32, name_at = 36;
constexpr size_t name_length = 40; // and a zero: a hash in letters, after whose second a folder ends
constexpr uint32_t version = 9;
constexpr char first_letter = 'A', last_letter = 'P';
constexpr std::string_view intermediate_code = "/program.bc", nothing = "/stripped";

std::string_view text_of(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename Number>
Number number_at(std::string_view binary, size_t at) {
    Number number = 0;
    for (size_t i = sizeof number; i-- > 0;) number = number << 8U | static_cast<unsigned char>(binary[at + i]);
    return number;
}

template <typename Number>
void append(std::vector<std::byte>& to, Number number) {
    for (size_t i = 0; i < sizeof number; ++i) to.push_back(static_cast<std::byte>(number >> 8 * i & 0xff));
}

void append(std::vector<std::byte>& to, std::string_view text) {
    std::transform(text.begin(), text.end(), std::back_inserter(to), [](char c) { return static_cast<std::byte>(c); });
}

bool is_hash(std::string_view name) {
    for (size_t i = 0; i < name_length; ++i)
        if (i == 2 ? name[i] != '/' : name[i] < first_letter || name[i] > last_letter) return false;
    return name[name_length] == 0;
}

} // namespace

std::vector<std::byte> without_intermediate_code(const std::vector<std::byte>& binary) {
    constexpr size_t list_at = name_at + name_length + 1, path_at = list_at + 12;
    constexpr size_t content_at = path_at + intermediate_code.size() + 4;
    const std::string_view all = text_of(binary);
    const bool is_known = all.size() > content_at && all.starts_with(magic) &&
                          number_at<uint32_t>(all, version_at) == version && number_at<uint32_t>(all, files_at) == 1 &&
                          is_hash(all.substr(name_at)) &&
                          number_at<uint32_t>(all, path_at - 4) == intermediate_code.size() &&
                          all.substr(path_at).starts_with(intermediate_code);
    if (!is_known) return binary;
    const uint64_t size = number_at<uint32_t>(all, content_at - 4);
    if (number_at<uint64_t>(all, list_at) != content_at - (path_at - 4) + size || all.size() - content_at < size)
        return binary;

    std::vector<std::byte> lean(binary.begin(), binary.begin() + static_cast<std::ptrdiff_t>(list_at));
    std::byte& letter = lean[name_at + name_length - 1];
    letter = static_cast<std::byte>(all[name_at + name_length - 1] == last_letter ? first_letter
                                                                                  : all[name_at + name_length - 1] + 1);
    append(lean, static_cast<uint64_t>(4 + nothing.size() + 4));
    append(lean, static_cast<uint32_t>(nothing.size()));
    append(lean, nothing);
    append(lean, uint32_t{0});
    lean.insert(lean.end(), binary.begin() + static_cast<std::ptrdiff_t>(content_at + size), binary.end());
    return lean;
}

} // namespace winnow::opencl
