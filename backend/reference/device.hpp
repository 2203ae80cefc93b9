// The reference's device: host memory and the calling thread. Work is complete when a launch returns.
#pragma once

#include "device/clock.hpp"
#include "reference/operations.hpp"

namespace winnow::reference {

winnow_device_info device_info();

class ReferenceDevice : public Device {
public:
    explicit ReferenceDevice(const DeviceRequest& request); // refuses what is not ours to give

    void info(winnow_device_info& out) const override;
    void stats(winnow_stats& out) const override { out.kernel_launches = launches_; }

    using Device::allocate;
    std::unique_ptr<Buffer> allocate(uint64_t size, uint8_t filling) override;
    std::unique_ptr<Buffer> import_host(void* data, uint64_t size) override;

    std::string validate(const Sdpa& args) const override { return supported(args); }
    std::string validate(const KvAppend& args) const override { return supported(args); }
    std::string validate(const KvRequantize& args) const override { return supported(args); }
    std::string validate(const KvDequantize& args) const override { return supported(args); }
    std::string validate(const Hadamard& args) const override { return supported(args); }
    std::unique_ptr<Event> launch(const Sdpa& args, bool want_event) override {
        return run_supported("sdpa", sdpa, args, want_event);
    }
    std::unique_ptr<Event> launch(const KvAppend& args, bool want_event) override {
        return run_supported("kv_append", kv_append, args, want_event);
    }
    std::unique_ptr<Event> launch(const KvRequantize& args, bool want_event) override {
        return run_supported("kv_requantize", kv_requantize, args, want_event);
    }
    std::unique_ptr<Event> launch(const KvDequantize& args, bool want_event) override {
        return run_supported("kv_dequantize", kv_dequantize, args, want_event);
    }
    std::unique_ptr<Event> launch(const Hadamard& args, bool want_event) override {
        return run_supported("hadamard", hadamard, args, want_event);
    }

    // Maximum, sum, and the sum of weights times values, in double.
    int64_t carried_floats(int64_t v_head_size) const override { return 2 * (v_head_size + 2); }
    void launch(const SlotAppend& args) override { run("slot_append", slot_append, args); }
    void launch(const SlotAccumulate& args) override { run("slot_accumulate", slot_accumulate, args); }
    void launch(const SlotScores& args) override { run("slot_scores", slot_scores, args); }
    void launch(const SlotEvict& args) override { run("slot_evict", slot_evict, args); }
    void launch(const SlotEdit& args) override { run("slot_edit", slot_edit, args); }
    void launch(const SlotCompact& args) override { run("slot_compact", slot_compact, args); }
    void launch(const SlotCopy& args) override { run("slot_copy", slot_copy, args); }
    void launch(const SlotZero& args) override { run("slot_zero", slot_zero, args); }
    void launch(const PageSign& args) override { run("page_sign", page_sign, args); }
    void launch(const PagePick& args) override { run("page_pick", page_pick, args); }

    std::unique_ptr<Event> mark() override;
    void flush() override {}
    void finish() override {}
    void wait() override {}

private:
    template <typename Args>
    static std::string supported(const Args& args) {
        require_supported(args);
        return "reference";
    }
    template <typename Args>
    std::unique_ptr<Event> run_supported(const char* name, void (*operation)(const Args&), const Args& args,
                                         bool want_event) {
        require_supported(args);
        run(name, operation, args);
        return want_event ? mark() : nullptr;
    }
    // Carries an operation out, counts it and tells of it.
    template <typename Args>
    void run(const char* name, void (*operation)(const Args&), const Args& args) {
        const uint64_t begin_ns = launched_ != nullptr ? monotonic_ns() : 0;
        operation(args);
        ++launches_;
        if (launched_ == nullptr) return;
        const winnow_launch launch{sizeof launch, 0, name, begin_ns, monotonic_ns(), 0};
        launched_(launched_user_data_, &launch);
    }

    winnow_launch_callback launched_;
    void* launched_user_data_;
    uint64_t launches_ = 0;
};

} // namespace winnow::reference
