// The judge of sweep.cpp on scripts that do one thing wrong each: it has to convict them, and to acquit the same script
// without the mistake.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "sweep.hpp"

namespace winnow::faults {
namespace {

enum class Mistake { none, swallows, is_silent, blames_the_host, changes, leaks };

class SmallScript : public Script {
public:
    explicit SmallScript(Mistake mistake) : Script(WINNOW_OPENCL_BACKEND), mistake_(mistake) {
        add_create();
        if (mistake == Mistake::leaks) // over the first, which nobody can destroy any more
            add({.name = "another context", .run = [this] { return session_.create(); }});
        add({.name = "buffer_create",
             .run = [this] { return make(); },
             .result = [this] { return std::string(buffer_ != nullptr ? "a buffer" : "nothing"); },
             .observe = [this] { return std::to_string(failures_); },
             .recover =
                 [this] {
                     if (buffer_ != nullptr) api().buffer_destroy(std::exchange(buffer_, nullptr));
                 }});
        add_destroy();
    }

private:
    int32_t make() {
        winnow_buffer_desc desc{};
        desc.struct_size = sizeof desc;
        desc.kind = WINNOW_BUFFER_ALLOCATE;
        desc.size = 4096;
        const int32_t status = api().buffer_create(context(), &desc, &buffer_);
        if (status == WINNOW_OK) return status;
        if (mistake_ == Mistake::changes) ++failures_;
        if (mistake_ == Mistake::is_silent) { // another text takes the place of the failure's
            desc.size = 0;
            api().buffer_create(context(), &desc, &buffer_);
        }
        if (mistake_ == Mistake::blames_the_host) return WINNOW_ERROR_INVALID_ARGUMENT;
        return mistake_ == Mistake::swallows ? static_cast<int32_t>(WINNOW_OK) : status;
    }

    Mistake mistake_;
    winnow_buffer* buffer_ = nullptr;
    int failures_ = 0;
};

std::string faults_of(Mistake mistake) {
    std::string all;
    SmallScript script(mistake);
    const auto transcript =
        mistake == Mistake::leaks ? run_undisturbed(script) : run_failing_everything(script, OPENCL_FAULT_ONCE, false);
    for (const std::string& fault : transcript.faults) all += fault + "\n";
    return all;
}

TEST(judge, convicts_what_is_wrong) {
    ASSERT_NE(opencl_layer(), nullptr) << "OPENCL_LAYERS does not name the layer of these tests";
    watch(60);
    EXPECT_EQ(faults_of(Mistake::none), "");
    for (const auto& [mistake, said] :
         {std::pair(Mistake::swallows, "coped with a failure and gave something else"),
          {Mistake::is_silent, "a message that does not name the call"},
          {Mistake::blames_the_host, "buffer_create returned WINNOW_ERROR_INVALID_ARGUMENT"},
          {Mistake::changes, "changed something and returned"},
          {Mistake::leaks, "OpenCL objects are still alive"}})
        EXPECT_NE(faults_of(mistake).find(said), std::string::npos) << said << ", found: " << faults_of(mistake);
}

} // namespace
} // namespace winnow::faults
