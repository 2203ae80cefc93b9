// Draws and runs schedules.
#include "cache_schedule.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "cache_cases.hpp"
#include "cache_folder.hpp"
#include "cache_oracle.hpp"

namespace winnow::conformance {
namespace {

class Runner {
public:
    explicit Runner(const Schedule& schedule)
        : schedule_(schedule), setup_(schedule.setup), engine_(schedule.seed), host_(subject(), setup_),
          oracle_(host_) {}

    ScheduleResult run() {
        ScheduleResult result;
        try {
            if (schedule_.is_decode) tell(tokens(0, draw(1, 100), true));
            for (int at = 0; at < schedule_.operations && wrong_.empty(); ++at) tell(one());
            if (wrong_.empty()) tell(oracle_.look());
        } catch (const std::exception& error) {
            tell(error.what());
        }
        if (!wrong_.empty()) {
            std::ostringstream text;
            text << "seed " << schedule_.seed << ", " << setup_.config() << ", " << setup_.layers << " layers, "
                 << setup_.q_heads() << " query and " << setup_.kv_heads << " KV heads of " << setup_.head_size
                 << ", context " << setup_.context << "; the last calls:";
            for (const std::string& each : calls_) text << "\n  " << each;
            text << "\n" << wrong_;
            result.wrong = text.str();
        }
        result.digest = digest_.str() + (wrong_.empty() ? host_.portrait() : "");
        result.evictions = oracle_.evictions();
        result.judgements = oracle_.judgements();
        return result;
    }

private:
    int64_t draw(int64_t low, int64_t high) { return low + int64_t(engine_() % uint64_t(high - low + 1)); }
    bool chance(int64_t percent) { return draw(1, 100) <= percent; }
    void tell(const std::string& wrong) {
        if (wrong_.empty()) wrong_ = wrong;
    }
    void note(const std::string& call) {
        calls_.push_back(call);
        if (calls_.size() > 24) calls_.pop_front();
    }

    std::string one() {
        const int64_t sequence = draw(0, setup_.sequences - 1), kind = draw(1, 100);
        if (schedule_.is_decode) return tokens(sequence, 1, true);
        if (kind <= 30) return decode(sequence, draw(1, 12));
        if (kind <= 58) return tokens(sequence, draw(1, 100), chance(80));
        if (kind <= 65) return attend(sequence);
        if (!schedule_.edits) return decode(sequence, 3);
        if (kind <= 71) return truncate(sequence);
        if (kind <= 76) return remove(sequence);
        if (kind <= 80) return copy();
        if (kind <= 84) return shift(sequence);
        if (kind <= 86) return anchor(sequence);
        if (kind <= 88) return reserve(sequence);
        if (kind <= 91) return save_and_load();
        if (kind <= 94) return exchange(sequence);
        return schedule_.changes ? change() : decode(sequence, 2);
    }

    int64_t length(int64_t sequence) { return oracle_.length(sequence, 0); }

    StepOptions options(int64_t tokens) {
        StepOptions options;
        if (chance(10)) options.scale = .2f;
        if (chance(10)) options.softcap = 8;
        if (chance(10)) options.window_left = draw(1, 60);
        if (chance(15)) options.tentative = draw(1, tokens);
        options.alibi = chance(10);
        options.head_sink = chance(20);
        options.scores = chance(25);
        options.layout = Layout(draw(0, 2));
        options.memory = chance(30) ? Memory::allocated : Memory::host;
        return options;
    }

    std::string run(Step& step) {
        const std::string wrong = oracle_.step(step);
        if (!wrong.empty()) return "layer " + std::to_string(step.layer) + ": " + wrong;
        if (step.out) step.out.each([&](const Index& at) { hash_ = (hash_ ^ bits_of(step.out, at)) * 1099511628211u; });
        return "";
    }

    static uint64_t bits_of(const TestTensor& tensor, const Index& at) {
        uint64_t bits = 0;
        std::copy_n(tensor.element(at), tensor.type() == WINNOW_TYPE_F32 ? 4 : 2, reinterpret_cast<std::byte*>(&bits));
        return bits;
    }

    // Layer after layer, as a model does.
    std::string tokens(int64_t sequence, int64_t count, bool attends) {
        count = std::min(count, setup_.context - length(sequence));
        if (count <= 0) return "";
        note("append " + std::to_string(count) + (attends ? " and attend" : "") + ", sequence " +
             std::to_string(sequence) + " of " + std::to_string(length(sequence)) + " tokens");
        const StepOptions drawn = options(count);
        for (int64_t layer = 0; layer < setup_.layers; ++layer)
            for (int64_t first = 0; first < count; first += setup_.piece()) {
                const int64_t part = std::min(setup_.piece(), count - first);
                StepOptions own = drawn;
                own.tentative = std::clamp<int64_t>(drawn.tentative - (count - first - part), 0, part);
                Step step = draw_step(setup_, engine_, layer, sequence, part, attends ? part : 0, own,
                                      oracle_.length(sequence, layer) + part + draw(0, 3));
                if (const std::string wrong = run(step); !wrong.empty()) return wrong;
            }
        digest_ << hash_ << " ";
        return oracle_.look();
    }

    std::string decode(int64_t sequence, int64_t count) {
        for (int64_t at = 0; at < count; ++at)
            if (const std::string wrong = tokens(sequence, 1, true); !wrong.empty()) return wrong;
        return "";
    }

    std::string attend(int64_t sequence) {
        if (length(sequence) == 0) return "";
        const int64_t count = draw(1, std::min<int64_t>(length(sequence), 40));
        note("attend with the last " + std::to_string(count) + ", sequence " + std::to_string(sequence));
        const StepOptions drawn = options(count);
        for (int64_t layer = 0; layer < setup_.layers; ++layer) {
            Step step = draw_step(setup_, engine_, layer, sequence, 0, count, drawn, length(sequence));
            if (const std::string wrong = run(step); !wrong.empty()) return wrong;
        }
        return oracle_.look();
    }

    std::string truncate(int64_t sequence) {
        const int64_t to =
            chance(80) ? std::max<int64_t>(length(sequence) - draw(0, 20), 0) : draw(0, length(sequence));
        note("truncate sequence " + std::to_string(sequence) + " to " + std::to_string(to));
        return oracle_.truncate(sequence, to);
    }

    std::string remove(int64_t sequence) {
        if (chance(10)) {
            note("remove all of sequence " + std::to_string(sequence));
            return oracle_.remove(sequence, 0, -1);
        }
        if (length(sequence) < 2) return "";
        const int64_t begin = draw(0, length(sequence) - 2), end = draw(begin + 1, length(sequence) - 1);
        note("remove [" + std::to_string(begin) + ", " + std::to_string(end) + ") of sequence " +
             std::to_string(sequence));
        return oracle_.remove(sequence, begin, end);
    }

    std::string copy() {
        if (setup_.sequences < 2) return "";
        const int64_t from = draw(0, setup_.sequences - 1), to = (from + 1) % setup_.sequences;
        note("copy sequence " + std::to_string(from) + " to " + std::to_string(to));
        return oracle_.copy(from, to);
    }

    // As a host does whose context is full: a part in the middle goes, and what follows moves down.
    std::string shift(int64_t sequence) {
        const int64_t length_now = length(sequence);
        if (length_now < 20) return "";
        if (chance(25) && length_now + 5 < setup_.context) { // a gap
            const int64_t begin = draw(0, length_now - 1);
            note("shift sequence " + std::to_string(sequence) + " from " + std::to_string(begin) + " up by 5");
            return oracle_.shift(sequence, begin, -1, 5);
        }
        const int64_t begin = draw(0, 10), end = draw(begin + 1, length_now - 1);
        note("remove [" + std::to_string(begin) + ", " + std::to_string(end) + ") of sequence " +
             std::to_string(sequence) + " and shift what follows down");
        const std::string wrong = oracle_.remove(sequence, begin, end);
        return wrong.empty() ? oracle_.shift(sequence, end, -1, begin - end) : wrong;
    }

    std::string anchor(int64_t sequence) {
        if (length(sequence) == 0) return "";
        const int64_t position = draw(0, length(sequence) - 1);
        // At most two in a sequence: more may be refused where the budget is small.
        if (oracle_.anchors(sequence) >= 2) return "";
        note("anchor position " + std::to_string(position) + " of sequence " + std::to_string(sequence));
        return oracle_.anchor(sequence, {position});
    }

    std::string reserve(int64_t sequence) {
        const int64_t count = draw(1, setup_.context);
        note("reserve " + std::to_string(count) + " for sequence " + std::to_string(sequence));
        return oracle_.reserve(sequence, count);
    }

    std::string exchange(int64_t sequence) {
        const int64_t layer = draw(0, setup_.layers - 1);
        note("read and write rows of layer " + std::to_string(layer) + " of sequence " + std::to_string(sequence));
        const std::string wrong = oracle_.read(sequence, layer, WINNOW_TYPE_F16);
        return wrong.empty() ? oracle_.write(sequence, layer, engine_) : wrong;
    }

    std::string save_and_load() {
        const bool disturb = chance(50);
        note(std::string("save, ") + (disturb ? "remove all but two tokens, " : "") + "load");
        return oracle_.save_and_load(folder_.file("cache"), disturb);
    }

    std::string change() {
        if (setup_.policy == Policy::hierarchical && chance(50)) {
            const double pressure = double(draw(0, 10)) / 10;
            note("set_pressure " + std::to_string(pressure));
            return oracle_.set_pressure(pressure);
        }
        const std::optional<CacheSetup> other = draw_change(setup_, engine_);
        if (!other) return decode(0, 2);
        setup_ = *other;
        note("set_config " + setup_.config());
        return oracle_.set_config(setup_);
    }

    Schedule schedule_;
    CacheSetup setup_;
    std::mt19937_64 engine_;
    Folder folder_;
    CacheHost host_;
    CacheOracle oracle_;
    std::deque<std::string> calls_;
    std::string wrong_;
    std::ostringstream digest_;
    uint64_t hash_ = 14695981039346656037u;
};

} // namespace

ScheduleResult run_schedule(const Schedule& schedule) {
    try {
        return Runner(schedule).run();
    } catch (const std::exception& error) {
        return {error.what(), "", 0, 0};
    }
}

} // namespace winnow::conformance
