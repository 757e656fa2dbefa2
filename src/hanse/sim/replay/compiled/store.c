/* Memory and virtual time of the compiled league: growing lists, bodies of messages, the heap, the lane, ticks
 * to come. Every allocation is checked; one that fails stops the run with a sentence, never with a crash. */
#include "plain.h"

#include <stdlib.h>
#include <string.h>

static const char OUT_OF_MEMORY[] = "out of memory";

/* own: an assertion: the first one that does not hold ends the run. */
bool must(league_t *league, bool holds, const char *otherwise)
{
    if (!holds && !league->wrong)
        league->wrong = otherwise;
    return holds;
}

/* own: zeroed memory that lives as long as the league. */
void *own(league_t *league, int64_t count, size_t size)
{
    if (!grow(league, (void **)&league->owned, &league->owned_room, league->owned_count + 1, sizeof(void *)))
        return NULL;
    void *found = calloc((size_t)(count > 0 ? count : 1), size);
    if (must(league, found != NULL, OUT_OF_MEMORY))
        league->owned[league->owned_count++] = found;
    return found;
}

/* own: memory. */
bool grow(league_t *league, void **at, int64_t *room, int64_t needed, size_t size)
{
    if (needed <= *room)
        return true;
    int64_t more = *room * 2 > 16 ? *room * 2 : 16;
    if (more < needed)
        more = needed;
    void *grown = (uint64_t)more <= SIZE_MAX / size ? realloc(*at, (size_t)more * size) : NULL;
    if (!must(league, grown != NULL, OUT_OF_MEMORY))
        return false;
    *at = grown;
    *room = more;
    return true;
}

/* own: a list that grows. */
bool add_many(league_t *league, ints_t *list, int64_t more)
{
    return grow(league, (void **)&list->at, &list->room, list->size + more, sizeof *list->at);
}

/* own: a list that grows. */
bool add(league_t *league, ints_t *list, int64_t value)
{
    if (list->size == list->room && !add_many(league, list, 1))
        return false;
    list->at[list->size++] = value;
    return true;
}

/* own: bodies come in sizes of powers of two and are used again. The word before a body is its class. */
int64_t *take_body(league_t *league, int64_t words)
{
    int64_t class = 3;
    while ((INT64_C(1) << class) < words + 1)
        class++;
    if (!must(league, class < CLASSES, OUT_OF_MEMORY))
        return NULL;
    void **found = league->spare_bodies[class];
    if (found) {
        league->spare_bodies[class] = found[1];
    } else {
        found = malloc(sizeof(int64_t) << class);
        if (!must(league, found != NULL, OUT_OF_MEMORY))
            return NULL;
    }
    int64_t *body = (int64_t *)found;
    body[0] = class;
    return body + 1;
}

/* own: memory of messages. */
void return_body(league_t *league, int64_t *body)
{
    if (!body)
        return;
    void **spare = (void **)(body - 1);
    int64_t class = body[-1];
    spare[1] = league->spare_bodies[class];
    league->spare_bodies[class] = spare;
}

/* own: the order of the heap. */
static inline bool before(const entry_t *one, const entry_t *other)
{
    return one->at < other->at || (one->at == other->at && one->number < other->number);
}

/* own: the heap of the league. */
void push_entry(league_t *league, int64_t at, int32_t kind, int32_t whose, int32_t what)
{
    if (!grow(league, (void **)&league->heap, &league->heap_room, league->heap_size + 1, sizeof(entry_t)))
        return;
    entry_t entry = {at, ++league->number, kind, whose, what};
    entry_t *heap = league->heap;
    int64_t place = league->heap_size++;
    while (place && before(&entry, heap + (place - 1) / 2)) {
        heap[place] = heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap[place] = entry;
}

/* own: the heap of the league. */
entry_t pop_entry(league_t *league)
{
    entry_t *heap = league->heap, top = heap[0], last = heap[--league->heap_size];
    int64_t place = 0, child, size = league->heap_size;
    while ((child = 2 * place + 1) < size) {
        if (child + 1 < size && before(heap + child + 1, heap + child))
            child++;
        if (!before(heap + child, &last))
            break;
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = last;
    return top;
}

/* own: the lane is a ring whose room is a power of two. */
void push_message(league_t *league, int64_t at, const message_t *message)
{
    if (league->lane_size == league->lane_room) {
        int64_t before_room = league->lane_room, room = before_room ? 2 * before_room : 1024;
        underway_t *lane = malloc((size_t)room * sizeof *lane);
        if (!must(league, lane != NULL, OUT_OF_MEMORY)) {
            return_body(league, message->body);
            return;
        }
        for (int64_t each = 0; each < league->lane_size; each++)
            lane[each] = league->lane[(league->lane_head + each) & (before_room - 1)];
        free(league->lane);
        league->lane = lane;
        league->lane_room = room;
        league->lane_head = 0;
    }
    underway_t *last = league->lane + ((league->lane_head + league->lane_size++) & (league->lane_room - 1));
    last->at = at;
    last->number = ++league->number;
    last->message = *message;
}

/* own: ticks to come: a set of (machine, time), open addressing, removal by shifting back. */
static int64_t wake_slot(const wakes_t *wakes, int32_t whose, int64_t at)
{
    uint64_t word = ((uint64_t)at * UINT64_C(0x9E3779B97F4A7C15)) ^ (uint64_t)(uint32_t)whose;
    word *= UINT64_C(0xBF58476D1CE4E5B9);
    return (int64_t)(word >> 32 & (uint64_t)(wakes->size - 1));
}

/* own: the set of ticks to come. */
static bool grow_wakes(league_t *league)
{
    wakes_t *wakes = &league->wakes, old = *wakes;
    int64_t size = old.size ? 2 * old.size : 1024;
    int64_t *at = malloc((size_t)size * sizeof *at), *whose = malloc((size_t)size * sizeof *whose);
    if (!must(league, at && whose, OUT_OF_MEMORY)) {
        free(at);
        free(whose);
        return false;
    }
    *wakes = (wakes_t){at, whose, size, old.count};
    for (int64_t slot = 0; slot < size; slot++)
        whose[slot] = NONE;
    for (int64_t each = 0; each < old.size; each++) {
        if (old.whose[each] == NONE)
            continue;
        int64_t slot = wake_slot(wakes, (int32_t)old.whose[each], old.at[each]);
        while (whose[slot] != NONE)
            slot = (slot + 1) & (size - 1);
        at[slot] = old.at[each];
        whose[slot] = old.whose[each];
    }
    free(old.at);
    free(old.whose);
    return true;
}

/* own: note a tick; false if that machine already gets one at that time. */
bool wake_later(league_t *league, int32_t whose, int64_t at)
{
    wakes_t *wakes = &league->wakes;
    if (2 * (wakes->count + 1) > wakes->size && !grow_wakes(league))
        return false;
    int64_t slot = wake_slot(wakes, whose, at);
    for (; wakes->whose[slot] != NONE; slot = (slot + 1) & (wakes->size - 1))
        if (wakes->whose[slot] == whose && wakes->at[slot] == at)
            return false;
    wakes->at[slot] = at;
    wakes->whose[slot] = whose;
    wakes->count++;
    return true;
}

/* own: the tick has come. */
void woken(league_t *league, int32_t whose, int64_t at)
{
    wakes_t *wakes = &league->wakes;
    int64_t last = wakes->size - 1, slot = wake_slot(wakes, whose, at);
    while (wakes->whose[slot] != NONE && !(wakes->whose[slot] == whose && wakes->at[slot] == at))
        slot = (slot + 1) & last;
    if (!must(league, wakes->whose[slot] != NONE, "a tick that nobody asked for"))
        return;
    wakes->count--;
    for (int64_t next = (slot + 1) & last; wakes->whose[next] != NONE; next = (next + 1) & last) {
        int64_t home = wake_slot(wakes, (int32_t)wakes->whose[next], wakes->at[next]);
        if (((next - home) & last) < ((next - slot) & last))
            continue; /* it would move before its home */
        wakes->at[slot] = wakes->at[next];
        wakes->whose[slot] = wakes->whose[next];
        slot = next;
    }
    wakes->whose[slot] = NONE;
}

/* own: the list of effects. */
command_t *new_command(league_t *league, int64_t kind)
{
    if (!grow(league, (void **)&league->out, &league->out_room, league->out_size + 1, sizeof(command_t)))
        return NULL;
    command_t *command = league->out + league->out_size++;
    command->kind = kind;
    command->message.body = NULL;
    return command;
}

/* own: the upper and lower half of a product of two words, one folded onto the other. */
static uint64_t fold(uint64_t one, uint64_t other)
{
    uint64_t a = one >> 32, b = one & UINT32_MAX, c = other >> 32, d = other & UINT32_MAX;
    uint64_t low = b * d, middle = a * d + (low >> 32), cross = b * c + (middle & UINT32_MAX);
    return one * other ^ (a * c + (middle >> 32) + (cross >> 32));
}

/* mirrors policy/hashing.py hash_numbers */
uint64_t mix(uint64_t seed, const uint64_t *values, int count)
{
    uint64_t word = seed ^ UINT64_C(0x6A09E667F3BCC909);
    for (int each = 0; each < count; each++)
        word = word * UINT64_C(0x9E3779B97F4A7C15) ^ values[each];
    return fold(fold(word, UINT64_C(0xBF58476D1CE4E5B9)), UINT64_C(0x94D049BB133111EB));
}

/* own: a part of next_bit. */
static inline int64_t lowest_bit(uint64_t word)
{
#if defined(__GNUC__)
    return __builtin_ctzll(word);
#else
    int64_t at = 0;
    for (; !(word & 1); word >>= 1)
        at++;
    return at;
#endif
}

/* own: the first bit that is set in [from, past), or NONE. */
int64_t next_bit(const uint64_t *words, int64_t from, int64_t past)
{
    if (from >= past)
        return NONE;
    int64_t word = from >> 6, last = (past - 1) >> 6;
    uint64_t bits = words[word] & ~UINT64_C(0) << (from & 63);
    while (!bits && word < last)
        bits = words[++word];
    if (!bits)
        return NONE;
    int64_t at = word * 64 + lowest_bit(bits);
    return at < past ? at : NONE;
}

/* own: memory. */
void free_store(league_t *league)
{
    for (int64_t each = 0; each < league->lane_size; each++)
        return_body(league, league->lane[(league->lane_head + each) & (league->lane_room - 1)].message.body);
    for (int64_t each = 0; each < league->out_size; each++)
        if (league->out[each].kind == SEND)
            return_body(league, league->out[each].message.body);
    for (int class = 0; class < CLASSES; class++)
        for (void **next, **body = league->spare_bodies[class]; body; body = next) {
            next = body[1];
            free(body);
        }
    for (int64_t each = 0; each < league->owned_count; each++)
        free(league->owned[each]);
    free(league->owned);
    free(league->lane);
    free(league->heap);
    free(league->out);
    free(league->wakes.at);
    free(league->wakes.whose);
    free(league->over.at);
    free(league->report.at);
}
