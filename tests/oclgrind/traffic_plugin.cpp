// A plugin of Oclgrind that counts which bytes of global memory kernels read, and prints a line for each launch:
//
//     read ASKED DISTINCT
//
// ASKED is all bytes of all loads of all work-items. DISTINCT counts a byte that work-items of a group load more than
// once between the same two barriers once: these loads are near each other in time, and what a GPU's nearest cache, or
// one load of lanes side by side, is there for. What a group loads again after a barrier, or another group, counts
// again.
#include <Context.h>
#include <Memory.h>
#include <Plugin.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

class Traffic final : public oclgrind::Plugin {
public:
    using Plugin::Plugin;

    void kernelBegin(const oclgrind::KernelInvocation*) override { asked_ = distinct_ = 0; }

    void memoryLoad(const oclgrind::Memory* memory, const oclgrind::WorkItem*, size_t address, size_t size) override {
        if (memory->getAddressSpace() != oclgrind::AddrSpaceGlobal) return;
        asked_ += size;
        if (!loads_.empty() && loads_.back().begin == address && loads_.back().end == address + size) return;
        loads_.push_back({address, address + size});
    }

    void workGroupBarrier(const oclgrind::WorkGroup*, uint32_t) override { add_distinct(); }
    void workGroupComplete(const oclgrind::WorkGroup*) override { add_distinct(); }

    void kernelEnd(const oclgrind::KernelInvocation*) override {
        printf("read %zu %zu\n", asked_, distinct_);
        fflush(stdout);
    }

    bool isThreadSafe() const override { return false; }

private:
    struct Range {
        size_t begin, end;
    };

    // The bytes of the union of all loads since the last barrier.
    void add_distinct() {
        std::sort(loads_.begin(), loads_.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
        size_t end = 0;
        for (const Range& load : loads_) {
            if (load.end > end) distinct_ += load.end - std::max(load.begin, end);
            end = std::max(end, load.end);
        }
        loads_.clear();
    }

    size_t asked_ = 0, distinct_ = 0;
    std::vector<Range> loads_;
};

Traffic* traffic;

} // namespace

// The names by which Oclgrind looks for a plugin.
extern "C" void initializePlugins(oclgrind::Context* context) {
    traffic = new Traffic(context);
    context->registerPlugin(traffic);
}

extern "C" void releasePlugins(oclgrind::Context* context) {
    context->unregisterPlugin(traffic);
    delete traffic;
}
