// The generation of script.hpp.
#include "script.hpp"

#include <utility>

namespace winnow::faults {
namespace {

constexpr int64_t kv_heads = 2, q_heads = 4, size = 64, slots = 160, prompt = 96;

} // namespace

AttentionScript::AttentionScript(const std::string& backend)
    : Script(backend), host_memory_(40000), read_(40000), k_(WINNOW_TYPE_F32, kv_heads, prompt, size),
      v_(WINNOW_TYPE_F32, kv_heads, prompt, size), indices_(WINNOW_TYPE_I32, 1, 1, prompt),
      q_(WINNOW_TYPE_F32, q_heads, prompt, size), out_(WINNOW_TYPE_F32, q_heads, prompt, size),
      one_q_(WINNOW_TYPE_F32, q_heads, 1, size), one_out_(WINNOW_TYPE_F32, q_heads, 1, size),
      dense_(WINNOW_TYPE_F32, kv_heads, slots, size) {
    k_.fill(1);
    v_.fill(2);
    q_.fill(3);
    one_q_.fill(4);
    add_create();
    add({.name = "context_info", .run = [this] {
             winnow_device_info info{};
             info.struct_size = sizeof info;
             return context() == nullptr ? not_run : api().context_info(context(), &info);
         }});
    add({.name = "opencl_device_uuid", .run = [this] {
             uint8_t uuid[16];
             if (context() == nullptr) return not_run;
             const int32_t status = opencl().device_uuid(context(), uuid);
             return status == WINNOW_ERROR_UNSUPPORTED ? static_cast<int32_t>(WINNOW_OK) : status; // PoCL has none
         }});
    add_buffers();
    for (size_t pair = 0; pair < pairs_.size(); ++pair) add_formats(pair);
    add_rows();
    add_waiting_results();
    add_events();
    for (Pair& pair : pairs_)
        for (winnow_buffer** buffer : {&pair.k_rows, &pair.v_rows})
            add({.name = "buffer_destroy",
                 .run =
                     [this, buffer] {
                         if (*buffer == nullptr) return not_run;
                         const int32_t status = api().buffer_destroy(*buffer);
                         if (status == WINNOW_OK) *buffer = nullptr;
                         return status;
                     },
                 .recover = [this, buffer] { make_buffer(*buffer, 64); }}); // nobody reads it any more
    // The others go with the context.
    add_destroy();
}

int32_t AttentionScript::make_buffer(winnow_buffer*& buffer, uint64_t bytes) {
    if (context() == nullptr) return not_run;
    winnow_buffer_desc desc{};
    desc.struct_size = sizeof desc;
    desc.kind = WINNOW_BUFFER_ALLOCATE;
    desc.size = bytes;
    return api().buffer_create(context(), &desc, &buffer);
}

void AttentionScript::add_buffers() {
    for (Pair& pair : pairs_)
        for (const auto& [buffer, type] : {std::pair(&pair.k_rows, pair.k), std::pair(&pair.v_rows, pair.v)})
            add({.name = "buffer_create",
                 .run =
                     [this, buffer = buffer, type = type] {
                         uint64_t row = 0;
                         api().row_bytes(type, size, &row, nullptr, 0);
                         return make_buffer(*buffer, row * kv_heads * slots);
                     },
                 .recover = [this, buffer = buffer] { api().buffer_destroy(std::exchange(*buffer, nullptr)); }});
    add({.name = "buffer_create",
         .run = [this] { return make_buffer(rows_, 4 * size * kv_heads * slots); },
         .recover = [this] { api().buffer_destroy(std::exchange(rows_, nullptr)); }});
    add({.name = "buffer_create (host memory)",
         .run =
             [this] {
                 if (context() == nullptr) return not_run;
                 winnow_buffer_desc desc{};
                 desc.struct_size = sizeof desc;
                 desc.kind = WINNOW_BUFFER_IMPORT_HOST;
                 desc.size = host_memory_.size();
                 desc.host_data = host_memory_.data();
                 return api().buffer_create(context(), &desc, &imported_);
             },
         .recover = [this] { api().buffer_destroy(std::exchange(imported_, nullptr)); }});
    add({.name = "buffer_write", .run = [this] {
             const std::vector<float> values = numbers(host_memory_.size() / 4, 5);
             return imported_ == nullptr ? not_run
                                         : api().buffer_write(imported_, 0, values.data(), host_memory_.size());
         }});
    add({.name = "buffer_read",
         .run =
             [this] {
                 return imported_ == nullptr ? not_run
                                             : api().buffer_read(imported_, 0, read_.data(), host_memory_.size());
             },
         .result = [this] { return digest(read_); }});
}

int32_t AttentionScript::append(size_t index, int64_t first, int64_t tokens) {
    const Pair& pair = pairs_[index];
    if (pair.k_rows == nullptr || pair.v_rows == nullptr) return not_run;
    indices_.count_from(static_cast<int32_t>(first));
    const auto rows_of = [tokens](const HostTensor& whole, int axis) {
        winnow_tensor part = *whole.get();
        part.shape[axis] = tokens;
        return part;
    };
    const winnow_tensor k = rows_of(k_, 2), v = rows_of(v_, 2), indices = rows_of(indices_, 3);
    const winnow_tensor k_rows = buffer_tensor(api(), pair.k_rows, pair.k, kv_heads, slots, size);
    const winnow_tensor v_rows = buffer_tensor(api(), pair.v_rows, pair.v, kv_heads, slots, size);
    winnow_kv_append_desc desc{};
    desc.struct_size = sizeof desc;
    desc.k_src = &k;
    desc.v_src = &v;
    desc.k_cache = &k_rows;
    desc.v_cache = &v_rows;
    desc.k_row_indices = &indices;
    return api().kv_append(context(), &desc, nullptr);
}

int32_t AttentionScript::attend(size_t index, int64_t queries, int64_t keys) {
    const Pair& pair = pairs_[index];
    if (pair.k_rows == nullptr || pair.v_rows == nullptr) return not_run;
    HostTensor& out = queries == 1 ? one_out_ : out_;
    out.poison();
    winnow_tensor k = buffer_tensor(api(), pair.k_rows, pair.k, kv_heads, slots, size);
    winnow_tensor v = buffer_tensor(api(), pair.v_rows, pair.v, kv_heads, slots, size);
    k.shape[2] = v.shape[2] = keys;
    winnow_sdpa_desc desc{};
    desc.struct_size = sizeof desc;
    desc.q = (queries == 1 ? one_q_ : q_).get();
    desc.k = &k;
    desc.v = &v;
    desc.out = out.get();
    desc.is_causal = 1;
    desc.q_offset = keys - queries;
    winnow_event* event = nullptr;
    const int32_t status = api().sdpa(context(), &desc, &event);
    return status != WINNOW_OK ? status : wait(event);
}

void AttentionScript::add_formats(size_t pair) {
    add({.name = "kv_append", .run = [this, pair] { return append(pair, 0, prompt); }});
    add({.name = "sdpa of a prompt",
         .run = [this, pair] { return attend(pair, prompt, prompt); },
         .result = [this] { return out_.digest(); }});
    for (int64_t token = prompt; token < prompt + 2; ++token) {
        add({.name = "kv_append", .run = [this, pair, token] { return append(pair, token, 1); }});
        add({.name = "sdpa of a token",
             .run = [this, pair, token] { return attend(pair, 1, token + 1); },
             .result = [this] { return one_out_.digest(); }});
    }
}

void AttentionScript::add_rows() {
    // In place: carried out twice it would not be the same.
    const auto bytes = [this] {
        std::vector<char> all(4 * size * kv_heads * slots);
        api().buffer_read(rows_, 0, all.data(), all.size());
        return digest(all);
    };
    const auto fill = [this] {
        const std::vector<float> values = numbers(static_cast<size_t>(size * kv_heads * slots), 6);
        return rows_ == nullptr ? not_run : api().buffer_write(rows_, 0, values.data(), 4 * values.size());
    };
    add({.name = "buffer_write", .run = fill, .result = bytes});
    add({.name = "kv_requantize in place",
         .run =
             [this, fill] {
                 if (rows_ == nullptr) return not_run;
                 const winnow_tensor src = buffer_tensor(api(), rows_, WINNOW_TYPE_F32, kv_heads, slots, size);
                 winnow_tensor dst = buffer_tensor(api(), rows_, WINNOW_TYPE_Q8_0, kv_heads, slots, size);
                 for (int axis = 0; axis < 3; ++axis) dst.stride[axis] = src.stride[axis];
                 winnow_kv_requantize_desc desc{};
                 desc.struct_size = sizeof desc;
                 desc.src = &src;
                 desc.dst = &dst;
                 winnow_event* event = nullptr;
                 const int32_t status = api().kv_requantize(context(), &desc, &event);
                 if (status != WINNOW_OK) return status;
                 if (event_ == nullptr) event_ = event; // for what follows
                 const int32_t waited = api().event_wait(event);
                 if (waited == WINNOW_OK) return waited;
                 event_ = nullptr;
                 if (waited != WINNOW_ERROR_DEVICE && api().finish(context()) == WINNOW_OK)
                     fill(); // the rows were changed all the same, though the wait failed
                 return waited;
             },
         .effect = Effect::changes,
         .result = bytes,
         .observe = bytes,
         .recover = [fill] { fill(); }});
    add({.name = "kv_dequantize to the host's memory", .run = [this] { return dequantize(); }});
    add({.name = "finish",
         .run =
             [this] {
                 const int32_t status = context() == nullptr ? not_run : api().finish(context());
                 if (status == WINNOW_OK) dequantized_ = dense_.digest();
                 return status;
             },
         .result = [this] { return dense_.digest(); }});
}

int32_t AttentionScript::dequantize(winnow_event** event) {
    if (rows_ == nullptr) return not_run;
    dense_.poison();
    winnow_tensor src = buffer_tensor(api(), rows_, WINNOW_TYPE_Q8_0, kv_heads, slots, size);
    for (int axis = 0; axis < 3; ++axis) src.stride[axis] = dense_.get()->stride[axis];
    winnow_kv_dequantize_desc desc{};
    desc.struct_size = sizeof desc;
    desc.src = &src;
    desc.dst = dense_.get();
    return api().kv_dequantize(context(), &desc, event);
}

// Results that may still have to be copied to the host while another call fails. Whatever that call is, they are there
// once a wait has passed.
void AttentionScript::add_waiting_results() {
    const auto add_waiting = [this](const std::string& name, std::function<int32_t()> run) {
        add({.name = "kv_dequantize to the host's memory, then " + name,
             .run =
                 [this, run = std::move(run)] {
                     int32_t status = dequantize();
                     if (status != WINNOW_OK) return status;
                     status = run();
                     const int32_t finished = finish();
                     if (finished == WINNOW_OK && dense_.digest() != dequantized_)
                         return static_cast<int32_t>(WINNOW_ERROR_INTERNAL);
                     return status != WINNOW_OK ? status : finished;
                 },
             .result = [this] { return dense_.digest(); }});
    };
    add_waiting("finish", [] { return WINNOW_OK; });
    add_waiting("kv_append", [this] { return append(0, 0, 1); });
    add_waiting("sdpa with an event", [this] { return attend(0, 1, prompt); });
    add_waiting("buffer_read", [this] { return api().buffer_read(rows_, 0, read_.data(), 64); });
    add_waiting("buffer_write", [this] { return api().buffer_write(imported_, 0, read_.data(), 64); });
    add_waiting("buffer_create and buffer_destroy", [this] {
        winnow_buffer* buffer = nullptr;
        const int32_t status = make_buffer(buffer, 64);
        if (status != WINNOW_OK) return status;
        const int32_t destroyed = api().buffer_destroy(buffer);
        if (destroyed != WINNOW_OK) api().buffer_destroy(buffer);
        return destroyed;
    });
    add({.name = "kv_dequantize with an event",
         .run =
             [this] {
                 winnow_event* event = nullptr;
                 const int32_t status = dequantize(&event);
                 if (status == WINNOW_OK) return wait(event);
                 dense_.poison(); // it is the host's again
                 const std::string poisoned = dense_.digest();
                 if (context() != nullptr) finish();
                 return dense_.digest() == poisoned ? status : static_cast<int32_t>(WINNOW_ERROR_INTERNAL);
             },
         .result = [this] { return dense_.digest(); }});
    add_waiting("sdpa of its results", [this] { // which come first
        const Pair& pair = pairs_[0];
        if (pair.k_rows == nullptr || pair.v_rows == nullptr) return not_run;
        winnow_tensor q = *dense_.get();
        q.shape[2] = 1;
        winnow_tensor k = buffer_tensor(api(), pair.k_rows, pair.k, kv_heads, slots, size);
        winnow_tensor v = buffer_tensor(api(), pair.v_rows, pair.v, kv_heads, slots, size);
        k.shape[2] = v.shape[2] = prompt;
        winnow_tensor out = *one_out_.get();
        out.shape[1] = kv_heads;
        winnow_sdpa_desc desc{};
        desc.struct_size = sizeof desc;
        desc.q = &q;
        desc.k = &k;
        desc.v = &v;
        desc.out = &out;
        return api().sdpa(context(), &desc, nullptr);
    });
}

void AttentionScript::add_events() {
    add({.name = "flush", .run = [this] { return context() == nullptr ? not_run : api().flush(context()); }});
    add({.name = "opencl_wait_event", .run = [this] {
             void* event = nullptr;
             if (event_ == nullptr || opencl().get_event(event_, &event) != WINNOW_OK) return not_run;
             return opencl().wait_event(context(), event);
         }});
    add({.name = "buffer_read",
         .run =
             [this] {
                 uint64_t row = 0;
                 api().row_bytes(pairs_[1].k, size, &row, nullptr, 0);
                 const winnow_buffer* const rows = pairs_[1].k_rows;
                 if (rows == nullptr) return not_run;
                 read_.resize(row * kv_heads * slots);
                 return api().buffer_read(pairs_[1].k_rows, 0, read_.data(), read_.size());
             },
         .result = [this] { return digest(read_); }});
}

} // namespace winnow::faults
