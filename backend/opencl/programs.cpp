// Compiling, loading and keeping of programs.
#include "opencl/programs.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include <xxhash.h>

#include "opencl/kernel_sources.hpp"
#include "opencl/pocl_binary.hpp"

namespace winnow::opencl {
namespace {

// What every program is compiled with. Without -w, PoCL's compiler counts its warnings on the host's stderr.
std::string common_options(const WorkerQueues& workers, bool optimizes) {
    const cl_device_id device = workers.front().device;
    const int version = device_version(device);
    const std::string language = version >= 300 ? "-cl-std=CL3.0" : version >= 200 ? "-cl-std=CL2.0" : "-cl-std=CL1.2";
    // What is stored in others' formats is theirs to the bit, divisions included, which are not exact by default.
    const auto config = device_value<cl_device_fp_config>(device, CL_DEVICE_SINGLE_FP_CONFIG);
    const bool rounds = (config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
    return "-w " + language + (rounds ? " -cl-fp32-correctly-rounded-divide-sqrt" : "") +
           (optimizes ? "" : " -cl-opt-disable") + (workers.has_params_in_memory ? " -DPARAMS_IN_MEMORY" : "");
}

// kernels/own_builtins.h instead of the header that this guard is of. What a program does is the same, so that its key
// does not have them.
constexpr const char* own_builtins = " -D_OPENCL_H_ -DOWN_BUILTINS";
constexpr std::string_view own_builtins_mark = "ifdef OWN_BUILTINS";

std::string build_log(const cl::Program& program, cl_device_id device) {
    size_t size = 0;
    if (clGetProgramBuildInfo(program(), device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size) != CL_SUCCESS) return {};
    std::string text(size, '\0');
    if (clGetProgramBuildInfo(program(), device, CL_PROGRAM_BUILD_LOG, size, text.data(), nullptr) != CL_SUCCESS)
        return {};
    constexpr size_t limit = 4000; // the first errors say it
    text.resize(std::min(text.find('\0'), std::min(size, limit)));
    return text;
}

// The binary for `device`, empty if the driver gives none; then `failure` says why, if it knows.
std::vector<std::byte> binary_of(const cl::Program& program, cl_device_id device, std::string& failure) {
    const auto ask = [&](cl_program_info what, size_t size, void* value) {
        const cl_int code = clGetProgramInfo(program(), what, size, value, nullptr);
        if (code != CL_SUCCESS) failure = std::string("clGetProgramInfo failed with ") + cl_error_name(code);
        return code == CL_SUCCESS;
    };
    cl_uint count = 0;
    if (!ask(CL_PROGRAM_NUM_DEVICES, sizeof count, &count)) return {};
    std::vector<cl_device_id> devices(count);
    std::vector<size_t> sizes(count);
    if (!ask(CL_PROGRAM_DEVICES, count * sizeof(cl_device_id), devices.data()) ||
        !ask(CL_PROGRAM_BINARY_SIZES, count * sizeof(size_t), sizes.data()))
        return {};
    std::vector<std::vector<std::byte>> binaries(count);
    std::vector<std::byte*> pointers(count);
    for (cl_uint i = 0; i < count; ++i) {
        binaries[i].resize(sizes[i]);
        pointers[i] = sizes[i] == 0 ? nullptr : binaries[i].data();
    }
    if (!ask(CL_PROGRAM_BINARIES, count * sizeof(std::byte*), pointers.data())) return {};
    for (cl_uint i = 0; i < count; ++i)
        if (devices[i] == device) return std::move(binaries[i]);
    return {};
}

// code: of clBuildProgram.
cl::Program compile(const WorkerQueue& worker, std::string_view source, const std::string& options, cl_int& code) {
    const char* text = source.data();
    const size_t size = source.size();
    cl::Program program(clCreateProgramWithSource(worker.context(), 1, &text, &size, &code));
    check(code, "clCreateProgramWithSource");
    const cl_device_id device = worker.device;
    code = clBuildProgram(program(), 1, &device, options.c_str(), nullptr, nullptr);
    return program;
}

// One mutex serves the whole process, so that no two contexts build the same program at a time: the second one finds it
// in the disk cache. That saves the time, and keeps PoCL from finishing a kernel a second time while it runs elsewhere
// (warm_up.hpp).
std::mutex& build_mutex() {
    static std::mutex instance;
    return instance;
}

const KernelSource& embedded(std::string_view file) {
    for (const KernelSource& source : kernel_sources())
        if (source.name == file) return source;
    throw Error(WINNOW_ERROR_INTERNAL, "no kernel file \"" + std::string(file) + "\" is embedded");
}

} // namespace

size_t Programs::Hash::operator()(const Name& name) const {
    const uint64_t file = XXH3_64bits(name.file.data(), name.file.size());
    const uint64_t function = XXH3_64bits_withSeed(name.name.data(), name.name.size(), file);
    return XXH3_64bits_withSeed(name.options.data(), name.options.size(), function);
}

Programs::Programs(WorkerQueues& workers, const Log& log, bool optimizes)
    : workers_(workers), log_(log), cache_(ProgramCache::default_directory()),
      common_options_(common_options(workers, optimizes)), declares_builtins_(workers.quirks.has(Quirk::own_builtins)) {
}

Kernel& Programs::kernel(std::string_view file, std::string_view name, std::string_view options) {
    if (const auto found = kernels_.find(Name{file, name, options}); found != kernels_.end()) return *found->second;
    const KernelSource& source = embedded(file);
    return make_kernel({file, name, options}, source.source, source.hash);
}

Kernel& Programs::kernel_of_source(std::string_view file, std::string_view source, std::string_view name,
                                   std::string_view options) {
    if (const auto found = kernels_.find(Name{file, name, options}); found != kernels_.end()) return *found->second;
    const XXH128_hash_t hash = XXH3_128bits(source.data(), source.size());
    return make_kernel({file, name, options}, source, std::to_string(hash.high64) + "-" + std::to_string(hash.low64));
}

Kernel& Programs::make_kernel(const Name& wanted, std::string_view source, std::string_view source_hash) {
    const auto& [file, name, options] = wanted;
    has_made_kernels_ = true;
    const Program& built = program({file, {}, options}, source, source_hash);
    auto kernel = std::make_unique<Kernel>();
    kernel->name = name;
    kernel->label = std::string(name) + " of " + std::string(file) + " (" + std::string(options) + ")";
    kernel->instances.resize(workers_.all.size());
    const std::string entry_point(name);
    for (size_t worker = 0; worker < workers_.all.size(); ++worker) {
        cl_int code = CL_SUCCESS;
        kernel->instances[worker].kernel = cl::Kernel(clCreateKernel(built[worker](), entry_point.c_str(), &code));
        if (code != CL_SUCCESS) throw_cl_error(code, "clCreateKernel", kernel->label);
    }
    check(clGetKernelInfo(kernel->instances[0].kernel(), CL_KERNEL_NUM_ARGS, sizeof(cl_uint), &kernel->argument_count,
                          nullptr),
          "clGetKernelInfo");
    OwnedName key{std::string(file), entry_point, std::string(options)};
    return *kernels_.emplace(std::move(key), std::move(kernel)).first->second;
}

const Programs::Program& Programs::program(const Name& name, std::string_view source, std::string_view source_hash) {
    if (const auto found = programs_.find(name); found != programs_.end()) return found->second;
    std::string options = common_options_;
    if (!name.options.empty()) options.append(" ").append(name.options);
    Program made = make_program(name.file, source, source_hash, options);
    OwnedName key{std::string(name.file), {}, std::string(name.options)};
    return programs_.emplace(std::move(key), std::move(made)).first->second;
}

ProgramKey Programs::key_of(std::string_view source_hash, const std::string& options) const {
    const cl_device_id device = workers_.front().device;
    const cl_platform_id platform = workers_.entry.platform;
    return {std::string(source_hash), options,
            device_text(device, CL_DEVICE_NAME) + " / " + device_text(device, CL_DEVICE_VERSION),
            device_text(device, CL_DRIVER_VERSION),
            platform_text(platform, CL_PLATFORM_NAME) + " / " + platform_text(platform, CL_PLATFORM_VERSION)};
}

Programs::Program Programs::make_program(std::string_view file, std::string_view source, std::string_view source_hash,
                                         const std::string& options) {
    const cl_device_id device = workers_.front().device;
    const ProgramKey key = key_of(source_hash, options);
    const auto start = std::chrono::steady_clock::now();
    Program program;
    // The host's log callback may do anything, so it is called without the lock that all contexts share.
    std::vector<std::pair<int32_t, std::string>> messages;
    std::unique_lock<std::mutex> lock(build_mutex());
    std::optional<std::vector<std::byte>> binary = cache_.load(key);
    std::string obstacle;
    std::optional<ProgramCache::Lock> only_maker;
    // PoCL ends a process that asks for a binary while another compiles the same source, so one at a time does.
    const auto become_maker = [&] {
        if (only_maker) return;
        obstacle = cache_.prepare();
        only_maker.emplace(cache_.lock(key));
    };
    if (!binary) {
        become_maker();
        binary = cache_.load(key);
    }
    if (binary) {
        std::string refusal;
        cl::Program loaded = load(workers_.front(), *binary, options, refusal);
        if (loaded() != nullptr)
            program.push_back(std::move(loaded));
        else
            messages.emplace_back(WINNOW_LOG_WARNING,
                                  "the driver refuses the cached program of " + std::string(file) +
                                      "; it is compiled again: " + (cache_.directory() / key.file_name()).string() +
                                      ": " + refusal);
    }
    const bool is_loaded = !program.empty();
    if (!is_loaded) {
        become_maker();
        program.push_back(build(workers_.front(), file, source, options));
        // Asking for the binary is expensive with some drivers, so only where it can be kept.
        std::string failure = std::move(obstacle);
        binary.emplace();
        if (failure.empty()) {
            *binary = binary_of(program.front(), device, failure);
            make_lean(program.front(), *binary, options);
            if (failure.empty()) failure = cache_.store(key, *binary);
        }
        if (!failure.empty() && !store_failure_is_known_) {
            store_failure_is_known_ = true; // it would be the same for every program
            messages.emplace_back(WINNOW_LOG_INFO, "compiled programs are not kept: " + failure);
        }
    }
    ++(is_loaded ? loaded_ : built_);
    while (program.size() < workers_.all.size()) {
        const WorkerQueue& worker = workers_.all[program.size()];
        std::string refusal; // compiling it again says more
        cl::Program copy = load(worker, *binary, options, refusal);
        program.push_back(copy() != nullptr ? std::move(copy) : build(worker, file, source, options));
    }
    if (!builtins_refusal_.empty())
        messages.emplace_back(WINNOW_LOG_WARNING, "the driver refuses Winnow's declarations of built-in functions, and "
                                                  "compiles with its own, which takes longer: " +
                                                      std::exchange(builtins_refusal_, {}));
    const auto spent = std::chrono::steady_clock::now() - start;
    only_maker.reset();
    lock.unlock();
    messages.emplace_back(
        WINNOW_LOG_DEBUG,
        std::string(is_loaded ? "loaded " : "compiled ") + std::string(file) + " (" + options + ") in " +
            std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(spent).count()) + " ms");
    for (const auto& [level, text] : messages) log_(level, text);
    return program;
}

// Program and binary become what later starts will load, where the driver takes it.
void Programs::make_lean(cl::Program& program, std::vector<std::byte>& binary, const std::string& options) {
    std::vector<std::byte> lean = without_intermediate_code(binary);
    if (lean.size() == binary.size()) return;
    std::string refusal;
    cl::Program loaded = load(workers_.front(), lean, options, refusal);
    if (loaded() == nullptr) return;
    program = std::move(loaded);
    binary = std::move(lean);
}

cl::Program Programs::build(const WorkerQueue& worker, std::string_view file, std::string_view source,
                            const std::string& options) {
    cl_int code = CL_SUCCESS;
    cl::Program program;
    const cl_device_id device = worker.device;
    if (declares_builtins_ && source.find(own_builtins_mark) != std::string_view::npos) {
        program = compile(worker, source, options + own_builtins, code);
        if (code == CL_SUCCESS) return program;
        if (code == CL_BUILD_PROGRAM_FAILURE) { // perhaps another compiler than these declarations are written for
            const std::string complaint = build_log(program, device);
            program = compile(worker, source, options, code);
            if (code == CL_SUCCESS) {
                declares_builtins_ = false;
                builtins_refusal_ = std::string(file) + " with \"" + options + "\"\n" + complaint;
                return program;
            }
        }
    } else {
        program = compile(worker, source, options, code);
    }
    if (code != CL_SUCCESS)
        throw_cl_error(code, "clBuildProgram",
                       std::string(file) + " with \"" + options + "\"\n" + build_log(program, device));
    return program;
}

cl::Program Programs::load(const WorkerQueue& worker, const std::vector<std::byte>& binary, const std::string& options,
                           std::string& refusal) {
    if (binary.empty()) return {};
    const auto refuse = [&refusal](const char* call, cl_int refused) {
        refusal = std::string(call) + " failed with " + cl_error_name(refused) + " (" + std::to_string(refused) + ")";
        return cl::Program();
    };
    cl_int code = CL_SUCCESS;
    const cl_device_id device = worker.device;
    const size_t size = binary.size();
    auto bytes = reinterpret_cast<const unsigned char*>(binary.data());
    cl::Program program(clCreateProgramWithBinary(worker.context(), 1, &device, &size, &bytes, nullptr, &code));
    if (code != CL_SUCCESS) return refuse("clCreateProgramWithBinary", code);
    code = clBuildProgram(program(), 1, &device, options.c_str(), nullptr, nullptr);
    return code == CL_SUCCESS ? std::move(program) : refuse("clBuildProgram", code);
}

} // namespace winnow::opencl
