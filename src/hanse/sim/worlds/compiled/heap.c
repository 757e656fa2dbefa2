/* An indexed heap: the item with the least (time, tie), and any item moved or taken out by its number. */
#include "world.h"

#include <stdlib.h>

bool heap_make(heap_t *h, int64_t items)
{
    size_t count = (size_t)(items > 0 ? items : 1);
    h->time = malloc(count * sizeof *h->time);
    h->tie = malloc(count * sizeof *h->tie);
    h->place = malloc(count * sizeof *h->place);
    h->items = malloc(count * sizeof *h->items);
    h->size = 0;
    if (!h->time || !h->tie || !h->place || !h->items)
        return false;
    for (size_t item = 0; item < count; item++)
        h->place[item] = NONE;
    return true;
}

void heap_free(heap_t *h)
{
    free(h->time);
    free(h->tie);
    free(h->place);
    free(h->items);
}

static bool before(const heap_t *h, int64_t one, int64_t other)
{
    if (h->time[one] != h->time[other])
        return h->time[one] < h->time[other];
    return h->tie[one] < h->tie[other];
}

static void put(heap_t *h, int64_t place, int64_t item)
{
    h->items[place] = (int32_t)item;
    h->place[item] = (int32_t)place;
}

static void rise(heap_t *h, int64_t place, int64_t item)
{
    while (place > 0) {
        int64_t parent = (place - 1) / 2;
        if (!before(h, item, h->items[parent]))
            break;
        put(h, place, h->items[parent]);
        place = parent;
    }
    put(h, place, item);
}

static void sink(heap_t *h, int64_t place, int64_t item)
{
    for (int64_t child; (child = 2 * place + 1) < h->size; place = child) {
        if (child + 1 < h->size && before(h, h->items[child + 1], h->items[child]))
            child++;
        if (!before(h, h->items[child], item))
            break;
        put(h, place, h->items[child]);
    }
    put(h, place, item);
}

void heap_set(heap_t *h, int64_t item, int64_t time, int64_t tie)
{
    int64_t place = h->place[item];
    if (place == NONE) {
        place = h->size++;
    } else if (h->time[item] == time && h->tie[item] == tie) {
        return;
    }
    h->time[item] = time;
    h->tie[item] = tie;
    if (place > 0 && before(h, item, h->items[(place - 1) / 2]))
        rise(h, place, item);
    else
        sink(h, place, item);
}

void heap_remove(heap_t *h, int64_t item)
{
    int64_t place = h->place[item];
    if (place == NONE)
        return;
    h->place[item] = NONE;
    int64_t moved = h->items[--h->size];
    if (moved == item)
        return;
    if (place > 0 && before(h, moved, h->items[(place - 1) / 2]))
        rise(h, place, moved);
    else
        sink(h, place, moved);
}
