// Saved caches, and saved sequences, that are not what save wrote, though their checksum is right: one that is refused
// leaves the cache as it was, one that is taken leaves a cache that goes on.
//
//     which cache (a byte), then changes of its file: a byte each, a place and a value
#include <cstring>
#include <string>
#include <vector>

#include "backend.hpp"
#include "cache/layer/layer.hpp"
#include "cache/plan/geometry.hpp"
#include "cache_under_test.hpp"
#include "input.hpp"
#include "saved_file.hpp"

using namespace winnow;
using namespace winnow::fuzz;

namespace {

// Inputs for the calls of fuzz_calls that fill a cache before it is saved.
struct Original {
    CacheSetup setup;
    std::vector<int64_t> steps; // tokens, for all sequences in turn
    int64_t saved = all_sequences;
    SavedFile file{};
};

class Originals {
public:
    Originals() {
        add({"h2o:budget=24,sink=2,residual=6,cadence=4", 24, 1, 2, 1, 16, 48, 1, 0}, {40, 1});
        add({"h2o:budget=16,sink=2,residual=0,cadence=3,heavy=8,recent=6", 16, 1, 2, 2, 16, 48, 1, 0}, {30, 1, 1});
        add({"window:budget=20,residual=4,sink=3,cadence=4,center=on,k=q8_0,v=q4_0", 20, 1, 1, 1, 32, 48, 2, 0},
            {30, 7});
        add({"none:residual=4,cadence=2", 0, 1, 1, 1, 16, 40, 1, 0}, {17});
        add({"h2o:budget=24,sink=2,residual=6,cadence=4", 24, 1, 2, 1, 16, 48, 1, 40}, {30, 8});
        add({"scissorhands:budget=20,residual=0,cadence=4", 20, 1, 2, 1, 16, 48, 1, 36}, {30, 8});
        add({"winnow:budget=40,residual=6,cadence=4,window_from=1/1,grace=2,recent=4,k=f16,v=f16", 40, 2, 1, 1, 16, 48,
             1, 0},
            {48});
        add({"none:residual=0,sink=4", 0, 1, 1, 1, 16, 40, 1, 0}, {12});
        add({"winnow:recall=host,budget=60000B,cold=40,center=on,page=2,residual=8,cadence=4", 40, 1, 1, 1, 32, 48, 1,
             0},
            {30, 18});
        add({"h2o:budget=24,sink=2,residual=6,cadence=4,fine=1,k_fine=q8_0,coarse=0.0,v_coarse=q4_0", 24, 2, 2, 1, 32,
             48, 1, 0},
            {40, 1});
        for (const int64_t sequence : {0, 1})
            add({"h2o:budget=24,sink=2,residual=6,cadence=4", 24, 1, 2, 1, 16, 48, 2, 0}, {30, 8 + sequence}, sequence);
    }

    const Original& of(uint8_t number) const { return all_[number % all_.size()]; }

private:
    void add(const CacheSetup& setup, std::vector<int64_t> steps, int64_t saved = all_sequences) {
        Original original{setup, std::move(steps), saved};
        winnow_context* const context = new_context();
        std::string bytes;
        {
            CacheUnderTest cache(context, setup);
            fill(cache, original);
            bytes = cache.save(saved);
        }
        require(api().context_destroy(context) == WINNOW_OK, "context_destroy");
        original.file = read_saved_file(bytes, saved < 0 ? setup.sequences : 1, layer_bytes(setup));
        require(with_checksum(original.file.content) == bytes, "the checksum is XXH3-128");
        all_.push_back(std::move(original));
    }

    static void fill(CacheUnderTest& cache, const Original& original) {
        for (int64_t sequence = 0; sequence < original.setup.sequences; ++sequence)
            for (const int64_t tokens : original.steps) {
                const uint8_t bytes[] = {static_cast<uint8_t>(sequence), 0, 17, 29};
                Input input(bytes + (original.setup.sequences > 1 ? 0 : 1), original.setup.sequences > 1 ? 4 : 3);
                cache.step(input, tokens, nullptr);
                cache.check();
            }
    }

    static std::vector<LayerBytes> layer_bytes(const CacheSetup& setup) {
        cache::CacheRequest request;
        request.config = setup.config;
        request.shape.layers.assign(static_cast<size_t>(setup.layers),
                                    {setup.heads, setup.kv_heads, setup.size, setup.size});
        request.shape.context = setup.context;
        request.max_sequences = setup.sequences;
        request.cells = setup.cells;
        const cache::Geometry geometry(request, cache::parse(setup.config));
        std::vector<LayerBytes> layers;
        for (int64_t layer = 0; layer < setup.layers; ++layer)
            layers.push_back({bytes_of(geometry, layer, cache::Part::dense, geometry.dense_slots()),
                              geometry.state(layer).size, bytes_of(geometry, layer, cache::Part::packed, 1)});
        return layers;
    }

    std::vector<Original> all_;
};

template <class T>
void put(std::string& content, size_t at, T value) {
    if (at + sizeof value <= content.size()) std::memcpy(&content[at], &value, sizeof value);
}

size_t place(Input& input, const std::vector<size_t>& places) {
    return places[input.number<uint16_t>() % places.size()];
}

std::string changed(Input& input, const SavedFile& file) {
    std::string content = file.content;
    for (int changes = input.byte() % 6; changes > 0; --changes) {
        const uint8_t how = input.byte() % 8;
        const size_t at = input.number<uint16_t>() % content.size();
        switch (how) {
        case 0: content[at] = static_cast<char>(input.byte()); break;
        case 1: put(content, at, input.hostile()); break;
        case 2:
        case 3: put(content, place(input, file.numbers), input.hostile()); break;
        case 4: put(content, place(input, file.words), static_cast<int32_t>(input.hostile())); break;
        case 5: put(content, place(input, file.words), static_cast<int32_t>(input.byte())); break;
        case 6: content.insert(at, 8 * static_cast<size_t>(input.byte()), static_cast<char>(input.byte())); break;
        default: content.erase(at, input.chance(128) ? 8 : content.size()); break;
        }
        if (content.empty()) content = "W";
    }
    return content;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const Originals originals;
    Input input(data, size);
    const Original& original = originals.of(input.byte());
    const std::string content = changed(input, original.file);
    winnow_context* const context = new_context();
    {
        CacheUnderTest cache(context, original.setup);
        cache.step(input, 5, nullptr); // what a refused file has to leave
        const int64_t into =
            original.saved < 0 ? all_sequences : input.within(0, original.setup.sequences - 1); // may be another
        if (cache.take(with_checksum(content), content == original.file.content, into)) {
            cache.step(input, 1, nullptr);
            cache.check();
            cache.step(input, 9, nullptr);
            cache.check();
            cache.remove(input);
            cache.shift(input);
            cache.rows(input);
            cache.truncate(input);
            cache.step(input, 1, nullptr);
            cache.check();
            cache.save(into);
        }
    }
    require(api().context_destroy(context) == WINNOW_OK, "context_destroy");
    return 0;
}
