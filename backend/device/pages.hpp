// Pages: how recall finds again what lies in the packed segment without attending to all of it. A page is 1, 2 or 4
// neighbouring slots of that segment, the cold one here; of each a KV head keeps a signature, and a query picks the
// pages whose signatures promise the largest scores. Their rows come into hot slots, which the query attends to. These
// are the operations on pages that a device offers below the cache; docs/recall.md has the whole in words.
#pragma once

#include <cstdint>

#include "device/slots.hpp"

namespace winnow {

// The signature of a page is made from r = R(mean of its live rows) - c, R the rotation of the turbo formats
// (docs/formats.md), rows less the segment's mean, and c the head's center, which is R(mean of many rows): a bit for
// each of the n elements, set where r is not negative. f times the signs stands for r, f the mean of
// (|r_1| + ... + |r_n|) / n over many pages.
//
// Signatures lie in blocks of 16 pages: n / 8 runs of 16 bytes, of which run j has byte j (elements 8 j ... 8 j + 7,
// the first one in the lowest bit) of each page.
//
// With codebooks a page has n / 16 codes instead, a byte each: of y = A (mean of its live rows) code j is the number of
// the centroid of codebook j that is nearest to elements 16 j ... 16 j + 15, of equal ones the lowest, 0 where no
// squared distance is below the largest float. There are n / 16 runs then.
inline constexpr int64_t block_pages = 16, centroids = 256, centroid_elements = 16;
enum class SignatureKind : uint8_t { signs, codes };
constexpr int64_t signature_block_bytes(int64_t head_size, SignatureKind kind) {
    return block_pages * (kind == SignatureKind::signs ? head_size / 8 : head_size / centroid_elements);
}

// The codebooks of a KV head, as halves: A, and B by which a query is compared with centroids (calibration makes them
// so that q . k is near to (B q) . (A k)), both by columns; then the codebooks, each of which has the first elements of
// its centroids, then the second ones, and so on.
constexpr int64_t codebook_numbers(int64_t head_size) { return 2 * head_size * head_size + centroids * head_size; }

struct PageIndex {
    int64_t page_slots = 2; // 1, 2 or 4
    Tensor signatures;      // I32 [1, kv_heads, blocks, signature_block_bytes / 4]
    Tensor frames;          // I32 [1, kv_heads, 1, frames]: the page in each frame of the hot slots, or -1
    Tensor centers{};       // F16 [1, kv_heads, 1, head_size + 1]: c, then f; absent with codebooks
    Tensor codebooks{};     // F16 [1, kv_heads, 1, codebook_numbers], or absent: signatures are of signs

    SignatureKind kind() const { return codebooks ? SignatureKind::codes : SignatureKind::signs; }
};

// Makes the signatures of pages [first, end), whose rows changed; of slots beyond the cold segment's as if they were
// free. A page without live slots has signs or codes of 0. Frames that had one of these pages become free, but where
// only the center is another one. Where center_end is not 0, c and f are made before, of the live rows of slots
// [first_slot, center_end) and of the pages that have some of them: each number that is no half the nearest one, and
// what is no number 0.
struct PageSign {
    PageIndex index;
    Segment cold; // its K, and the slot map
    Segment hot;  // its slot map
    int64_t first = 0, end = 0;
    int64_t first_slot = 0; // `cold` is the part of the cold segment from this slot on, where a page begins
    int64_t center_end = 0;
    bool keeps_frames = false; // the rows are as they were
};

// One query picks pages for each KV head, and they come into the hot slots. Those are frames of page_slots.
//  1. A page may be picked where one of its live slots is visible: the token id in [visible_from, visible_end) and not
//     hidden by the mask of the query group's first head.
//  2. For each query head of the group z = scale * f * (R q) . signs, with codebooks scale * (B q) . the centroids of
//     its codes; and the head's softmax of z over the pages that may be picked, where what is below e^-60 of the
//     largest is 0. A head without a finite z at its largest is left out. The page's score is the sum of that over the
//     heads, times e^bonus where a frame has it. Pages with an anchor come before all others, and so do those from
//     pinned_from on: they are pinned.
//  3. The `count` pages of the largest scores are picked; of equal ones the lower page.
//  4. Frames whose page was not picked become free. Pages that were picked and have no frame take free frames, both in
//     ascending order, with the rows and the slot map's entries of their slots. Without rows of the cold segment, the
//     caller brings them: they are of the frames whose page is another one than before.
struct PagePick {
    PageIndex index;
    Segment cold; // its K and V may be absent, of whose tensors only the shapes are used then
    Segment hot;  // of the same formats; page_slots for each frame
    Tensor q;     // [1, q_heads, 1, head_size]: F32, F16 or BF16
    float scale = 0;
    float bonus = 0;                           // at most 80
    int64_t count = 0;                         // no more than there are frames
    int64_t pinned_from = 0;                   // pages from this one on come before all others, too
    int64_t visible_from = 0, visible_end = 0; // token ids
    Tensor mask;                               // [1, 1 or q_heads, 1, columns or 1]: BOOL, F16 or F32, or absent
    Tensor counts; // I32 [1, kv_heads, 1, 4]: pages picked so far, and those that came into a frame; 64 bits each
};

} // namespace winnow
