/* The inner loops of Hanse over a cluster's columns.
 *
 * C99, no Python.h: loaded by ctypes, so it needs a C compiler and nothing else. What each kernel means is
 * said in numpy_kernels.py, which these functions must equal in every answer and every change; this file says why it
 * is fast.
 *
 *   - Nodes are walked as 64-bit words of a mask, so 64 unwanted nodes cost one test.
 *   - Whether nodes fit is asked one by one while the answers are yes, and in blocks of 64 (which the
 *     compiler turns into vector instructions) once several were no: an empty cluster is answered in
 *     nanoseconds, a full one at the speed of memory.
 *   - The scored modes of pick keep the best `count` nodes of one scan in a heap. No other node can be
 *     chosen: it would have to beat `count` nodes, and each of those loses its place only by being chosen
 *     once.
 *
 * No function allocates, and none keeps anything between calls. Nodes are numbered below 2^22, amounts lie
 * within 2^52, capacities within 2^50 (policy/node_columns.py asserts it), so no sum or product here reaches
 * 2^63.
 */
#include <stdint.h>
#include <string.h>

#ifndef HANSE_SOURCE_CRC
#define HANSE_SOURCE_CRC 0u
#endif

/* Two versions of the block loops, chosen when the library is loaded. Needs ifunc: GNU/Linux on x86-64. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__) \
    && !defined(HANSE_NO_CLONES)
#define CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CLONES
#endif

/* Addresses travel as 64-bit integers: a machine with others is refused here and uses the NumPy twin. */
typedef char addresses_have_64_bits[sizeof(void *) == 8 ? 1 : -1];

enum { FIRST = 0, BEST_FIT = 1, SPREAD = 2, CHEAPEST = 3 };
enum { WANTED_MAX = 64, SHARE = 1024 };

/* Nodes that may not fit before fitting is asked in blocks: a block costs about as much as so many nodes. */
enum { PATIENCE = 12 };

typedef struct {
    int64_t *free;           /* [dims][nodes], what is left */
    const int64_t *capacity; /* [dims][nodes] */
    int64_t dims;
    int64_t nodes;
} room_t;

/* One call of pick or settle: CALL_WORDS numbers and the ask, packed by Room.pack. */
typedef struct {
    const room_t *room;
    int64_t start; /* in [0, nodes) */
    int64_t count;
    int64_t mode;
    int64_t each_max;    /* 0: no limit */
    const int64_t *cost; /* [nodes], or null */
    void *scratch;       /* pick: entry_t[min(count, nodes)]; settle: int32_t[nodes], zero before and after */
    int64_t *nodes;      /* pick: out, [count]; settle: in and out, [count] */
    int64_t ask[];       /* [dims] */
} call_t;

/* A candidate of a scored mode: it goes before another with a larger key, or the same key and a later
 * place. */
typedef struct {
    int64_t key;
    int64_t place; /* in circular order from start */
    int64_t given; /* tasks it was chosen for in this call */
} entry_t;

/* A walk over the nodes of a mask that fit, in circular order. */
typedef struct {
    const call_t *call;
    const uint64_t *mask;
    int64_t step;    /* words begun so far */
    int64_t base;    /* node of bit 0 of the current word */
    uint64_t bits;   /* nodes of the current word not passed over yet */
    int64_t refused; /* nodes that did not fit */
} walk_t;

static inline int lowest_bit(uint64_t word)
{
#if defined(__GNUC__)
    return __builtin_ctzll(word);
#else
    int at = 0;
    while (!(word & 1)) {
        word >>= 1;
        at++;
    }
    return at;
#endif
}

static inline int few_bits(uint64_t word)
{
    for (int left = 4; left; left--)
        word &= word - 1;
    return word == 0;
}

/* Bits of word `at` of a mask over `nodes` nodes that stand for nodes. */
static inline uint64_t real_bits(int64_t at, int64_t nodes)
{
    int64_t left = nodes - at * 64;
    return left >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << left) - 1;
}

/* The word index of step `step` of a circular walk, and in `valid` which of its bits belong to that step:
 * the first word is visited twice, from `start` upwards at first and below `start` in the end (step ==
 * words). */
static inline int64_t circular_word(int64_t start, int64_t step, int64_t nodes, uint64_t *valid)
{
    int64_t words = (nodes + 63) / 64, at = start / 64 + step;
    uint64_t below = (UINT64_C(1) << (start % 64)) - 1;
    if (at >= words)
        at -= words;
    *valid = real_bits(at, nodes);
    if (step == 0)
        *valid &= ~below;
    if (step == words)
        *valid &= below;
    return at;
}

static inline int fits(const room_t *room, const int64_t *ask, int64_t node)
{
    const int64_t *free = room->free + node;
    for (int64_t row = 0; row < room->dims; row++, free += room->nodes)
        if (*free < ask[row])
            return 0;
    return 1;
}

static inline void debit(const room_t *room, const int64_t *ask, int64_t node)
{
    int64_t *free = room->free + node;
    for (int64_t row = 0; row < room->dims; row++, free += room->nodes)
        *free -= ask[row];
}

static inline int asks_less_than_nothing(const int64_t *ask, int64_t dims)
{
    int64_t signs = 0;
    for (int64_t row = 0; row < dims; row++)
        signs |= ask[row];
    return signs < 0;
}

/* Which of 64 neighbouring nodes fit; `free` is the first one's place in row 0. Without branches, for
 * vectors. */
CLONES static uint64_t fit_64(const int64_t *free, int64_t nodes, int64_t dims, const int64_t *ask)
{
    uint64_t fitting[64], bits = 0;
    for (int i = 0; i < 64; i++)
        fitting[i] = UINT64_C(1) << i;
    for (int64_t row = 0; row < dims; row++, free += nodes) {
        int64_t amount = ask[row];
        for (int i = 0; i < 64; i++)
            fitting[i] &= free[i] >= amount ? ~UINT64_C(0) : 0;
    }
    for (int i = 0; i < 64; i++)
        bits |= fitting[i];
    return bits;
}

/* Which of the wanted nodes of a word fit. */
static inline uint64_t fit_word(const room_t *room, const int64_t *ask, int64_t base, uint64_t wanted)
{
    uint64_t bits = 0;
    if (!few_bits(wanted) && base + 64 <= room->nodes)
        return wanted & fit_64(room->free + base, room->nodes, room->dims, ask);
    for (; wanted; wanted &= wanted - 1)
        if (fits(room, ask, base + lowest_bit(wanted)))
            bits |= wanted & -wanted;
    return bits;
}

/* The node the walk stands on after passing over what does not fit (or was given `each_max` times, if
 * `given`); -1 at the end. The walk does not pass over the node it returns. */
static inline int64_t walk_to_fit(walk_t *walk, const int32_t *given)
{
    const call_t *call = walk->call;
    const room_t *room = call->room;
    int64_t words = (room->nodes + 63) / 64;
    for (;;) {
        for (; walk->bits; walk->bits &= walk->bits - 1, walk->refused++) {
            int64_t node = walk->base + lowest_bit(walk->bits);
            if (!(given && given[node] >= call->each_max) && fits(room, call->ask, node))
                return node;
        }
        if (walk->step > words)
            return -1;
        uint64_t valid;
        int64_t at = circular_word(call->start, walk->step++, room->nodes, &valid);
        walk->base = at * 64;
        walk->bits = walk->mask[at] & valid;
        if (walk->bits && walk->refused >= PATIENCE)
            walk->bits = fit_word(room, call->ask, walk->base, walk->bits);
    }
}

static int64_t pick_first(const call_t *call, const uint64_t *mask)
{
    walk_t walk = {call, mask, 0, 0, 0, 0};
    int64_t done = 0;
    while (done < call->count) {
        int64_t node = walk_to_fit(&walk, 0), given = 0;
        if (node < 0)
            break;
        do {
            debit(call->room, call->ask, node);
            call->nodes[done++] = node;
            given++;
        } while (done < call->count && given != call->each_max && fits(call->room, call->ask, node));
        walk.bits &= walk.bits - 1;
    }
    return done;
}

/* 2^52 as a double, and its bits: a whole number below 2^52 put into those bits is 2^52 more as a double,
 * and back. Vector units convert so, in both directions, where they have no instruction for 64-bit
 * integers. */
static const double MAGIC = 4503599627370496.0;
static const uint64_t MAGIC_BITS = UINT64_C(0x4330000000000000);

static inline double to_double(int64_t whole)
{
    union {
        uint64_t bits;
        double number;
    } as = {(uint64_t)whole | MAGIC_BITS};
    return as.number - MAGIC;
}

static inline int64_t to_nearest(double number)
{
    union {
        double number;
        uint64_t bits;
    } as = {number + MAGIC};
    return (int64_t)(as.bits ^ MAGIC_BITS);
}

/* max(0, min(left, capacity)) * SHARE / capacity, rounded down; 0 without capacity (at most 2^50). A
 * division of doubles is several times faster than one of 64-bit integers. Both sides are exact as doubles,
 * so the nearest whole number to the quotient is the right one or one too large, which the product tells.
 * No branch, for vectors. */
static inline int64_t share(int64_t left, int64_t capacity)
{
    left = left < capacity ? left : capacity;
    left = left > 0 ? left : 0;
    int64_t parts = to_nearest(to_double(left) * SHARE / to_double(capacity + (capacity == 0)));
    return parts - (parts * capacity > left * SHARE);
}

static inline int64_t leftover(const room_t *room, const int64_t *ask, int64_t node)
{
    const int64_t *free = room->free + node, *capacity = room->capacity + node;
    int64_t sum = 0;
    for (int64_t row = 0; row < room->dims; row++, free += room->nodes, capacity += room->nodes)
        sum += share(*free - ask[row], *capacity);
    return sum;
}

/* The leftovers of the 64 nodes from `base` on; of no meaning for one that does not fit. */
CLONES static void leftover_64(const room_t *room, const int64_t *ask, int64_t base, int64_t *sums)
{
    const int64_t *free = room->free + base, *capacity = room->capacity + base;
    for (int i = 0; i < 64; i++)
        sums[i] = 0;
    for (int64_t row = 0; row < room->dims; row++, free += room->nodes, capacity += room->nodes) {
        uint64_t amount = (uint64_t)ask[row]; /* unsigned: far more than there is may be asked for */
        for (int i = 0; i < 64; i++)
            sums[i] += share((int64_t)((uint64_t)free[i] - amount), capacity[i]);
    }
}

static inline int64_t key_of(const call_t *call, int64_t node)
{
    if (call->mode == CHEAPEST)
        return call->cost[node];
    int64_t left = leftover(call->room, call->ask, node);
    return call->mode == BEST_FIT ? left : -left;
}

/* Which of 64 keys are below the limit. */
CLONES static uint64_t below_64(const int64_t *keys, int64_t limit)
{
    uint64_t bits = 0;
    for (int i = 0; i < 64; i++)
        bits |= keys[i] < limit ? UINT64_C(1) << i : 0;
    return bits;
}

/* Put the keys of the nodes `bits` of a word into `keys`; tells whether all 64 are filled, with whatever
 * there is. */
static inline int keys_of(const call_t *call, int64_t base, uint64_t bits, int64_t *keys)
{
    if (few_bits(bits) || base + 64 > call->room->nodes) {
        for (; bits; bits &= bits - 1)
            keys[lowest_bit(bits)] = key_of(call, base + lowest_bit(bits));
        return 0;
    }
    if (call->mode == CHEAPEST)
        memcpy(keys, call->cost + base, 64 * sizeof *keys);
    else
        leftover_64(call->room, call->ask, base, keys);
    for (int i = 0; i < 64 && call->mode == SPREAD; i++)
        keys[i] = -keys[i];
    return 1;
}

static inline int before(entry_t a, entry_t b)
{
    return a.key < b.key || (a.key == b.key && a.place < b.place);
}

/* Put `entry` into a heap whose top is free. The top is the first of all (`rising`), or else the last. */
static inline void sift_down(entry_t *heap, int64_t size, entry_t entry, int rising)
{
    int64_t at = 0, child;
    while ((child = 2 * at + 1) < size) {
        if (child + 1 < size && before(heap[child + 1], heap[child]) == rising)
            child++;
        if (before(heap[child], entry) != rising)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = entry;
}

static inline void sift_up_last(entry_t *heap, int64_t at, entry_t entry)
{
    while (at && before(heap[(at - 1) / 2], entry)) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = entry;
}

/* The best `most` candidates, best first, into `heap`; tells how many there are. Places come in rising
 * order, so a newcomer with an equal key never displaces one that is in. */
static int64_t best_candidates(const call_t *call, const uint64_t *mask, entry_t *heap, int64_t most)
{
    const room_t *room = call->room;
    int64_t size = 0, words = (room->nodes + 63) / 64, keys[64];
    for (int64_t step = 0; step <= words; step++) {
        uint64_t valid;
        int64_t at = circular_word(call->start, step, room->nodes, &valid), base = at * 64;
        uint64_t bits = mask[at] & valid;
        if (bits)
            bits = fit_word(room, call->ask, base, bits);
        if (bits && keys_of(call, base, bits, keys) && size == most)
            bits &= below_64(keys, heap[0].key);
        for (; bits; bits &= bits - 1) {
            int64_t node = base + lowest_bit(bits), place = node - call->start;
            entry_t entry = {keys[node - base], place < 0 ? place + room->nodes : place, 0};
            if (size < most) {
                sift_up_last(heap, size, entry);
                size++;
            } else if (entry.key < heap[0].key) {
                sift_down(heap, size, entry, 0);
            }
        }
    }
    for (int64_t end = size - 1; end > 0; end--) {
        entry_t last = heap[end];
        heap[end] = heap[0];
        sift_down(heap, end, last, 0);
    }
    return size;
}

/* Choose again and again the first of a rising heap. A chosen node whose key fell (BEST_FIT) or stayed
 * (CHEAPEST) stays on top; one whose key rose (SPREAD) finds its new level. */
static int64_t pick_scored(const call_t *call, const uint64_t *mask)
{
    const room_t *room = call->room;
    entry_t *heap = call->scratch;
    int64_t most = call->count < room->nodes ? call->count : room->nodes, done = 0;
    int64_t size = best_candidates(call, mask, heap, most);
    while (done < call->count && size) {
        entry_t top = heap[0];
        int64_t node = call->start + top.place;
        if (node >= room->nodes)
            node -= room->nodes;
        debit(room, call->ask, node);
        call->nodes[done++] = node;
        top.given++;
        if (top.given == call->each_max || !fits(room, call->ask, node)) {
            size--;
            top = heap[size];
        } else {
            top.key = key_of(call, node);
        }
        sift_down(heap, size, top, 1);
    }
    return done;
}

uint32_t hanse_source_crc(void)
{
    return HANSE_SOURCE_CRC;
}

/* How many tasks were given a node; -1 for an ask below nothing. */
int64_t hanse_pick(const call_t *call, const uint64_t *mask)
{
    if (asks_less_than_nothing(call->ask, call->room->dims))
        return -1;
    return call->mode == FIRST ? pick_first(call, mask) : pick_scored(call, mask);
}

/* 0, or -1 for an ask below nothing. */
int64_t hanse_settle(const call_t *call, const uint64_t *mask)
{
    const room_t *room = call->room;
    walk_t walk = {call, mask, 0, 0, 0, 0};
    int32_t *given = call->each_max ? call->scratch : 0;
    if (asks_less_than_nothing(call->ask, room->dims))
        return -1;
    for (int64_t task = 0; task < call->count; task++) {
        int64_t node = call->nodes[task];
        if (node < 0 || node >= room->nodes || !(mask[node / 64] >> (node % 64) & 1)
            || (given && given[node] >= call->each_max) || !fits(room, call->ask, node))
            node = walk_to_fit(&walk, given);
        call->nodes[task] = node;
        if (node < 0)
            continue;
        debit(room, call->ask, node);
        if (given)
            given[node]++;
    }
    for (int64_t task = 0; given && task < call->count; task++)
        if (call->nodes[task] >= 0)
            given[call->nodes[task]] = 0;
    return 0;
}

/* Masks [asks][words] of the nodes that fit each ask; -1 for an ask below nothing. Word by word, so a block
 * of the columns is read from memory once for all asks. */
int64_t hanse_fit(const room_t *room, const int64_t *asks, int64_t count, uint64_t *masks)
{
    int64_t words = (room->nodes + 63) / 64;
    if (asks_less_than_nothing(asks, count * room->dims))
        return -1;
    for (int64_t at = 0; at < words; at++)
        for (int64_t which = 0; which < count; which++)
            masks[which * words + at] =
                fit_word(room, asks + which * room->dims, at * 64, real_bits(at, room->nodes));
    return 0;
}

/* The first node from `start` on that is available and in all `count` rows, or -1. */
static inline int64_t first_match(const uint64_t *const *rows, int count, const uint64_t *available,
                                  int64_t start, int64_t nodes)
{
    int64_t words = (nodes + 63) / 64;
    for (int64_t step = 0; step <= words; step++) {
        uint64_t bits;
        int64_t at = circular_word(start, step, nodes, &bits);
        bits &= available[at];
        for (int row = 0; row < count; row++)
            bits &= rows[row][at];
        if (bits)
            return at * 64 + lowest_bit(bits);
    }
    return -1;
}

/* 0, or -1 if a wanted row is not there (nothing is changed then). `size` is {rows, requests, wanted,
 * nodes, take}. */
int64_t hanse_match(const int64_t *size, const uint64_t *rows, uint64_t *available, const int32_t *wanted,
                    const int64_t *starts, int64_t *found)
{
    int64_t requests = size[1], most = size[2], nodes = size[3], words = (nodes + 63) / 64;
    const uint64_t *needed[WANTED_MAX];
    for (int64_t at = 0; at < requests * most; at++)
        if (wanted[at] < -1 || wanted[at] >= size[0])
            return -1;
    for (int64_t request = 0; request < requests; request++, wanted += most) {
        int64_t start = starts[request];
        int count = 0;
        for (int64_t at = 0; at < most; at++)
            if (wanted[at] >= 0)
                needed[count++] = rows + wanted[at] * words;
        if (start < 0 || start >= nodes)
            start = (start % nodes + nodes) % nodes;
        int64_t node = first_match(needed, count, available, start, nodes);
        found[request] = node;
        if (node >= 0 && size[4])
            available[node / 64] &= ~(UINT64_C(1) << (node % 64));
    }
    return 0;
}
