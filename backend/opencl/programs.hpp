// Programs and kernels, specialised on demand: looked up in memory, else loaded from the disk cache, else compiled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "opencl/program_cache.hpp"
#include "opencl/worker_queues.hpp"

namespace winnow::opencl {

class Memory; // memory.hpp

// One cl_kernel for each worker queue (setting arguments is not thread safe), with the arguments that it was given
// last.
class Kernel {
public:
    struct Instance {
        cl::Kernel kernel;
        std::vector<std::byte> params;
        cl::Memory params_memory; // where they are passed in memory
        std::vector<const Memory*> memory;
        uint64_t memory_epoch = 0; // of WorkerQueues, when `memory` was set
        cl_uint group_base = 0;
        bool has_arguments = false;
        std::array<size_t, 3> warm_up_group_size{}; // warm_up.hpp; zeros: not yet
    };
    std::vector<Instance> instances; // one for each worker queue
    std::string name;
    std::string label; // for messages
    cl_uint argument_count = 0;
    bool is_launched = false; // by an operation, once at least
};

class Programs {
public:
    Programs(WorkerQueues& workers, const Log& log, bool optimizes);

    Kernel& kernel(std::string_view file, std::string_view name, std::string_view options);
    // Builds a source that is not among the embedded files; `file` names it here, its text on disk.
    Kernel& kernel_of_source(std::string_view file, std::string_view source, std::string_view name,
                             std::string_view options);

    // By what a program of this source and all these options is kept, and where; what is found out of it is, too.
    ProgramKey key_of(std::string_view source_hash, const std::string& options) const;
    const ProgramCache& cache() const { return cache_; }
    const std::string& options_of_all() const { return common_options_; }

    // Whether there are kernels that were made since the last call, so that the driver's compiler was at work.
    bool take_has_made_kernels() { return std::exchange(has_made_kernels_, false); }

    uint64_t built() const { return built_; }
    uint64_t loaded() const { return loaded_; }

private:
    struct Name {
        std::string_view file, name, options;
        bool operator==(const Name&) const = default;
    };
    struct OwnedName {
        std::string file, name, options;
        operator Name() const { return {file, name, options}; }
    };
    struct Hash {
        using is_transparent = void;
        size_t operator()(const Name& name) const;
    };
    struct Equal {
        using is_transparent = void;
        bool operator()(const Name& a, const Name& b) const { return a == b; }
    };
    using Program = std::vector<cl::Program>; // one for each worker queue

    Kernel& make_kernel(const Name& wanted, std::string_view source, std::string_view source_hash);
    const Program& program(const Name& name, std::string_view source, std::string_view source_hash);
    Program make_program(std::string_view file, std::string_view source, std::string_view source_hash,
                         const std::string& options);
    void make_lean(cl::Program& program, std::vector<std::byte>& binary, const std::string& options);
    cl::Program build(const WorkerQueue& worker, std::string_view file, std::string_view source,
                      const std::string& options);
    // Empty where the driver does not take the binary; then `refusal` says what it answered.
    cl::Program load(const WorkerQueue& worker, const std::vector<std::byte>& binary, const std::string& options,
                     std::string& refusal);

    WorkerQueues& workers_;
    const Log& log_;
    ProgramCache cache_;
    std::string common_options_;
    bool declares_builtins_;       // those that kernels call, which saves reading all of the compiler's
    std::string builtins_refusal_; // why not any more, until it is logged
    bool store_failure_is_known_ = false;
    bool has_made_kernels_ = false;
    uint64_t built_ = 0;
    uint64_t loaded_ = 0;
    std::unordered_map<OwnedName, Program, Hash, Equal> programs_; // the name field is empty
    std::unordered_map<OwnedName, std::unique_ptr<Kernel>, Hash, Equal> kernels_;
};

} // namespace winnow::opencl
