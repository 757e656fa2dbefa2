/* Expected transfers: twin of transfer_times.py. */
#include "transfers.h"

/* The rack of the nearest replica of a job, as find_source of links.c has it. */
static int64_t nearest_replica(const world_t *w, int64_t job, int64_t rack)
{
    int64_t cluster = w->c.rack_cluster[rack], found = NONE;
    double fastest = -1.0;
    int nearest = 3;
    for (int each = 0; each < REPLICAS_MAX; each++) {
        int64_t source = w->c.replica_rack[job * REPLICAS_MAX + each];
        if (source == NONE)
            continue;
        int64_t from = w->c.rack_cluster[source];
        int distance = source == rack ? 0 : from == cluster ? 1 : 2;
        double speed = distance < 2 ? 0.0 : w->c.wan_flow_max[from * w->n.clusters + cluster];
        if (distance < nearest || (distance == nearest && speed > fastest)) {
            nearest = distance;
            fastest = speed;
            found = source;
        }
    }
    return found;
}

static double lesser_share(const world_t *w, double rate, int64_t link, double newcomers)
{
    double share = w->links[link].capacity / ((double)world_link_flows(w, link) + newcomers);
    return share < rate ? share : rate;
}

void expected_transfers(const world_t *w, int64_t job, double bytes, double newcomers, double *rack_seconds)
{
    for (int64_t rack = 0; rack < w->n.racks; rack++) {
        int64_t source = bytes > 0.0 ? nearest_replica(w, job, rack) : NONE;
        if (source == NONE) {
            rack_seconds[rack] = 0.0;
            continue;
        }
        int64_t from = w->c.rack_cluster[source], to = w->c.rack_cluster[rack];
        double rate = w->k.rack_flow_max;
        if (source != rack) {
            rate = from == to ? w->k.lan_flow_max : w->c.wan_flow_max[from * w->n.clusters + to];
            rate = lesser_share(w, rate, source, newcomers);
            if (from != to) {
                rate = lesser_share(w, rate, w->n.racks + from, newcomers);
                rate = lesser_share(w, rate, w->n.racks + to, newcomers);
            }
            rate = lesser_share(w, rate, rack, newcomers);
        }
        rack_seconds[rack] = bytes / rate;
    }
}
