// Sequences of calls on contexts, buffers, events and caches: budgets hold, sums are exact, positions ascend, and a
// call that fails leaves everything as it was.
//
//     a cache's configuration and shape (6 bytes), then calls: a byte each, and their arguments
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "backend.hpp"
#include "cache_under_test.hpp"
#include "input.hpp"

using namespace winnow::fuzz;

namespace {

class Run {
public:
    explicit Run(Input& input) : input_(input), context_(new_context()) {
        caches_.push_back(std::make_unique<CacheUnderTest>(context_, draw_setup(input)));
    }
    ~Run() {
        caches_.clear();
        for (winnow_event* event : events_) require(api().event_destroy(event) == WINNOW_OK, "event_destroy");
        for (winnow_buffer* buffer : buffers_) require(api().buffer_destroy(buffer) == WINNOW_OK, "buffer_destroy");
        require(api().context_destroy(context_) == WINNOW_OK, "context_destroy");
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    void go() {
        for (int calls = 0; calls < 48 && !input_.is_empty(); ++calls) {
            call();
            for (const auto& cache : caches_) cache->check();
        }
    }

private:
    CacheUnderTest& some() { return *caches_[input_.byte() % caches_.size()]; }

    void call() {
        const uint8_t kind = input_.byte();
        switch (kind % 16) {
        case 0:
        case 1: some().step(input_, input_.within(1, 4), events()); return;
        case 2:
            if (kind >= 128)
                some().set_importance(input_);
            else
                some().step(input_, input_.within(1, 4), events());
            return;
        case 3: some().step(input_, input_.within(1, 90), events()); return;
        case 4: some().truncate(input_); return;
        case 5: some().remove(input_); return;
        case 6: some().shift(input_); return;
        case 7: some().copy(input_); return;
        case 8: some().anchor(input_); return;
        case 9: some().reserve(input_); return;
        case 10: some().set_config(input_); return;
        case 11: save_and_load(); return;
        case 12: some().rows(input_); return;
        case 13: some().reset_or_press(input_); return;
        case 14: another_cache(); return;
        default: objects(); return;
        }
    }

    winnow_event** events() {
        if (!input_.chance(32) || events_.size() > 8) return nullptr;
        return &events_.emplace_back(nullptr);
    }

    void another_cache() {
        if (caches_.size() > 1 && input_.chance(128)) {
            caches_.erase(caches_.begin() + static_cast<std::ptrdiff_t>(input_.byte() % caches_.size()));
            return;
        }
        if (caches_.size() < 3) caches_.push_back(std::make_unique<CacheUnderTest>(context_, draw_setup(input_)));
    }

    // Into itself or another: of another configuration it is refused.
    void save_and_load() {
        CacheUnderTest& from = some();
        const std::string saved = from.save();
        some().load(saved, from);
    }

    void objects() {
        std::erase(events_, nullptr); // of calls that failed
        switch (input_.byte() % 4) {
        case 0: {
            winnow_buffer_desc desc{};
            desc.struct_size = sizeof desc;
            desc.kind = WINNOW_BUFFER_ALLOCATE;
            desc.size = static_cast<uint64_t>(input_.within(0, 64));
            winnow_buffer* made = nullptr;
            const int32_t status = api().buffer_create(context_, &desc, &made);
            require((status == WINNOW_OK) == (desc.size > 0), "a buffer has bytes");
            if (made != nullptr) buffers_.push_back(made);
            return;
        }
        case 1:
            if (buffers_.empty()) return;
            require(api().buffer_destroy(buffers_.back()) == WINNOW_OK, "buffer_destroy");
            buffers_.pop_back();
            return;
        case 2: {
            if (events_.empty()) return;
            require(api().event_wait(events_.back()) == WINNOW_OK, "event_wait");
            require(api().event_destroy(events_.back()) == WINNOW_OK, "event_destroy");
            events_.pop_back();
            return;
        }
        default:
            require(api().flush(context_) == WINNOW_OK, "flush");
            require(api().finish(context_) == WINNOW_OK, "finish");
        }
    }

    Input& input_;
    winnow_context* context_;
    std::vector<std::unique_ptr<CacheUnderTest>> caches_;
    std::vector<winnow_event*> events_;
    std::vector<winnow_buffer*> buffers_;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Input input(data, size);
    Run(input).go();
    return 0;
}
