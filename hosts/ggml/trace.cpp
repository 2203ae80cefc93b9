// Writes a trace, event by event, as a JSON array in the Trace Event Format.
#include "trace.hpp"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "environment.hpp"

namespace winnow::ggml {
namespace {

constexpr char end_of_array[] = "\n]\n";

uint64_t now_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch(); // the clock of winnow_launch
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

double microseconds(uint64_t ns) { return static_cast<double>(ns) / 1000; }

} // namespace

// May be used from any thread. Its text is a whole array whenever a track has ended.
class TraceFile {
public:
    explicit TraceFile(const std::string& path) : file_(std::fopen(path.c_str(), "w")) {
        if (file_ == nullptr)
            throw std::runtime_error("WINNOW_TRACE: cannot write " + path + ": " + std::strerror(errno));
    }

    int add_track(const std::string& name) {
        const std::lock_guard lock(mutex_);
        const int number = ++tracks_;
        put({{"ph", "M"}, {"name", "thread_name"}, {"args", {{"name", name}}}}, number);
        return number;
    }
    void add(nlohmann::json event, int track) {
        const std::lock_guard lock(mutex_);
        put(std::move(event), track);
    }
    bool write() {
        const std::lock_guard lock(mutex_);
        if (!std::exchange(is_whole_, true)) std::fputs(end_of_array, file_);
        return std::fflush(file_) == 0 && std::ferror(file_) == 0;
    }

private:
    void put(nlohmann::json event, int track) {
        if (std::exchange(is_whole_, false)) std::fseek(file_, 1 - static_cast<long>(sizeof end_of_array), SEEK_END);
        event["pid"] = getpid();
        event["tid"] = track;
        const std::string text = event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
        std::fputs(std::exchange(has_events_, true) ? ",\n" : "[\n", file_);
        std::fputs(text.c_str(), file_);
    }

    std::mutex mutex_;
    std::FILE* file_; // for the life of the process
    int tracks_ = 0;
    bool is_whole_ = false, has_events_ = false;
};

std::unique_ptr<Track> Track::begin(const std::string& name) {
    static TraceFile* const file = [] {
        const std::string path = path_in("WINNOW_TRACE");
        return path.empty() ? nullptr : new TraceFile(path); // contexts may end while the process does
    }();
    return file == nullptr ? nullptr : std::make_unique<Track>(*file, name);
}

Track::Track(TraceFile& file, const std::string& name) : file_(file), number_(file.add_track(name)) {}

Track::~Track() { end(); }

void Track::add(const char* name, uint64_t begin_ns, uint64_t end_ns, uint64_t bytes) {
    nlohmann::json event{
        {"ph", "X"}, {"name", name}, {"ts", microseconds(begin_ns)}, {"dur", microseconds(end_ns - begin_ns)}};
    if (bytes > 0) event["args"] = {{"bytes", bytes}};
    file_.add(std::move(event), number_);
}

void WINNOW_CALL Track::add_launch(void* track, const winnow_launch* launch) {
    static_cast<Track*>(track)->add(launch->kernel, launch->begin_ns, launch->end_ns, launch->bytes);
}

bool Track::end() { return file_.write(); }

TraceSpan::TraceSpan(Track* track) : track_(track) {
    if (track_ != nullptr) begin_ns_ = now_ns();
}

TraceSpan::~TraceSpan() {
    if (track_ != nullptr) track_->add(name_.c_str(), begin_ns_, now_ns());
}

void TraceSpan::set_name(const char* name) {
    if (track_ != nullptr) name_ = name;
}

} // namespace winnow::ggml
