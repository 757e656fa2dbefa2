/* Expected transfers, for policies that reckon with them. */
#ifndef HANSE_WORLD_TRANSFERS_H
#define HANSE_WORLD_TRANSFERS_H

#include "world.h"

/* Seconds in which a task of a job would read so many bytes in each rack, from the nearest replica, at the present
 * flows of the links and `newcomers` more. */
void expected_transfers(const world_t *w, int64_t job, double bytes, double newcomers, double *rack_seconds);

#endif
