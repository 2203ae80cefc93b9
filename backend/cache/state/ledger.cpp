// Whole numbers take seven bits a byte, and tokens that follow each other are told in runs.
#include "cache/state/ledger.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include <xxhash.h>

#include "cache/layer/token_index.hpp"
#include "cache/plan/config_value.hpp"

namespace winnow::cache {
namespace {

constexpr uint64_t ledger_version = 3;
constexpr int64_t most_lower = 2;
constexpr int64_t most_tokens = most_seen;

struct Frame {
    uint32_t size = 0, check = 0;
};
static_assert(sizeof(Frame) == ledger_head);

uint32_t check_of(std::span<const std::byte> bytes) {
    return static_cast<uint32_t>(XXH3_64bits(bytes.data(), bytes.size()));
}

class Writer {
public:
    void number(uint64_t value) {
        for (; value >= 128; value >>= 7U) bytes.push_back(static_cast<std::byte>(value | 128));
        bytes.push_back(static_cast<std::byte>(value));
    }
    void number(int64_t value) { number(static_cast<uint64_t>(value)); } // not negative
    void fixed(uint64_t value) { raw(&value, sizeof value); }
    void values(const std::vector<float>& values) { raw(values.data(), sizeof(float) * values.size()); }

    std::vector<std::byte> bytes;

private:
    void raw(const void* from, size_t size) {
        const size_t at = bytes.size();
        bytes.resize(at + size);
        if (size > 0) std::memcpy(&bytes[at], from, size);
    }
};

class Reader {
public:
    explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
    uint64_t number() {
        uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            const auto byte = std::to_integer<uint64_t>(take(1)[0]);
            value |= (byte & 127) << shift;
            if (byte < 128) return value;
        }
        refuse("the rows' ledger is damaged: it has a number without an end");
    }
    uint64_t fixed() {
        uint64_t value = 0;
        std::memcpy(&value, take(sizeof value).data(), sizeof value);
        return value;
    }
    // A count within [0, most].
    int64_t count(int64_t most, const char* what) {
        const uint64_t value = number();
        if (value > static_cast<uint64_t>(most))
            refuse("the rows' ledger is damaged: it has " + std::to_string(value) + " as " + what +
                   ", expected at most " + std::to_string(most));
        return static_cast<int64_t>(value);
    }
    template <class T>
    std::vector<T> values(int64_t count) {
        if (static_cast<uint64_t>(count) > bytes_.size() / sizeof(T)) cut_short();
        std::vector<T> values(static_cast<size_t>(count));
        if (count > 0) std::memcpy(values.data(), take(sizeof(T) * values.size()).data(), sizeof(T) * values.size());
        return values;
    }
    bool is_at_end() const { return bytes_.empty(); }

private:
    [[noreturn]] static void cut_short() { refuse("the rows' ledger is damaged: it is cut short"); }
    std::span<const std::byte> take(size_t size) {
        if (size > bytes_.size()) cut_short();
        const std::span<const std::byte> taken = bytes_.subspan(0, size);
        bytes_ = bytes_.subspan(size);
        return taken;
    }
    std::span<const std::byte> bytes_;
};

// Numbers of [-1, most_tokens) in runs that go up by 1, or are all -1.
void write_runs(Writer& out, const std::vector<int64_t>& numbers) {
    for (size_t first = 0, end = 0; first < numbers.size(); first = end) {
        const int64_t step = numbers[first] < 0 ? 0 : 1;
        end = first + 1;
        while (end < numbers.size() && numbers[end] == numbers[end - 1] + step) ++end;
        out.number(static_cast<int64_t>(end - first));
        out.number(numbers[first] + 1);
    }
}

std::vector<int64_t> read_runs(Reader& in, int64_t count) {
    std::vector<int64_t> numbers;
    while (static_cast<int64_t>(numbers.size()) < count) {
        const int64_t length = in.count(count - static_cast<int64_t>(numbers.size()), "the length of a run");
        const int64_t first = in.count(most_tokens, "a number") - 1;
        if (length == 0) refuse("the rows' ledger is damaged: it has a run of no tokens");
        for (int64_t i = 0; i < length; ++i) numbers.push_back(first < 0 ? first : first + i);
    }
    return numbers;
}

constexpr std::array fact_members = {
    &Ledger::Facts::next,           &Ledger::Facts::moved,       &Ledger::Facts::newest, &Ledger::Facts::packed_slots,
    &Ledger::Facts::most_in_packed, &Ledger::Facts::free_listed, &Ledger::Facts::outputs};
constexpr int64_t most_of_fact = int64_t{1} << 62;

std::vector<int64_t> of_tokens(const Ledger& ledger, int64_t Ledger::Token::*member, int64_t less) {
    std::vector<int64_t> numbers;
    for (const Ledger::Token& token : ledger.tokens) numbers.push_back(token.*member - less);
    return numbers;
}

int64_t resident_of(const std::vector<int64_t>& slots) {
    return std::count_if(slots.begin(), slots.end(), [](int64_t slot) { return slot >= 0; });
}

} // namespace

bool Ledger::append(const Ledger& other) {
    Facts its = other.facts;
    its.outputs = facts.outputs; // a part may have left out the sums
    if (digest != other.digest || facts != its || lower_slots != other.lower_slots || free_listed != other.free_listed)
        return false;
    if (k_mean != other.k_mean || v_mean != other.v_mean || slots.size() != other.slots.size()) return false;
    const auto join = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    join(tokens, other.tokens);
    for (size_t head = 0; head < slots.size(); ++head) join(slots[head], other.slots[head]);
    if (other.importance.empty()) importance.clear();
    if (output_sum.empty()) output_sum = other.output_sum, facts.outputs = other.facts.outputs;
    for (size_t head = 0; head < importance.size(); ++head) join(importance[head], other.importance[head]);
    return true;
}

std::vector<std::byte> to_bytes(const Ledger& ledger) {
    Writer out;
    out.number(ledger_version);
    out.fixed(ledger.digest);
    out.number(static_cast<int64_t>(ledger.tokens.size()));
    for (const auto member : fact_members) out.number(ledger.facts.*member);
    out.number(static_cast<int64_t>(ledger.lower_slots.size()));
    for (const int64_t slots : ledger.lower_slots) out.number(slots);
    write_runs(out, of_tokens(ledger, &Ledger::Token::position, 0));
    write_runs(out, of_tokens(ledger, &Ledger::Token::place, 1));
    for (const std::vector<int64_t>& slots : ledger.slots) write_runs(out, slots);
    for (const std::vector<int32_t>& free_listed : ledger.free_listed)
        for (const int32_t slot : free_listed) out.number(static_cast<int64_t>(slot) + 1);
    const bool has_importance = !ledger.importance.empty();
    out.number(static_cast<uint64_t>(has_importance));
    if (has_importance)
        for (const std::vector<float>& values : ledger.importance) out.values(values);
    for (const std::vector<float>* values : {&ledger.output_sum, &ledger.k_mean, &ledger.v_mean}) {
        out.number(static_cast<int64_t>(values->size()));
        out.values(*values);
    }
    const Frame frame{static_cast<uint32_t>(ledger_head + out.bytes.size()), check_of(out.bytes)};
    std::vector<std::byte> bytes(ledger_head);
    std::memcpy(bytes.data(), &frame, sizeof frame);
    bytes.resize(ledger_head + out.bytes.size());
    std::memcpy(&bytes[ledger_head], out.bytes.data(), out.bytes.size());
    return bytes;
}

size_t ledger_size(std::span<const std::byte> bytes) {
    Frame frame;
    if (bytes.size() < sizeof frame) return 0;
    std::memcpy(&frame, bytes.data(), sizeof frame);
    return frame.size > ledger_head ? frame.size : 0;
}

std::optional<Ledger> to_ledger(std::span<const std::byte> bytes, int64_t heads, int64_t tokens) {
    Frame frame;
    std::memcpy(&frame, bytes.data(), sizeof frame);
    bytes = bytes.subspan(ledger_head);
    if (frame.check != check_of(bytes)) return std::nullopt;
    Reader in(bytes);
    const uint64_t its = in.number();
    if (its != ledger_version)
        refuse("the rows' ledger has version " + std::to_string(its) + ", expected " + std::to_string(ledger_version));
    Ledger ledger;
    ledger.digest = in.fixed();
    const int64_t count = in.count(most_tokens, "the number of tokens");
    if (count > tokens) return std::nullopt;
    for (const auto member : fact_members) ledger.facts.*member = in.count(most_of_fact, "a layer's number");
    for (int64_t left = in.count(most_lower, "the number of lower segments"); left > 0; --left)
        ledger.lower_slots.push_back(in.count(most_of_fact, "a segment's slots"));
    const std::vector<int64_t> positions = read_runs(in, count), places = read_runs(in, count);
    for (size_t i = 0; i < positions.size(); ++i) ledger.tokens.push_back({positions[i], places[i] + 1});
    for (int64_t head = 0; head < heads; ++head) ledger.slots.push_back(read_runs(in, count));
    for (int64_t head = 0; head < heads && ledger.facts.free_listed > 0; ++head) {
        std::vector<int32_t>& free_listed = ledger.free_listed.emplace_back();
        for (int64_t i = 0; i < ledger.facts.free_listed; ++i)
            free_listed.push_back(static_cast<int32_t>(in.count(most_tokens, "a free-listed slot") - 1));
    }
    if (in.count(1, "a flag") != 0)
        for (const std::vector<int64_t>& slots : ledger.slots)
            ledger.importance.push_back(in.values<float>(resident_of(slots)));
    for (std::vector<float>* values : {&ledger.output_sum, &ledger.k_mean, &ledger.v_mean})
        *values = in.values<float>(in.count(most_tokens, "the size of a sum or mean"));
    if (!in.is_at_end()) refuse("the rows' ledger is damaged: it goes on behind its end");
    return ledger;
}

} // namespace winnow::cache
