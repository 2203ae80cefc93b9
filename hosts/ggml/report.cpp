// Counting calls and writing the file.
#include "report.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <stdexcept>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "cache_name.hpp"
#include "environment.hpp"
#include "ggml_api.hpp"
#include "number_variables.hpp"
#include "report_json.hpp"
#include "run_log.hpp"

namespace winnow::ggml {

namespace {

// The tensor that owns the memory a view lies in; seen through a conversion of the whole (llama.cpp attends over f16
// copies of f32 caches).
const ggml_tensor* root(const ggml_tensor* tensor) {
    for (;;) {
        if (tensor->op == GGML_OP_CPY && tensor->src[0]) {
            tensor = tensor->src[0];
        } else if (tensor->view_src) {
            tensor = tensor->view_src;
        } else {
            return tensor;
        }
    }
}

// Takes the file.
bool write_text(std::FILE* file, const std::string& text) {
    const bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    return file && std::fclose(file) == 0 && written;
}

// Where it is what the process's output or its log goes to, as /dev/stdout is, another handle of that: it has the same
// place in a file.
std::FILE* open_output(const struct stat& status) {
    for (const int number : {STDOUT_FILENO, STDERR_FILENO}) {
        struct stat own {};
        if (fstat(number, &own) == 0 && own.st_dev == status.st_dev && own.st_ino == status.st_ino)
            return fdopen(dup(number), "w");
    }
    return nullptr;
}

// Of a file readers see the old one or the new one. Links to it stay.
bool replace_file(const char* given, const std::string& text) {
    const std::unique_ptr<char, decltype(&std::free)> found(realpath(given, nullptr), std::free);
    const std::string path = found ? found.get() : given;
    const std::string temporary = path + '.' + std::to_string(getpid()) + ".tmp";
    if (write_text(std::fopen(temporary.c_str(), "w"), text) && std::rename(temporary.c_str(), path.c_str()) == 0)
        return true;
    const int reason = errno;
    std::remove(temporary.c_str());
    errno = reason;
    return false;
}

// To who reads it just now; where nobody does, the host goes on.
bool write_pipe(const char* path, const std::string& text) {
    const int end = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (end < 0) return false;
    fcntl(end, F_SETFL, 0);
    sigset_t broken, before;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    const bool is_written = write_text(fdopen(end, "w"), text);
    const timespec at_once{};
    if (!is_written) sigtimedwait(&broken, nullptr, &at_once); // of a reader that left meanwhile
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return is_written;
}

bool write_to(const char* path, const std::string& text) {
    struct stat status {};
    if (stat(path, &status) == 0) {
        if (std::FILE* output = open_output(status)) return write_text(output, text);
        if (S_ISFIFO(status.st_mode)) return write_pipe(path, text);
        if (S_ISREG(status.st_mode)) return replace_file(path, text);
    } else if (lstat(path, &status) != 0) {
        return replace_file(path, text);
    }
    return write_text(std::fopen(path, "w"), text); // no device and no link to what is not there is replaced
}

void write_file(const char* path, const std::string& text) {
    if (!write_to(path, text))
        log_line(GGML_LOG_LEVEL_ERROR, "WINNOW_REPORT: cannot write %s: %s", path, std::strerror(errno));
}

} // namespace

LayerCounts& Counters::layer(const ggml_tensor* view) {
    const ggml_tensor* tensor = root(view);
    const auto found = layers_.find(std::string_view(tensor->name));
    if (found != layers_.end()) return found->second;
    LayerCounts& made = layers_[tensor->name];
    made.type = ggml().type_name(tensor->type);
    return made;
}

void Counters::count_attention(const ggml_tensor* node) {
    if (attention_calls_++ == 0) note_run("computed", "");
    ++layer(node->src[1]).attention_calls;
}

void Counters::count_attention_in_place(const ggml_tensor* node) {
    count_attention(node);
    if (CacheName(root(node->src[1])->name).letter) ++in_place_calls_;
}

void Counters::count_append(const ggml_tensor* first, const ggml_tensor* second) {
    ++append_calls_;
    ++layer(first).append_calls;
    if (second) ++layer(second).append_calls;
}

void Counters::add(const Counters& other) {
    graphs_ += other.graphs_;
    attention_calls_ += other.attention_calls_;
    append_calls_ += other.append_calls_;
    for (const auto& [name, counts] : other.layers_) {
        LayerCounts& mine = layers_[name];
        mine.type = counts.type;
        mine.attention_calls += counts.attention_calls;
        mine.append_calls += counts.append_calls;
    }
}

void Totals::add(const Counters& other, const ContextFigures& context) {
    counters.add(other);
    const winnow_stats& more = context.stats;
    stats.sdpa_calls += more.sdpa_calls;
    stats.kv_append_calls += more.kv_append_calls;
    stats.tokens_appended += more.tokens_appended;
    stats.kernel_launches += more.kernel_launches;
    stats.programs_built += more.programs_built;
    stats.programs_loaded += more.programs_loaded;
    stats.host_copies += more.host_copies;
    if (more.kernel_launches == 0) return;
    auto device = std::find_if(devices.begin(), devices.end(),
                               [&](const DeviceCounts& each) { return each.name == context.device; });
    if (device == devices.end()) device = devices.insert(device, {context.device});
    device->kernel_launches += more.kernel_launches;
    device->host_copies += more.host_copies;
    device->waits += context.waits;
}

Report::Report(const winnow_api& api, const winnow_device_info& device)
    : api_(api), device_(device), every_(report_interval()) {}

void Report::write() const {
    if (const std::string path = path_in("WINNOW_REPORT"); !path.empty()) write_file(path.c_str(), json_locked());
}

void Report::tell() const {
    write();
    if (has_run_log()) note_run("report", json_locked());
}

void Report::add(const Counters& counters, const ContextFigures& context) {
    const std::lock_guard lock(mutex_);
    ended_.add(counters, context);
    tell();
}

void Report::add(const CacheFigures& figures) {
    const std::lock_guard lock(mutex_);
    caches_.push_back(figures);
    tell();
}

void Report::add(const ContextFigures& context) {
    const std::lock_guard lock(mutex_);
    ended_.add({}, context);
    tell();
}

int64_t Report::next_owner() {
    const std::lock_guard lock(mutex_);
    return owners_++;
}

bool Report::is_due(int64_t owner) {
    if (every_.count() == 0 || variable("WINNOW_REPORT").empty()) return false;
    const std::lock_guard lock(mutex_);
    const auto found = living_.find(owner);
    return found == living_.end() || std::chrono::steady_clock::now() - found->second.seen >= every_;
}

void Report::set_living(int64_t owner, LivingFigures figures) {
    const std::lock_guard lock(mutex_);
    living_[owner] = {std::move(figures), std::chrono::steady_clock::now()};
}

void Report::write_living() {
    const std::lock_guard lock(mutex_);
    write();
}

void Report::end_living(int64_t owner) {
    const std::lock_guard lock(mutex_);
    living_.erase(owner);
}

void Report::add(const InPlaceCache& cache) {
    const std::lock_guard lock(mutex_);
    in_place_.push_back(cache);
    tell();
}

void Report::reset() {
    const std::lock_guard lock(mutex_);
    ended_ = {};
    caches_.clear();
    in_place_.clear();
}

std::string Report::json() {
    const std::lock_guard lock(mutex_);
    return json_locked();
}

std::string Report::json_locked() const {
    Totals totals = ended_;
    std::vector<CacheFigures> living;
    for (const auto& [owner, its] : living_) {
        totals.add(its.figures.counters, its.figures.context);
        living.insert(living.end(), its.figures.caches.begin(), its.figures.caches.end());
    }
    return to_json({ggml().version(), api_, device_, totals, caches_, living, in_place_});
}

} // namespace winnow::ggml
