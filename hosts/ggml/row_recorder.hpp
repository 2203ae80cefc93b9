// Keys and queries of all layers as attentions have them, in the file that WINNOW_REPORT_ROWS names: what codebooks are
// calibrated on (`winnow calibrate`); whole rows, which WINNOW_REPORT_WITH=whole_rows asks for, have values and all
// queries, too. A record for each attention, in the order in which they come:
//
//     8 bytes   "WNROWS2" and a zero
//     64 bytes  the layer's name and zeros
//     9 x i64   of keys: type (WINNOW_TYPE_*), KV heads, tokens, elements; of values: type, elements; of queries: type,
//               query heads, tokens
//     keys      [KV head][token][element]
//     values    [KV head][token][element], of 0 elements where rows are not whole
//     queries   [query head][token][element], of each 8th token from the first one on, or of all
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "winnow_cache.h"

namespace winnow::ggml {

class RowRecorder {
public:
    RowRecorder(const std::string& path, bool is_whole); // throws std::runtime_error where it cannot be written
    // Throws std::runtime_error where the step has no keys, other elements than F32 or F16, or the disk is full.
    void add(const std::string& layer, const winnow_cache_step_desc& step);

private:
    void write(const void* data, size_t size);
    void write_rows(const winnow_tensor& rows, int64_t every);

    std::string path_;
    bool is_whole_;
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

} // namespace winnow::ggml
