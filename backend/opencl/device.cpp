// The OpenCL backend as the interface of device/device.hpp: a runtime and one launcher for each operation.
#include "device/device.hpp"

#include <cstdio>
#include <utility>

#include "device/slots.hpp"
#include "opencl/fork.hpp"
#include "opencl/launch.hpp"
#include "opencl/launchers.hpp"
#include "opencl/platform.hpp"
#include "opencl/runtime_state.hpp"
#include "opencl/sdpa.hpp"
#include "opencl/self_test.hpp"
#include "opencl/slot_accumulate.hpp"
#include "opencl/variants.hpp"

namespace winnow {
namespace opencl {
namespace {

class OpenClDevice final : public Device {
    template <typename... Args>
    auto launch_tested(std::string_view operation, Args&&... args) {
        self_test_.test_before(operation);
        return opencl::launch(runtime_, args...);
    }

public:
    // make_for_test: a device on which the self-test runs its cases; null: this one is such a device.
    OpenClDevice(const DeviceRequest& request, SelfTest::MakeDevice make_for_test)
        : options_(parse_variants(request.variants)), runtime_(request, options_),
          self_test_(runtime_.state(), options_, std::move(make_for_test)), sdpa_(runtime_, options_),
          slot_accumulate_(runtime_) {
        self_test_.test_attention();
    }
    void go_by(const Capabilities& capabilities) { runtime_.state().capabilities = capabilities; }

    void info(winnow_device_info& out) const override {
        runtime_.info(out);
        const std::string_view shape = kernel_shape(runtime_.capabilities());
        std::snprintf(out.kernel_shape, sizeof out.kernel_shape, "%.*s", static_cast<int>(shape.size()), shape.data());
    }
    void stats(winnow_stats& out) const override { runtime_.stats(out); }

    std::unique_ptr<Buffer> allocate(uint64_t size, uint8_t filling) override {
        return runtime_.allocate(size, filling);
    }
    std::unique_ptr<Buffer> allocate_beside(uint64_t size) override {
        return runtime_.allocate(size, 0, CL_MEM_ALLOC_HOST_PTR);
    }
    std::unique_ptr<Buffer> import_host(void* data, uint64_t size) override { return runtime_.import_host(data, size); }
    std::unique_ptr<Buffer> import_cl_mem(void* cl_mem, uint64_t offset, uint64_t size) override {
        return runtime_.import_cl_mem(cl_mem, offset, size);
    }
    std::array<uint8_t, 16> cl_device_uuid() const override {
        return device_uuid(runtime_.state().workers.front().device);
    }

    std::string validate(const Sdpa& args) const override { return sdpa_.validate(args); }
    void check(const Sdpa& args) const override { sdpa_.check(args); }
    std::string validate(const KvAppend& args) const override { return opencl::validate(runtime_, args); }
    std::unique_ptr<Event> launch(const Sdpa& args, bool want_event) override {
        const Segment& first = args.segments.front();
        if (first.tokens)
            self_test_.test_slot_attention();
        else if (is_packed(first.k.type) || is_packed(first.v.type))
            self_test_.test_packed_attention();
        return sdpa_.launch(args, want_event);
    }
    std::unique_ptr<Event> launch(const KvAppend& args, bool want_event) override {
        return launch_tested("kv_append", args, want_event);
    }
    std::string validate(const KvRequantize& args) const override { return opencl::validate(runtime_, args); }
    std::string validate(const KvDequantize& args) const override { return opencl::validate(runtime_, args); }
    std::string validate(const Hadamard& args) const override { return opencl::validate(runtime_, args); }
    std::unique_ptr<Event> launch(const KvRequantize& args, bool want_event) override {
        return launch_tested("kv_requantize", args, want_event);
    }
    std::unique_ptr<Event> launch(const KvDequantize& args, bool want_event) override {
        return launch_tested("kv_dequantize", args, want_event);
    }
    std::unique_ptr<Event> launch(const Hadamard& args, bool want_event) override {
        return launch_tested("hadamard", args, want_event);
    }

    int64_t carried_floats(int64_t v_head_size) const override { return carried_floats_of(v_head_size); }
    void launch(const SlotAppend& args) override { launch_tested("slot_append", slot_append_, args); }
    void launch(const SlotAccumulate& args) override {
        self_test_.test_before("slot_accumulate");
        slot_accumulate_.launch(args);
    }
    void launch(const SlotScores& args) override { launch_tested("slot_scores", args); }
    void launch(const SlotEvict& args) override { launch_tested("slot_evict", slot_evict_, args); }
    void launch(const SlotEdit& args) override { launch_tested("slot_edit", args); }
    void launch(const SlotCompact& args) override { launch_tested("slot_compact", args); }
    void launch(const SlotCopy& args) override { launch_tested("slot_copy", args); }
    void launch(const SlotZero& args) override { launch_tested("slot_zero", args); }
    void launch(const PageSign& args) override { launch_tested("page_sign", args); }
    void launch(const PagePick& args) override { launch_tested("page_pick", args); }
    void attend(const SlotAttend& args) override {
        self_test_.test_slot_attention();
        if (args.append) self_test_.test_before("slot_append");
        if (!sdpa_.attend(args, slot_append_)) Device::attend(args);
    }
    void attend(std::span<const SlotAttend> all) override {
        if (all.size() == 1) return attend(all.front());
        self_test_.test_slot_attention();
        self_test_.test_before("slot_append");
        sdpa_.attend(all, slot_append_, [&](const SlotAttend& each) { attend(each); });
    }

    const char* why_waits(bool in_host_memory, bool marks_event) const override {
        return runtime_.state().why_waits(in_host_memory, marks_event);
    }
    std::unique_ptr<Event> mark() override { return Operation(runtime_).complete(true); }
    uint32_t host_threads() const override { return opencl::host_threads(runtime_.state()); }
    void run_on_host(uint32_t count, const std::function<void(uint32_t)>& task) override {
        if (host_threads() == 1)
            Device::run_on_host(count, task);
        else
            opencl::run_on_host(runtime_.state(), count, task);
    }
    void flush() override { runtime_.flush(); }
    void finish() override { runtime_.finish(); }
    void wait() override { runtime_.state().wait(); }
    void wait_cl_event(void* cl_event) override { runtime_.wait_cl_event(cl_event); }
    // An append that is deferred has none: it is over host memory that the device uses in place
    // (DeferredAppend::defer).
    uint64_t next_result() const override { return runtime_.state().transfers.next_fetch(); }
    void drop_results_from(uint64_t result) override { runtime_.state().transfers.drop_from(result); }
    bool is_of_parent() const override { return is_forked(); }

private:
    const VariantOptions options_; // read first: a mistake in it costs no context
    Runtime runtime_;
    SelfTest self_test_;
    SdpaLauncher sdpa_;
    SlotAccumulateLauncher slot_accumulate_;
    SegmentKernel slot_append_{"slot_append"}, slot_evict_{"slot_evict"};
};

// The device of a context once more, with the same variants forced.
std::unique_ptr<Device> make_for_test(const RuntimeState& state, const std::string& variants) {
    const WorkerQueue worker = make_worker_queue(state.workers.front().device);
    DeviceRequest request;
    request.cl_context = worker.context();
    request.cl_device_id = worker.device;
    request.cl_command_queue = worker.queue();
    request.variants = variants;
    request.log = [](int32_t, const std::string&) {};
    auto device = std::make_unique<OpenClDevice>(request, nullptr);
    device->go_by(state.capabilities);
    return device;
}

} // namespace
} // namespace opencl

namespace backend {

const char* const name = "opencl";
const bool is_opencl = true;

std::vector<winnow_device_info> enumerate() {
    opencl::begin_use();
    std::vector<winnow_device_info> infos;
    for (const opencl::DeviceEntry& entry : opencl::list_devices()) {
        infos.push_back(entry.info);
        // Without a context nothing is probed; the shape follows from what the device says.
        const std::string_view shape =
            opencl::kernel_shape(opencl::told_capabilities(entry, opencl::known_quirks_of(entry.info)));
        std::snprintf(infos.back().kernel_shape, sizeof infos.back().kernel_shape, "%.*s",
                      static_cast<int>(shape.size()), shape.data());
    }
    return infos;
}

std::unique_ptr<Device> create(const DeviceRequest& request) {
    opencl::begin_use();
    return std::make_unique<opencl::OpenClDevice>(request,
                                                  [variants = request.variants](const opencl::RuntimeState& state) {
                                                      return opencl::make_for_test(state, variants);
                                                  });
}

} // namespace backend
} // namespace winnow
