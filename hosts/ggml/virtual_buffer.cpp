// Reserving memory, telling cache tensors by their names, and what ggml asks a buffer about them.
#include "virtual_buffer.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <sys/mman.h>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "cache_name.hpp"
#include "ggml_api.hpp"
#include "report_json.hpp"
#include "state_rows.hpp"

namespace winnow::ggml {

namespace {

const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));

size_t rounded(size_t size) { return (std::max<size_t>(size, 1) + page - 1) / page * page; }

// All that there are: memory that is copied may be another's.
struct Living {
    std::mutex mutex;
    std::set<VirtualBuffer*> buffers;
};
Living& living() {
    static Living& all = *new Living; // contexts may end while the process does
    return all;
}

} // namespace

VirtualBuffer::VirtualBuffer(const winnow_library& library, Report& report, KvConfig config, size_t size)
    : library_(library), report_(report), config_(std::move(config)), size_(rounded(size)),
      number_(report.next_owner()) {
    // Addresses alone, which count for no limit of memory.
    void* memory = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("cannot reserve " + std::to_string(size) + " bytes");
    base_ = static_cast<char*>(memory);
    const std::lock_guard lock(living().mutex);
    ++count_;
    living().buffers.insert(this);
}

std::string VirtualBuffer::living_caches() {
    const std::lock_guard lock(living().mutex);
    std::vector<CacheFigures> all;
    for (const VirtualBuffer* buffer : living().buffers) {
        const std::vector<CacheFigures> its = buffer->figures();
        all.insert(all.end(), its.begin(), its.end());
    }
    return to_json(all);
}

std::vector<CacheFigures> VirtualBuffer::figures() const {
    std::vector<CacheFigures> all;
    for (const auto& cache : caches_) {
        if (const std::optional<CacheFigures> figures = cache->figures()) all.push_back(*figures);
    }
    return all;
}

bool VirtualBuffer::note_living() {
    try {
        if (!report_.is_due(number_)) return false;
        report_.set_living(number_, {{}, context().figures(), figures()});
        return true;
    } catch (const std::exception& error) {
        log_line(GGML_LOG_LEVEL_ERROR, "no report of caches in use: %s", error.what());
        return false;
    }
}

VirtualBuffer::~VirtualBuffer() {
    {
        const std::lock_guard lock(living().mutex);
        living().buffers.erase(this);
        --count_;
    }
    try {
        report_.end_living(number_);
        if (in_place_) report_.add(*in_place_);
        if (context_) finish();
        if (context_ && !caches_.empty()) report_.add(context_->figures());
        for (const auto& cache : caches_) {
            const std::optional<CacheFigures> figures = cache->figures();
            if (!figures) continue;
            log_line(GGML_LOG_LEVEL_INFO, "%s", to_text(*figures).c_str());
            report_.add(*figures);
        }
    } catch (const std::exception& error) {
        log_line(GGML_LOG_LEVEL_ERROR, "no report of a cache: %s", error.what());
    }
    caches_.clear(); // before their context
    munmap(base_, size_);
}

void VirtualBuffer::add(ggml_tensor* tensor) {
    if (tensor->view_src) return;
    if (tensor->op != GGML_OP_NONE || !CacheName(tensor->name).letter) return open();
    {
        const std::lock_guard lock(living().mutex); // others may look for memory to copy from
        if (!roots_.insert(tensor).second) return;
    }
    if (is_open_ && !in_place_) close(tensor);
}

void VirtualBuffer::open() {
    if (is_open_ || in_place_) return;
    if (mprotect(base_, size_, PROT_READ | PROT_WRITE) != 0)
        throw std::runtime_error("no memory for a buffer of " + std::to_string(size_) + " bytes");
    is_open_ = true;
    for (const ggml_tensor* root : roots_) close(root);
    if (fill_ != 0) fill_memory();
}

// Who reads it all the same is stopped, rather than given zeros.
void VirtualBuffer::close(const ggml_tensor* root) {
    char* const begin = static_cast<char*>(root->data);
    char* const end = begin + ggml().nbytes(root);
    const auto touches = [&](const ggml_tensor* other) {
        const char* its_end = static_cast<const char*>(other->data) + ggml().nbytes(other);
        return other != root && its_end <= begin && begin - its_end < static_cast<ptrdiff_t>(page);
    };
    const size_t offset = static_cast<size_t>(begin - base_);
    const bool shares_page = std::any_of(roots_.begin(), roots_.end(), touches);
    const size_t first = shares_page ? offset / page * page : rounded(offset);
    const size_t last = static_cast<size_t>(end - base_) / page * page;
    if (first < last && mprotect(base_ + first, last - first, PROT_NONE) != 0)
        log_line(GGML_LOG_LEVEL_WARN,
                 "%s: its memory cannot be protected: a program that reads it by its address gets zeros", root->name);
}

void VirtualBuffer::mark_in_place(InPlaceCache cache) {
    const std::lock_guard lock(living().mutex); // others may look for memory to copy from
    in_place_ = std::move(cache);
}

void VirtualBuffer::group() {
    // By tag and layer the two tensors; by shape the layers, in the order of their numbers.
    std::map<std::pair<std::string, int64_t>, LayerRoots> layers;
    for (const ggml_tensor* root : roots_) {
        const CacheName name(root->name);
        LayerRoots& layer = layers[{name.tag, name.layer}];
        (name.letter == 'k' ? layer.k : layer.v) = root;
    }
    std::map<std::tuple<std::string, int64_t, int64_t, int64_t, int64_t>, std::vector<LayerRoots>> shapes;
    for (const auto& [key, layer] : layers) {
        if (!layer.k)
            throw std::runtime_error(std::string(layer.v->name) +
                                     " has values without keys, expected a tensor of both in each layer");
        const ggml_tensor* k = layer.k;
        shapes[{key.first, k->ne[0], layer.v ? layer.v->ne[0] : 0, k->ne[1], k->ne[2]}].push_back(layer);
    }
    std::vector<std::shared_ptr<VirtualCache>> made;
    made.reserve(shapes.size());
    for (const auto& [shape, its] : shapes) made.push_back(std::make_shared<VirtualCache>(context(), config_, its));
    const std::lock_guard lock(living().mutex);
    caches_ = std::move(made);
}

Context& VirtualBuffer::context() {
    if (!context_) context_.emplace(library_, Purpose::virtual_caches);
    return *context_;
}

VirtualCache& VirtualBuffer::cache(const ggml_tensor* root) {
    if (!poisoned_.empty()) throw std::runtime_error(poisoned_);
    if (!copied_.roots.empty()) {
        throw std::runtime_error("of stream " + std::to_string(copied_.from) + " only " +
                                 std::to_string(copied_.roots.size()) + " of " + std::to_string(roots_.size()) +
                                 " cache tensors were copied to stream " + std::to_string(copied_.to));
    }
    return *find_cache(root);
}

const std::shared_ptr<VirtualCache>& VirtualBuffer::find_cache(const ggml_tensor* root) {
    if (caches_.empty()) group();
    for (const auto& cache : caches_) {
        if (cache->has(root)) return cache;
    }
    throw std::runtime_error(std::string(root->name) + " was allocated after the first attention, expected before");
}

void VirtualBuffer::end_graph(Counters& counters) {
    for (const auto& cache : caches_) cache->end_graph(counters);
}

void VirtualBuffer::finish() {
    if (context_ && context_->finish() != WINNOW_OK) throw std::runtime_error(context_->message());
    for (const auto& cache : caches_) cache->release();
}

void VirtualBuffer::drop_deferred() {
    for (const auto& cache : caches_) cache->drop_deferred();
}

void VirtualBuffer::poison(const std::string& reason) {
    if (poisoned_.empty()) poisoned_ = reason;
}

void VirtualBuffer::clear(uint8_t value) {
    for (const auto& cache : caches_) cache->clear();
    poisoned_.clear();
    copied_ = {};
    fill_ = value;
    if (roots_.empty()) open(); // llama.cpp's outputs, which it reads and writes by their address
    if (is_open_ || in_place_) fill_memory();
}

// What is no virtual tensor's.
void VirtualBuffer::fill_memory() {
    std::vector<const ggml_tensor*> roots;
    if (!in_place_) roots.assign(roots_.begin(), roots_.end());
    std::sort(roots.begin(), roots.end(), [](const auto* a, const auto* b) { return a->data < b->data; });
    char* at = base_;
    for (const ggml_tensor* root : roots) {
        std::memset(at, fill_, static_cast<size_t>(static_cast<char*>(root->data) - at));
        at = static_cast<char*>(root->data) + ggml().nbytes(root);
    }
    std::memset(at, fill_, static_cast<size_t>(base_ + size_ - at));
}

void VirtualBuffer::fill(const ggml_tensor* tensor, uint8_t value, size_t offset, size_t size) {
    const ggml_tensor* root = root_of(tensor);
    if (!has_root(root)) {
        std::memset(static_cast<char*>(tensor->data) + offset, value, size);
    } else if (value == 0) { // cells that are evicted
        cache(root).wipe(root, static_cast<size_t>(offset_in(root, tensor->data)) + offset, size);
    } else {
        poison(std::string(tensor->name) + " was filled with " + std::to_string(value) + ", which WINNOW_KV cannot do");
    }
}

void VirtualBuffer::read(const ggml_tensor* tensor, void* data, size_t offset, size_t size) {
    const ggml_tensor* root = root_of(tensor);
    if (!has_root(root)) {
        std::memcpy(data, static_cast<const char*>(tensor->data) + offset, size);
        return;
    }
    fill_damaged(static_cast<char*>(data), size); // should it fail
    cache(root).read(root, static_cast<char*>(data), static_cast<size_t>(offset_in(root, tensor->data)) + offset, size);
}

void VirtualBuffer::write(const ggml_tensor* tensor, const void* data, size_t offset, size_t size) {
    const ggml_tensor* root = root_of(tensor);
    const bool is_virtual = has_root(root);
    const size_t at = is_virtual ? static_cast<size_t>(offset_in(root, tensor->data)) + offset : 0;
    is_used_ |= is_virtual;
    if (is_virtual && copies_stream(root, data, at, size)) return;
    std::vector<char> copy; // of what is no memory
    if (const std::optional<Source> source = source_of(data)) {
        copy.resize(size);
        source->buffer->read(source->root, copy.data(), source->offset, size);
        data = copy.data();
    }
    if (is_virtual)
        cache(root).write(root, static_cast<const char*>(data), at, size);
    else
        std::memcpy(static_cast<char*>(tensor->data) + offset, data, size);
}

// The virtual tensor, if any, in which an address lies.
std::optional<VirtualBuffer::Source> VirtualBuffer::source_of(const void* data) {
    const std::lock_guard lock(living().mutex);
    for (VirtualBuffer* buffer : living().buffers) {
        if (buffer->in_place_ || data < buffer->base_ || data >= buffer->base_ + buffer->size_) continue;
        for (const ggml_tensor* root : buffer->roots_) {
            const auto* begin = static_cast<const char*>(root->data);
            if (data >= begin && data < begin + ggml().nbytes(root))
                return Source{buffer, root, static_cast<size_t>(offset_in(root, data))};
        }
    }
    return std::nullopt;
}

bool VirtualBuffer::copies_stream(const ggml_tensor* root, const void* data, size_t at, size_t size) {
    const auto stream = static_cast<int64_t>(root->nb[2]), from = offset_in(root, data);
    const bool is_own = from >= 0 && static_cast<size_t>(from) < ggml().nbytes(root);
    if (!is_own || static_cast<int64_t>(size) != stream || static_cast<int64_t>(at) % stream != 0 || from % stream != 0)
        return false;
    copy_stream(root, from / stream, static_cast<int64_t>(at) / stream);
    return true;
}

void VirtualBuffer::copy_stream(const ggml_tensor* root, int64_t from, int64_t to) {
    const bool goes_on = copied_.from == from && copied_.to == to && copied_.roots.count(root) == 0;
    if (copied_.roots.empty() || !goes_on) {
        for (const auto& cache : caches_) cache->copy_stream(from, to);
        copied_ = {from, to, {}};
    }
    copied_.roots.insert(root);
    if (copied_.roots.size() == roots_.size()) copied_.roots.clear();
}

} // namespace winnow::ggml
