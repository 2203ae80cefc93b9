// The reference's device: host memory and the calling thread. Work is complete when a launch returns.
#pragma once

#include "device/device.hpp"

namespace winnow::reference {

winnow_device_info device_info();

class ReferenceDevice : public Device {
public:
    explicit ReferenceDevice(const DeviceRequest& request); // refuses what is not ours to give

    void info(winnow_device_info& out) const override;
    void stats(winnow_stats& out) const override;

    using Device::allocate;
    std::unique_ptr<Buffer> allocate(uint64_t size, uint8_t filling) override;
    std::unique_ptr<Buffer> import_host(void* data, uint64_t size) override;

    std::string validate(const Sdpa& args) const override;
    std::string validate(const KvAppend& args) const override;
    std::string validate(const KvRequantize& args) const override;
    std::string validate(const KvDequantize& args) const override;
    std::string validate(const Hadamard& args) const override;
    std::unique_ptr<Event> launch(const Sdpa& args, bool want_event) override;
    std::unique_ptr<Event> launch(const KvAppend& args, bool want_event) override;
    std::unique_ptr<Event> launch(const KvRequantize& args, bool want_event) override;
    std::unique_ptr<Event> launch(const KvDequantize& args, bool want_event) override;
    std::unique_ptr<Event> launch(const Hadamard& args, bool want_event) override;

    int64_t carried_floats(int64_t v_head_size) const override;
    void launch(const SlotAppend& args) override;
    void launch(const SlotAccumulate& args) override;
    void launch(const SlotScores& args) override;
    void launch(const SlotEvict& args) override;
    void launch(const SlotEdit& args) override;
    void launch(const SlotCompact& args) override;
    void launch(const SlotCopy& args) override;
    void launch(const SlotZero& args) override;
    void launch(const PageSign& args) override;
    void launch(const PagePick& args) override;

    std::unique_ptr<Event> mark() override;
    void flush() override {}
    void finish() override {}
    void wait() override {}

private:
    std::unique_ptr<Event> completed(bool want_event);
    // Carries an operation out, counts it and tells of it.
    template <typename Args>
    void run(const char* name, void (*operation)(const Args&), const Args& args);

    winnow_launch_callback launched_;
    void* launched_user_data_;
    uint64_t launches_ = 0;
};

} // namespace winnow::reference
