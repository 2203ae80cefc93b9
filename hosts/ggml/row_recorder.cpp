// Rows as they lie, one after another.
#include "row_recorder.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace winnow::ggml {

namespace {

constexpr int64_t every_query = 8;
constexpr char magic[8] = "WNROWS2";
constexpr size_t name_size = 64;

std::runtime_error refusal(const std::string& why) { return std::runtime_error("WINNOW_REPORT_ROWS: " + why); }

int64_t element_size(const winnow_tensor& rows) {
    if (rows.type == WINNOW_TYPE_F32) return 4;
    if (rows.type == WINNOW_TYPE_F16) return 2;
    throw refusal("rows of type " + std::to_string(rows.type) + ", expected F32 or F16");
}

} // namespace

RowRecorder::RowRecorder(const std::string& path, bool is_whole)
    : path_(path), is_whole_(is_whole), file_(std::fopen(path.c_str(), "ab"), std::fclose) {
    if (!file_) throw refusal("cannot write " + path + ": " + std::strerror(errno));
}

void RowRecorder::write(const void* data, size_t size) {
    if (std::fwrite(data, 1, size, file_.get()) != size)
        throw refusal("cannot write " + path_ + ": " + std::strerror(errno));
}

void RowRecorder::write_rows(const winnow_tensor& rows, int64_t every) {
    const int64_t size = element_size(rows);
    for (int64_t head = 0; head < rows.shape[1]; ++head)
        for (int64_t token = 0; token < rows.shape[2]; token += every)
            write(static_cast<const char*>(rows.data) + head * rows.stride[1] + token * rows.stride[2],
                  static_cast<size_t>(size * rows.shape[3]));
}

void RowRecorder::add(const std::string& layer, const winnow_cache_step_desc& step) {
    if (step.k == nullptr) throw refusal(layer + " has queries without keys of their own, expected both in one step");
    const winnow_tensor &k = *step.k, &v = *step.v, &q = *step.q;
    for (const winnow_tensor* rows : {&k, &v, &q}) element_size(*rows); // throws before anything is written
    char name[name_size] = "";
    std::copy_n(layer.begin(), std::min(layer.size(), name_size - 1), name);
    const int64_t every = is_whole_ ? 1 : every_query;
    const int64_t keys[] = {k.type, k.shape[1], k.shape[2], k.shape[3]};
    const int64_t values[] = {v.type, is_whole_ ? v.shape[3] : 0};
    const int64_t queries[] = {q.type, q.shape[1], (q.shape[2] + every - 1) / every};
    write(magic, sizeof magic);
    write(name, sizeof name);
    write(keys, sizeof keys);
    write(values, sizeof values);
    write(queries, sizeof queries);
    write_rows(k, 1);
    if (is_whole_) write_rows(v, 1);
    write_rows(q, every);
    if (std::fflush(file_.get()) != 0) throw refusal("cannot write " + path_ + ": " + std::strerror(errno));
}

} // namespace winnow::ggml
