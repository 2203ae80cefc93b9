// The file that `codebook_file` of a configuration names: codebooks of a model's layers, by which recall makes
// signatures of codes. It is records of the resource "codebooks", each with its layer's name.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace winnow::ggml {

// The resource "codebooks" of these layers; what is in a record, the backend checks. Without layers it is checked
// alone that the file holds codebooks. Throws std::runtime_error where the path is empty, or the file cannot be read,
// is none of these, or lacks one of the layers.
std::vector<std::byte> read_codebook_file(const std::string& path, const std::vector<std::string>& layers);

} // namespace winnow::ggml
