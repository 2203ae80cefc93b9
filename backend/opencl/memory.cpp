// cl_mem objects, host pages and the cache of imports.
#include "opencl/memory.hpp"

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace winnow::opencl {
namespace {

cl::Memory create_buffer(const WorkerQueues& workers, size_t worker, cl_mem_flags flags, uint64_t size, void* host) {
    cl_int code = CL_SUCCESS;
    cl_mem memory = clCreateBuffer(workers.all[worker].context(), flags, size, host, &code);
    if (code != CL_SUCCESS)
        throw_cl_error(code, "clCreateBuffer",
                       std::to_string(size) + " bytes; the device's limit for one buffer is " +
                           std::to_string(workers.entry.info.max_allocation_size));
    return cl::Memory(memory, false);
}

// Smaller memory comes from the heap: taking a mapping away stops the host's other threads, 15 microseconds each time,
// and a sequence that begins anew gives back some buffers of each layer.
constexpr uint64_t mapped_from = 32 << 10;

[[noreturn]] void throw_no_pages(uint64_t size) {
    throw Error(WINNOW_ERROR_OUT_OF_MEMORY, "cannot reserve " + std::to_string(size) + " bytes of host memory");
}

} // namespace

uint64_t page_size() {
    static const auto size = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    return size;
}

Memory::Memory(WorkerQueues& workers, void* host, uint64_t size)
    : workers_(workers), host_(host), size_(size), objects_(workers.all.size()) {
    import_on(0); // so that a refusal is reported where the memory is imported
}

Memory::Memory(WorkerQueues& workers, uint64_t size, cl_mem_flags place) : workers_(workers), size_(size), objects_(1) {
    objects_[0] = create_buffer(workers, 0, CL_MEM_READ_WRITE | place, size, nullptr);
}

Memory::Memory(WorkerQueues& workers, cl_mem memory) : workers_(workers), objects_(1) {
    check(clRetainMemObject(memory), "clRetainMemObject");
    objects_[0] = cl::Memory(memory, false);
}

Memory::~Memory() { ++workers_.memory_epoch; }

cl_mem Memory::import_on(size_t worker) const {
    objects_[worker] = create_buffer(workers_, worker, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, size_, host_);
    return objects_[worker]();
}

HostPages::HostPages(uint64_t size) : size_(size) {
    if (size < mapped_from) { // whole pages of it, so that nothing else is imported with them
        const uint64_t whole = (size + page_size() - 1) / page_size() * page_size();
        data_ = static_cast<std::byte*>(std::aligned_alloc(page_size(), whole));
        if (data_ == nullptr) throw_no_pages(size);
        std::memset(data_, 0, whole);
        return;
    }
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw_no_pages(size);
    data_ = static_cast<std::byte*>(data);
#ifdef MADV_HUGEPAGE
    // A hint, and a third less time over a long cache: the hardware's prefetchers stop at the end of a page.
    ::madvise(data, size, MADV_HUGEPAGE);
#endif
}

HostPages::~HostPages() {
    if (size_ < mapped_from)
        std::free(data_);
    else
        ::munmap(data_, size_);
}

PageRange::PageRange(const void* data, uint64_t size) {
    const auto first = reinterpret_cast<uintptr_t>(data);
    const uintptr_t mask = page_size() - 1;
    begin = first & ~mask;
    end = (first + size + mask) & ~mask;
}

const Memory& ImportCache::get(const PageRange& range) {
    const uintptr_t page = range.begin / page_size();
    Set& set = sets_[(page ^ (page >> 6) ^ (page >> 12)) % sets_.size()];
    unsigned way = 4;
    for (unsigned i = 0; i < 4; ++i) {
        if (set.begin[i] != range.begin || set.memory[i] == nullptr) continue;
        if (set.end[i] >= range.end) return *set.memory[i];
        way = i; // a view of the same memory that has grown: replace it
    }
    if (way == 4) way = set.next++ % 4;
    if (set.memory[way] != nullptr) replaced_.push_back(std::move(set.memory[way]));
    set.memory[way] = std::make_unique<Memory>(workers_, range.data(), range.size());
    set.begin[way] = range.begin;
    set.end[way] = range.end;
    return *set.memory[way];
}

} // namespace winnow::opencl
